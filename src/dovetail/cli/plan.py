"""`dovetail plan`: what would be done next, and why, for a captured cluster or the one of the kubeconfig."""

import argparse
import gc
import sys
from typing import TYPE_CHECKING

from dovetail.cli.inputs import Inputs, add_input_options, add_output_option, load_inputs, naming_the_culprit
from dovetail.cli.live_cluster import add_cluster_options, capture_live
from dovetail.cli.output import print_json, print_page

if TYPE_CHECKING:
    from dovetail.decide.outcome import RoundResult

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
    inputs = load_inputs(args, capture=lambda: capture_live(args))
    with naming_the_culprit(inputs.cluster):
        result = decide(
            inputs,
            every_method=args.every_method,
            every_candidate=args.every_candidate,
            pools=None if args.files else managed_pools(inputs),
        )
    if args.output == "json":
        from dovetail.plan.document import plan_document

        print_json(plan_document(result, inputs.catalogue))
        return 0
    if args.output == "html":
        from dovetail.plan.page import plan_page

        print_page(plan_page(result, inputs.catalogue))
        return 0
    from dovetail.plan.summary import plan_text, prices_text

    print("\n".join(filter(None, (plan_text(result), prices_text(inputs.catalogue)))))
    return 0


def managed_pools(inputs: Inputs) -> tuple[str, ...] | None:
    """Return the pools of a live cluster that are ours (spec section 10); where none is, plan for all and say so."""
    from dovetail.model.names import MANAGE

    labelled = [p.metadata.name for p in inputs.cluster.node_pools if p.metadata.labels.get(MANAGE) == "true"]
    ours = tuple(sorted({*labelled, *inputs.settings.pools}))
    if not ours:
        print(f"note: no NodePool is labelled {MANAGE}=true; planning as if all were", file=sys.stderr)
    return ours or None


def decide(
    inputs: Inputs,
    *,
    every_method: bool = False,
    every_candidate: bool = False,
    pools: tuple[str, ...] | None = None,
) -> "RoundResult":
    """Decide on what was read; all pools of a captured cluster count as managed (contract.md, `pools`)."""
    from dovetail.decide.round import plan_round
    from dovetail.scheduling.snapshot import Snapshot

    snapshot = Snapshot.build(inputs.cluster, inputs.catalogue, inputs.settings, inputs.now)
    return plan_round(
        snapshot,
        inputs.settings,
        inputs.now,
        every_method=every_method,
        every_candidate=every_candidate,
        managed_pools=pools,
    )
