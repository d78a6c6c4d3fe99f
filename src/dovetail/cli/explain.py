"""`dovetail explain NODE`: every gate for one node, with figures, and what would open the first closed one."""

import argparse
from pathlib import Path

from dovetail.api.findings import InputError
from dovetail.cli.inputs import (
    add_input_options,
    add_output_option,
    load_question,
    naming_the_culprit,
    note_problems,
    note_unmanaged,
)
from dovetail.cli.live_cluster import add_cluster_options, capture_live
from dovetail.cli.output import print_json

_EPILOG = """\
examples:
  dovetail explain ip-10-0-1-7 -f cluster.json --catalog aws:eu-west-1
  dovetail explain ip-10-0-1-7                                the cluster of the kubeconfig, read only
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "explain",
        help="every gate for one node, and what would open the first closed one",
        description="Says why a node stays or goes: every gate with its figures, its pool's policy and where each "
        "value comes from, and what would open the gate that it stops at.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("node", metavar="NODE", nargs="?", help="the node's name")
    add_input_options(parser)
    add_cluster_options(parser)
    add_output_option(parser, ("text", "json"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the explanation."""
    from dovetail.plan.explanation import explain

    node = _node(args)
    question = load_question(args, capture=lambda: capture_live(args))
    note_problems(question.cluster, question.settings, launches=True)
    note_unmanaged(args, question)
    with naming_the_culprit(question.cluster):
        found = explain(question, node)
    if args.output == "json":
        print_json(found.to_dict())
    else:
        print(found.text)
    return 0


def _node(args: argparse.Namespace) -> str:
    """Return the node's name, also where it stands behind the files of -f and was taken for one."""
    if args.node is not None:
        return str(args.node)
    if args.files and len(args.files) > 1 and not Path(args.files[-1]).exists():
        return str(args.files.pop())
    raise InputError("which node? write its name first: dovetail explain NODE -f FILE")
