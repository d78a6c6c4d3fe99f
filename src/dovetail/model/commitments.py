"""What a set of machines costs an hour: what is committed, plus what the commitments don't cover. Exact.

Reserved instances pay for a number of machines, size-flexible ones for units of a family; a savings plan pays for so
many dollars an hour at its own rates. They are used in the cloud's own order: reserved instances first, then savings
plans that name families or types, then those for everything; within each the greatest percentage off first, then the
lowest rate, then by name. A machine may be covered in part. Spot is never covered, and neither is a surcharge. Both
bills of a command are made here, so its savings are their difference and never a sum of prices. docs/commitments.md has
worked examples. Pure; knows no nodes and no settings file. Sits in the model.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from dovetail.model import names
from dovetail.model.money import Money

HOURS_A_MONTH: Final = 730
_SIZES: Final = {
    "nano": Fraction(1, 4),
    "micro": Fraction(1, 2),
    "small": Fraction(1),
    "medium": Fraction(2),
    "large": Fraction(4),
    "xlarge": Fraction(8),
}
_NOTHING: Final = Fraction(0)
_WHOLE: Final = Fraction(1)


class CommitmentKind(StrEnum):
    """What was bought."""

    RESERVED_INSTANCES = "ReservedInstances"
    SAVINGS_PLAN = "SavingsPlan"


class Commitment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is paid for whether it is used or not.

    `region`: empty: any. `instance_types`, `families`: what it is for; neither: everything. `count`: machines of each
    type, or units of each family (small = 1). `hourly`: dollars an hour of a savings plan, or what reserved instances
    cost in all. `percent_off`: its rates, as a share off the on-demand price; else `rates` has the dollars an hour of
    each type. Reserved instances need neither: with `rates` or `hourly` they say what the reservation itself costs.
    """

    name: str
    kind: CommitmentKind
    region: str = ""
    instance_types: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    count: Fraction = _NOTHING
    hourly: Money = 0
    percent_off: Fraction | None = None
    rates: tuple[tuple[str, Money], ...] = ()

    @property
    def is_plan(self) -> bool:
        """Return whether it is a savings plan."""
        return self.kind is CommitmentKind.SAVINGS_PLAN

    @property
    def is_for_everything(self) -> bool:
        """Return whether it names neither types nor families."""
        return not self.instance_types and not self.families


class BilledMachine(NamedTuple):
    """A machine as it is billed. Machines that are alike are the same value.

    `price`: dollars an hour, on demand or spot, after discounts. `extra`: what comes on top and is never covered.
    `units`: its size in normalisation units.
    """

    instance_type: str
    capacity_type: str
    price: Money
    extra: Money = 0
    region: str = ""
    family: str = ""
    units: Fraction = _WHOLE


def family_of(instance_type: str) -> str:
    """Return the family in the name of a type: m5 of m5.large, n2 of n2-standard-4."""
    for mark in (".", "-"):
        if mark in instance_type:
            return instance_type.partition(mark)[0]
    return instance_type


def units_of(instance_type: str, milli_cpu: int) -> Fraction:
    """Return the normalisation factor of a type: 1 for small, 4 for large, 8 for each xlarge; else 2 for each CPU."""
    size = instance_type.rpartition(".")[2].rpartition("-")[2]
    known = _SIZES.get(size)
    if known is not None:
        return known
    times = size.removesuffix("xlarge") if size.endswith("xlarge") else size.removesuffix("xl")
    if times != size and times.isdigit():
        return _SIZES["xlarge"] * int(times)
    return Fraction(max(milli_cpu, 1), 500)


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of a commitment. In dollars an hour for a savings plan, in machines or units for reservations."""

    commitment: Commitment
    used: Fraction
    available: Fraction

    @property
    def free(self) -> Fraction:
        """Return what is not used."""
        return self.available - self.used


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """An hour's bill, in units of `Money`. `covered`: how much of each kind of machine is covered, and by what."""

    committed: Fraction
    uncovered: Fraction
    uses: tuple[Use, ...] = ()
    covered: Mapping[BilledMachine, tuple[tuple[str, Fraction], ...]]

    @property
    def total(self) -> Fraction:
        """Return what is paid for the hour."""
        return self.committed + self.uncovered

    def use_of(self, name: str) -> Use | None:
        """Return what is used of a commitment."""
        return next((use for use in self.uses if use.commitment.name == name), None)


class _Pair(NamedTuple):
    """A commitment and a kind of machine that it may cover, in the order in which they are covered."""

    stage: int
    share: Fraction
    rate: Fraction
    name: str
    units: Fraction
    machine: BilledMachine
    place: int


def is_coverable(machine: BilledMachine) -> bool:
    """Return whether commitments may cover such a machine: spot and reserved capacity are never covered."""
    return machine.capacity_type == names.ON_DEMAND and machine.price > 0


def is_for(commitment: Commitment, machine: BilledMachine) -> bool:
    """Return whether a commitment names such a machine, its family or everything, in its region."""
    if commitment.region and machine.region and commitment.region != machine.region:
        return False
    if commitment.is_for_everything:
        return commitment.is_plan
    return machine.instance_type in commitment.instance_types or machine.family in commitment.families


class Bills:
    """Makes bills under some commitments. Remembers in which order they cover which machines."""

    def __init__(self, commitments: Iterable[Commitment]) -> None:
        self.commitments = tuple(commitments)
        self._rates = [dict(entry.rates) for entry in self.commitments]
        self._pairs: dict[BilledMachine, tuple[_Pair, ...]] = {}
        self._totals: dict[frozenset[tuple[BilledMachine, int]], Fraction] = {}

    def rate(self, place: int, machine: BilledMachine) -> Fraction | None:
        """Return what such a machine costs an hour under a commitment; None: it doesn't cover it."""
        commitment = self.commitments[place]
        if not is_for(commitment, machine):
            return None
        if commitment.percent_off is not None:
            return machine.price * (1 - commitment.percent_off)
        found = self._rates[place].get(machine.instance_type)
        if found is None:  # reserved instances need no rate: all of the price is off
            return None if commitment.is_plan else _NOTHING
        return Fraction(found)

    def _pairs_of(self, machine: BilledMachine) -> tuple[_Pair, ...]:
        found = self._pairs.get(machine)
        if found is None:
            places = range(len(self.commitments)) if is_coverable(machine) else ()
            made = (self._pair(place, machine) for place in places)
            found = self._pairs[machine] = tuple(pair for pair in made if pair is not None)
        return found

    def _pair(self, place: int, machine: BilledMachine) -> _Pair | None:
        commitment, rate = self.commitments[place], self.rate(place, machine)
        if rate is None:
            return None
        stage = (2 if commitment.is_for_everything else 1) if commitment.is_plan else 0
        return _Pair(stage, rate / machine.price, rate, commitment.name, machine.units, machine, place)

    def may_cover(self, machine: BilledMachine) -> bool:
        """Return whether some commitment is for such machines."""
        return bool(self._pairs_of(machine))

    def total(self, machines: Mapping[BilledMachine, int]) -> Fraction:
        """Return what is paid for an hour of these machines; `machines` has how many there are of each kind."""
        mark = frozenset(machines.items())
        found = self._totals.get(mark)
        if found is None:
            if len(self._totals) > _KEPT_MAX:
                self._totals.clear()
            found = self._totals[mark] = self.bill(machines).total
        return found

    def bill(self, machines: Mapping[BilledMachine, int]) -> Bill:
        """Return the bill for an hour of these machines."""
        open_counts = {machine: Fraction(count) for machine, count in machines.items() if count > 0}
        left = _Left(self.commitments)
        covered: dict[BilledMachine, list[tuple[str, Fraction]]] = {}
        pairs = sorted(pair for machine in open_counts for pair in self._pairs_of(machine))
        for pair in pairs:
            machine, wanted = pair.machine, open_counts[pair.machine]
            taken = left.take(pair, wanted) if wanted else _NOTHING
            if taken:
                open_counts[machine] = wanted - taken
                covered.setdefault(machine, []).append((pair.name, taken))
        uncovered = sum((machine.price * count for machine, count in open_counts.items()), _NOTHING)
        extra = sum(machine.extra * count for machine, count in machines.items())
        return Bill(
            committed=sum((_cost(entry) for entry in self.commitments), _NOTHING),
            uncovered=uncovered + extra,
            uses=left.uses(),
            covered={machine: tuple(parts) for machine, parts in covered.items()},
        )


_KEPT_MAX: Final = 20_000


class _Left:
    """What is left of the commitments while a bill is made."""

    def __init__(self, commitments: tuple[Commitment, ...]) -> None:
        self._commitments = commitments
        self._dollars = {place: Fraction(entry.hourly) for place, entry in enumerate(commitments) if entry.is_plan}
        self._counts = {
            (place, what): entry.count
            for place, entry in enumerate(commitments)
            if not entry.is_plan
            for what in (*entry.instance_types, *entry.families)
        }

    def take(self, pair: _Pair, wanted: Fraction) -> Fraction:
        """Cover up to so many machines of a kind, and return how many were."""
        machine, commitment = pair.machine, self._commitments[pair.place]
        if commitment.is_plan:
            left = self._dollars[pair.place]
            taken = wanted if not pair.rate else min(wanted, left / pair.rate)
            self._dollars[pair.place] = left - taken * pair.rate
            return taken
        exact = machine.instance_type in commitment.instance_types
        key = (pair.place, machine.instance_type if exact else machine.family)
        size = _WHOLE if exact else machine.units
        taken = min(wanted, self._counts[key] / size)
        self._counts[key] -= taken * size
        return taken

    def uses(self) -> tuple[Use, ...]:
        """Return what was used of each commitment."""
        found = []
        for place, entry in enumerate(self._commitments):
            if entry.is_plan:
                available, left = Fraction(entry.hourly), self._dollars[place]
            else:
                mine = [count for (owner, _), count in self._counts.items() if owner == place]
                available, left = entry.count * len(mine), sum(mine, _NOTHING)
            found.append(Use(commitment=entry, used=available - left, available=available))
        return tuple(found)


def _cost(commitment: Commitment) -> Fraction:
    """Return what a commitment costs an hour, as far as it says: reservations need not."""
    if commitment.is_plan or commitment.hourly:
        return Fraction(commitment.hourly)
    rates = dict(commitment.rates)
    return sum((commitment.count * rates[name] for name in commitment.instance_types if name in rates), _NOTHING)
