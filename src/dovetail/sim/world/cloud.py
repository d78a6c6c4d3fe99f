"""The simulated cloud: what a NodeClaim gets, what it costs, when it is out of stock, when spot is interrupted.

Chooses the cheapest offering in stock that a NodeClaim allows (price, then type name; zones of equal price at random or
by name). Spot prices may change; every change is announced as a new catalogue. Knows no pods. The bill is exact:
attodollars per hour times nanoseconds, divided only when someone asks. With a meter the machines cost what they cost
together (`sim.world.metering`), else the sum of their prices.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.money import Money, nearest
from dovetail.model.objects import NodeClaim
from dovetail.model.quantity import resource_amount
from dovetail.scheduling.launch.purchase import LaunchableTypes, Machine, launch_order
from dovetail.sim.world.clock import HOUR, MINUTE, Clock, Dice, Span, seconds

# How long Karpenter leaves an offering alone after the cloud had none.
UNAVAILABLE_FOR: Final = 3 * MINUTE
INTERRUPTION_NOTICE: Final = 2 * MINUTE

OfferingKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudTimes:
    """How long the cloud and a machine's start take, and how its prices and its stock behave."""

    create: Span = field(default_factory=lambda: seconds(1.5, 4))
    register: Span = field(default_factory=lambda: seconds(20, 40))
    ready: Span = field(default_factory=lambda: seconds(5, 12))
    shutdown: Span = field(default_factory=lambda: seconds(2, 6))
    interruptions_per_hour: float = 0.0
    price_interval: int = 0
    price_sigma: float = 0.0
    any_zone: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine that runs and is paid for."""

    claim: str
    kind: InstanceType
    zone: str
    capacity_type: str
    started: int
    pool: str = ""
    region: str = ""

    @property
    def offering(self) -> OfferingKey:
        """Return what it was bought as."""
        return (self.kind.name, self.zone, self.capacity_type)


Meter = Callable[[Iterable[Instance], Catalogue], Fraction]
"""What machines cost an hour together."""


class Cloud:
    """Machines, offerings and the bill."""

    def __init__(self, catalogue: Catalogue, times: CloudTimes, clock: Clock, dice: Dice) -> None:
        self.clock = clock
        self.times = times
        self.dice = dice
        self.catalogue = catalogue
        self.instances: dict[str, Instance] = {}
        self.dry: dict[OfferingKey, int] = {}
        self.on_catalogue: Callable[[Catalogue], None] = lambda catalogue: None
        self.on_interruption: Callable[[str], None] = lambda claim: None
        self.on_gone: Callable[[Instance], None] = lambda instance: None
        self.launches = 0
        self._unavailable: dict[OfferingKey, int] = {}
        self._launchable = LaunchableTypes(())
        self._prices: dict[OfferingKey, Money] = {}
        self.meter: Meter | None = None
        self._rate: Money = 0
        self._metered: Fraction | None = None
        self._bill: Fraction | int = 0
        self._billed_at = 0
        self._index()
        if times.price_interval and times.price_sigma:
            clock.after(times.price_interval, self._move_prices)

    # ------------------------------------------------------------ launching

    def launch(self, claim: NodeClaim) -> Instance | None:
        """Launch a machine for the claim; None if nothing that it allows is in stock."""
        name = claim.metadata.name
        found = self._cheapest(claim)
        if found is None:
            return None
        kind, offering = found
        instance = Instance(
            claim=name,
            kind=kind,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
            started=self.clock.now,
            pool=claim.metadata.labels.get(names.NODEPOOL, ""),
            region=claim.metadata.labels.get(names.REGION, ""),
        )
        self._accrue()
        self.instances[name] = instance
        self._rate += self._prices[instance.offering]
        self.launches += 1
        if offering.capacity_type == names.SPOT and self.times.interruptions_per_hour > 0:
            wait = self.dice.of("spot", name).expovariate(self.times.interruptions_per_hour)
            self.clock.after(int(wait * HOUR), self._interrupt, instance)
        return instance

    def adopt(self, instance: Instance) -> None:
        """Add a machine that ran before the simulation started; it is billed from now on."""
        self._accrue()
        self.instances[instance.claim] = instance
        self._rate += self._prices.get(instance.offering, 0)

    def terminate(self, claim: str) -> None:
        """Terminate a machine; one that is already gone is ignored."""
        instance = self.instances.get(claim)
        if instance is not None:
            self._accrue()
            del self.instances[claim]
            self._rate -= self._prices.get(instance.offering, 0)
            self.on_gone(instance)

    def _cheapest(self, claim: NodeClaim) -> tuple[InstanceType, Offering] | None:
        options: list[Machine] = []
        found_dry = False
        requests = {key: resource_amount(key, amount) for key, amount in claim.spec.resources.requests.items()}
        for machine in self._launchable.offers(claim.spec.requirements, requests):
            offering = machine.offering
            key = (machine.kind.name, offering.zone, offering.capacity_type)
            if self.dry.get(key, -1) > self.clock.now:
                self._unavailable[key] = self.clock.now + UNAVAILABLE_FOR
                found_dry = True
            elif offering.available:
                options.append(machine)
        if found_dry:
            self._announce()
            self.clock.after(UNAVAILABLE_FOR, self._announce)
        if not options:
            return None
        least = min(options, key=launch_order)
        if self.times.any_zone:
            alike = launch_order(least)[:3]
            ties = sorted((machine for machine in options if launch_order(machine)[:3] == alike), key=launch_order)
            if len(ties) > 1:
                least = self.dice.of("zone", claim.metadata.name).choice(ties)
        return least.kind, least.offering

    # ------------------------------------------------------------ stock and prices

    def run_dry(self, offering: OfferingKey, until: int) -> None:
        """Set an offering out of stock until then; callers notice when they ask for one."""
        self.dry[offering] = until

    def set_price(self, offering: OfferingKey, price: Money, price_float: float) -> None:
        """Change one price and announce it."""
        self._reprice({offering: (price, price_float)})

    def _move_prices(self) -> None:
        dice = self.dice.stream("prices")
        moved: dict[OfferingKey, tuple[Money, float]] = {}
        for kind in self.catalogue.instance_types:
            ceilings = [o.price_float for o in kind.offerings if o.capacity_type == names.ON_DEMAND]
            for offering in kind.offerings:
                if offering.capacity_type != names.SPOT:
                    continue
                ceiling = min(ceilings, default=offering.price_float * 2)
                price = offering.price_float * math.exp(dice.gauss(0.0, self.times.price_sigma))
                price = round(min(max(price, 0.2 * ceiling), ceiling), 6)
                micros = round(price * 1_000_000)
                moved[(kind.name, offering.zone, offering.capacity_type)] = (micros * 10**12, price)
        self._reprice(moved)
        self.clock.after(self.times.price_interval, self._move_prices)

    def _reprice(self, moved: dict[OfferingKey, tuple[Money, float]]) -> None:
        self._accrue()

        def priced(kind: InstanceType, offering: Offering) -> Offering:
            found = moved.get((kind.name, offering.zone, offering.capacity_type))
            return offering if found is None else replace(offering, price=found[0], price_float=found[1])

        kinds = tuple(
            replace(kind, offerings=tuple(priced(kind, offering) for offering in kind.offerings))
            for kind in self.catalogue.instance_types
        )
        self.catalogue = replace(self.catalogue, instance_types=kinds)
        self._index()
        self._rate = sum(self._prices.get(instance.offering, 0) for instance in self.instances.values())
        self._announce()

    def _announce(self) -> None:
        self.on_catalogue(self.seen_catalogue())

    def seen_catalogue(self) -> Catalogue:
        """Return the catalogue as Karpenter sees it: what was recently out of stock is not available."""
        closed = {key for key, until in self._unavailable.items() if until > self.clock.now}
        if not closed:
            return self.catalogue
        kinds = tuple(
            replace(
                kind,
                offerings=tuple(
                    replace(o, available=False) if (kind.name, o.zone, o.capacity_type) in closed else o
                    for o in kind.offerings
                ),
            )
            if any(key[0] == kind.name for key in closed)
            else kind
            for kind in self.catalogue.instance_types
        )
        return replace(self.catalogue, instance_types=kinds)

    def _interrupt(self, instance: Instance) -> None:
        if self.instances.get(instance.claim) is instance:
            self.on_interruption(instance.claim)

    def _index(self) -> None:
        self._launchable = LaunchableTypes(self.catalogue.instance_types, self._launchable)
        self._prices = {
            (kind.name, offering.zone, offering.capacity_type): offering.price
            for kind in self.catalogue.instance_types
            for offering in kind.offerings
        }

    # ------------------------------------------------------------ the bill

    def _accrue(self) -> None:
        """Bill the time since the last change; call it before every change."""
        if self.clock.now > self._billed_at:
            self._bill += self._exact_rate() * (self.clock.now - self._billed_at)
            self._billed_at = self.clock.now
        self._metered = None

    def bill(self) -> Money:
        """Return what all machines have cost so far."""
        self._accrue()
        return self._bill // HOUR

    @property
    def rate(self) -> Money:
        """Return what the machines that run now cost per hour."""
        found = self._exact_rate()
        return found if isinstance(found, int) else nearest(found)

    def _exact_rate(self) -> Fraction | Money:
        if self.meter is None:
            return self._rate
        if self._metered is None:
            self._metered = self.meter(self.instances.values(), self.catalogue)
        return self._metered

    def price_of(self, offering: OfferingKey) -> Money:
        """Return the price per hour of an offering; 0 where it is not in the catalogue."""
        return self._prices.get(offering, 0)
