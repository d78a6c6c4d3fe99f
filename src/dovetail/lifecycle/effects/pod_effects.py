"""What instructions about pods and Deployments mean (docs/rules.md#evictions, #surge and #steering)."""

from typing import Final

from dovetail.lifecycle.commands.last_look import objection_to_all
from dovetail.lifecycle.effects.effect_context import (
    EffectContext,
    Known,
    holder_of,
    node_ref,
    patch_of,
    pod_ref,
    pods_on,
)
from dovetail.lifecycle.effects.writes import (
    PDBS,
    Create,
    Done,
    Failed,
    Outcome,
    Patch,
    Read,
    Ref,
    Tree,
    Writes,
    annotation,
    mapping,
    text,
)
from dovetail.lifecycle.messages import (
    EvictPod,
    Failure,
    LookAtPods,
    MarkPod,
    SurgeDeployment,
)
from dovetail.model import names
from dovetail.model.objects import Pod

NEXT_VICTIM: Final = "-100"
"""The deletion cost of the pod that a scale-down should take next; pods without one count as 0."""
STEERING_MARKS: Final = (names.POD_DELETION_COST, names.STEERING_MARK)


def look(asked: LookAtPods, known: Known, context: EffectContext) -> Outcome:
    """Judge the pods of nodes that are about to go, as the server has them now (docs/rules.md#carrying-out)."""
    found: list[Pod] = []
    for node in asked.nodes:
        pods = pods_on(node, known)
        if isinstance(pods, Read):
            return pods
        if isinstance(pods, str):
            return Failed(failure=Failure.OCCUPIED, detail=pods)
        found += pods
    ref = Ref(kind=PDBS, name="")
    if asked.asks_pdbs and ref not in known:
        return Read(ref=ref)
    budgets = (known[ref] or {}).get("pdbs", ()) if asked.asks_pdbs else ()
    why = objection_to_all(asked, found, budgets, context.now) if context.looks_last else ""
    return Failed(failure=Failure.OCCUPIED, detail=why) if why else Done()


def evict(asked: EvictPod, pod: Tree | None, known: Known, context: EffectContext) -> Outcome:
    """Evict a pod, after it is named in the record on its node: so a crash can only name too many."""
    if pod is None or not asked.uid or text(pod, "metadata", "uid") != asked.uid:
        return Failed(failure=Failure.NOT_FOUND, detail=f"Pod {asked.namespace}/{asked.name} is gone")
    if mapping(pod, "metadata").get("deletionTimestamp") is not None:
        return Done(uid=asked.uid)
    if context.looks_last and annotation(pod, names.DO_NOT_DISRUPT) is not None:
        detail = f"Pod {asked.namespace}/{asked.name} carries {names.DO_NOT_DISRUPT}"
        return Failed(failure=Failure.OCCUPIED, detail=detail)
    tree = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": asked.name, "namespace": asked.namespace},
        "deleteOptions": {"preconditions": {"uid": asked.uid}},
    }
    ref = pod_ref(asked.namespace, asked.name)
    eviction = Create(ref=ref, tree=tree, subresource="eviction")
    if not asked.record:
        return Writes(writes=(eviction,))
    note = _note_eviction(asked, known, context)
    return note if isinstance(note, Read | Failed) else Writes(writes=(*note, eviction))


def _note_eviction(asked: EvictPod, known: Known, context: EffectContext) -> Read | Failed | tuple[Patch, ...]:
    """Return the write that names an evicted pod in the record on its node."""
    ref = node_ref(asked.node)
    if ref not in known:
        return Read(ref=ref)
    node = known[ref]
    if node is None or holder_of(node, context) != asked.command_id:
        return Failed(failure=Failure.TAKEN, detail=f"node {asked.node} does not carry the record of this command")
    record = context.seal.sealed(asked.record)
    if annotation(node, names.COMMAND) == record:
        return ()
    return (patch_of(ref, node, {"metadata": {"annotations": {names.COMMAND: record}}}),)


def surge(asked: SurgeDeployment, ref: Ref, item: Tree | None) -> Outcome:
    """Start the rolling update of a Deployment."""
    if item is None:
        return Done()
    present = mapping(mapping(mapping(mapping(item, "spec"), "template"), "metadata"), "annotations")
    if present.get(names.SURGED_AT) == asked.mark:
        return Done()
    if annotation(item, names.SURGE) != "true" or mapping(item, "spec").get("paused"):
        detail = f"Deployment {asked.namespace}/{asked.name} is paused, or no longer asks to surge"
        return Failed(failure=Failure.REFUSED, detail=detail)
    marks = {names.SURGED_AT: asked.mark}
    return Writes(writes=(patch_of(ref, item, {"spec": {"template": {"metadata": {"annotations": marks}}}}),))


def mark(asked: MarkPod, pod: Tree | None) -> Outcome:
    """Put the deletion cost of the next victim on a pod."""
    gone = pod is None or text(pod, "metadata", "uid") != asked.uid
    leaving = mapping(pod, "metadata").get("deletionTimestamp") is not None
    if pod is None or gone or leaving or annotation(pod, names.POD_DELETION_COST) is not None:
        return Done()  # gone, terminating, already marked, or a foreign value
    tree: Tree = {"metadata": {"annotations": dict.fromkeys(STEERING_MARKS, NEXT_VICTIM)}}
    return Writes(writes=(patch_of(pod_ref(asked.namespace, asked.name), pod, tree),))


def unmark_patch(pod: Tree) -> Tree | None:
    """Return the patch that removes Dovetail's deletion cost from a pod; None if it has none."""
    mark = annotation(pod, names.STEERING_MARK)
    if mark is None:
        return None
    ours = annotation(pod, names.POD_DELETION_COST) == mark
    keys = STEERING_MARKS if ours else (names.STEERING_MARK,)
    return {"metadata": {"annotations": dict.fromkeys(keys, None)}}
