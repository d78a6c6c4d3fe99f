"""Whether a node may still go, judged by its pods as the server has them now.

A deletion can't be undone, and the view that it was decided on may be outdated. So before the first NodeClaim of a
command is deleted or its first pod evicted, the pods of all its nodes and the PDBs over them are read once more and
judged here by gate 6 (docs/rules.md#carrying-out); each deletion then looks at its own node's pods again. An undo
looks at the pods of the replacement. Pure; sits beside `steps`, for every shell that deletes.
"""

from collections.abc import Sequence
from datetime import datetime

from dovetail.api.pod_windows import read_pod_window
from dovetail.decide.facts.drainability import Guards, near, protection
from dovetail.lifecycle.messages import DeleteNodeClaim, LookAtPods
from dovetail.model import names
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.scheduling.pods.pod import is_active, is_reschedulable
from dovetail.scheduling.pods.surge import replica_set_of


def objection(order: DeleteNodeClaim, pods: Sequence[Pod], now: datetime) -> str:
    """Return why the node must stay, by the pods that are bound to it now; empty if it may go."""
    for pod in _asked(order, pods):
        why = _protected(pod, order.roll_first, now) if order.spares_protected else ""
        if why:
            return why
        if order.only_empty and is_reschedulable(pod):
            return f"node {order.node} is no longer empty: pod {pod.metadata.key} is on it"
    return ""


def objection_to_all(order: LookAtPods, pods: Sequence[Pod], pdbs: Sequence[PodDisruptionBudget], now: datetime) -> str:
    """Return why the nodes of a command must stay, by all pods that are bound to them now; empty if they may go."""
    asked = _asked(order, pods)
    guards = Guards(near(pdbs, asked))
    for pod in asked:
        why = _protected(pod, order.roll_first, now) or (_outside_window(pod, now) if order.asks_windows else "")
        if why:
            return why
        veto = guards.veto(pod, now) if order.asks_pdbs else None
        if veto is not None and len(veto.pdbs) > 1:
            return f"pod {pod.metadata.key} on node {pod.spec.node_name} has {len(veto.pdbs)} PodDisruptionBudgets"
        if veto is not None:
            return f"PodDisruptionBudget {veto.pdbs[0]} allows no disruption of pod {pod.metadata.key} now"
    return ""


def objection_to_undo(name: str, pods: Sequence[Pod]) -> str:
    """Return why a ready replacement must stay, by the pods that are bound to it now; empty if it may go."""
    pod = next((pod for pod in pods if is_reschedulable(pod)), None)
    return "" if pod is None else f"pod {pod.metadata.key} runs on the replacement {name}"


def _asked(order: DeleteNodeClaim | LookAtPods, pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods that may refuse: those that belong to their node don't."""
    return [pod for pod in pods if not any(entry.select(pod) for entry in order.daemon_like)]


def _protected(pod: Pod, roll_first: tuple[tuple[str, str], ...], now: datetime) -> str:
    if protection(pod, now) is not None:
        return f"pod {pod.metadata.key} on node {pod.spec.node_name} must not be disrupted"
    if is_active(pod) and replica_set_of(pod) in roll_first:
        return f"pod {pod.metadata.key} on node {pod.spec.node_name} must leave by its Deployment's rolling update"
    return ""


def _outside_window(pod: Pod, now: datetime) -> str:
    text = pod.metadata.annotations.get(names.DISRUPTION_WINDOW)
    if text is None or not is_reschedulable(pod):
        return ""
    found = read_pod_window(text).window
    if found is not None and found.active(now):
        return ""
    return f"the window of pod {pod.metadata.key} on node {pod.spec.node_name} is closed"
