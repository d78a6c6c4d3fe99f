"""What instructions about NodeClaims mean: create, delete, attribute, clear (docs/rules.md#carrying-out, #repair)."""

from datetime import datetime

from dovetail.lifecycle.commands.last_look import objection, objection_to_undo
from dovetail.lifecycle.effects.effect_context import (
    EffectContext,
    Known,
    claim_ref,
    holder_of,
    is_true_in,
    node_ref,
    patch_of,
    pods_on,
    pool_ref,
    timestamp,
    with_condition,
)
from dovetail.lifecycle.effects.node_claims import launch_problem, node_claim_tree
from dovetail.lifecycle.effects.writes import (
    Create,
    Delete,
    Done,
    Failed,
    Outcome,
    Read,
    Tree,
    Writes,
    annotation,
    mapping,
    text,
)
from dovetail.lifecycle.messages import (
    ClearRecord,
    CreateNodeClaim,
    DeleteNodeClaim,
    Failure,
    SetDisruptionReason,
)
from dovetail.model import names
from dovetail.model.policies.quiet import is_quiet_tree
from dovetail.model.timing.duration import later


def create(asked: CreateNodeClaim, claim: Tree | None, known: Known, context: EffectContext) -> Outcome:
    """Create the NodeClaim of a replacement."""
    if claim is not None:
        if holder_of(claim, context) == asked.command_id:
            return Done(uid=text(claim, "metadata", "uid"))
        return Failed(failure=Failure.REFUSED, detail=f"a NodeClaim {asked.name} of somebody else is there")
    ref = pool_ref(asked.replacement.node_pool)
    if ref not in known:
        return Read(ref=ref)
    pool = known[ref]
    if pool is None:
        return Failed(failure=Failure.NOT_FOUND, detail=f"NodePool {ref.name} is gone")
    hopeless = launch_problem(asked.replacement, pool)
    if hopeless:
        return Failed(failure=Failure.REFUSED, detail=hopeless)
    marks = {names.COMMAND: context.seal.sealed(asked.record)}
    if context.holds and not is_quiet_tree(pool):
        marks |= {names.DO_NOT_DISRUPT: "true", names.HOLD: "true"}
    tree = node_claim_tree(asked.name, asked.replacement, pool, marks)
    return Writes(writes=(Create(ref=claim_ref(asked.name), tree=tree),))


def delete(asked: DeleteNodeClaim, claim: Tree | None, known: Known, context: EffectContext) -> Outcome:
    """Delete a NodeClaim, unless a pod on its node forbids it."""
    if claim is None:
        return Failed(failure=Failure.NOT_FOUND, detail=f"NodeClaim {asked.name} is gone")
    if not asked.uid or text(claim, "metadata", "uid") != asked.uid:
        return Failed(failure=Failure.NOT_FOUND, detail=f"NodeClaim {asked.name} is another one by now")
    if mapping(claim, "metadata").get("deletionTimestamp") is not None:
        return Done(uid=asked.uid)
    if context.looks_last and (asked.node or asked.undo):
        look = _last_look_at_undo(asked, claim, known) if asked.undo else _last_look(asked, known, context)
        if isinstance(look, Read):
            return look
        if look:
            return Failed(failure=Failure.OCCUPIED, detail=look)
    delete = Delete(ref=claim_ref(asked.name), uid=asked.uid)
    bound = None if asked.drain_for is None else drain_bound(claim, later(context.now, asked.drain_for))
    return Writes(writes=(delete,) if bound is None else (patch_of(claim_ref(asked.name), claim, bound), delete))


def _last_look(asked: DeleteNodeClaim, known: Known, context: EffectContext) -> Read | str:
    """Return why a candidate's node must stay; empty if it may go."""
    pods = pods_on(asked.node, known)
    return pods if isinstance(pods, Read | str) else objection(asked, pods, context.now)


def _last_look_at_undo(asked: DeleteNodeClaim, claim: Tree, known: Known) -> Read | str:
    """Return why a replacement must stay although its command is rolled back; empty if it may go.

    One that is not ready serves nobody.
    """
    if not is_true_in(claim, names.CONDITION_INITIALIZED):
        return ""
    for name, uid in asked.candidates:
        ref = claim_ref(name)
        if ref not in known:
            return Read(ref=ref)
        other = known[ref]
        leaves = other is not None and mapping(other, "metadata").get("deletionTimestamp") is not None
        if other is None or leaves or text(other, "metadata", "uid") != uid:
            return f"{name}, which it replaces, is leaving"
    node = text(claim, "status", "nodeName")
    pods = pods_on(node, known) if node else ()
    return pods if isinstance(pods, Read | str) else objection_to_undo(asked.name, pods)


def drain_bound(claim: Tree, until: datetime) -> Tree | None:
    """Return the patch that ends a claim's drain at a time; None if it already ends by then (docs/rules.md#repair)."""
    present = annotation(claim, names.TERMINATION_TIMESTAMP)
    try:
        known = None if present is None else datetime.fromisoformat(present)
    except ValueError:
        known = None
    if known is not None and known.tzinfo is not None and known <= until:
        return None
    return {"metadata": {"annotations": {names.TERMINATION_TIMESTAMP: timestamp(until)}}}


def attribute(asked: SetDisruptionReason, claim: Tree | None, context: EffectContext) -> Outcome:
    """Set the condition DisruptionReason on a NodeClaim that is being deleted."""
    if claim is None or text(claim, "metadata", "uid") != asked.uid:
        return Done()
    if mapping(claim, "metadata").get("deletionTimestamp") is None:
        return Done()  # its deletion failed; repeated once the deletion is known to have started
    wanted: Tree = {"type": names.CONDITION_DISRUPTION_REASON, "status": "True", "reason": asked.reason}
    wanted["message"] = asked.reason
    tree = with_condition(claim, wanted, context)
    if tree is None:
        return Done()
    return Writes(writes=(patch_of(claim_ref(asked.name), claim, tree, "status"),))


def clear(asked: ClearRecord, claim: Tree | None, known: Known, context: EffectContext) -> Outcome:
    """Clear a claim and its Node. Without a command's id, remove an untrusted record."""
    if claim is None:
        return Done()
    found = [(claim_ref(asked.node_claim), claim)]
    name = text(claim, "status", "nodeName")
    if name:
        ref = node_ref(name)
        if ref not in known:
            return Read(ref=ref)
        node = known[ref]
        found += [] if node is None else [(ref, node)]
    writes = tuple(
        patch_of(ref, item, {"metadata": {"annotations": {names.COMMAND: None}}})
        for ref, item in found
        if annotation(item, names.COMMAND) is not None and holder_of(item, context) == asked.command_id
    )
    return Writes(writes=writes) if writes else Done()


def unasked_patch(item: Tree) -> Tree | None:
    """Return the patch that removes a request to replace one node from its NodeClaim or Node; None if it has none."""
    return None if annotation(item, names.ROLL) is None else {"metadata": {"annotations": {names.ROLL: None}}}
