"""NodeOverlays: other prices and more extended resources for the instance types of a catalogue, pool by pool.

As Karpenter applies them (gate NodeOverlay): heavier overlays first, then the later name; the first that matches an
offering sets its price, the first that names a resource sets that resource; an overlay that conflicts with another of
the same weight is ignored everywhere. They change the types that a pool sees (`scheduling.launch.pool_types`); types
that differ between pools become variants, each for its pools. Sits in scheduling, below machines.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import msgspec

from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.labels.requirements import OperatorError, Requirement, Requirements
from dovetail.model.money import UNIT, Money, nearest, parse_money
from dovetail.model.objects import NodeOverlay, NodePool, condition
from dovetail.model.quantity import QuantityError, resource_amount
from dovetail.scheduling.launch.machines import RESERVATION, type_requirements
from dovetail.scheduling.launch.paid_prices import PaidPrices
from dovetail.scheduling.launch.pool_types import PoolTypes

_PRICE: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_ADJUSTMENT: Final = re.compile(r"[+-][0-9]+(\.[0-9]+)?%?")
_OWN: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class _Overlay(msgspec.Struct, frozen=True):
    """An overlay that can be read. `change`: a price, or a change of it with its sign; empty: none."""

    name: str
    weight: int
    reqs: Requirements
    change: str
    capacity: tuple[tuple[str, int], ...]


class Overlaid(msgspec.Struct, frozen=True):
    """A catalogue with overlays applied, the same at the prices that are paid, and what is to be said of overlays."""

    catalogue: Catalogue
    paid: Catalogue
    notes: tuple[str, ...] = ()


def overlaid(
    catalogue: Catalogue,
    overlays: Sequence[NodeOverlay],
    pools: Sequence[NodePool],
    prices: PaidPrices | None = None,
) -> Overlaid:
    """Return the catalogue as the pools see it with these overlays; `prices`: discounts and surcharges."""
    types = PoolTypes(catalogue, pools)
    notes: list[str] = []
    read = [entry for item in overlays if (entry := _read(item, notes)) is not None]
    read.sort(key=lambda entry: entry.name, reverse=True)
    read.sort(key=lambda entry: -entry.weight)
    views = [_View(types.seen[place], pool) for place, pool in enumerate(pools)] if read else []
    for entry in read:
        hits = [(view, view.hits(entry)) for view in views]
        rival = next((found for view, hit in hits if (found := view.rival(entry, hit)) is not None), None)
        if rival is not None:
            notes.append(
                f"NodeOverlay {entry.name} is left out: it has the weight {entry.weight} of NodeOverlay {rival}, "
                "and both change the same price or resource"
            )
            continue
        for view, hit in hits:
            view.apply(entry, hit)
    made: _Made = {}
    for place, view in enumerate(views):
        types.seen[place] = tuple(view.changed(number, made) for number in range(len(view.kinds)))
    listed = types.joined()
    paid = listed
    if prices is not None:
        types.seen = [prices.seen_by(pool, row) for pool, row in zip(pools, types.seen, strict=True)]
        paid = types.joined(prices.seen_by(None, types.plain))
    return Overlaid(listed, paid, tuple(sorted(notes)))


def _read(item: NodeOverlay, notes: list[str]) -> _Overlay | None:
    spec, name = item.spec, item.metadata.name
    refused = condition(item.status.conditions, "ValidationSucceeded")
    if refused is not None and refused.status == "False" and refused.reason == "RuntimeValidation":
        notes.append(f"NodeOverlay {name} is left out: Karpenter refuses it (RuntimeValidation)")
        return None
    problem = ""
    price = None if spec.price is None else str(spec.price)
    change = None if spec.price_adjustment is None else str(spec.price_adjustment)
    if price is not None and change is not None:
        problem = "it has both price and priceAdjustment"
    elif price is not None and not _PRICE.fullmatch(price):
        problem = f"its price {price!r} is not a number"
    elif change is not None and not _ADJUSTMENT.fullmatch(change):
        problem = f"its priceAdjustment {change!r} is neither +0.5, -0.5, +10% nor -10%"
    elif _OWN & spec.capacity.keys():
        problem = f"its capacity names {min(_OWN & spec.capacity.keys())}, which belongs to the provider"
    try:
        reqs = Requirements.from_spec(spec.requirements)
        capacity = tuple(sorted((key, resource_amount(key, text)) for key, text in spec.capacity.items()))
    except (OperatorError, QuantityError) as error:
        problem, reqs, capacity = str(error), Requirements(()), ()
    if problem:
        notes.append(f"NodeOverlay {name} is left out: {problem}")
        return None
    return _Overlay(name, spec.weight or 0, reqs, price or change or "", capacity)


_Hit = dict[int, list[int]]
"""The types that an overlay matches, each with its matching offerings."""
_Change = tuple[tuple[tuple[int, str], ...], tuple[tuple[str, int], ...]]
"""What changes of a type: prices by offering, and resources."""
_Made = dict[tuple[int, _Change], InstanceType]
"""The changed types, by the type (its identity) and the change: pools with the same change share one."""


class _View:
    """The catalogue as one pool sees it."""

    def __init__(self, kinds: tuple[InstanceType, ...], pool: NodePool) -> None:
        labels = {**pool.spec.template.metadata.labels, names.NODEPOOL: pool.metadata.name}
        own = Requirements.from_labels(labels)
        self.kinds = kinds
        self.reqs = [type_requirements(kind).union(own) for kind in self.kinds]
        self.changes: dict[tuple[int, int], str] = {}
        self.capacity: dict[int, dict[str, int]] = {}
        self._priced: dict[tuple[int, int], tuple[int, str]] = {}
        self._sized: dict[tuple[int, str], tuple[int, str]] = {}

    def hits(self, entry: _Overlay) -> _Hit:
        """Return the types and offerings that the overlay's requirements match."""
        found: _Hit = {}
        for place, kind in enumerate(self.kinds):
            if self.reqs[place].is_compatible(entry.reqs, frozenset()):
                offers = [number for number, offer in enumerate(kind.offerings) if _goes_with(entry.reqs, offer)]
                if offers:
                    found[place] = offers
        return found

    def rival(self, entry: _Overlay, hit: _Hit) -> str | None:
        """Return an overlay of the same weight that changes the same thing; None: there is none."""
        for place, offers in hit.items():
            keys = [self._priced.get((place, number)) for number in offers] if entry.change else []
            keys += [self._sized.get((place, name)) for name, _ in entry.capacity]
            for key in keys:
                if key is not None and key[0] == entry.weight:
                    return key[1]
        return None

    def apply(self, entry: _Overlay, hit: _Hit) -> None:
        """Record what the overlay changes; changes of heavier overlays stay."""
        for place, offers in hit.items():
            for number in offers if entry.change else ():
                self.changes.setdefault((place, number), entry.change)
                self._priced[place, number] = (entry.weight, entry.name)
            for name, amount in entry.capacity:
                self.capacity.setdefault(place, {}).setdefault(name, amount)
                self._sized[place, name] = (entry.weight, entry.name)

    def changed(self, place: int, made: _Made) -> InstanceType:
        """Return a type as the overlays change it; `made`: types that were changed before."""
        kind = self.kinds[place]
        numbers = range(len(kind.offerings))
        prices = tuple((number, self.changes[place, number]) for number in numbers if (place, number) in self.changes)
        change: _Change = (prices, tuple(sorted(self.capacity.get(place, {}).items())))
        if change == ((), ()):
            return kind
        found = made.get((id(kind), change))
        if found is None:
            found = made[id(kind), change] = _changed(kind, *change)
        return found


def _goes_with(reqs: Requirements, offer: Offering) -> bool:
    given = [(names.ZONE, offer.zone), (names.CAPACITY_TYPE, offer.capacity_type)]
    if offer.reservation_id:
        given.append((RESERVATION, offer.reservation_id))
    for key, value in given:
        entry: Requirement | None = reqs.get(key)
        if entry is not None and not entry.has(value):
            return False
    return True


def _changed(
    kind: InstanceType, prices: Sequence[tuple[int, str]], capacity: Sequence[tuple[str, int]]
) -> InstanceType:
    offers = list(kind.offerings)
    for number, change in prices:
        offer = offers[number]
        offers[number] = replace(
            offer, price=_exact(offer.price, change), price_float=_float(offer.price_float, change)
        )
    return replace(kind, offerings=tuple(offers), capacity={**kind.capacity, **dict(capacity)})


def _exact(price: Money, change: str) -> Money:
    if change[0] not in "+-":
        return parse_money(change)
    amount = Fraction(change.rstrip("%"))
    after = price * (1 + amount / 100) if change.endswith("%") else price + amount * UNIT
    return max(0, nearest(after))


def _float(price: float, change: str) -> float:
    """Return the price as Karpenter's floats have it."""
    if change[0] not in "+-":
        return float(change)
    amount = float(change.rstrip("%"))
    return max(0.0, price * (1 + amount / 100) if change.endswith("%") else price + amount)
