"""`dovetail blockers`: which workloads, PDBs, annotations and pool policies hold back how much money."""

import argparse
from typing import TYPE_CHECKING

from dovetail.cli.inputs import (
    add_input_options,
    add_output_option,
    add_policy_option,
    load_live_question,
    naming_the_culprit,
    note_problems,
    note_unmanaged,
    patience,
)
from dovetail.cli.live_cluster import add_live_options
from dovetail.cli.many import answers_of, clusters_of, print_many
from dovetail.cli.output import print_document, print_lines, print_page

if TYPE_CHECKING:
    from dovetail.decide.document import Json
    from dovetail.decide.question import Question
    from dovetail.plan.blocking.blockers import Blocked

_EPILOG = """\
A blocker is lifted on a copy of the input, and the core is asked what it would
save then with the nodes that only this blocker holds. NEVER marks a
PodDisruptionBudget that allows no eviction even with every pod healthy, and a
drain that waits for such a pod without a deadline.

examples:
  dovetail blockers -f cluster.json            what to talk to which team about
  dovetail blockers -f cluster.json -o wide    all of them, with remedies
  dovetail blockers --context eu,us,asia       several clusters
  dovetail blockers -o json | jq '.blockers[] | select(.impossible)'
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "blockers",
        help="which workloads, PDBs and policies hold back how much money",
        description="Ranks what keeps nodes from being consolidated by the money that lifting it would save, and "
        "names PodDisruptionBudgets that can never allow an eviction.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input_options(parser)
    add_policy_option(parser)
    add_live_options(parser)
    add_output_option(parser, ("text", "wide", "json", "yaml", "html"), "text")
    parser.set_defaults(run=run)


def _found(args: argparse.Namespace) -> "tuple[Question, Blocked]":
    from dovetail.plan.blocking.blockers import blocked

    question = load_live_question(args)
    note_unmanaged(args, question)
    note_problems(question.cluster, question.settings, launches=True)
    with naming_the_culprit(question.cluster), patience("lifting one blocker after the other"):
        return question, blocked(question)


def _many(args: argparse.Namespace, clusters: list[argparse.Namespace]) -> int:
    """Print what holds back how much in several clusters."""
    from dovetail.plan.blocking.blockers import blockers_document
    from dovetail.plan.many import BlockerFigures

    def ask(own: argparse.Namespace) -> "tuple[Json, BlockerFigures]":
        question, found = _found(own)
        return blockers_document(question, found), BlockerFigures.of(found.blockers)

    return print_many(args, answers_of(clusters, ask), BlockerFigures())


def run(args: argparse.Namespace) -> int:
    """Print the ranking."""
    from dovetail.plan.blocking.blockers import blockers_document

    clusters = clusters_of(args)
    if clusters:
        return _many(args, clusters)
    question, found = _found(args)
    if args.output in ("json", "yaml"):
        print_document(blockers_document(question, found), args.output)
    elif args.output == "html":
        from dovetail.plan.blocking.blockers_text import blockers_page

        print_page(blockers_page(question, found.blockers, found.held))
    else:
        from dovetail.plan.blocking.blockers_text import blockers_text

        print_lines(blockers_text(question, found.blockers, found.held, wide=args.output == "wide").split("\n"))
    return 0
