"""`dovetail simulate`: a scenario under one or more policies, same seed, same world."""

import argparse
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError
from dovetail.cli.inputs import add_output_option
from dovetail.cli.output import print_json, print_page
from dovetail.cli.progress import progress_bar

if TYPE_CHECKING:
    from dovetail.sim.compare import Comparison
    from dovetail.sim.scenarios.scenario import Policy, Scenario

_EPILOG = """\
SCENARIO is a file, or the name of one that comes with dovetail (--list shows
them). A policy file holds `profile: dovetail|karpenter-1.9 to karpenter-1.15`,
`disruption: {...}` as in a NodePool, and `settings: {...}`.

examples:
  dovetail simulate issue-7146
  dovetail simulate issue-7146 --policy mine=policy.yaml --seed 3
  dovetail simulate image-roll --until 2h -o json
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "simulate",
        help="run a scenario under one or more policies",
        description="Runs a scenario under one or more policies: the same seed, the same world.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scenario", metavar="SCENARIO", nargs="?", help="a YAML file, a shipped scenario's name, or a recording"
    )
    parser.add_argument("--catalog", metavar="C", help="with a recording: types and prices")
    parser.add_argument(
        "--policy",
        metavar="NAME[=FILE]",
        action="append",
        default=[],
        help="a policy of the scenario by name, or one from a file; may be given several times",
    )
    parser.add_argument("--until", metavar="DURATION", help="how long to simulate, such as 2h; the scenario's own else")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="the world's seed (default 0)")
    parser.add_argument("--trace", metavar="FILE", help="the trace that a replaying scenario takes its pods from")
    parser.add_argument("--list", action="store_true", help="list the scenarios that come with dovetail")
    add_output_option(parser, ("text", "json", "html"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run and print."""
    from dovetail.cli.recorded import calibration_of_course, load_course, with_today
    from dovetail.sim.compare import compare
    from dovetail.sim.scenarios.scenario import with_trace

    if args.list:
        _list()
        return 0
    if args.scenario is None:
        raise InputError("name a scenario: a YAML file, or one that `dovetail simulate --list` shows")
    scenario = load_course(args.scenario, args.catalog)
    if scenario.recorded is not None:
        scenario = replace(scenario, figures_only=args.output != "html")
    if args.trace is not None:
        scenario = with_trace(scenario, args.trace)
    policies = with_today(scenario, chosen_policies(scenario, args.policy))
    with progress_bar(f"simulating {scenario.name}") as progress:
        found = compare(scenario, policies, args.seed, parse_until(args.until), progress)
    calibration = calibration_of_course(scenario, found.results)
    if calibration is not None:
        found = replace(found, calibration=calibration)
    write(found, args.output, again(args))
    return 1 if any(result.violations for result in found.results) else 0


def _list() -> None:
    from dovetail.sim.scenarios.scenario import load_scenario, shipped

    for name in shipped():
        scenario = load_scenario(name)
        print(f"{name}: {scenario.about}")


def parse_until(text: str | None) -> int | None:
    """Return the length of a run in nanoseconds; None for the scenario's own."""
    from dovetail.model.timing.duration import DurationError, parse_simple

    if text is None:
        return None
    try:
        length = parse_simple(text, "smhd")
    except DurationError as error:
        raise InputError(f"--until: {error}") from None
    if length <= 0:
        raise InputError("--until: nothing happens in no time; write a duration such as 2h")
    return length


def chosen_policies(scenario: "Scenario", wanted: list[str]) -> "tuple[Policy, ...]":
    """Return the policies that were asked for: the scenario's own by name, others from files; all of its own else."""
    from dovetail.sim.scenarios.scenario import load_policy, recommended_policy

    if not wanted:
        return scenario.policies
    recommended = recommended_policy()
    own = {policy.name: policy for policy in scenario.policies}
    own.setdefault(recommended.name, recommended)
    found = []
    for entry in wanted:
        name, equals, file = entry.partition("=")
        if equals:
            found.append(load_policy(name, file))
        elif name in own:
            found.append(own[name])
        else:
            raise InputError(
                f"--policy {name}: {scenario.name} has no such policy; write NAME=FILE or one of: {', '.join(own)}"
            )
    names = [policy.name for policy in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"--policy {twice}: given twice; write another name for the second")
    return tuple(found)


def again(args: argparse.Namespace) -> str:
    """Return the command that repeats a run: the file that was given, and every option that changes the result."""
    words = ["dovetail", "simulate", args.scenario, *(word for entry in args.policy for word in ("--policy", entry))]
    words += ["--until", args.until] if args.until else []
    words += ["--trace", args.trace] if args.trace else []
    words += ["--catalog", args.catalog] if args.catalog else []
    return shlex.join([*words, "--seed", str(args.seed)])


def write(found: "Comparison", output: str, repeat: str) -> None:
    """Print a comparison; `repeat` is the command that gives it again."""
    if output == "json":
        print_json(found.figures())
    elif output == "html":
        print_page(as_page(found, repeat))
    else:
        print(as_text(found))


def as_page(found: "Comparison", repeat: str) -> str:
    """Return one self-contained page."""
    from dovetail import __version__
    from dovetail.sim.pages.run_page import simulation_page

    return simulation_page(found.story(), f"Simulated by dovetail {__version__}; repeat it with: {repeat}")


_HEAD = ("POLICY", "NODES", "NEW", "<15M", "RESTARTS", "TWICE+", "MOST", "WAITED", "COST")
_LEGEND = (
    "NODES: at the start → at the end; NEW: launched; <15M: nodes that lived under 15 minutes; RESTARTS: pods that a "
    "node's end restarted; TWICE+: pods restarted more than once, MOST: the most often; WAITED: pods without a node."
)
_ROLL_LEGEND = (
    "NODES: at the start → at the end; AT ONCE, ZONES: how many nodes, and zones with such nodes, were leaving at the "
    "same time at most; RESTARTS: pods that a node's end restarted; TWICE+: pods restarted more than once; WAITED: "
    "pods without a node."
)


def as_text(found: "Comparison") -> str:
    """Return a table, and what was broken if anything was."""
    from dovetail.model.timing.duration import format_duration
    from dovetail.report.table import paragraph, text_table
    from dovetail.sim.pages.story import nodes_at_once, theme, zones_at_once

    rows = [_row(entry) for entry in found.figures()["policies"]]
    head: tuple[str, ...] = _HEAD
    legend, about = [_LEGEND], theme(found.results)
    if about in ("drifted", "expired"):  # a roll is about what leaves together, which the other figures don't show
        head, legend = (*_HEAD[:2], "AT ONCE", "ZONES", *_HEAD[4:6], *_HEAD[7:]), [_ROLL_LEGEND]
        rows = [
            (*row[:2], str(nodes_at_once(result, about)), str(zones_at_once(result, about)), *row[4:6], *row[7:])
            for row, result in zip(rows, found.results, strict=True)
        ]
    lines = [] if found.calibration is None else [found.calibration.why, ""]
    lines += [f"{found.scenario}, seed {found.seed}, {format_duration(found.until)}", ""]
    lines += text_table(head, rows, right=range(1, len(head)), flexible=(0,))
    lines += ["", *(line for text in legend for line in paragraph(text))]
    for result in found.results:
        lines += [f"{result.policy}: broken promise {v.rule} at {v.at} s: {v.what}" for v in result.violations[:5]]
    return "\n".join(lines)


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    return (
        entry["policy"],
        f"{entry['nodesAtStart']} → {entry['nodesAtEnd']}",
        str(entry["nodesStarted"]),
        str(entry["shortLivedNodes"]),
        str(entry["podsDisrupted"]),
        str(entry["podsDisruptedMoreThanOnce"]),
        f"{entry['podsDisruptedMost']} x",
        f"{entry['pendingPodSeconds']:.0f} s",
        f"${float(entry['cost']):.2f}",
    )
