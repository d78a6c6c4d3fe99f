"""Build nodes to launch and nodes to remove by hand, for tests of the price gates."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from dovetail.decide.gates.price import Source
from dovetail.model import names
from dovetail.model.catalogue import InstanceType, Offering
from dovetail.model.objects import SelectorRequirement
from dovetail.scheduling.result import NewNode

DOLLAR = 10**18


def kind_at(name: str, *prices: int, spot: Iterable[int] = ()) -> InstanceType:
    """Return a type at these prices (whole dollars) on demand, and at those as spot, each in a zone of its own."""
    offers = [
        Offering(capacity_type=capacity, zone=f"z{number}", price=price * DOLLAR, price_float=float(price))
        for capacity, amounts in ((names.ON_DEMAND, prices), (names.SPOT, tuple(spot)))
        for number, price in enumerate(amounts)
    ]
    return InstanceType(name=name, requirements=(), capacity={}, overhead={}, offerings=tuple(offers))


def new_node(*kinds: InstanceType, least: int | None = None, capacity: Sequence[str] = ()) -> NewNode:
    """Return a new node of these types; `least`: how many types its pool's minValues asks for.

    `capacity`: the capacity types that it may be of; those that its types are offered as, if it is not given.
    """
    offered = {offer.capacity_type for kind in kinds for offer in kind.offerings} or {names.ON_DEMAND}
    capacity = capacity or sorted(offered)
    wanted = [SelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=tuple(capacity))]
    if least is not None:
        wanted.append(SelectorRequirement(key=names.INSTANCE_TYPE, operator="Exists", min_values=least))
    return NewNode(
        pool="default",
        instance_types=kinds,
        requirements=tuple(wanted),
        requests={},
        pods=(),
        offered=lambda offer: offer.capacity_type in capacity,
        values_of=lambda kind, key: (kind.name,) if key == names.INSTANCE_TYPE else (),
    )


def source(name: str, price: int, *, kind: str = "old", required: int = 0, spot: bool = False, **more: Any) -> Source:
    """Return a node to remove, at a price."""
    return Source(
        name=name,
        instance_type=kind,
        capacity_type=names.SPOT if spot else names.ON_DEMAND,
        price=price * DOLLAR,
        price_float=float(price),
        required=Fraction(required * DOLLAR),
        **{"offering_price": float(price), **more},
    )


def type_names(node: NewNode) -> str:
    """Return the names of its types, in order."""
    return " ".join(kind.name for kind in node.instance_types)
