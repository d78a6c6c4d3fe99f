"""`dovetail tune`: the frontier of bill against restarts for your cluster, and the setting that you should pick."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError
from dovetail.cli.inputs import add_input_options, add_output_option, load_question, note_input
from dovetail.cli.live_cluster import add_cluster_options, capture_live
from dovetail.cli.output import print_bytes, print_json, print_lines, print_page, yaml_bytes
from dovetail.cli.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.sim.compare import Task
    from dovetail.sim.ledger import Result
    from dovetail.sim.scenarios.scenario import Policy, Scenario
    from dovetail.sim.tune import Tuning

_EPILOG = """\
Tries Karpenter's own settings (consolidateAfter, Balanced, WhenEmpty) and
Dovetail's on what really happened, and picks the one with the least total: bill
plus price times restarts. Nothing is picked where the replay of today's policy
does not agree with what really happened, or where chance decides.

On a recording of more than 32 hours, all policies play 7 short stretches
of it first, the better ones 7 more, and the best the whole. A policy is dropped
if another one surely (two standard errors) is at most 1 % dearer, restarts at
most 5 % more, and has no larger total; whole runs then check each drop again.

examples:
  dovetail record -o last-week --for 168h
  dovetail tune last-week --restart-price 0.01
  dovetail tune last-week -o yaml > patch.yaml
  dovetail tune last-week --keep runs          a second start goes on from there
  dovetail tune -f cluster.json.gz             without a recording: a day like the last
  dovetail tune --trace pods.csv.gz            pods of a trace, in the pool of trace-replay
"""
_MOST_SEEDS = 20


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "tune",
        help="find the setting that fits your cluster: bill against restarts",
        description="Finds the frontier of bill against restarts for your cluster, and the policy to pick on it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recording", metavar="RECORDING", nargs="?", help="what `dovetail record` wrote")
    parser.add_argument(
        "--restart-price", metavar="D", default=None, help="dollars a restart is worth (default: 0.005)"
    )
    parser.add_argument("--seeds", metavar="N", type=int, default=2, help="runs of each policy (default: 2)")
    parser.add_argument("--trace", metavar="FILE", help="a trace of pods, as `dovetail simulate trace-replay` takes it")
    parser.add_argument(
        "--for", dest="length", metavar="D", default="24h", help="with -f or --trace: how long to run (24h)"
    )
    parser.add_argument(
        "--whole", action="store_true", help="play all of a long recording with every policy; drop none early"
    )
    parser.add_argument("--engine", metavar="E", default="local", help="local, or dask://HOST:PORT")
    parser.add_argument("--keep", metavar="DIR", help="keep each run in this folder as it ends")
    add_input_options(parser)
    add_cluster_options(parser)
    add_output_option(parser, ("text", "json", "html", "yaml"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Try all policies and print."""
    from dovetail.cli.simulation.sweep import run_tasks_kept
    from dovetail.sim.halving import plan_of, search
    from dovetail.sim.tune import RESTART_PRICE, choices, more_choices, tuning_of

    try:
        price = RESTART_PRICE if args.restart_price is None else float(args.restart_price)
    except ValueError:
        price = -1.0
    if not 0 <= price <= 1e6:
        raise InputError(f"--restart-price is {args.restart_price}; write dollars, 0 or more, such as 0.005")
    if not 1 <= args.seeds <= _MOST_SEEDS:
        raise InputError(f"--seeds is {args.seeds}; write a number from 1 to {_MOST_SEEDS}")
    if (args.recording is not None) + bool(args.files) + (args.trace is not None) != 1:
        raise InputError("give one of a RECORDING, a captured cluster with -f FILE, and a trace with --trace FILE")
    scenario, today, calibrate = _load(args)
    tried = (*choices(), *(more_choices() if args.recording is not None else ()))
    policies = [today, *(choice.policy() for choice in tried)]
    plan = None if args.whole else plan_of(scenario)

    def play(label: str, tasks: "Sequence[Task]") -> "Sequence[Result]":
        with progress_bar(label) as progress:
            return run_tasks_kept(tasks, args, progress)

    found = search(scenario, policies, args.seeds, price, plan, play)
    tuning = tuning_of(
        today,
        tried,
        found,
        pools=() if scenario.captured is None else scenario.captured.node_pools,
        restart_price=price,
        calibration=calibrate(found.whole[0]),
    )
    _write(tuning, args)
    return 0


def _load(args: argparse.Namespace) -> "tuple[Scenario, Policy, Any]":
    """Return what to run, today's policy, and how to compare its runs with what really happened."""
    if args.recording is not None:
        return _recorded(args)
    return _captured(args) if args.trace is None else _traced(args)


def _traced(args: argparse.Namespace) -> "tuple[Scenario, Policy, Any]":
    """Return the scenario of a trace; nobody knows what it cost, so there is nothing to compare with."""
    from dataclasses import replace

    from dovetail.cli.simulation.whatif import length_of
    from dovetail.model.settings import KARPENTER_1_15
    from dovetail.sim.recorded import TODAY
    from dovetail.sim.scenarios.scenario import Policy, load_scenario, with_trace

    scenario = replace(with_trace(load_scenario("trace-replay"), args.trace), until=length_of(args.length))
    return replace(scenario, figures_only=True), Policy(name=TODAY, settings=KARPENTER_1_15), lambda results: None


def _recorded(args: argparse.Namespace) -> "tuple[Scenario, Policy, Any]":
    from dovetail.api.settings import load_settings
    from dovetail.cli.recorded import load_recorded
    from dovetail.sim.recorded import calibrate_recorded, name_of, policy_of_today, recorded_scenario
    from dovetail.sim.recorded_bill import recorded_cost

    recording, catalogue = load_recorded(Path(args.recording), args.catalog)
    settings = load_settings(args.settings)
    today = policy_of_today(recording, settings)
    scenario = recorded_scenario(recording, catalogue, (today,), settings.tariff)
    cost = recorded_cost(recording, catalogue, settings.tariff)
    return scenario, today, lambda results: calibrate_recorded(recording, results, name_of(today), cost)


def _captured(args: argparse.Namespace) -> "tuple[Scenario, Policy, Any]":
    from dataclasses import replace

    from dovetail.api.settings import settings_words
    from dovetail.cli.simulation.whatif import length_of
    from dovetail.sim.recorded import TODAY
    from dovetail.sim.whatif import WhatIf, calibration_of, check, karpenter_of

    question = load_question(args, capture=lambda: capture_live(args))
    note_input(question.cluster)
    asked = WhatIf(
        cluster=question.cluster,
        catalogue=question.catalogue,
        now=question.now,
        length=length_of(args.length),
        words={} if question.settings.rules.plays_karpenter else settings_words(args.settings),
        karpenter=karpenter_of(question.settings),
        seeds=args.seeds,
    )
    check(asked)
    today = replace(asked.columns()[0], name=TODAY)
    return asked.scenario(), today, lambda results: calibration_of(asked, results)


def _write(tuning: "Tuning", args: argparse.Namespace) -> None:
    document = tuning.to_dict()
    if args.output == "json":
        print_json(document)
    elif args.output == "yaml":
        settings = yaml_bytes(document["settings"]).decode() if document["settings"] else ""
        head = [document["why"], *(["settings of the controller:", *settings.splitlines()] if settings else [])]
        print_bytes("".join(f"# {line}\n" for line in head).encode() + yaml_bytes(document["patch"]))
    elif args.output == "html":
        from dovetail.sim.pages.tune import tune_page

        print_page(tune_page(document))
    else:
        print_lines(as_lines(document))
        print("note: -o yaml prints the patch and the settings", file=sys.stderr)


def as_lines(document: dict[str, Any]) -> list[str]:
    """Return the choice, the calibration and the table, cheapest first."""
    from dovetail.report.table import paragraph, text_table

    rows = []
    for entry in document["frontier"]:
        mark = ">" if entry["policy"] == document["chosen"] else " " if entry["beaten"] else "*"
        total = entry["cost"] + document["restartPrice"] * entry["podsDisrupted"]
        rows.append(
            (
                mark,
                entry["policy"],
                f"${entry['cost']:.3f}",
                f"{entry['podsDisrupted']:.0f}",
                f"{entry['podsDisruptedMoreThanOnce']:.0f}",
                f"{entry['shortLivedNodes']:.0f}",
                f"${total:.3f}",
            )
        )
    head = ("", "POLICY", "BILL", "RESTARTS", "TWICE+", "<15M", "TOTAL")
    calibration = document["calibration"]
    return [
        *paragraph(document["why"]),
        *(paragraph(calibration["why"]) if calibration is not None and calibration["reliable"] else []),
        "",
        *text_table(head, rows, right=range(2, 7), flexible=(1,)),
        "",
        "> chosen; * no other is both cheaper and calmer; TWICE+: pods restarted more than once",
        f"<15M: nodes that lived under 15 minutes; TOTAL: bill plus ${document['restartPrice']:g} a restart",
        *_dropped_lines(document),
    ]


def _dropped_lines(document: dict[str, Any]) -> list[str]:
    from dovetail.report.table import text_table

    if not document["dropped"]:
        return []
    rows = [(each["policy"], f"{each['hours']:.0f} h", each["why"]) for each in document["dropped"]]
    recalled = [f"dropped, then recalled: {', '.join(document['recalled'])}"] if document["recalled"] else []
    return ["", *text_table(("DROPPED", "AFTER", "BECAUSE"), rows, right=(1,), flexible=(0, 2)), *recalled]
