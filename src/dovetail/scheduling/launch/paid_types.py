"""The types of a catalogue as machines of a bill, and the least that each could cost under commitments.

Maps a type and an offering to what `model.commitments` bills. Decides nothing. Sits in scheduling, below the
surroundings.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.commitments import BilledMachine, Bills, Commitment, family_of, units_of
from dovetail.model.money import UNIT, Money

_FAMILY_LABELS: Final = ("karpenter.k8s.aws/instance-family", "karpenter.k8s.gcp/instance-family")


class PaidTypes:
    """The types of a catalogue with the prices that are paid, as machines of a bill."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._kinds: dict[tuple[str, str], InstanceType] = {}
        for kind in catalogue.instance_types:
            for pool in kind.pools or ("",):
                self._kinds[kind.name, pool] = kind
        self._labels: dict[str, tuple[str, str]] = {}

    def kind_of(self, name: str, pool: str) -> InstanceType | None:
        """Return a type as a pool pays for it."""
        return self._kinds.get((name, pool)) or self._kinds.get((name, ""))

    def machine(self, kind: InstanceType, offering: Offering, region: str = "") -> BilledMachine:
        """Return a machine of a type that is bought as an offering."""
        known = self._labels.get(kind.name)
        if known is None:
            known = self._labels[kind.name] = (_value(kind, (names.REGION,)), _value(kind, _FAMILY_LABELS))
        return BilledMachine(
            instance_type=kind.name,
            capacity_type=offering.capacity_type,
            price=offering.price - offering.extra,
            extra=offering.extra,
            region=region or known[0],
            family=known[1] or family_of(kind.name),
            units=units_of(kind.name, kind.capacity.get("cpu", 0)),
        )

    def bought(self, name: str, pool: str, zone: str, capacity_type: str, region: str = "") -> BilledMachine | None:
        """Return the machine of a node; None if its price is unknown."""
        kind = self.kind_of(name, pool)
        for offering in kind.offerings if kind is not None else ():
            if offering.zone == zone and offering.capacity_type == capacity_type:
                assert kind is not None
                return self.machine(kind, offering, region)
        return None


def _value(kind: InstanceType, keys: Sequence[str]) -> str:
    for entry in kind.requirements:
        if entry.key in keys and entry.operator == "In" and len(entry.values) == 1:
            return entry.values[0]
    return ""


def at_price(offering: Offering, amount: Money) -> Offering:
    """Return an offering at another price."""
    return offering if amount == offering.price else replace(offering, price=amount, price_float=amount / UNIT)


def hopeful(catalogue: Catalogue, commitments: Sequence[Commitment]) -> Catalogue:
    """Return a catalogue in which every type that a commitment might cover costs its surcharge only.

    No launch is cheaper than that, so what these prices refuse is refused for certain.
    """
    bills, types = Bills(commitments), PaidTypes(catalogue)

    def least(kind: InstanceType, offering: Offering) -> Offering:
        return at_price(offering, offering.extra) if bills.may_cover(types.machine(kind, offering)) else offering

    kinds = (
        replace(kind, offerings=tuple(least(kind, o) for o in kind.offerings)) for kind in catalogue.instance_types
    )
    return replace(catalogue, instance_types=tuple(kinds))
