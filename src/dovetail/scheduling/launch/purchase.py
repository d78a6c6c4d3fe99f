"""What a launch buys: the cheapest offering that the requirements admit, and its labels.

Pure. `plan.apply` uses it for the nodes of a plan, and the simulated cloud and the built-in provider of test clusters
use it for NodeClaims (docs/rules.md#karpenter). Knows no pods and no nodes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from dovetail.model import names
from dovetail.model.catalogue import InstanceType, Offering
from dovetail.model.labels.clouds import AUTO, AUTO_MODE, COMPUTE_TYPE, auto_mode_key, aws_key
from dovetail.model.labels.requirements import Requirements
from dovetail.model.objects import SelectorRequirement
from dovetail.scheduling.result import launchable, worst_offering


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An instance type and the offering it was bought as."""

    kind: InstanceType
    offering: Offering


def cheapest(
    wanted: Iterable[SelectorRequirement], requests: Mapping[str, int], kinds: Iterable[InstanceType]
) -> Machine | None:
    """Return the cheapest available offering that the requirements and requests admit; ties by type and zone."""
    offers = (machine for machine in LaunchableTypes(kinds).offers(wanted, requests) if machine.offering.available)
    return min(offers, key=launch_order, default=None)


def counted_on(
    wanted: Iterable[SelectorRequirement], requests: Mapping[str, int], kinds: Iterable[InstanceType]
) -> Machine | None:
    """Return the machine whose price a command's savings count with (never overstated: docs/rules.md#price).

    Each type counts at the highest price of the capacity type that would launch, and the cheapest type wins.
    """
    by_type: dict[str, list[Machine]] = {}
    for machine in LaunchableTypes(kinds).offers(wanted, requests):
        if launchable(machine.offering):
            by_type.setdefault(machine.kind.name, []).append(machine)
    worst = (_at_worst(machines) for machines in by_type.values())
    return min(worst, key=lambda machine: (machine.offering.price, machine.kind.name), default=None)


def _at_worst(machines: list[Machine]) -> Machine:
    worst = worst_offering([machine.offering for machine in machines])
    return next((machine for machine in machines if machine.offering is worst), machines[0])


def launch_order(machine: Machine) -> tuple[bool, int, str, str]:
    """Return the sort key of a launch: reservations first (already paid for), then price; ties by type and zone."""
    offering = machine.offering
    return (offering.capacity_type != names.RESERVED, offering.price, machine.kind.name, offering.zone)


_Admitted = tuple[dict[str, int], list[Machine]]
_KEPT_MAX: Final = 1000
"""For how many requirements the machines are kept: most launches of a pool ask for the same."""


class LaunchableTypes:
    """The types of a catalogue, prepared for many launches; what has not changed is reused from `previous`."""

    def __init__(self, kinds: Iterable[InstanceType], previous: "LaunchableTypes | None" = None) -> None:
        known = {} if previous is None else previous._types
        self._kinds = {kind.name: kind for kind in kinds}
        self._types: dict[str, tuple[InstanceType, Requirements, dict[str, int]]] = {}
        for name, kind in self._kinds.items():
            entry = known.get(name)
            if entry is None or entry[0].requirements is not kind.requirements or entry[0].capacity != kind.capacity:
                entry = (kind, Requirements.from_spec(kind.requirements), kind.allocatable())
            self._types[name] = entry
        self._admitted: dict[tuple[SelectorRequirement, ...], list[_Admitted]] = {}

    def offers(self, wanted: Iterable[SelectorRequirement], requests: Mapping[str, int]) -> Iterator[Machine]:
        """Yield every offering, available or not, of the types that the requirements and requests admit."""
        specs = tuple(wanted)
        found = self._admitted.get(specs)
        if found is None:
            if len(self._admitted) >= _KEPT_MAX:
                self._admitted.clear()
            found = self._admitted[specs] = list(self._admit(specs))
        for room, machines in found:
            if not any(room.get(key, 0) < amount for key, amount in requests.items()):
                yield from machines

    def _admit(self, wanted: tuple[SelectorRequirement, ...]) -> Iterator[_Admitted]:
        """Yield the types that the requirements admit: what one has room for, and the offerings that they admit."""
        asked = Requirements.from_spec([_as_sold(entry) for entry in wanted])
        for name in self._named(wanted):
            _, given, room = self._types[name]
            if asked.is_intersecting(given):
                kind = self._kinds[name]
                yield room, [Machine(kind=kind, offering=entry) for entry in kind.offerings if _sold(asked, entry)]

    def _named(self, wanted: tuple[SelectorRequirement, ...]) -> Iterable[str]:
        """Return the types to try: those that the requirements name, if they name any."""
        for entry in wanted:
            if entry.key == names.INSTANCE_TYPE and entry.operator == "In":
                return [name for name in dict.fromkeys(entry.values) if name in self._kinds]
        return self._kinds


def _as_sold(entry: SelectorRequirement) -> SelectorRequirement:
    """Return a requirement in the words of the catalogue, which has no labels of EKS Auto Mode."""
    key = aws_key(entry.key)
    return entry if key is None else msgspec.structs.replace(entry, key=key)


def _sold(wanted: Requirements, offering: Offering) -> bool:
    own = {names.ZONE: offering.zone, names.CAPACITY_TYPE: offering.capacity_type}
    return wanted.is_intersecting(Requirements.from_labels(own))


def labels_of(machine: Machine, node_class_group: str = "") -> dict[str, str]:
    """Return the labels that the machine's type and offering give to its NodeClaim and Node.

    `node_class_group`: the group of its NodeClass; EKS Auto Mode has names of its own for the labels.
    """
    labels = type_labels(machine.kind, node_class_group)
    labels[names.INSTANCE_TYPE] = machine.kind.name
    labels[names.ZONE] = machine.offering.zone
    labels[names.CAPACITY_TYPE] = machine.offering.capacity_type
    return labels


def type_labels(kind: InstanceType, node_class_group: str) -> dict[str, str]:
    """Return the labels that a type gives to nodes of a NodeClass's group; an unknown value counts as `true`."""
    labels = single_values(kind.requirements)
    labels |= {entry.key: "true" for entry in kind.requirements if entry.operator == "Exists"}
    if node_class_group == AUTO_MODE:
        labels = {auto_mode_key(key) or key: value for key, value in labels.items()} | {COMPUTE_TYPE: AUTO}
    return labels


def single_values(requirements: Iterable[SelectorRequirement]) -> dict[str, str]:
    """Return the keys for which the requirements leave exactly one value, with that value."""
    return {entry.key: entry.values[0] for entry in requirements if entry.operator == "In" and len(entry.values) == 1}
