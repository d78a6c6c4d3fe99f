"""`dovetail replay RECORDING`: a recording of a real run, played again in the simulator under several policies.

Takes what `dovetail record` writes, and the older single-file recordings of a test course (with `--types`).
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError
from dovetail.cli.inputs import add_output_option
from dovetail.cli.output import print_json, print_lines, print_page
from dovetail.cli.progress import progress_bar
from dovetail.report.words import count, span

if TYPE_CHECKING:
    from dovetail.recordings.read import ClusterRecording
    from dovetail.sim.ledger import Result
    from dovetail.sim.scenarios.scenario import Policy

_EPILOG = """\
Plays what `dovetail record` wrote: first under the policy that really ran, and
says how well that agrees with what really happened; then under others. Figures
are means over the seeds. --types reads instance types in the form of Karpenter's
kwok provider; single-file recordings of a test course need it.

examples:
  dovetail replay last-week --catalog aws:us-east-1
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
    parser.add_argument("recording", metavar="RECORDING", help="a folder that `dovetail record` wrote, or a .tar.gz")
    parser.add_argument("--catalog", metavar="C", help="types and prices: aws:REGION or a JSON file")
    parser.add_argument("--settings", metavar="FILE", help="the settings of the controller that ran, if one did")
    parser.add_argument("--types", metavar="FILE", help="in place of --catalog: types as kwok's provider reads them")
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
    add_output_option(parser, ("text", "json", "html"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Play and print."""
    from dovetail.recordings.read import is_recording
    from dovetail.sim.replay import play_all, recorded
    from dovetail.sim.scenarios.recording import load_kwok_types, load_recording

    if not 1 <= args.seeds <= _SEEDS_MAX:
        raise InputError(f"--seeds is {args.seeds}; write a whole number from 1 to {_SEEDS_MAX}")
    policies = _policies(args.policy)
    if is_recording(Path(args.recording)):
        return _replay_cluster(args, policies)
    if args.output == "html":
        raise InputError("-o html is for recordings of a cluster, as `dovetail record` writes them")
    if args.types is None:
        raise InputError(
            f"{args.recording} is not a recording of a cluster: give the folder that `dovetail record` wrote or a "
            ".tar.gz of it, or --types for a recording that is one JSON file"
        )
    recording, catalogue = load_recording(Path(args.recording)), load_kwok_types(Path(args.types))
    with progress_bar(f"{len(policies)} policies, {count(args.seeds, 'seed')}") as progress:
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


def _replay_cluster(args: argparse.Namespace, policies: "tuple[Policy, ...]") -> int:
    """Play a recording of a cluster: the policy that ran, then the others."""
    from dovetail.api.settings import load_settings
    from dovetail.cli.recorded import catalogue_of_recorded, load_only_recorded
    from dovetail.sim.recorded import TODAY, name_of, play_recorded, policy_of_today
    from dovetail.sim.scenarios.recording import load_kwok_types

    if args.types is not None and args.catalog is not None:
        raise InputError("--types and --catalog both name the instance types; leave one of them out")
    path = Path(args.recording)
    recording = load_only_recorded(path)
    if args.types is not None:
        catalogue = load_kwok_types(Path(args.types))
    else:
        catalogue = catalogue_of_recorded(path, recording, args.catalog)
    settings = load_settings(args.settings)
    today = policy_of_today(recording, settings)
    others = tuple(policy for policy in policies if policy.name != name_of(today))
    with progress_bar(f"{len(others) + 1} policies, {count(args.seeds, 'seed')}") as progress:
        played = play_recorded(
            recording,
            catalogue,
            (today, *others),
            args.seeds,
            progress,
            timeline=args.output == "html",
            tariff=settings.tariff or None,
        )
    document = played.to_dict()
    if args.output == "json":
        same = [policy.name for policy in policies if policy.name == name_of(today)]
        first, *rest = document["policies"]
        print_json({**document, "policies": [first, *({**first, "policy": name} for name in same), *rest]})
    elif args.output == "html":
        from dovetail.sim.recorded_timeline import real_result

        results = (real_result(recording, catalogue), *(each[0] for each in played.results))
        lead = " ".join([document["calibration"]["why"], *played.notes()])
        print_page(recorded_page(recording, results, args.recording, lead))
    else:
        print_lines([document["calibration"]["why"], *played.notes(), "", *_lines(document, args.seeds, TODAY)])
    return 1 if any(entry["violations"] for entry in document["policies"]) else 0


def recorded_page(recording: "ClusterRecording", results: "tuple[Result, ...]", name: str, lead: str = "") -> str:
    """Return the page of what really happened, beside the replays if there are some."""
    from dovetail import __version__
    from dovetail.report import page as html
    from dovetail.sim.pages.comparison import PolicyPage
    from dovetail.sim.pages.run_page import simulation_page

    first = results[0]
    shown = PolicyPage(
        scenario=Path(name).name, about="", seed=0, seconds=first.seconds, results=results, start=recording.begins
    )
    title = (
        f"{Path(name).name}: {count(first.pods_disrupted, 'restart')}, ${first.cost / 10**18:,.2f} in "
        f"{span(first.seconds)}"
    )
    footer = f"Dovetail {__version__}. `recorded` is what really happened; all else is simulated."
    return simulation_page(shown, footer, title=title, lead=html.text(lead, 2000))


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


def _lines(document: dict[str, Any], seeds: int, today: str = "") -> list[str]:
    from dovetail.report.table import text_table

    rows = []
    if document["recorded"] is not None:
        rows.append(_row("recorded", document["recorded"]))
    rows += [
        _row(f"{entry['policy']} (simulated)" if entry["policy"] == today else entry["policy"], entry)
        for entry in document["policies"]
    ]
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
