"""`dovetail regret`: what was undone in a recording, by pool, and which knob would have helped."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError
from dovetail.cli.cluster.record import watch_into, watch_side_by_side, watched_for
from dovetail.cli.inputs import add_output_option
from dovetail.cli.live_cluster import add_cluster_options
from dovetail.cli.many import answers_of, clusters_of, named_by_path, print_many
from dovetail.cli.output import print_json, print_lines
from dovetail.cli.progress import progress_bar

if TYPE_CHECKING:
    from dovetail.model.catalogue import Catalogue
    from dovetail.recordings.read import ClusterRecording
    from dovetail.recordings.regret import PoolRegret

_EPILOG = """\
A removal is undone if a node had to be opened in its pool for pending pods
within the hour. The knobs are tried on the same recording in the simulator;
--no-advice skips that.

examples:
  dovetail regret last-week
  dovetail regret last-week --no-advice -o json
  dovetail regret --live --for 4h               watch first
  dovetail regret eu/last-week us/last-week     several clusters
  dovetail regret --live --context eu,us        the same, watched first
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "regret",
        help="what was undone in a recording, by pool, and what would have helped",
        description="Shows for each pool how many moves were undone within the hour, how many nodes lived under 15 "
        "minutes, and what each knob would have saved.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "recordings", metavar="RECORDING", nargs="*", help="what `dovetail record` wrote; of several clusters, one each"
    )
    parser.add_argument("--live", action="store_true", help="watch the cluster of the kubeconfig first, then answer")
    parser.add_argument("--for", dest="length", metavar="D", default="1h", help="with --live: how long (1h, or Ctrl-C)")
    parser.add_argument("--catalog", metavar="C", help="types and prices: aws:REGION or a JSON file")
    parser.add_argument("--no-advice", action="store_true", help="only what happened; simulate nothing")
    add_cluster_options(parser)
    add_output_option(parser, ("text", "json"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Count, ask the simulator and print."""
    if args.live == bool(args.recordings):
        raise InputError("give a RECORDING, or --live to watch the cluster of the kubeconfig, not both")
    clusters = _clusters(args)
    with TemporaryDirectory() as kept:
        if clusters:
            return _many(args, clusters, Path(kept))
        if args.live:
            watch_into(args, Path(kept))
        return _print(args, _found(args, kept if args.live else args.recordings[0]))


def _clusters(args: argparse.Namespace) -> list[argparse.Namespace]:
    """Return the options of each cluster; empty if there is only one."""
    if args.live:
        watched_for("--for", args.length)
        return clusters_of(args)
    return named_by_path(args, args.recordings) if len(args.recordings) > 1 else []


def _many(args: argparse.Namespace, clusters: list[argparse.Namespace], kept: Path) -> int:
    """Print what was undone in several clusters; live ones are watched first, all at the same time."""
    from dovetail.recordings.regret import RegretFigures

    folders = {own.cluster: kept / str(place) for place, own in enumerate(clusters)}

    def watch(reached: Sequence[argparse.Namespace]) -> dict[str, str]:
        return watch_side_by_side({folders[own.cluster]: own for own in reached}) if args.live else {}

    def ask(own: argparse.Namespace) -> "tuple[dict[str, Any], RegretFigures]":
        found = _found(own, str(folders[own.cluster]) if args.live else own.files[0])
        return found, RegretFigures.of(found["pools"])

    return print_many(args, answers_of(clusters, ask, watch), RegretFigures())


def _print(args: argparse.Namespace, document: dict[str, Any]) -> int:
    if args.output == "json":
        print_json(document)
    else:
        print_lines(_lines(document))
    return 0


def _found(args: argparse.Namespace, where: str) -> dict[str, Any]:
    """Return what was undone in a recording, and what would have helped."""
    from dovetail.cli.recorded import catalogue_of_recorded, load_only_recorded
    from dovetail.recordings.regret import regrets

    path = Path(where)
    recording = load_only_recorded(path)
    pools = regrets(recording)
    calibration = None
    if not args.no_advice and any(pool.moves or pool.short_lived_nodes for pool in pools):
        calibration = _advise(catalogue_of_recorded(path, recording, args.catalog), recording, pools)
    return {"pools": [pool.to_dict() for pool in pools], "calibration": calibration}


def _advise(catalogue: "Catalogue", recording: "ClusterRecording", pools: "list[PoolRegret]") -> dict[str, Any]:
    """Try each knob on every pool with regrets; add what it would have saved."""
    from dovetail.sim.recorded import play_recorded, policy_of_today
    from dovetail.sim.tune import Choice, choices

    knobs = [choice for choice in choices() if len(choice.fields) <= 1 and not choice.words and choice.fields]
    asked: list[tuple[PoolRegret, Choice]] = [
        (pool, choice) for pool in pools if pool.moves or pool.short_lived_nodes for choice in knobs
    ]
    from dataclasses import replace

    policies = [
        replace(choice.policy(), name=f"{pool.node_pool} {choice.name}", pools=(pool.node_pool,))
        for pool, choice in asked
    ]
    today = policy_of_today(recording)
    with progress_bar(f"{len(policies) + 1} policies") as progress:
        played = play_recorded(recording, catalogue, (today, *policies), 1, progress)
    base = played.results[0][0]
    for (pool, choice), (result,) in zip(asked, played.results[1:], strict=True):
        pool.advice.append(
            {
                "set": choice.to_set(),
                "would": {
                    "cost": round((result.cost - base.cost) / 10**18, 4),
                    "podsDisrupted": result.pods_disrupted - base.pods_disrupted,
                    "shortLivedNodes": result.short_lived_nodes - base.short_lived_nodes,
                },
            }
        )
    for pool in pools:
        pool.advice.sort(key=lambda entry: entry["would"]["cost"] + 0.005 * entry["would"]["podsDisrupted"])
    return played.calibration.to_dict()


def _lines(document: dict[str, Any]) -> list[str]:
    from dovetail.report.table import text_table

    lines: list[str] = []
    if document["calibration"] is not None:
        lines += [document["calibration"]["why"], ""]
    head = ("POOL", "RESTARTS", "UNDONE IN 1H", "NODES REOPENED", "<15M", "MOVED AGAIN")
    rows = [
        (
            pool["nodePool"],
            str(pool["moves"]),
            str(pool["undoneWithinTheHour"]),
            str(pool["removalsUndone"]),
            str(pool["shortLivedNodes"]),
            str(pool["movedMoreThanOnce"]),
        )
        for pool in document["pools"]
    ]
    lines += text_table(head, rows, right=range(1, 6), flexible=(0,))
    for pool in document["pools"]:
        for entry in pool["advice"][:3]:
            words = ", ".join(f"{key}={value}" for key, value in entry["set"].items())
            would = entry["would"]
            lines.append(
                f"{pool['nodePool']}: {words} would have changed the bill by ${would['cost']:+.3f} and the restarts by "
                f"{would['podsDisrupted']:+d}."
            )
    return [*lines, "", "UNDONE IN 1H: restarts of removals after which a node had to be opened within the hour."]
