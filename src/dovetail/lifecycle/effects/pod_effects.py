"""What instructions about pods and their Deployments mean: evict, surge, mark (spec sections 20, 23 and 24)."""

from typing import Final

from dovetail.lifecycle.effects.effect_context import patch_of, pod_ref
from dovetail.lifecycle.effects.writes import (
    Create,
    Done,
    Failed,
    Outcome,
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
    MarkPod,
    SurgeDeployment,
)
from dovetail.model import names

NEXT_VICTIM: Final = "-100"
"""The deletion cost of the pod that a scale-down should take next; pods without one count as 0."""
STEERING_MARKS: Final = (names.POD_DELETION_COST, names.STEERING_MARK)


def evict(asked: EvictPod, pod: Tree | None) -> Outcome:
    """Evict a pod."""
    if pod is None or not asked.uid or text(pod, "metadata", "uid") != asked.uid:
        return Failed(failure=Failure.NOT_FOUND, detail=f"Pod {asked.namespace}/{asked.name} is gone")
    if mapping(pod, "metadata").get("deletionTimestamp") is not None:
        return Done(uid=asked.uid)
    tree = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": asked.name, "namespace": asked.namespace},
        "deleteOptions": {"preconditions": {"uid": asked.uid}},
    }
    ref = pod_ref(asked.namespace, asked.name)
    return Writes(writes=(Create(ref=ref, tree=tree, subresource="eviction"),))


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
