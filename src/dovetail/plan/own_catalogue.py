"""A catalogue to fill in, made from a cluster's own nodes: for clouds whose prices are not built in.

Each instance type that the nodes carry becomes an entry with the capacity that its nodes report; the prices are left
open for you to write. Sits in plan; `dovetail catalog export --from-nodes` prints it.
"""

from collections.abc import Iterable
from typing import Any

from dovetail.model.names import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, OS, REGION, ZONE
from dovetail.model.objects import Node, ResourceList
from dovetail.model.quantity import QuantityError, format_amount, resource_amount

_LABELS = (INSTANCE_TYPE, ARCH, OS, REGION)


def catalogue_to_fill_in(nodes: Iterable[Node]) -> dict[str, Any]:
    """Return the catalogue document of the nodes' types, with null for every price."""
    by_type: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda item: item.metadata.name):
        name = node.metadata.labels.get(INSTANCE_TYPE, "")
        if name:
            by_type.setdefault(name, []).append(node)
    return {
        "source": "made from the cluster's nodes; prices to be filled in",
        "instanceTypes": [_entry(name, by_type[name]) for name in sorted(by_type)],
    }


def _entry(name: str, nodes: list[Node]) -> dict[str, Any]:
    """Build a type from its nodes; if they differ in size, the smallest counts."""
    capacity = _smallest(node.status.capacity for node in nodes)
    room = _smallest(node.status.allocatable for node in nodes)
    offered = sorted({_offered(node) for node in nodes})
    requirements = [_requirement(key, nodes) for key in _LABELS]
    return {
        "name": name,
        "requirements": [
            *(entry for entry in requirements if entry["values"]),
            {"key": ZONE, "operator": "In", "values": sorted({zone for zone, _ in offered})},
            {"key": CAPACITY_TYPE, "operator": "In", "values": sorted({kind for _, kind in offered})},
        ],
        "capacity": {key: format_amount(key, amount) for key, amount in capacity.items()},
        "overhead": {
            key: format_amount(key, amount - room[key])
            for key, amount in capacity.items()
            if key in room and amount > room[key]
        },
        "offerings": [{"capacityType": kind, "zone": zone, "price": None, "available": True} for zone, kind in offered],
    }


def _requirement(key: str, nodes: list[Node]) -> dict[str, Any]:
    values = {node.metadata.labels[key] for node in nodes if key in node.metadata.labels}
    return {"key": key, "operator": "In", "values": sorted(values)}


def _offered(node: Node) -> tuple[str, str]:
    labels = node.metadata.labels
    return labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, ON_DEMAND)


def _smallest(amounts: Iterable[ResourceList]) -> dict[str, int]:
    """Return the smallest amount of each resource that every node reports; amounts that can't be read are left out."""
    found: dict[str, int] | None = None
    for entry in amounts:
        here: dict[str, int] = {}
        for key, text in entry.items():
            try:
                here[key] = resource_amount(key, text)
            except QuantityError:
                continue
        found = here if found is None else {key: min(found[key], here[key]) for key in found if key in here}
    return dict(sorted((found or {}).items()))
