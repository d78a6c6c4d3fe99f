"""The Node and the conditions that Karpenter writes in the simulated cluster.

Pure functions of a NodeClaim and its machine; `sim.world.karpenter.lifetimes` says when they are written.
"""

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from dovetail.model import names
from dovetail.model.objects import (
    Condition,
    Node,
    NodeClaim,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    ResourceList,
    Scalar,
    Taint,
    condition,
)
from dovetail.model.quantity import format_amount
from dovetail.model.timing.duration import DurationError, parse_nillable
from dovetail.scheduling.launch.purchase import single_values, type_labels
from dovetail.sim.world.cloud import Instance

NOT_READY: Final = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")


def with_condition(
    conditions: tuple[Condition, ...], kind: str, status: str, now: datetime, reason: str = ""
) -> tuple[Condition, ...]:
    """Return the conditions with one set; its transition time moves only when its status does."""
    known = condition(conditions, kind)
    since = known.last_transition_time if known is not None and known.status == status else now
    entry = Condition(type=kind, status=status, reason=reason or kind, last_transition_time=since)
    others = tuple(other for other in conditions if other.type != kind)
    return (*others, entry)


def not_ready(node: Node, status: str, now: datetime) -> Node:
    """Return a node that is not ready: its condition has the status, and its taint keeps other pods away."""
    conditions = with_condition(node.status.conditions, "Ready", status, now)
    taints = (*(taint for taint in node.spec.taints if taint.key != NOT_READY.key), NOT_READY)
    return replace(node, status=replace(node.status, conditions=conditions), spec=replace(node.spec, taints=taints))


def without_condition(conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
    """Return the conditions less one."""
    return tuple(entry for entry in conditions if entry.type != kind)


def span_of(text: Scalar, default: int | None = None) -> int | None:
    """Return a duration of an object; None for Never and for what nobody can read."""
    if text is None:
        return default
    try:
        return parse_nillable(str(text), "smhd")
    except DurationError:
        return None


def resource_list(amounts: dict[str, int]) -> ResourceList:
    """Return amounts as Kubernetes writes them."""
    return {resource: format_amount(resource, amount) for resource, amount in amounts.items()}


def labels_of(instance: Instance, claim: NodeClaim) -> dict[str, str]:
    """Return the labels that Karpenter puts on the node of a claim."""
    labels = type_labels(instance.kind, claim.spec.node_class_ref.group)
    for key, value in single_values(claim.spec.requirements).items():
        labels.setdefault(key, value)
    labels[names.INSTANCE_TYPE] = instance.kind.name
    labels[names.ZONE] = instance.zone
    labels[names.CAPACITY_TYPE] = instance.capacity_type
    return labels


def node_of(claim: NodeClaim, now: datetime) -> Node:
    """Return the Node that registers for a launched NodeClaim: its labels, annotations and taints, not ready yet."""
    name = claim.metadata.name
    labels = {**claim.metadata.labels, names.HOSTNAME: name, names.REGISTERED_LABEL: "true"}
    return Node(
        metadata=ObjectMeta(
            name=name,
            labels=labels,
            annotations=dict(claim.metadata.annotations),
            creation_timestamp=now,
            finalizers=(names.TERMINATION_FINALIZER,),
        ),
        spec=NodeSpec(
            provider_id=claim.status.provider_id,
            taints=(*claim.spec.taints, *claim.spec.startup_taints, NOT_READY),
        ),
        status=NodeStatus(
            capacity=claim.status.capacity,
            allocatable=claim.status.allocatable,
            conditions=(Condition(type="Ready", status="False", last_transition_time=now),),
        ),
    )
