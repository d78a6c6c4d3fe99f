"""What instructions about Nodes mean: taint, hold, close, and their opposites.

See docs/rules.md#carrying-out, #karpenter and #steering.
"""

from dovetail.lifecycle.effects.effect_context import EffectContext, holder_of, node_ref, patch_of, timestamp
from dovetail.lifecycle.effects.writes import (
    Done,
    Failed,
    Outcome,
    Tree,
    Writes,
    annotation,
    listing,
)
from dovetail.lifecycle.messages import (
    Failure,
    TaintNode,
    UntaintNode,
)
from dovetail.model import names


def taint(asked: TaintNode, node: Tree | None, context: EffectContext) -> Outcome:
    """Put the disruption taint and the record of the command on a node."""
    if node is None:
        return Failed(failure=Failure.NOT_FOUND, detail=f"Node {asked.node} is gone")
    taints = listing(node, "spec", "taints")
    tainted = any(map(_is_ours, taints))
    holder = holder_of(node, context)
    if tainted and holder and holder != asked.command_id:
        return Failed(failure=Failure.TAKEN, detail=f"command {holder} holds node {asked.node}")
    foreign = next((taint for taint in taints if _clashes(taint)), None)
    if foreign is not None:
        detail = f"node {asked.node} carries {names.DISRUPTION_TAINT}={foreign.get('value', '')} of somebody else"
        return Failed(failure=Failure.TAKEN, detail=detail)
    record = context.seal.sealed(asked.record)
    if tainted and annotation(node, names.COMMAND) == record:
        return Done()
    tree: Tree = {"metadata": {"annotations": {names.COMMAND: record}}}
    if not tainted:
        # "Longest in flight" is judged by this time (docs/rules.md#budgets).
        ours = {
            "key": names.DISRUPTION_TAINT,
            "value": names.DISRUPTION_TAINT_VALUE,
            "effect": "NoSchedule",
            "timeAdded": timestamp(context.now),
        }
        tree["spec"] = {"taints": [*taints, ours]}
    return Writes(writes=(patch_of(node_ref(asked.node), node, tree),))


def untaint(asked: UntaintNode, node: Tree | None, context: EffectContext) -> Outcome:
    """Remove the disruption taint and the record of the command from a node."""
    taints = listing(node, "spec", "taints")
    kept = [taint for taint in taints if not _is_ours(taint)]
    record = annotation(node, names.COMMAND)
    if node is None or (len(kept) == len(taints) and record is None):
        return Done()
    if record is not None and holder_of(node, context) not in ("", asked.command_id):
        return Done()  # another command has taken the node since: leave its taint
    tree: Tree = {"metadata": {"annotations": {names.COMMAND: None}}}
    if len(kept) < len(taints):
        tree["spec"] = {"taints": kept or None}
    return Writes(writes=(patch_of(node_ref(asked.node), node, tree),))


def _is_ours(taint: Tree) -> bool:
    return taint.get("key") == names.DISRUPTION_TAINT and taint.get("value") == names.DISRUPTION_TAINT_VALUE


def _clashes(taint: Tree) -> bool:
    """Return whether a taint has the same key and effect but another value: a node can have only one of them."""
    return taint.get("key") == names.DISRUPTION_TAINT and taint.get("effect") == "NoSchedule" and not _is_ours(taint)


def hold_patch(node: Tree) -> Tree | None:
    """Return the patch that holds a node; None if held or if a person set do-not-disrupt (docs/rules.md#karpenter)."""
    if annotation(node, names.HOLD) is not None and annotation(node, names.DO_NOT_DISRUPT) == "true":
        return None
    if annotation(node, names.DO_NOT_DISRUPT) is not None and annotation(node, names.HOLD) is None:
        return None
    return {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true", names.HOLD: "true"}}}


def release_patch(item: Tree) -> Tree | None:
    """Return the patch that removes Dovetail's hold from a node or claim; None if it has none."""
    if annotation(item, names.HOLD) is None:
        return None
    return {"metadata": {"annotations": {names.DO_NOT_DISRUPT: None, names.HOLD: None}}}


def close_patch(node: Tree) -> Tree | None:
    """Return the patch that adds the soft taint of steering to a node; None if it is there (docs/rules.md#steering)."""
    taints = listing(node, "spec", "taints")
    if any(taint.get("key") == names.CLOSING_TAINT for taint in taints):
        return None
    return {"spec": {"taints": [*taints, {"key": names.CLOSING_TAINT, "effect": "PreferNoSchedule"}]}}


def open_patch(node: Tree) -> Tree | None:
    """Return the patch that removes the soft taint of steering from a node; None if it is not there."""
    taints = listing(node, "spec", "taints")
    kept = [taint for taint in taints if taint.get("key") != names.CLOSING_TAINT]
    return None if len(kept) == len(taints) else {"spec": {"taints": kept or None}}
