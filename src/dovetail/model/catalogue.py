"""Instance types and their prices: all that a decision knows about the cloud.

Prices are exact (`model.money`); the float of the catalogue file is kept beside them because the profile
`karpenter-1.15` repeats Karpenter's own float comparisons. `api.catalogue` reads them.
"""

from dataclasses import dataclass

from dovetail.model.money import Money
from dovetail.model.objects import SelectorRequirement


class CatalogueError(ValueError):
    """The catalogue can't be used; the message is one sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """One way to buy an instance type: a zone, a capacity type, a price per hour."""

    capacity_type: str
    zone: str
    price: Money
    price_float: float
    available: bool = True
    extra: Money = 0
    """The part of the price that is a surcharge, which no commitment covers."""
    reservation_id: str = ""
    reservation_capacity: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """A machine type: labels as requirements, capacity and overhead as integers, offerings.

    `pools`: the NodePools that this variant applies to (overlays); empty: all pools without a variant of their own.
    """

    name: str
    requirements: tuple[SelectorRequirement, ...]
    capacity: dict[str, int]
    overhead: dict[str, int]
    offerings: tuple[Offering, ...]
    pools: tuple[str, ...] = ()

    def allocatable(self) -> dict[str, int]:
        """Return capacity less overhead, as Karpenter computes it; huge pages are subtracted from memory."""
        room = {name: amount - self.overhead.get(name, 0) for name, amount in self.capacity.items()}
        for name, amount in self.capacity.items():
            if name.startswith("hugepages-"):
                room["memory"] = max(room.get("memory", 0) - amount, 0)
        return room


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All instance types by name, and the source of the data."""

    instance_types: tuple[InstanceType, ...]
    source: str = ""
    as_of: str = ""

    def price(self, name: str, zone: str, capacity_type: str) -> Money | None:
        """Return the hourly price of an instance type in a zone and capacity type; None if it is not known."""
        offerings = (offer for kind in self.instance_types if kind.name == name for offer in kind.offerings)
        found = (o.price for o in offerings if o.zone == zone and o.capacity_type == capacity_type)
        return next(found, None)
