"""What a simulated cloud launches for a NodeClaim: the cheapest machine that fits, and its Node.

Pure. Used by the built-in provider on test clusters without Karpenter (docs/rules.md#karpenter).
"""

from typing import Any

from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.objects import NodeClaim
from dovetail.model.quantity import format_amount, resource_amount
from dovetail.scheduling.launch.purchase import Machine, cheapest, labels_of

__all__ = ["Machine", "amounts", "cheapest_machine", "machine_labels", "node_tree"]


def cheapest_machine(claim: NodeClaim, catalogue: Catalogue) -> Machine | None:
    """Return the cheapest available offering that the claim's requirements and requests admit."""
    requests = {key: resource_amount(key, amount) for key, amount in claim.spec.resources.requests.items()}
    return cheapest(claim.spec.requirements, requests, catalogue.instance_types)


def machine_labels(claim: NodeClaim, machine: Machine) -> dict[str, str]:
    """Return the claim's labels with those that the machine's type and offering give."""
    return {**claim.metadata.labels, **labels_of(machine, claim.spec.node_class_ref.group)}


def amounts(resources: dict[str, int]) -> dict[str, str]:
    """Return resources as Kubernetes writes them."""
    return {key: format_amount(key, amount) for key, amount in sorted(resources.items())}


def node_tree(claim: NodeClaim, machine: Machine) -> dict[str, Any]:
    """Return the Node of a launched claim, registered and not yet initialized."""
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
