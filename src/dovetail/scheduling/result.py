"""The result of a simulation: where each pod goes, which nodes would be new, which pods have no place and why.

Values only; `scheduling.simulate` fills them. A `NewNode` also carries what the price gates of a
cost action need: its launch prices per instance type, exact and as the float that Karpenter compares. `decide` judges
whether a command is worth it.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dovetail.model import names
from dovetail.model.cached import cached
from dovetail.model.catalogue import InstanceType, Offering
from dovetail.model.money import Money
from dovetail.model.objects import Pod, SelectorRequirement, Taint

# The order in which capacity types are launched (docs/rules.md#price; Karpenter launches a reservation, then spot).
CAPACITY_PRECEDENCE: Final = (names.RESERVED, names.SPOT, names.ON_DEMAND)


class LaunchPrice(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a launch: exact, and as the float in the catalogue."""

    amount: Money
    as_float: float
    capacity_type: str
    zone: str


class MinValuesCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether types meet the pool's minValues: `needed` types from the front, `unmet` key -> number of values."""

    needed: int = 0
    unmet: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Return whether every key has enough values."""
        return not self.unmet


def launchable(offering: Offering) -> bool:
    """Return whether this offering can be launched now: available and, if reserved, not exhausted."""
    return offering.available and (offering.capacity_type != names.RESERVED or offering.reservation_capacity > 0)


class NewNode(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A node that would have to be launched.

    `instance_types` is sorted by cheapest launch price, then name. `requirements` is the serialised form (sorted by
    key) with the template's labels in it. `offered` says whether an offering goes with the requirements; `values_of`
    gives the values of a type for a key that the requirement still allows (minValues counts them). `prices`, if given,
    caches (worst, cheapest) launch prices per type for all nodes with the same requirements. `kept_preferences` returns
    the pods' preferences that may be the reason why no existing node was enough. `serves_only_others`: no pod of the
    candidates is on it, so the default profile neither counts nor prices it.
    """

    pool: str
    instance_types: tuple[InstanceType, ...]
    requirements: tuple[SelectorRequirement, ...]
    requests: dict[str, int]
    pods: tuple[Pod, ...]
    offered: Callable[[Offering], bool]
    values_of: Callable[[InstanceType, str], tuple[str, ...]]
    prices: Callable[[InstanceType], tuple[LaunchPrice | None, LaunchPrice | None]] | None = None
    serves_only_others: bool = False
    min_values_relaxed: bool = False
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    kept_preferences: Callable[[], tuple[str, ...]] = tuple

    def requirement(self, key: str) -> SelectorRequirement | None:
        """Return the (first) requirement on a key, or None."""
        return next((entry for entry in self.requirements if entry.key == key), None)

    def allows(self, key: str, value: str) -> bool:
        """Return whether the requirement on the key allows the value.

        A key without requirement allows all, as upstream.
        """
        return all(_admits(entry, value) for entry in self.requirements if entry.key == key)

    @cached
    def capacity_types(self) -> tuple[str, ...]:
        """Return capacity types that some kept type can be launched as under the requirements, sorted."""
        return tuple(sorted({o.capacity_type for o in self._launchable_offerings()}))

    @cached
    def zones(self) -> tuple[str, ...]:
        """Return zones in which some kept type can be launched under the requirements, sorted."""
        return tuple(sorted({o.zone for o in self._launchable_offerings()}))

    def _launchable_offerings(self) -> list[Offering]:
        return [o for kind in self.instance_types for o in self._fitting(kind)]

    def _fitting(self, kind: InstanceType) -> list[Offering]:
        return [o for o in kind.offerings if launchable(o) and self.offered(o)]

    def worst_launch_price(self, kind: InstanceType) -> LaunchPrice | None:
        """Return the highest compatible price of the capacity type that would launch; None: nothing would."""
        if self.prices is not None:
            return self.prices(kind)[0]
        return worst_of(self._fitting(kind))

    def cheapest_launch_price(self, kind: InstanceType) -> LaunchPrice | None:
        """Return the cheapest compatible offering that can launch, whatever its capacity type; the sorting price."""
        if self.prices is not None:
            return self.prices(kind)[1]
        return cheapest_of(self._fitting(kind))

    def with_types(self, kinds: Sequence[InstanceType]) -> "NewNode":
        """Return the same node with fewer instance types, in the given order."""
        return replace(self, instance_types=tuple(kinds))

    def narrowed(self, capacity_type: str) -> "NewNode":
        """Return the same node restricted to that capacity type. Types are kept; see `offered_types`."""
        base = self.offered
        entry = SelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=(capacity_type,))
        others = tuple(r for r in self.requirements if r.key != names.CAPACITY_TYPE)
        return replace(
            self,
            requirements=tuple(sorted((*others, entry), key=lambda r: r.key)),
            offered=lambda offering: offering.capacity_type == capacity_type and base(offering),
            prices=None,
        )

    def offered_types(self) -> tuple[InstanceType, ...]:
        """Return the kept types that have an available offering under the requirements."""
        return tuple(k for k in self.instance_types if any(o.available and self.offered(o) for o in k.offerings))

    @property
    def has_min_values(self) -> bool:
        """Return whether some requirement has minValues."""
        return any(entry.min_values is not None for entry in self.requirements)

    def check_min_values(self, kinds: Sequence[InstanceType] | None = None) -> MinValuesCheck:
        """Check minValues for these types (default: the kept ones), front to back as Karpenter does."""
        wanted = {r.key: r.min_values for r in self.requirements if r.min_values is not None}
        if not wanted:
            return MinValuesCheck()
        kinds = self.instance_types if kinds is None else kinds
        seen: dict[str, set[str]] = {key: set() for key in wanted}
        unmet: dict[str, int] = {}
        for position, kind in enumerate(kinds):
            for key in wanted:
                seen[key].update(self.values_of(kind, key))
            unmet = {key: len(seen[key]) for key, least in wanted.items() if len(seen[key]) < least}
            if not unmet:
                return MinValuesCheck(needed=position + 1)
        return MinValuesCheck(needed=len(kinds), unmet=unmet)


def worst_of(fitting: Sequence[Offering]) -> LaunchPrice | None:
    """Return the priciest offering of the capacity type that would launch: reserved, then spot, then on-demand."""
    found = worst_offering(fitting)
    return None if found is None else price_of(found)


def cheapest_of(fitting: Sequence[Offering]) -> LaunchPrice | None:
    """Return the cheapest offering, whatever its capacity type."""
    cheapest = min(fitting, key=lambda o: (o.price_float, o.zone), default=None)
    return None if cheapest is None else price_of(cheapest)


def worst_offering(fitting: Sequence[Offering]) -> Offering | None:
    """Return the offering of `worst_of`."""
    for capacity_type in CAPACITY_PRECEDENCE:
        found = [o for o in fitting if o.capacity_type == capacity_type]
        if found:
            return max(found, key=lambda o: (o.price, o.zone))
    return None


def price_of(offering: Offering) -> LaunchPrice:
    """Return the price of one offering."""
    return LaunchPrice(
        amount=offering.price,
        as_float=offering.price_float,
        capacity_type=offering.capacity_type,
        zone=offering.zone,
    )


def _admits(entry: SelectorRequirement, value: str) -> bool:
    if entry.operator == "In":
        return value in entry.values
    if entry.operator == "NotIn":
        return value not in entry.values
    if entry.operator == "DoesNotExist":
        return False
    if entry.operator in ("Gte", "Lte"):
        try:
            number = int(value)
        except ValueError:
            return False
        return number >= int(entry.values[0]) if entry.operator == "Gte" else number <= int(entry.values[0])
    return True


class NodePlacement(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that go to an existing node, in the order in which they were placed."""

    index: int
    node: str
    pods: tuple[Pod, ...]
    initialized: bool = True


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """A pod without a place. `explain` builds the sentence, and runs only on request.

    `forgiven`: it blocks nothing, because it was pending before or (except in karpenter-1.15) its node leaves anyway.
    """

    pod: Pod
    forgiven: bool
    explain: Callable[[], str]

    @property
    def why(self) -> str:
        """Return the constraint that kept it out and the closest miss, in one sentence."""
        return self.explain()


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The answer to "if these nodes were gone".

    `unplaced`: pods without any place. `uninitialized`: pods (not of leaving nodes) that would land on a node that is
    not initialized yet; they count as not placed (docs/rules.md#methods). `stopped_early`: the simulation ended as soon
    as it was certain that more new nodes are needed than were allowed, or at `SimulationOptions.stops_at`; lists then
    hold what was known by then.
    `placements` and `uninitialized` are computed on first access: most simulations end in a refusal.
    """

    candidates: tuple[int, ...]
    list_placements: Callable[[], tuple[NodePlacement, ...]] = tuple
    new_nodes: tuple[NewNode, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    list_uninitialized: Callable[[], tuple[Unplaced, ...]] = tuple
    stopped_early: bool = False
    pods_simulated: int = 0

    @cached
    def placements(self) -> tuple[NodePlacement, ...]:
        """Return the pods that go to existing nodes, in the order of the nodes."""
        return self.list_placements()

    @cached
    def uninitialized(self) -> tuple[Unplaced, ...]:
        """Return the pods that go to nodes that are not initialized yet."""
        return self.list_uninitialized()

    @cached
    def blocking(self) -> tuple[Unplaced, ...]:
        """Return what blocks the candidates: their own pods without an (initialized) place."""
        return tuple(u for u in (*self.unplaced, *self.uninitialized) if not u.forgiven)

    def own_new_nodes(self, *, count_all: bool) -> tuple[NewNode, ...]:
        """Return the new nodes that are this command's.

        These are all (profile karpenter-1.15) or those that hold a pod of its nodes.
        """
        if count_all:
            return self.new_nodes
        return tuple(node for node in self.new_nodes if not node.serves_only_others)


class PlacementResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pending pods would go; contract `place`."""

    existing: tuple[NodePlacement, ...] = ()
    new: tuple[NewNode, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
