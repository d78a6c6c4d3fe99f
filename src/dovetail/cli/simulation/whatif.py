"""`dovetail whatif`: the last day of a cluster replayed under its policy, Karpenter's, and the change you ask about."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError
from dovetail.cli.inputs import add_input_options, add_output_option, load_question, naming_the_culprit
from dovetail.cli.live_cluster import add_cluster_options, capture_live
from dovetail.cli.names import one_of
from dovetail.cli.output import print_bytes, print_json, print_lines, print_page, yaml_bytes
from dovetail.cli.progress import progress_bar
from dovetail.model.settings import RECOMMENDED_DISRUPTION, RECOMMENDED_NAME

if TYPE_CHECKING:
    from dovetail.sim.whatif import WhatIf, WhatIfAnswer

_EPILOG = """\
FIELD is a field of spec.disruption: consolidateAfter, consolidationPolicy,
consolidationGracePeriod, consolidationSavingsThreshold, expireAfter, budgets.
The three runs share one world and one seed: only the policy differs. --seeds 5
repeats all three on four further seeds and shows how far chance moves them.

examples:
  dovetail snapshot -o cluster.json.gz
  dovetail whatif -f cluster.json.gz --set consolidateAfter=5m
  dovetail whatif -f cluster.json.gz --pool web --for 6h \\
    --set consolidateAfter=5m --set consolidationGracePeriod=30m
  dovetail whatif --set 'budgets=[{nodes: "20%"}]' -o html > whatif.html
  dovetail whatif --set consolidateAfter=5m -o yaml > patch.yaml
  kubectl patch nodepool web --type merge --patch-file patch.yaml
  dovetail whatif --set base=recommended
"""
_BASE = f"base={RECOMMENDED_NAME}"
_LONGEST_HOURS = 24 * 31
_MOST_SEEDS = 100


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "whatif",
        help="replay the last day of your cluster under a changed policy",
        description="Replays the last day of a captured cluster under the policy it has, under Karpenter's own rules "
        "and under a changed policy, and says whether to apply the change.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--set",
        dest="changes",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="a field of spec.disruption to change; may be given several times",
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
        "--for", dest="length", metavar="D", default="24h", help="how long to replay, such as 6h (default: 24h)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="the world's seed (default: 0)")
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=int,
        default=1,
        help="replay on so many seeds, which shows how the outcome scatters (default: 1)",
    )
    add_input_options(parser)
    add_cluster_options(parser)
    add_output_option(parser, ("text", "json", "html", "yaml"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay and print."""
    from dovetail.api.policy_change import read_changes
    from dovetail.sim.compare import cores
    from dovetail.sim.whatif import WhatIf, check, estimate_seconds, what_if

    if not args.changes:
        raise InputError("what should be changed? write --set FIELD=VALUE, such as --set consolidateAfter=5m")
    recommended = _BASE in args.changes
    fields, length = read_changes(word for word in args.changes if word != _BASE), _length(args.length)
    if recommended:
        fields = {**RECOMMENDED_DISRUPTION, **fields}
    if not 1 <= args.seeds <= _MOST_SEEDS:
        raise InputError(f"--seeds is {args.seeds}; write a number from 1 to {_MOST_SEEDS}")
    question = load_question(args, capture=lambda: capture_live(args))
    known = [pool.metadata.name for pool in question.cluster.node_pools]
    pools = tuple(one_of(name, known, "NodePool") for name in args.pools)
    asked = WhatIf(
        cluster=question.cluster,
        catalogue=question.catalogue,
        settings=question.settings,
        now=question.now,
        fields=fields,
        recommended=recommended,
        pools=pools,
        length=length,
        seed=args.seed,
        seeds=args.seeds,
    )
    check(asked)
    _announce(asked, estimate_seconds(asked, cores()))
    with naming_the_culprit(question.cluster), progress_bar("replaying") as progress:
        answer = what_if(asked, progress)
    _write(answer, args)
    return 0


def _length(text: str) -> int:
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
    from dovetail.report.words import count, span
    from dovetail.sim.whatif import window_of

    window = window_of(asked)
    length = format_duration(asked.length)
    what = f"no pod is younger than {length}: running on from the capture instead of replaying"
    if window.arrivals:
        came = count(window.arrivals, "pod")
        what = f"replaying {length} up to {window.end:%Y-%m-%d %H:%M} UTC, in which {came} came"
    nodes = count(len(asked.cluster.nodes), "node")
    seeds = f" on {asked.seeds} seeds" if asked.seeds > 1 else ""
    print(
        f"note: {what}; {nodes}, 3 policies{seeds}; about {span(max(1, seconds))} on an idle machine",
        file=sys.stderr,
        flush=True,
    )


def _write(answer: "WhatIfAnswer", args: argparse.Namespace) -> None:
    if args.output == "json":
        print_json(answer.to_dict())
    elif args.output == "yaml":
        verdict = "apply it" if answer.recommendation.apply else "NOT recommended"
        head = [
            f"# {verdict}: {answer.recommendation.why}",
            f"# kubectl patch nodepool {' '.join(answer.asked.chosen)} --type merge --patch-file FILE",
        ]
        print_bytes("\n".join(head).encode() + b"\n" + yaml_bytes(answer.patch))
    elif args.output == "html":
        from dovetail import __version__
        from dovetail.sim.pages.whatif import whatif_page

        print_page(whatif_page(answer, f"Simulated by dovetail {__version__}; repeat it with: {_again(args)}"))
    else:
        print_lines(whatif_lines(answer))


def _again(args: argparse.Namespace) -> str:
    import shlex

    words = ["dovetail", "whatif", *(word for file in args.files or () for word in ("-f", file))]
    words += [word for change in args.changes for word in ("--set", change)]
    words += [word for pool in args.pools for word in ("--pool", pool)]
    if args.catalog:
        words += ["--catalog", args.catalog]
    words += ["--for", args.length, "--seed", str(args.seed)]
    return shlex.join([*words, "--seeds", str(args.seeds)] if args.seeds > 1 else words)


def whatif_lines(answer: "WhatIfAnswer") -> list[str]:
    """Return the table, the recommendation and how to apply it."""
    from dovetail.report.table import paragraph, text_table
    from dovetail.report.words import dollars, span
    from dovetail.sim.whatif import scatter_sentence

    rows = [
        (
            {"baseline": "as it is"}.get(result.policy, result.policy),
            dollars(result.cost, 2),
            _percent(result.cost, answer.baseline.cost),
            f"{result.pods_disrupted:,}",
            f"{result.pods_disrupted_more_than_once:,}",
            f"{result.nodes_started:,}",
            f"{result.short_lived_nodes:,}",
            span(result.pending_pod_seconds),
        )
        for result in answer.results
    ]
    head = ("POLICY", "COST", "", "RESTARTS", "TWICE+", "NEW NODES", "<15M", "WAITED")
    lines = text_table(head, rows, right=range(1, 8), flexible=(0,))
    lines += ["", *paragraph(scatter_sentence(answer))]
    recommendation = answer.recommendation
    lines += ["", *paragraph(f"{'Apply it' if recommendation.apply else 'Not recommended'}. {recommendation.why}")]
    broken = [entry for result in answer.results for entry in result.violations[:2]]
    for entry in broken:
        lines += paragraph(f"broken promise {entry.rule} at {entry.at} s: {entry.what}")
    lines += ["", "The patch (-o yaml prints it alone):"]
    lines += [f"  {line}" for line in yaml_bytes(answer.patch).decode().rstrip().split("\n")]
    return lines


def _percent(amount: int, base: int) -> str:
    if not base or amount == base:
        return ""
    change: Any = 100 * (amount - base) / base
    return f"{change:+.1f} %"
