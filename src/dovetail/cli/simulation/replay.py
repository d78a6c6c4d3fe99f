"""`dovetail replay RECORDING`: a recording of a real run, played again in the simulator under several policies."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError
from dovetail.cli.inputs import add_output_option
from dovetail.cli.output import print_json, print_lines
from dovetail.cli.progress import progress_bar

if TYPE_CHECKING:
    from dovetail.sim.scenarios.scenario import Policy

_EPILOG = """\
A recording holds the NodePool, the Deployments and every scale step of a real
run, and what came of it. TYPES are instance types in the form that Karpenter's
kwok provider reads. Figures are means over the seeds.

examples:
  dovetail replay recording.json.gz --types types.json
  dovetail replay recording.json.gz --types types.json --seeds 20 -o json
  dovetail replay recording.json.gz --types types.json --policy mine=policy.yaml
"""
_SEEDS_MAX = 1000


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "replay",
        help="play a recording of a real run again under other policies",
        description="Plays a recording of a real run again in the simulator, on several seeds, and compares policies.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recording", metavar="RECORDING", help="a JSON file, plain or .gz")
    parser.add_argument("--types", metavar="FILE", required=True, help="instance types, as kwok's provider reads them")
    parser.add_argument(
        "--policy",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="a policy from a file; by default karpenter-1.15, default and recommended",
    )
    parser.add_argument(
        "--seeds", metavar="N", type=int, default=5, help="how many runs to take the mean of (default: 5)"
    )
    add_output_option(parser, ("text", "json"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Play and print."""
    from dovetail.sim.replay import play_all, recorded
    from dovetail.sim.scenarios.recording import load_kwok_types, load_recording

    if not 1 <= args.seeds <= _SEEDS_MAX:
        raise InputError(f"--seeds is {args.seeds}; write a whole number from 1 to {_SEEDS_MAX}")
    policies = _policies(args.policy)
    recording, catalogue = load_recording(Path(args.recording)), load_kwok_types(Path(args.types))
    with progress_bar(f"{len(policies)} policies, {args.seeds} seeds") as progress:
        played = play_all(recording, catalogue, policies, args.seeds, progress)
    document: dict[str, Any] = {
        "recorded": recorded(recording, catalogue),
        "policies": [entry.to_dict() for entry in played],
    }
    if args.output == "json":
        print_json(document)
    else:
        print_lines(_lines(document, args.seeds))
    return 1 if any(entry["violations"] for entry in document["policies"]) else 0


def _policies(words: list[str]) -> "tuple[Policy, ...]":
    from dovetail.sim.replay import default_policies
    from dovetail.sim.scenarios.scenario import load_policy

    known = default_policies()
    if not words:
        return known
    found = []
    for word in words:
        name, equals, file = word.partition("=")
        own = next((policy for policy in known if policy.name == name), None)
        if not equals and own is not None:
            found.append(own)
        elif not equals or not name or not file:
            names = ", ".join(policy.name for policy in known)
            raise InputError(f"--policy {word}: write NAME=FILE, or one of: {names}")
        else:
            found.append(load_policy(name, file))
    names_given = [policy.name for policy in found]
    twice = next((name for name in names_given if names_given.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"--policy {twice}: given twice; write another name for the second")
    return tuple(found)


def _lines(document: dict[str, Any], seeds: int) -> list[str]:
    from dovetail.report.table import text_table

    rows = []
    if document["recorded"] is not None:
        rows.append(_row("recorded", document["recorded"]))
    rows += [_row(entry["policy"], entry) for entry in document["policies"]]
    head = ("POLICY", "COST", "RESTARTS", "TWICE+", "<15M", "NODE HOURS", "COMMANDS")
    table = text_table(head, rows, right=range(1, 7), flexible=(0,))
    return [*table, "", f"Means of {seeds} seed{'' if seeds == 1 else 's'}."]


def _row(name: str, entry: dict[str, Any]) -> tuple[str, ...]:
    twice = entry.get("podsDisruptedMoreThanOnce")
    return (
        name,
        f"${entry['cost']:.3f}",
        f"{entry['podsDisrupted']:.1f}",
        "-" if twice is None else f"{twice:.1f}",
        f"{entry['shortLivedNodes']:.1f}",
        f"{entry['nodeHours']:.2f}",
        f"{entry['commands']:.1f}",
    )
