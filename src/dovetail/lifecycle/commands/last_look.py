"""Whether a node may still go, judged by its pods as the server has them now.

A deletion can't be undone, and the view that it was decided on may be outdated. So before a candidate's NodeClaim is
deleted, its node's pods are read once more and judged here. Pure; sits beside `steps`, for every shell that deletes.
"""

from collections.abc import Sequence
from datetime import datetime

from dovetail.decide.facts.drainability import protection
from dovetail.lifecycle.messages import DeleteNodeClaim
from dovetail.model.objects import Pod
from dovetail.scheduling.pods.pod import is_active, is_reschedulable
from dovetail.scheduling.pods.surge import replica_set_of


def objection(order: DeleteNodeClaim, pods: Sequence[Pod], now: datetime) -> str:
    """Return why the node must stay, by the pods that are bound to it now; empty if it may go."""
    for pod in pods:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if order.spares_protected and protection(pod, now) is not None:
            return f"pod {name} on node {order.node} must not be disrupted"
        if order.spares_protected and is_active(pod) and replica_set_of(pod) in order.roll_first:
            return f"pod {name} on node {order.node} must leave by its Deployment's rolling update"
        if order.only_empty and is_reschedulable(pod):
            return f"node {order.node} is no longer empty: pod {name} is on it"
    return ""
