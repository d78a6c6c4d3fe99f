"""`dovetail plan`: what would be done next, and why, for a captured cluster or the one of the kubeconfig."""

import argparse
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.api.findings import InputError
from dovetail.cli.inputs import (
    add_input_options,
    add_output_option,
    leave_as_it_is,
    load_question,
    load_settings_option,
    naming_the_culprit,
    no_collector,
    note_unmanaged,
)
from dovetail.cli.live_cluster import add_cluster_options, capture_live
from dovetail.cli.output import print_document, print_lines, print_page

if TYPE_CHECKING:
    from dovetail.decide.document import Json
    from dovetail.decide.outcome import RoundResult
    from dovetail.decide.question import Question
    from dovetail.plan.comparison import ProfileComparison
    from dovetail.plan.to_end import ToEnd

_EPILOG = """\
examples:
  kubectl get nodepools,nodeclaims,nodes,pods,pdb,ds,pvc,pv,sc,csinodes,ns,rs \\
    -A -o json > cluster.json                           or: dovetail snapshot
  dovetail plan -f cluster.json                         what would be done now
  dovetail plan -f cluster.json --to-end                and then, to the end
  dovetail plan -f cluster.json --compare karpenter-1.15
  dovetail plan -f cluster.json --every-method          what each would do
  dovetail plan -f cluster.json -o json | jq .actions   for programs
  dovetail plan --watch                                 on the live cluster
"""
_ROUNDS = (1, 100_000)
WATCH_SECONDS = 10.0


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "plan",
        help="what would be done next, and why, for a captured or a live cluster",
        description="Says what would be done next, what it saves, whom it disturbs, and what holds the rest back.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input_options(parser)
    add_cluster_options(parser)
    group = parser.add_argument_group("what to show")
    group.add_argument(
        "--to-end", action="store_true", help="the rounds one after the other, until nothing is left to do"
    )
    group.add_argument("--rounds", metavar="N", type=int, help="with --to-end: at most N rounds (default: 500)")
    group.add_argument("--compare", metavar="PROFILE", help="also what another profile would do, and why it differs")
    group.add_argument(
        "--every-method", action="store_true", help="ask every method, not only up to the first that acts"
    )
    group.add_argument(
        "--every-candidate", action="store_true", help="also what drift and one-node cost would do with each candidate"
    )
    group.add_argument(
        "-w", "--watch", action="store_true", help="look again every ten seconds and print the plan when it changes"
    )
    add_output_option(parser, ("text", "wide", "json", "yaml", "html"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    _check(args)
    if args.watch:
        return _watch(args)
    with no_collector():  # a short life: nothing made here is worth looking through
        question = load_question(args, capture=lambda: capture_live(args))
        note_unmanaged(args, question)
        leave_as_it_is(args, question, print_plan(args, question))
    return 0


def _watch(args: argparse.Namespace, rounds: int | None = None) -> int:
    """Print the plan again whenever what would be done, or what holds nodes back, has changed; until Ctrl-C."""
    from dovetail.decide.decider import Decider

    if args.files and "-" in args.files:
        raise InputError("--watch can't read standard input again; name a file, or watch the live cluster")
    if args.output == "html":
        raise InputError("--watch prints plans one after the other; write -o text, wide, json or yaml")
    decider, before = Decider(), None
    while rounds is None or rounds > 0:
        question = load_question(args, capture=lambda: capture_live(args))
        with naming_the_culprit(question.cluster):
            result = decider.round(question)
            seen = (result.commands, tuple((entry.node, entry.verdict) for entry in result.verdicts))
        if seen != before:
            if before is None:
                note_unmanaged(args, question)
            elif args.output != "json":
                print("\n---")
            print_plan(args, question)
            sys.stdout.flush()
            before = seen
        rounds = None if rounds is None else rounds - 1
        if rounds != 0:
            time.sleep(WATCH_SECONDS)
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.rounds is not None and not args.to_end:
        raise InputError("--rounds goes with --to-end; add it, or leave --rounds out")
    if args.rounds is not None and not _ROUNDS[0] <= args.rounds <= _ROUNDS[1]:
        raise InputError(f"--rounds is {args.rounds}; write a whole number from {_ROUNDS[0]} to {_ROUNDS[1]}")
    if args.compare is not None:
        from dovetail.api.settings import load_settings

        load_settings(None, args.compare)  # an unknown profile is said before anything is read


def print_plan(args: argparse.Namespace, question: "Question") -> object:
    """Decide, and print it in the form that was asked for; return what was made on the way."""
    from dovetail.decide.decider import Decider

    to_end = comparison = None
    with naming_the_culprit(question.cluster):
        result = Decider(memory=False).round(
            question, every_method=args.every_method, every_candidate=args.every_candidate
        )
        if args.to_end:
            from dovetail.plan.to_end import ROUNDS_MAX, plan_to_end

            to_end = plan_to_end(question, args.rounds or ROUNDS_MAX)
        if args.compare is not None:
            from dovetail.plan.comparison import compare

            settings = load_settings_option(args, args.compare)
            comparison = compare(result, Decider().round(replace(question, settings=settings)))
        if args.output in ("text", "wide"):
            print_lines(_text(args, question, result, to_end, comparison))
            return result
    if args.output == "html":
        from dovetail.plan.pages.page import plan_page
        from dovetail.plan.view import plan_view

        view = plan_view(question, Decider().scene(question), result)
        print_page(plan_page(result, question.catalogue, _sections(args, result, to_end, comparison), view))
        return result
    document = _document(result, to_end, comparison)
    print_document(document, args.output)
    return result, document


def _document(result: "RoundResult", to_end: "ToEnd | None", comparison: "ProfileComparison | None") -> "Json":
    document = result.to_dict()
    if to_end is not None:
        document.update(to_end.steps_document())
    if comparison is not None:
        document["compare"] = comparison.to_dict()
    return document


def _sections(
    args: argparse.Namespace, result: "RoundResult", to_end: "ToEnd | None", comparison: "ProfileComparison | None"
) -> list[str]:
    from dovetail.plan.pages import page_sections

    sections = []
    if to_end is not None:
        sections.append(page_sections.to_end_section(to_end))
    if comparison is not None:
        sections.append(page_sections.comparison_section(comparison))
    if args.every_method:
        sections.append(page_sections.methods_section(result))
    if args.every_candidate:
        sections.append(page_sections.candidates_section(result))
    return sections


def _text(
    args: argparse.Namespace,
    question: "Question",
    result: "RoundResult",
    to_end: "ToEnd | None",
    comparison: "ProfileComparison | None",
) -> list[str]:
    from dovetail.plan.summary import candidates_lines, methods_lines, plan_text, prices_text

    wide = args.output == "wide"
    parts: list[str] = []
    if to_end is not None:
        from dovetail.plan.to_end_text import to_end_text

        parts.append(to_end_text(to_end, wide=wide))
    if comparison is not None:
        from dovetail.plan.comparison import comparison_text

        parts.append(comparison_text(comparison, wide=wide))
    if not parts:
        parts.append(plan_text(result, wide=wide, every_method=args.every_method, every_candidate=args.every_candidate))
    elif args.every_method or args.every_candidate:
        lines = methods_lines(result, wide=wide) if args.every_method else []
        lines += candidates_lines(result, wide=wide) if args.every_candidate else []
        parts.append("\n".join(lines).strip("\n"))
    return "\n".join(filter(None, ("\n\n".join(parts), prices_text(question.catalogue)))).split("\n")
