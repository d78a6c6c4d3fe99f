"""`dovetail blockers`: which workloads, PDBs, annotations and pool policies hold back how much money."""

import argparse

from dovetail.cli.inputs import (
    add_input_options,
    add_output_option,
    load_question,
    naming_the_culprit,
    note_problems,
    note_unmanaged,
    patience,
)
from dovetail.cli.live_cluster import add_cluster_options, capture_live
from dovetail.cli.output import print_document, print_lines, print_page

_EPILOG = """\
A blocker is lifted on a copy of the input, and the core is asked what it would
save then with the nodes that only this blocker holds. NEVER marks a
PodDisruptionBudget that allows no eviction even with every pod healthy, and a
drain that waits for such a pod without a deadline.

examples:
  dovetail blockers -f cluster.json            what to talk to which team about
  dovetail blockers -f cluster.json -o wide    all of them, with remedies
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
    add_cluster_options(parser)
    add_output_option(parser, ("text", "wide", "json", "yaml", "html"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the ranking."""
    from dovetail.plan.blocking.blockers import blockers_document, find_blockers

    question = load_question(args, capture=lambda: capture_live(args))
    note_unmanaged(args, question)
    note_problems(question.cluster, question.settings, launches=True)
    with naming_the_culprit(question.cluster), patience("lifting one blocker after the other"):
        blockers = find_blockers(question)
    if args.output in ("json", "yaml"):
        print_document(blockers_document(question, blockers), args.output)
    elif args.output == "html":
        from dovetail.plan.blocking.blockers_text import blockers_page

        print_page(blockers_page(question, blockers))
    else:
        from dovetail.plan.blocking.blockers_text import blockers_text

        print_lines(blockers_text(question, blockers, wide=args.output == "wide").split("\n"))
    return 0
