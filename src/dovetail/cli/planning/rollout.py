"""`dovetail rollout status`: how far a roll is, what waits for what, and when it will end."""

import argparse
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from dovetail.api.findings import InputError, shown
from dovetail.cli.inputs import (
    add_input_options,
    add_output_option,
    add_policy_option,
    load_live_question,
    naming_the_culprit,
    note_input,
    patience,
)
from dovetail.cli.live_cluster import add_live_options
from dovetail.cli.output import print_document, print_lines

if TYPE_CHECKING:
    from dovetail.decide.question import Question
    from dovetail.decide.rollouts.status import RollStatus

_POLL: Final = 5.0
_EPILOG = """\
A roll replaces the nodes of a NodePool that have drifted, or that a person
asked for (dovetail roll). The total is fixed when it begins. What waits for its
turn or for a budget is waiting; what its own PodDisruptionBudget, annotation or
pods hold is blocked, and named.

With --wait: exit status 0 when the roll is done (or --at-least so much of it),
1 if it is not within --timeout.

examples:
  dovetail rollout status
  dovetail rollout status web --wait --timeout 2h
  dovetail rollout status web --wait --at-least 90%
  dovetail rollout status -f cluster.json -o json
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    status = subparsers.add_parser(
        "rollout",
        help="how far a roll is, what it waits for, and when it will end",
        description="Shows for each roll how many nodes have been replaced, by domain, what waits and why, and when it "
        "will end by the budgets, the windows and the pace so far.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    status.add_argument("what", metavar="status", choices=["status"], help="what to print: status")
    status.add_argument("pools", metavar="POOL", nargs="*", help="NodePools; by default all that roll")
    add_input_options(status)
    add_policy_option(status)
    add_live_options(status)
    status.add_argument("--wait", action="store_true", help="wait until it is done; a live cluster only")
    status.add_argument("--at-least", metavar="P", help="with --wait: a share such as 90%% is enough")
    status.add_argument("--timeout", metavar="D", help="with --wait: at most so long, such as 30m")
    add_output_option(status, ("text", "json"), "text")
    status.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the state of the rolls; with --wait return 1 if they are not done in time."""
    share, limit = _share(args.at_least), _limit(args.timeout)
    if args.wait and args.files:
        raise InputError("--wait needs a live cluster; a file does not change")
    if not args.wait and (args.at_least is not None or args.timeout is not None):
        raise InputError("--at-least and --timeout go with --wait")
    question = _question(args)
    found = _rollouts(args, question)
    if not args.wait:
        return _print(args, found)
    ends = None if limit is None else time.monotonic() + limit.total_seconds()
    said = ""
    while not _is_done(args, question, found, share):
        said = _say(found, said)
        if ends is not None and time.monotonic() >= ends:
            _print(args, found)
            return 1
        time.sleep(_POLL if ends is None else max(0.0, min(_POLL, ends - time.monotonic())))
        question = _question(args)
        found = _rollouts(args, question)
    return _print(args, found)


def _question(args: argparse.Namespace) -> "Question":
    return load_live_question(args)


def _rollouts(args: argparse.Namespace, question: "Question") -> "tuple[RollStatus, ...]":
    from dovetail.decide.round import plan_round

    pools = sorted(pool.metadata.name for pool in question.cluster.node_pools)
    for name in args.pools:
        if name not in pools:
            raise InputError(f"there is no NodePool {shown(name)}; there are: {', '.join(pools) or 'none'}")
    note_input(question.cluster)
    with naming_the_culprit(question.cluster), patience("looking at the rolls"):
        found = plan_round(question).rollouts
    return tuple(status for status in found if not args.pools or status.node_pool in args.pools)


def _is_done(
    args: argparse.Namespace, question: "Question", found: "tuple[RollStatus, ...]", share: float | None
) -> bool:
    """Return whether nothing is left to wait for; Karpenter must have looked at every change."""
    from dovetail.api.drift import is_judged

    pools = [pool for pool in question.cluster.node_pools if not args.pools or pool.metadata.name in args.pools]
    if not all(map(is_judged, pools)):
        return False
    return all(share is not None and status.replaced >= share * status.total for status in found)


def _say(found: "tuple[RollStatus, ...]", said: str) -> str:
    """Print the progress to standard error if it has changed; return what was printed last."""
    from dovetail.plan.rollout_text import rollout_line

    text = "; ".join(map(rollout_line, found)) or "waiting for Karpenter to look at the change"
    if text != said:
        print(text, file=sys.stderr, flush=True)
    return text


def _print(args: argparse.Namespace, found: "tuple[RollStatus, ...]") -> int:
    if args.output == "json":
        print_document({"rollouts": [status.to_dict() for status in found]}, "json")
    else:
        from dovetail.plan.rollout_text import rollouts_text

        print_lines(rollouts_text(found))
    return 0


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"--at-least is {shown(text)}; write a share such as 90%")
    return share


def _limit(text: str | None) -> timedelta | None:
    from dovetail.model.timing.duration import DurationError, parse_go_duration

    if text is None:
        return None
    try:
        length: Any = parse_go_duration(text)
    except DurationError:
        length = -1
    if length < 0:
        raise InputError(f"--timeout is {shown(text)}; write a time such as 30m or 2h")
    return timedelta(microseconds=length // 1000)
