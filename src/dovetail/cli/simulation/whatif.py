"""`dovetail whatif`: a cluster run on for a day under its policy, Karpenter's, and the change you ask about."""

import argparse
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError
from dovetail.cli.inputs import (
    add_input_options,
    add_output_option,
    add_policy_option,
    load_question,
    names_settings,
    naming_the_culprit,
    note_input,
    with_controller,
)
from dovetail.cli.live_cluster import add_live_options, read_live
from dovetail.cli.names import one_of
from dovetail.cli.output import print_bytes, print_json, print_lines, print_page, yaml_bytes
from dovetail.cli.progress import timed_progress

if TYPE_CHECKING:
    from dovetail.api.policy_change import PolicyChange
    from dovetail.decide.question import Question
    from dovetail.lifecycle.published import PublishedState
    from dovetail.model.cluster import Cluster
    from dovetail.sim.ledger import Result
    from dovetail.sim.whatif import WhatIf, WhatIfAnswer

_EPILOG = """\
FIELD is a field of spec.disruption (consolidateAfter, consolidationPolicy,
consolidationGracePeriod, consolidationSavingsThreshold, expireAfter, budgets
...), a setting (docs/settings.md), base=recommended, or manage=true|false: give
the NodePools to Dovetail, or back to Karpenter. A change that only Dovetail
reads gives them to Dovetail, too. The patch and the settings that are printed
are exactly what was simulated.

examples:
  dovetail snapshot -o cluster.json.gz
  dovetail whatif -f cluster.json.gz --set consolidateAfter=5m
  dovetail whatif last-week --set consolidateAfter=5m    on a recording
  dovetail whatif -f cluster.json.gz --pool web --for 6h \\
    --set consolidateAfter=5m --set consolidationGracePeriod=30m
  dovetail whatif --set 'budgets=[{nodes: "20%"}]' -o html > whatif.html
  dovetail whatif --set consolidateAfter=5m -o yaml > patch.yaml
  kubectl patch nodepool web --type merge --patch-file patch.yaml
  dovetail whatif --set base=recommended
"""
_LONGEST_HOURS = 24 * 31
_MOST_SEEDS = 100


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "whatif",
        help="run your cluster on for a day under a changed policy",
        description="Runs a captured cluster on through a day like its last one: under the policy it has today, under "
        "Karpenter's own rules and under a changed policy. Says how well that agrees with what the cluster costs now, "
        "and whether to apply the change.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "recording", metavar="RECORDING", nargs="?", help="what `dovetail record` wrote, in place of -f"
    )
    parser.add_argument(
        "--set",
        dest="changes",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="a field of spec.disruption or a setting to change; may be given several times",
    )
    parser.add_argument(
        "--pool",
        dest="pools",
        metavar="P",
        action="append",
        default=[],
        help="change only this NodePool; again for more",
    )
    parser.add_argument(
        "--for", dest="length", metavar="D", default="24h", help="how long to run, such as 6h (default: 24h)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=int,
        default=3,
        help="run on so many seeds, which shows how far chance moves the outcome (default: 3)",
    )
    add_input_options(parser)
    add_policy_option(parser)
    add_live_options(parser)
    add_output_option(parser, ("text", "json", "html", "yaml"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run all columns and print."""
    from dovetail.api.policy_change import BASE
    from dovetail.sim.compare import cores
    from dovetail.sim.whatif import RunWatcher, check, estimate_seconds, what_if

    if args.policy is not None:
        args.changes, args.policy = [*args.changes, f"{BASE}={args.policy}"], None  # it is the change, not what is
    if not args.changes:
        raise InputError("what should be changed? write --set FIELD=VALUE, such as --set consolidateAfter=5m")
    asked = _asked(args)
    check(asked)
    _announce(asked, estimate_seconds(asked, cores()))
    with naming_the_culprit(asked.cluster), timed_progress("running on") as show:
        watcher = RunWatcher(time.monotonic, show.update, lambda look: show.say(look.sentence()))
        answer = what_if(asked, watcher, timeline=args.output == "html")
    _write(answer, args)
    return 0


def _asked(args: argparse.Namespace) -> "WhatIf":
    """Return what is asked, checked as far as that needs no simulation."""
    from dovetail.api.policy_change import read_changes
    from dovetail.api.settings import settings_words
    from dovetail.sim.whatif import WhatIf, karpenter_of

    change, length = read_changes(args.changes), length_of(args.length)
    if not 1 <= args.seeds <= _MOST_SEEDS:
        raise InputError(f"--seeds is {args.seeds}; write a number from 1 to {_MOST_SEEDS}")
    if args.recording is not None:
        return _asked_of_recording(args, change)
    published: list[PublishedState | None] = []

    def capture() -> "Cluster":
        cluster, state = read_live(args)
        published.append(state)
        return cluster

    question = load_question(args, capture)
    note_input(question.cluster)
    words = settings_words(args.settings)
    for state in published:
        if state is not None:
            question, words = _by_controller(args, question, state, words)
    known = [pool.metadata.name for pool in question.cluster.node_pools]
    plays_karpenter = question.settings.rules.plays_karpenter
    return WhatIf(
        cluster=question.cluster,
        catalogue=question.catalogue,
        now=question.now,
        length=length,
        words={} if plays_karpenter else words,
        karpenter=karpenter_of(question.settings),
        fields=change.fields,
        changes=change.settings,
        manage=change.manage,
        pools=tuple(one_of(name, known, "NodePool") for name in args.pools),
        seed=args.seed,
        seeds=args.seeds,
    )


def _by_controller(
    args: argparse.Namespace, question: "Question", state: "PublishedState", words: dict[str, Any]
) -> "tuple[Question, dict[str, Any]]":
    """Return the question by the settings that the controller has published, and these as a file.

    Where the options name settings, those count, with a warning if they are others: the alert gate is never published,
    and the controller reads Karpenter's gates from its Deployment.
    """
    from dovetail.api.settings_file import settings_file

    if not names_settings(args):
        question = with_controller(args, question, state)
        return question, settings_file(state.settings)
    if replace(question.settings, alert_gate=None, karpenter=state.settings.karpenter) != state.settings:
        print(
            "warning: the controller has other settings than those that you name, so the column for today is not what "
            "it does; leave --settings and --profile out for its own",
            file=sys.stderr,
        )
    return question, words


def _asked_of_recording(args: argparse.Namespace, change: "PolicyChange") -> "WhatIf":
    """Return what is asked of a recording: the whole of it is replayed."""
    from datetime import timedelta
    from pathlib import Path

    from dovetail.api.settings import load_settings, settings_words
    from dovetail.cli.recorded import load_recorded
    from dovetail.sim.recorded import check_length
    from dovetail.sim.whatif import WhatIf, karpenter_of

    if args.files:
        raise InputError("give a RECORDING or -f FILE, not both")
    recording, catalogue = load_recorded(Path(args.recording), args.catalog)
    check_length(recording)
    cluster = recording.cluster_at(recording.begins)
    known = [pool.metadata.name for pool in cluster.node_pools]
    return WhatIf(
        cluster=cluster,
        catalogue=catalogue,
        now=recording.begins,
        length=(recording.ends - recording.begins) // timedelta(microseconds=1) * 1000,
        words=settings_words(args.settings),
        karpenter=karpenter_of(load_settings(args.settings, args.profile)),
        fields=change.fields,
        changes=change.settings,
        manage=change.manage,
        pools=tuple(one_of(name, known, "NodePool") for name in args.pools),
        seed=args.seed,
        seeds=args.seeds,
        recorded=recording,
    )


def length_of(text: str) -> int:
    """Read `--for`: how long to run."""
    from dovetail.model.timing.duration import HOUR, DurationError, parse_simple

    try:
        length = parse_simple(text, "smhd")
    except DurationError as error:
        raise InputError(f"--for: {error}") from None
    if not 0 < length <= _LONGEST_HOURS * HOUR:
        raise InputError(f"--for is {text}; write a duration up to 31d, such as 24h")
    return length


def _announce(asked: "WhatIf", seconds: float) -> None:
    """Print what will be done, and about how long it takes."""
    from dovetail.model.timing.duration import format_duration
    from dovetail.report.words import count

    length = format_duration(asked.length)
    came = count(asked.arrivals, "pod")
    if asked.recorded is not None:
        what = f"replaying {length} from {asked.now:%Y-%m-%d %H:%M} UTC, in which {came} came"
        _say_how_long(what, asked, seconds)
        return
    what = f"running on for {length} from {asked.now:%Y-%m-%d %H:%M} UTC; as in the {length} before, {came} will come"
    if not asked.arrivals:
        what = f"running on for {length} from {asked.now:%Y-%m-%d %H:%M} UTC; no pod is younger, so none will come"
    _say_how_long(what, asked, seconds)


def _say_how_long(what: str, asked: "WhatIf", seconds: float) -> None:
    from dovetail.report.words import count, span

    nodes = count(len(asked.cluster.nodes), "node")
    print(
        f"note: {what}; {nodes}, {count(asked.seeds, 'seed')}; about {span(max(1, seconds))} on an idle machine, "
        "less if little is left to consolidate",
        file=sys.stderr,
        flush=True,
    )


def _write(answer: "WhatIfAnswer", args: argparse.Namespace) -> None:
    if args.output == "json":
        print_json(answer.to_dict())
    elif args.output == "yaml":
        print_bytes(_patch_file(answer))
    elif args.output == "html":
        from dovetail import __version__
        from dovetail.sim.pages.whatif import whatif_page

        print_page(whatif_page(answer, f"Simulated by dovetail {__version__}; repeat it with: {_again(args)}"))
    else:
        print_lines(whatif_lines(answer))


def _patch_file(answer: "WhatIfAnswer") -> bytes:
    """Return the patch as a file for kubectl; all else, the settings too, in comments."""
    asked = answer.asked
    head = [
        f"# {answer.recommendation.words}: {answer.recommendation.why}",
        f"# kubectl patch nodepool {' '.join(asked.chosen)} --type merge --patch-file FILE",
    ]
    if asked.new_words:
        head.append("# Together with these settings of the controller (dovetail run --settings):")
        head += [f"#   {line}" for line in _yaml_lines(asked.new_words)]
    return "\n".join(head).encode() + b"\n" + yaml_bytes(asked.patch)


def _yaml_lines(tree: Any) -> list[str]:
    return yaml_bytes(tree).decode().rstrip().split("\n")


def _again(args: argparse.Namespace) -> str:
    import shlex

    words = ["dovetail", "whatif", *(word for file in args.files or () for word in ("-f", file))]
    words += [word for change in args.changes for word in ("--set", change)]
    words += [word for pool in args.pools for word in ("--pool", pool)]
    for option, value in (("--catalog", args.catalog), ("--settings", args.settings), ("--now", args.now)):
        words += [option, value] if value else []
    return shlex.join([*words, "--for", args.length, "--seed", str(args.seed), "--seeds", str(args.seeds)])


def whatif_lines(answer: "WhatIfAnswer") -> list[str]:
    """Return the calibration, the table, the recommendation and how to apply it."""
    from dovetail.report.table import paragraph, text_table
    from dovetail.report.words import span
    from dovetail.sim.advice import difference_of

    means, asked = answer.means(), answer.asked
    before = float(means["baseline"]["cost"])
    shown = {"baseline": "today", "karpenter": asked.karpenter.profile.value, "changed": "changed"}
    if answer.first.karpenter == _named(answer.first.baseline, answer.first.karpenter.policy):
        del shown["karpenter"]
    rows = [
        (
            name,
            f"${float(means[key]['cost']):,.2f}",
            _percent(float(means[key]["cost"]), before),
            _figure(means[key]["podsDisrupted"]),
            _figure(means[key]["podsDisruptedMoreThanOnce"]),
            _figure(means[key]["nodesStarted"]),
            _figure(means[key]["shortLivedNodes"]),
            span(means[key]["pendingPodSeconds"]),
        )
        for key, name in shown.items()
    ]
    head = ("POLICY", "COST", "", "RESTARTS", "TWICE+", "NEW NODES", "<15M", "WAITED")
    lines = [*paragraph(answer.calibration.why), ""]
    lines += text_table(head, rows, right=range(1, 8), flexible=(0,))
    lines += ["", *paragraph(difference_of(answer.pairs()).scatter())]
    lines += ["", *paragraph(f"{answer.recommendation.words}. {_reason(answer)}")]
    for entry in [entry for trio in answer.trios for _, result in trio.columns() for entry in result.violations[:2]]:
        lines += paragraph(f"broken promise {entry.rule} at {entry.at} s: {entry.what}")
    lines += ["", *_what_to_apply(answer)]
    return lines


def _reason(answer: "WhatIfAnswer") -> str:
    """Return why, without what was said above."""
    return answer.recommendation.why.removeprefix(answer.calibration.why).strip()


def _what_to_apply(answer: "WhatIfAnswer") -> list[str]:
    from dovetail.report.table import paragraph

    asked = answer.asked
    given = [name for name in asked.new_managed if name not in asked.managed]
    lines: list[str] = []
    if given:
        lines += paragraph(f"The change gives {', '.join(given)} to Dovetail, which must run in the cluster.")
    lines += [f"The patch of {', '.join(asked.chosen)} (-o yaml prints it alone):"]
    lines += [f"  {line}" for line in _yaml_lines(asked.patch)]
    if asked.new_words:
        lines += ["", "and the settings (dovetail run --settings FILE):"]
        lines += [f"  {line}" for line in _yaml_lines(asked.new_words)]
    return lines


def _named(result: "Result", name: str) -> "Result":
    from dataclasses import replace

    return replace(result, policy=name)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.1f}"


def _percent(amount: float, base: float) -> str:
    if not base or amount == base:
        return ""
    return f"{100 * (amount - base) / base:+.1f} %"
