"""What a cloud sells for a launch: the cheapest offering that the requirements admit, and the labels that it brings.

Pure. `plan.apply` asks it for the nodes of a plan, the built-in provider of test clusters for real NodeClaims (spec
section 10). Knows no pods and no nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dovetail.model import names
from dovetail.model.catalogue import InstanceType, Offering
from dovetail.model.labels import Requirements
from dovetail.model.objects import SelectorRequirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A type and the offering that it was bought as."""

    kind: InstanceType
    offering: Offering


def cheapest(
    wanted: Iterable[SelectorRequirement], requests: Mapping[str, int], kinds: Iterable[InstanceType]
) -> Machine | None:
    """Return the cheapest available offering that the requirements and requests admit; ties by type and zone.

    A reservation comes before everything else: it is paid for already.
    """
    asked = Requirements.from_spec(wanted)
    best: tuple[bool, int, str, str] | None = None
    found: Machine | None = None
    for kind in kinds:
        if not _fits(kind, requests) or not _matches(asked, kind):
            continue
        for offering in kind.offerings:
            rank = (offering.capacity_type != names.RESERVED, offering.price, kind.name, offering.zone)
            if offering.available and (best is None or rank < best) and _sold(asked, offering):
                best, found = rank, Machine(kind=kind, offering=offering)
    return found


def _fits(kind: InstanceType, requests: Mapping[str, int]) -> bool:
    room = kind.allocatable()
    return all(room.get(key, 0) >= amount for key, amount in requests.items())


def _matches(wanted: Requirements, kind: InstanceType) -> bool:
    return wanted.intersects(Requirements.from_spec(kind.requirements)) is None


def _sold(wanted: Requirements, offering: Offering) -> bool:
    labels = Requirements.from_labels({names.ZONE: offering.zone, names.CAPACITY_TYPE: offering.capacity_type})
    return wanted.intersects(labels) is None


def labels_of(machine: Machine) -> dict[str, str]:
    """Return the labels that the machine's type and offering give to its NodeClaim and Node."""
    labels = single_values(machine.kind.requirements)
    labels[names.INSTANCE_TYPE] = machine.kind.name
    labels[names.ZONE] = machine.offering.zone
    labels[names.CAPACITY_TYPE] = machine.offering.capacity_type
    return labels


def single_values(requirements: Iterable[SelectorRequirement]) -> dict[str, str]:
    """Return the keys that requirements leave exactly one value, with that value."""
    return {entry.key: entry.values[0] for entry in requirements if entry.operator == "In" and len(entry.values) == 1}
