"""`dovetail plan`: what would be done next, and why, for a captured cluster or the one of the kubeconfig."""

import argparse
import gc

from dovetail.cli.inputs import add_input_options, add_output_option, load_question, naming_the_culprit, note_unmanaged
from dovetail.cli.live_cluster import add_cluster_options, capture_live
from dovetail.cli.output import print_json, print_page

_EPILOG = """\
examples:
  kubectl get nodepools,nodeclaims,nodes,pods,pdb,ds,pvc,pv,sc,csinodes,ns -A -o json > cluster.json
  dovetail plan -f cluster.json --catalog aws:eu-west-1       what would be done now
  dovetail plan -f cluster.json -o json | jq .actions         the same for programs
  dovetail plan -f cluster.json --profile karpenter-1.15      what Karpenter v1.15 would do
  dovetail plan                                               the cluster of the kubeconfig, read only
"""


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
    parser.add_argument(
        "--every-method", action="store_true", help="ask every method, not only up to the first that acts"
    )
    parser.add_argument(
        "--every-candidate", action="store_true", help="also what drift and one-node cost would do with each candidate"
    )
    add_output_option(parser, ("text", "json", "html"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    gc.disable()  # a short life: nothing made here is worth looking through
    from dovetail.decide.round import plan_round

    question = load_question(args, capture=lambda: capture_live(args))
    note_unmanaged(args, question)
    with naming_the_culprit(question.cluster):
        result = plan_round(question, every_method=args.every_method, every_candidate=args.every_candidate)
    if args.output == "json":
        from dovetail.plan.document import plan_document

        print_json(plan_document(result, question.catalogue))
        return 0
    if args.output == "html":
        from dovetail.plan.page import plan_page

        print_page(plan_page(result, question.catalogue))
        return 0
    from dovetail.plan.summary import plan_text, prices_text

    print("\n".join(filter(None, (plan_text(result), prices_text(question.catalogue)))))
    return 0
