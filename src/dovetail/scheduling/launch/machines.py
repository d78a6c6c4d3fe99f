"""Instance types and their offerings as arrays, and interned requirement sets that cache what they admit.

A `ReqSet` is an interned set of requirements; it caches which types meet it, their price order, and the launch price of
each. Narrowing one set by another is a lookup after the first time. Knows nothing of pods, pools or nodes;
`scheduling.launch.claims` builds new nodes with it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.model import names
from dovetail.model.cached import cached
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.labels.requirements import Requirement, Requirements
from dovetail.model.labels.syntax import well_known
from dovetail.model.objects import SelectorRequirement
from dovetail.model.quantity import AMOUNT_MAX
from dovetail.scheduling.result import LaunchPrice, cheapest_of, launchable, worst_of

Mask = npt.NDArray[np.bool_]
Amounts = npt.NDArray[np.int64]

RESERVATION: Final = "karpenter.k8s.aws/capacity-reservation-id"
NO_PRICE: Final = float("inf")


TypeBits = int
"""A set of instance types, one bit each: Python's integers make sets of hundreds of types in one operation."""


def bits_of(mask: Mask) -> TypeBits:
    """Return a mask as bits."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def places_of(bits: TypeBits) -> list[int]:
    """Return the positions of the set bits, in order."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


class Steps:
    """Which types have at least a given amount of a resource: a table of thresholds, searched by bisection."""

    __slots__ = ("_bits", "_values")

    def __init__(self, amounts: Sequence[int], types: TypeBits) -> None:
        kept = sorted((amounts[place], place) for place in places_of(types))
        self._values: list[int] = []
        self._bits: list[TypeBits] = [0]
        bits = 0
        for amount, place in reversed(kept):
            bits |= 1 << place
            if self._values and self._values[-1] == amount:
                self._bits[-1] = bits
            else:
                self._values.append(amount)
                self._bits.append(bits)
        self._values.reverse()
        self._bits.reverse()

    def at_least(self, amount: int) -> TypeBits:
        """Return the types that have that much."""
        return self._bits[bisect_left(self._values, amount)]


class Resources:
    """The column of each resource in the integer matrices. Grows while a snapshot is read."""

    __slots__ = ("index", "names")

    def __init__(self) -> None:
        self.names: list[str] = ["cpu", "memory", "pods", "ephemeral-storage"]
        self.index: dict[str, int] = {name: place for place, name in enumerate(self.names)}

    def column_of(self, name: str) -> int:
        """Return the column of a resource; add one if it is new."""
        found = self.index.get(name)
        if found is None:
            found = self.index[name] = len(self.names)
            self.names.append(name)
        return found

    def row(self, amounts: dict[str, int]) -> Amounts:
        """Return the amounts as a row; the names must have their columns already."""
        row = np.zeros(len(self.names), dtype=np.int64)
        for name, amount in amounts.items():
            row[self.index[name]] = min(amount, AMOUNT_MAX)  # each fits, but a sum of them need not
        return row


class ReqSet:
    """Interned requirements with what follows from them. Compare by identity."""

    def __init__(self, table: "Machines", number: int, reqs: Requirements) -> None:
        self.table = table
        self.id = number
        self.reqs = reqs
        self.has_min_values = reqs.has_min_values()
        self._prices: dict[tuple[str, tuple[str, ...]], tuple[LaunchPrice | None, LaunchPrice | None]] = {}

    def get(self, key: str) -> Requirement | None:
        """Return the requirement on a key."""
        return self.reqs.get(key)

    @cached
    def types(self) -> TypeBits:
        """Return the types that meet the requirements and have an available offering that meets them."""
        return self.table.types_of(self.reqs)

    @cached
    def offered(self) -> Mask:
        """Return the offerings, available or not, that are compatible with the requirements."""
        return self.table.offering_mask(self.reqs)

    @cached
    def order(self) -> list[int]:
        """Return all types by cheapest launch price under these requirements, then name."""
        cheapest, kinds = self.table.cheapest_prices(self.offered), self.table.kinds
        return sorted(range(len(kinds)), key=lambda i: (cheapest[i], kinds[i].name))

    def prices(self, kind: InstanceType) -> tuple[LaunchPrice | None, LaunchPrice | None]:
        """Return (worst, cheapest) launch price of a type under these requirements."""
        key = (kind.name, kind.pools)
        found = self._prices.get(key)
        if found is None:
            fitting = [o for o in kind.offerings if launchable(o) and self.goes_with(o)]
            found = self._prices[key] = worst_of(fitting), cheapest_of(fitting)
        return found

    def goes_with(self, offering: Offering) -> bool:
        """Return whether the offering is compatible with the requirements."""
        zone, capacity = self.reqs.get(names.ZONE), self.reqs.get(names.CAPACITY_TYPE)
        if zone is not None and not zone.has(offering.zone):
            return False
        if capacity is not None and not capacity.has(offering.capacity_type):
            return False
        reservation = self.reqs.get(RESERVATION)
        return reservation is None or not offering.reservation_id or reservation.has(offering.reservation_id)

    def values_of(self, kind: InstanceType, key: str) -> tuple[str, ...]:
        """Return the values of a type for a key that are still allowed; minValues counts them."""
        mine = self.table.type_reqs[self.table.place_of(kind)].get(key)
        wanted = self.reqs.get(key)
        if mine is None:
            return ()
        return tuple(sorted(v for v in mine.values if wanted is None or wanted.has(v)))

    @cached
    def serialised(self) -> tuple[SelectorRequirement, ...]:
        """Return the requirements as Karpenter writes them, without the placeholder of the host name."""
        return Requirements(e for e in self.reqs if e.key != names.HOSTNAME).to_spec()


def type_requirements(kind: InstanceType) -> Requirements:
    """Return the labels of a type's nodes; what the catalogue omits follows from its name and offerings."""
    reqs = Requirements.from_spec(kind.requirements)
    missing: list[Requirement] = []
    if names.INSTANCE_TYPE not in reqs:
        missing.append(Requirement.of(names.INSTANCE_TYPE, "In", (kind.name,)))
    if names.ZONE not in reqs:
        missing.append(Requirement.of(names.ZONE, "In", sorted({o.zone for o in kind.offerings})))
    if names.CAPACITY_TYPE not in reqs:
        missing.append(Requirement.of(names.CAPACITY_TYPE, "In", sorted({o.capacity_type for o in kind.offerings})))
    return reqs.add(*missing)


class Machines:
    """All instance types of a catalogue as columns."""

    def __init__(self, catalogue: Catalogue, resources: Resources) -> None:
        self.catalogue = catalogue
        self.kinds: tuple[InstanceType, ...] = catalogue.instance_types
        self.place: dict[str, int] = {}
        self._variants: dict[tuple[str, str], int] = {}
        for i, kind in enumerate(self.kinds):
            if kind.pools:
                self._variants.update({(kind.name, pool): i for pool in kind.pools})
            else:
                self.place[kind.name] = i
        self.type_reqs: list[Requirements] = [type_requirements(kind) for kind in self.kinds]
        self.by_key: dict[str, list[tuple[int, Requirement]]] = {}
        for i, reqs in enumerate(self.type_reqs):
            for entry in reqs:
                self.by_key.setdefault(entry.key, []).append((i, entry))
        self.known: frozenset[str] = well_known((*self.by_key, RESERVATION))
        self._fill_amounts(resources)
        self._fill_offerings()
        self._less: dict[str, Steps] = {}
        self._interned: dict[Requirements, ReqSet] = {}
        self._merged: dict[tuple[int, int], ReqSet | None] = {}
        self._key_masks: dict[Requirement, Mask] = {}
        self._offering_masks: dict[tuple[Requirement | None, ...], Mask] = {}
        self._narrowed: dict[tuple[int, Requirement], ReqSet] = {}

    def kind_of(self, name: str, pool: str) -> InstanceType | None:
        """Return a type as a pool sees it; None if there is none of that name."""
        place = self._variants.get((name, pool))
        if place is None:
            place = self.place.get(name)
        return None if place is None else self.kinds[place]

    def place_of(self, kind: InstanceType) -> int:
        """Return the column of a type, or of its variant for some pools."""
        return self._variants[kind.name, kind.pools[0]] if kind.pools else self.place[kind.name]

    def of_pool(self, pool: str) -> TypeBits:
        """Return the types that a pool sees: its own variants, and all types that have no variant for it."""
        every = (1 << len(self.kinds)) - 1
        if not self._variants:
            return every
        own = {name: place for (name, wanted), place in self._variants.items() if wanted == pool}
        places = [own.get(kind.name, i) for i, kind in enumerate(self.kinds) if not kind.pools]
        return sum(1 << place for place in places)

    def gives(self, key: str, pool: str) -> bool:
        """Return whether some type, as a pool sees it, has a label."""
        if key == RESERVATION and any(offering.reservation_id for offering in self.offerings):
            return True
        seen = self.of_pool(pool)
        return any(
            seen >> place & 1 and entry.operator() != "DoesNotExist" for place, entry in self.by_key.get(key, ())
        )

    def _fill_amounts(self, resources: Resources) -> None:
        rooms = [kind.allocatable() for kind in self.kinds]
        for room in rooms:
            for name in room:
                resources.column_of(name)
        self.allocatable: Amounts = np.zeros((len(self.kinds), len(resources.names)), dtype=np.int64)
        for i, room in enumerate(rooms):
            for name, amount in room.items():
                self.allocatable[i, resources.index[name]] = amount
        self.sound: TypeBits = bits_of(np.all(self.allocatable >= 0, axis=1))

    def named(self, types: Iterable[str]) -> TypeBits:
        """Return the types of these names and their variants; unknown names are ignored."""
        wanted = frozenset(types)
        if not self._variants:
            return sum(1 << self.place[name] for name in wanted if name in self.place)
        return sum(1 << place for place, kind in enumerate(self.kinds) if kind.name in wanted)

    def within(self, name: str, amount: int) -> TypeBits:
        """Return the types whose capacity of a resource is at most the given amount."""
        steps = self._less.get(name)
        if steps is None:
            every = (1 << len(self.kinds)) - 1
            steps = self._less[name] = Steps([-kind.capacity.get(name, 0) for kind in self.kinds], every)
        return steps.at_least(-amount)

    def largest(self, name: str, types: TypeBits) -> int:
        """Return the largest capacity of a resource among the types."""
        return max((self.kinds[place].capacity.get(name, 0) for place in places_of(types)), default=0)

    def widen(self, width: int) -> None:
        """Add columns for resources that only pods or nodes have."""
        missing = width - self.allocatable.shape[1]
        if missing > 0:
            self.allocatable = np.pad(self.allocatable, ((0, 0), (0, missing)))

    def _fill_offerings(self) -> None:
        pairs = [(i, o) for i, kind in enumerate(self.kinds) for o in kind.offerings]
        self.offerings: list[Offering] = [o for _, o in pairs]
        self.offering_type = np.array([i for i, _ in pairs], dtype=np.int64)
        self.available: Mask = np.array([o.available for o in self.offerings], dtype=np.bool_)
        self.launchable: Mask = np.array([launchable(o) for o in self.offerings], dtype=np.bool_)
        self.price_float = np.array([o.price_float for o in self.offerings], dtype=np.float64)
        self._values: dict[str, tuple[list[str], npt.NDArray[np.int64]]] = {}
        columns: tuple[tuple[str, list[str]], ...] = (
            (names.ZONE, [o.zone for o in self.offerings]),
            (names.CAPACITY_TYPE, [o.capacity_type for o in self.offerings]),
            (RESERVATION, [o.reservation_id for o in self.offerings]),
        )
        for key, column in columns:
            texts = sorted(set(column))
            where = {text: i for i, text in enumerate(texts)}
            self._values[key] = (texts, np.array([where[text] for text in column], dtype=np.int64))
        self.has_reserved = any(o.capacity_type == names.RESERVED for o in self.offerings)

    def intern(self, reqs: Requirements) -> ReqSet:
        """Return the interned ReqSet of these requirements."""
        found = self._interned.get(reqs)
        if found is None:
            found = self._interned[reqs] = ReqSet(self, len(self._interned), reqs)
        return found

    def merged(self, base: ReqSet, more: ReqSet) -> ReqSet | None:
        """Return `base` narrowed by `more`; None if they are incompatible. Well-known labels may be undefined."""
        key = (base.id, more.id)
        if key in self._merged:
            return self._merged[key]
        found: ReqSet | None = None
        if not len(more.reqs):
            found = base
        elif base.reqs.is_compatible(more.reqs, self.known):
            found = self.intern(base.reqs.union(more.reqs))
        self._merged[key] = found
        return found

    def narrowed(self, base: ReqSet, entry: Requirement) -> ReqSet:
        """Return `base` with one requirement more, even if nothing matches it."""
        key = (base.id, entry)
        found = self._narrowed.get(key)
        if found is None:
            found = self._narrowed[key] = self.intern(base.reqs.add(entry))
        return found

    def replaced(self, base: ReqSet, entries: Sequence[Requirement]) -> ReqSet:
        """Return `base` with these requirements in place of its own on their keys."""
        keys = {entry.key for entry in entries}
        return self.intern(Requirements((*(e for e in base.reqs if e.key not in keys), *entries)))

    def key_mask(self, entry: Requirement) -> Mask:
        """Return the types that meet one requirement; a type that doesn't define the key meets it."""
        mask = self._key_masks.get(entry)
        if mask is None:
            mask = np.ones(len(self.kinds), dtype=np.bool_)
            for i, mine in self.by_key.get(entry.key, ()):
                mask[i] = mine.has_intersection(entry) or (mine.lenient() and entry.lenient())
            self._key_masks[entry] = mask
        return mask

    def types_of(self, reqs: Requirements) -> TypeBits:
        """Return the types that meet requirements and have an available offering that meets them."""
        mask = self.offered_types(self.offering_mask(reqs))
        for entry in reqs:
            if entry.key in self.by_key:
                mask = mask & self.key_mask(entry)
        return bits_of(mask)

    def offering_mask(self, reqs: Requirements) -> Mask:
        """Return the offerings that are compatible with the requirements."""
        entries = (reqs.get(names.ZONE), reqs.get(names.CAPACITY_TYPE), reqs.get(RESERVATION))
        mask = self._offering_masks.get(entries)
        if mask is None:
            mask = np.ones(len(self.offerings), dtype=np.bool_)
            for key, entry in zip((names.ZONE, names.CAPACITY_TYPE, RESERVATION), entries, strict=True):
                if entry is not None and len(self.offerings):
                    texts, column = self._values[key]
                    allowed = [entry.has(text) or (key == RESERVATION and not text) for text in texts]
                    mask = mask & np.array(allowed, dtype=np.bool_)[column]
            self._offering_masks[entries] = mask
        return mask

    def offered_types(self, offered: Mask) -> Mask:
        """Return the types that have one of these offerings available."""
        hits = self.offering_type[offered & self.available]
        mask: Mask = np.bincount(hits, minlength=len(self.kinds)).astype(np.bool_)
        return mask

    def cheapest_prices(self, offered: Mask) -> list[float]:
        """Return each type's cheapest launchable price among these offerings; infinite if there is none."""
        best = np.full(len(self.kinds), NO_PRICE)
        usable = offered & self.launchable
        np.minimum.at(best, self.offering_type[usable], self.price_float[usable])
        found: list[float] = best.tolist()
        return found
