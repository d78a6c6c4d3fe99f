"""`dovetail explain NODE`: every gate for one node, with its numbers, and what would change the result."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.api.findings import InputError
from dovetail.cli.inputs import (
    add_input_options,
    add_output_option,
    add_policy_option,
    load_live_question,
    naming_the_culprit,
    note_problems,
    note_unmanaged,
)
from dovetail.cli.live_cluster import add_live_options
from dovetail.cli.names import bare_name, one_of
from dovetail.cli.output import print_document, print_lines, print_page

if TYPE_CHECKING:
    from dovetail.decide.question import Question

_EPILOG = """\
examples:
  dovetail explain ip-10-0-1-7 -f cluster.json     why this node stays (or goes)
  dovetail explain node/ip-10-0-1-7                the live cluster, read only
  dovetail explain ip-10-0-1-7 -o wide             with every check it passed
  dovetail explain --all -f cluster.json           every node in one table
  dovetail explain --pool web -o wide              the nodes of one NodePool
  dovetail explain --all -o html > nodes.html      the same as a page
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "explain",
        help="every gate for one node, and what would change the result",
        description="Explains why a node stays or goes: every gate with its figures, its pool's policy and where each "
        "value comes from, and what would open the gate that it stops at.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("node", metavar="NODE", nargs="?", help="the node's name, or node/NAME")
    parser.add_argument("--all", action="store_true", help="every node in one table")
    parser.add_argument(
        "--pool",
        dest="pools",
        metavar="P",
        action="append",
        default=[],
        help="the nodes of this NodePool; again for more",
    )
    parser.add_argument("--to-end", action="store_true", help="also ask the rounds that follow: when it goes")
    add_input_options(parser)
    add_policy_option(parser)
    add_live_options(parser)
    add_output_option(parser, ("text", "wide", "json", "yaml", "html"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the explanation."""
    from dovetail.plan.explanation import explain

    several = args.all or bool(args.pools)
    if several and args.to_end:
        raise InputError("--to-end is for one node; `dovetail plan --to-end` shows all rounds")
    node = None if several else bare_name(_node(args))
    question = load_live_question(args)
    note_problems(question.cluster, question.settings, launches=True)
    note_unmanaged(args, question)
    if node is None:
        _print_rows(args, question)
        return 0
    with naming_the_culprit(question.cluster):
        found = explain(question, node, to_end=args.to_end)
    if args.output in ("json", "yaml"):
        print_document(found.to_dict(), args.output)
    elif args.output == "html":
        from dovetail.plan.pages.explanation_page import explanation_page

        print_page(explanation_page(found))
    else:
        print_lines((found.wide_text if args.output == "wide" else found.text).split("\n"))
    return 0


def _print_rows(args: argparse.Namespace, question: "Question") -> None:
    from dovetail.plan.node_table import node_rows, rows_document, rows_page, rows_text

    if args.node is not None:
        raise InputError("name a node, or ask for several with --all or --pool; not both")
    known = [pool.metadata.name for pool in question.cluster.node_pools]
    pools = tuple(one_of(name, known, "NodePool") for name in args.pools)
    with naming_the_culprit(question.cluster):
        rows = node_rows(question, pools)
    if args.output in ("json", "yaml"):
        print_document(rows_document(question, rows), args.output)
    elif args.output == "html":
        print_page(rows_page(question, rows))
    else:
        from dovetail.report.table import note_lines

        print_lines([*note_lines(question.cluster.notes), *rows_text(rows, wide=args.output == "wide").split("\n")])


def _node(args: argparse.Namespace) -> str:
    """Return the node's name, also where it stands behind the files of -f and was taken for one."""
    if args.node is not None:
        return str(args.node)
    if args.files and len(args.files) > 1 and not Path(args.files[-1]).exists():
        return str(args.files.pop())
    raise InputError("which node? write its name first: dovetail explain NODE -f FILE")
