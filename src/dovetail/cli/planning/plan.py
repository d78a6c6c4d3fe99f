"""`dovetail plan`: what would be done next, and why, for a captured cluster or the one of the kubeconfig."""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dovetail.api.findings import InputError
from dovetail.cli.inputs import (
    add_input_options,
    add_output_option,
    add_policy_option,
    leave_as_it_is,
    load_live_question,
    load_settings_option,
    naming_the_culprit,
    no_collector,
    note_unmanaged,
)
from dovetail.cli.live_cluster import add_live_options
from dovetail.cli.many import answers_of, clusters_of, print_many
from dovetail.cli.output import print_document, print_lines, print_page

if TYPE_CHECKING:
    from dovetail.decide.document import Json
    from dovetail.decide.question import Question
    from dovetail.decide.round import RoundResult
    from dovetail.plan.comparison import ProfileComparison
    from dovetail.plan.to_end import ToEnd
    from dovetail.plan.whole import Whole
    from dovetail.ui.commands import CommandNow

_EPILOG = """\
examples:
  kubectl get nodepools,nodeclaims,nodes,pods,pdb,ds,pvc,pv,sc,csinodes,ns,rs \\
    -A -o json > cluster.json                           or: dovetail snapshot
  dovetail plan -f cluster.json                         what would be done now
  dovetail plan -f cluster.json --to-end                and then, to the end
  dovetail plan -f cluster.json --policy recommended    by the advised policy
  dovetail plan -f cluster.json --compare karpenter-1.15
  dovetail plan -f cluster.json --every-method          what each would do
  dovetail plan -f cluster.json -o json | jq .actions   for programs
  dovetail plan --watch                                 on the live cluster
  dovetail plan --context eu,us,asia                    several clusters
  dovetail plan -f captures/eu captures/us              one folder a cluster
"""
_ROUNDS = (1, 100_000)
WATCH_SECONDS = 10.0


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "plan",
        help="what would be done next, and why, for a captured or a live cluster",
        description="Shows what would be done next, what it saves, what it restarts, and what holds the rest back.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input_options(parser)
    add_policy_option(parser)
    add_live_options(parser)
    group = parser.add_argument_group("what to show")
    group.add_argument(
        "--to-end", action="store_true", help="the rounds one after the other, until nothing is left to do"
    )
    group.add_argument("--rounds", metavar="N", type=int, help="with --to-end: at most N rounds (default: 500)")
    group.add_argument(
        "--compare", metavar="PROFILE", help="also what another profile, or recommended, would do, and why it differs"
    )
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
    clusters = clusters_of(args)
    if clusters:
        return _many(args, clusters)
    if args.watch:
        return _watch(args)
    with no_collector():  # a short life: nothing made here is worth looking through
        question = load_live_question(args)
        note_unmanaged(args, question)
        leave_as_it_is(args, question, print_plan(args, question))
    return 0


def _many(args: argparse.Namespace, clusters: list[argparse.Namespace]) -> int:
    """Print the plans of several clusters."""
    from dovetail.plan.many import PlanFigures

    if args.watch:
        raise InputError("--watch looks at one cluster; name one context")

    def ask(own: argparse.Namespace) -> "tuple[Json, PlanFigures]":
        question = load_live_question(own)
        note_unmanaged(own, question)
        with naming_the_culprit(question.cluster):
            answer = _answer(own, question)
            end = answer.to_end or (answer.whole.end if answer.whole is not None else None)
            return _document(answer, live=not own.files), PlanFigures.of(answer.result, end)

    return print_many(args, answers_of(clusters, ask), PlanFigures())


def _watch(args: argparse.Namespace, rounds: int | None = None) -> int:
    """Print the plan again whenever what would be done, or what holds nodes back, has changed; until Ctrl-C."""
    from dovetail.decide.decider import Decider

    if args.files and "-" in args.files:
        raise InputError("--watch can't read standard input again; name a file, or watch the live cluster")
    if args.output == "html":
        raise InputError("--watch prints plans one after the other; write -o text, wide, json or yaml")
    decider, before = Decider(), None
    while rounds is None or rounds > 0:
        question = load_live_question(args)
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
        load_settings_option(args, args.compare)  # an unknown profile is said before anything is read


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A round, and what the options asked for beside it."""

    question: "Question"
    result: "RoundResult"
    to_end: "ToEnd | None" = None
    comparison: "ProfileComparison | None" = None
    whole: "Whole | None" = None


def print_plan(args: argparse.Namespace, question: "Question") -> object:
    """Decide, and print it in the form that was asked for; return what was made on the way."""
    with naming_the_culprit(question.cluster):
        answer = _answer(args, question)
        if args.output in ("text", "wide"):
            print_lines(_text(args, answer))
            return answer
    if args.output == "html":
        from dovetail.decide.scene import Scene
        from dovetail.decide.work import Work
        from dovetail.plan.pages.page import plan_page
        from dovetail.plan.view import plan_view

        view = plan_view(question, Work(Scene.of(question)), answer.result)
        notes = question.cluster.notes
        sections, cluster = _sections(args, answer), _looked_at(args)
        print_page(plan_page(answer.result, question.catalogue, sections, view, notes, answer.whole, cluster))
        return answer
    document = _document(answer, live=not args.files)
    print_document(document, args.output)
    return answer, document


def _looked_at(args: argparse.Namespace) -> str:
    """Return the names of the files, without their folders, or the context that was named."""
    files = ["standard input" if name == "-" else Path(name).name or name for name in args.files or ()]
    return ", ".join(files) or args.context or ""


def _answer(args: argparse.Namespace, question: "Question") -> _Answer:
    """Ask the round, and what the options ask for; people also get the whole, programs only what they asked for."""
    from dovetail.decide.decider import Decider

    result = Decider(memory=False).round(question, every_method=args.every_method, every_candidate=args.every_candidate)
    people = args.output in ("text", "wide", "html")
    to_end = _to_end(args, question) if args.to_end else None
    comparison = None
    if args.compare is not None:
        from dovetail.plan.comparison import compare

        other = replace(question, settings=load_settings_option(args, args.compare))
        ends = None
        if to_end is not None:
            ends = (to_end, _to_end(args, other))
        comparison = compare(result, Decider().round(other), ends)
    whole = None
    if people:
        last = to_end if args.output != "html" else None  # the text ends with what holds nodes back at the end
        whole = _whole(question, result, to_end, last)
    return _Answer(question=question, result=result, to_end=to_end, comparison=comparison, whole=whole)


def _to_end(args: argparse.Namespace, question: "Question") -> "ToEnd":
    from dovetail.plan.to_end import ROUNDS_MAX, plan_to_end

    return plan_to_end(question, args.rounds or ROUNDS_MAX)


def _whole(question: "Question", result: "RoundResult", to_end: "ToEnd | None", last: "ToEnd | None") -> "Whole":
    from dovetail.plan.remedy import first_remedy
    from dovetail.plan.whole import Whole, hint_text, the_end, whole_text

    end = to_end or the_end(question)
    text = hint_text(question) if end is None else whole_text(end)
    if last is None or not last.steps:
        remedy = first_remedy(question, result)
    else:
        remedy = first_remedy(last.after, last.last, after="after these rounds")
    return Whole(end=end, text=text, remedy=remedy)


def _document(answer: _Answer, *, live: bool) -> "Json":
    document = answer.result.to_dict()
    if live:
        document["inFlight"] = [entry.to_dict() for entry in _in_flight(answer.question)]
    if answer.to_end is not None:
        document.update(answer.to_end.steps_document())
    if answer.comparison is not None:
        document["compare"] = answer.comparison.to_dict()
    return document


def _in_flight(question: "Question") -> "tuple[CommandNow, ...]":
    """Return the commands in progress, by the records on the objects."""
    from dovetail.ui.commands import commands_of

    return commands_of(question.cluster, question.now)


def _sections(args: argparse.Namespace, answer: _Answer) -> list[str]:
    from dovetail.plan.pages import page_sections

    sections = []
    if answer.to_end is not None:
        sections.append(page_sections.to_end_section(answer.to_end))
    if answer.comparison is not None:
        sections.append(page_sections.comparison_section(answer.comparison))
    if args.every_method:
        sections.append(page_sections.methods_section(answer.result))
    if args.every_candidate:
        sections.append(page_sections.candidates_section(answer.result))
    return sections


def _text(args: argparse.Namespace, answer: _Answer) -> list[str]:
    from dovetail.plan.summary import candidates_lines, methods_lines, plan_text, prices_text
    from dovetail.report.table import note_lines
    from dovetail.report.words import safe

    question, result, wide = answer.question, answer.result, args.output == "wide"
    whole, remedy = (answer.whole.text, answer.whole.remedy) if answer.whole else ("", "")
    notes = question.cluster.notes
    parts: list[str] = []
    if answer.to_end is not None:
        from dovetail.plan.to_end_text import to_end_text

        parts.append(to_end_text(answer.to_end, wide=wide, remedy=remedy))
    if answer.comparison is not None:
        from dovetail.plan.comparison import comparison_text

        parts.append(comparison_text(answer.comparison, wide=wide))
    if not parts:
        methods, candidates = args.every_method, args.every_candidate
        shown = {"wide": wide, "every_method": methods, "every_candidate": candidates}
        parts.append(plan_text(result, **shown, notes=notes, whole=whole, remedy=remedy))
    elif args.every_method or args.every_candidate:
        lines = methods_lines(result, wide=wide) if args.every_method else []
        lines += candidates_lines(result, wide=wide) if args.every_candidate else []
        parts.append("\n".join(lines).strip("\n"))
    lines = "\n".join(filter(None, ("\n\n".join(parts), prices_text(question.catalogue, question.now)))).split("\n")
    if args.files:
        return [*note_lines(notes), *lines]
    from dovetail.ui.commands import in_flight_lines

    going = [safe(line) for line in in_flight_lines(_in_flight(question))]
    return [*note_lines(notes), *going, *([""] if going else []), *lines]
