"""What a simulated cloud gives for a NodeClaim: the cheapest machine that fits, and the Node that it becomes.

Pure. Used by the built-in provider on test clusters without Karpenter (spec section 10).
"""

from dataclasses import dataclass
from typing import Any

from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.labels import Requirements
from dovetail.model.objects import NodeClaim, SelectorRequirement
from dovetail.model.quantity import format_amount, resource_amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A type and the offering that it was bought as."""

    kind: InstanceType
    offering: Offering


def cheapest_machine(claim: NodeClaim, catalogue: Catalogue) -> Machine | None:
    """The cheapest available offering that the claim's requirements and requests admit; ties by type and zone."""
    wanted = Requirements.from_spec(claim.spec.requirements)
    requests = {key: resource_amount(key, amount) for key, amount in claim.spec.resources.requests.items()}
    best: tuple[int, str, str] | None = None
    found: Machine | None = None
    for kind in catalogue.instance_types:
        if not _fits(kind, requests) or not _matches(wanted, kind):
            continue
        for offering in kind.offerings:
            rank = (offering.price, kind.name, offering.zone)
            if offering.available and _sold(wanted, offering) and (best is None or rank < best):
                best, found = rank, Machine(kind=kind, offering=offering)
    return found


def _fits(kind: InstanceType, requests: dict[str, int]) -> bool:
    room = kind.allocatable()
    return all(room.get(key, 0) >= amount for key, amount in requests.items())


def _matches(wanted: Requirements, kind: InstanceType) -> bool:
    return wanted.intersects(Requirements.from_spec(kind.requirements)) is None


def _sold(wanted: Requirements, offering: Offering) -> bool:
    labels = Requirements.from_labels({names.ZONE: offering.zone, names.CAPACITY_TYPE: offering.capacity_type})
    return wanted.intersects(labels) is None


def machine_labels(claim: NodeClaim, machine: Machine) -> dict[str, str]:
    """The labels that the machine's type and offering give to claim and node."""
    labels = dict(claim.metadata.labels)
    for entry in machine.kind.requirements:
        value = _single(entry)
        if value is not None:
            labels[entry.key] = value
    labels[names.INSTANCE_TYPE] = machine.kind.name
    labels[names.ZONE] = machine.offering.zone
    labels[names.CAPACITY_TYPE] = machine.offering.capacity_type
    return labels


def _single(entry: SelectorRequirement) -> str | None:
    return entry.values[0] if entry.operator == "In" and len(entry.values) == 1 else None


def amounts(resources: dict[str, int]) -> dict[str, str]:
    """Resources as Kubernetes writes them."""
    return {key: format_amount(key, amount) for key, amount in sorted(resources.items())}


def node_tree(claim: NodeClaim, machine: Machine) -> dict[str, Any]:
    """The Node of a launched claim, registered and not yet initialized."""
    name = claim.metadata.name
    labels = machine_labels(claim, machine)
    labels[names.HOSTNAME] = name
    labels[names.REGISTERED_LABEL] = "true"
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in claim.spec.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": dict(claim.metadata.annotations),
            "ownerReferences": [
                {
                    "apiVersion": "karpenter.sh/v1",
                    "kind": "NodeClaim",
                    "name": name,
                    "uid": claim.metadata.uid,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"providerID": f"simulated:///{name}", "taints": taints},
        "status": {
            "capacity": amounts(machine.kind.capacity),
            "allocatable": amounts(machine.kind.allocatable()),
        },
    }
