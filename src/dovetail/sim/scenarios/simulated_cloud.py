"""A scenario's cloud: its instance types, their prices, and how long machines take.

Reads the scenario's section `cloud` and `catalogue`; knows nothing of pools or workloads.
"""

import fnmatch
from dataclasses import replace
from decimal import Decimal
from typing import Final

from dovetail.api.catalogue import CatalogueError, load_catalogue
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.money import parse_money
from dovetail.model.objects import (
    SelectorRequirement,
)
from dovetail.model.quantity import value
from dovetail.sim.scenarios.scenario import Scenario, ScenarioError
from dovetail.sim.scenarios.sections import CloudSection, OfferedType
from dovetail.sim.scenarios.spans import span
from dovetail.sim.world.cloud import CloudTimes

_MIB: Final = 1024 * 1024


def catalogue_of(scenario: Scenario) -> Catalogue:
    """Return the instance types of a scenario: its own table, or those of a catalogue that match its patterns."""
    file = scenario.file
    if scenario.catalogue is not None:
        return scenario.catalogue
    if not isinstance(file.catalogue, str):
        kinds = tuple(offered(entry, file.zones) for entry in file.catalogue)
        return Catalogue(instance_types=kinds, source=scenario.source)
    try:
        found = load_catalogue(file.catalogue)
    except CatalogueError as error:
        raise ScenarioError(f"{scenario.source}: catalogue: {error}") from None
    if not file.types:
        return found
    kept = tuple(kind for kind in found.instance_types if any(fnmatch.fnmatch(kind.name, p) for p in file.types))
    if not kept:
        raise ScenarioError(f"{scenario.source}: types: no type of {file.catalogue} matches; write patterns as m5.*")
    return replace(found, instance_types=kept)


def offered(entry: OfferedType, zones: tuple[str, ...]) -> InstanceType:
    """Return an instance type as the cloud would describe it, with a kubelet's usual overhead."""
    name, cpu = entry.name, entry.cpu
    size = value(entry.memory)
    offerings = [_offering(names.ON_DEMAND, zone, entry.price) for zone in zones]
    if entry.spot is not None:
        offerings += [_offering(names.SPOT, zone, entry.spot) for zone in zones]
    labels = {
        names.INSTANCE_TYPE: (name,),
        names.ARCH: (entry.arch,),
        names.OS: ("linux",),
        names.ZONE: zones,
        names.CAPACITY_TYPE: tuple(sorted({offering.capacity_type for offering in offerings})),
        "karpenter.k8s.aws/instance-family": (entry.family or name.partition(".")[0],),
        "karpenter.k8s.aws/instance-cpu": (str(cpu),),
    }
    return InstanceType(
        name=name,
        requirements=tuple(
            SelectorRequirement(key=key, operator="In", values=vs) for key, vs in sorted(labels.items())
        ),
        capacity={"cpu": cpu * 1000, "memory": size, "pods": entry.pods, "ephemeral-storage": 20 * 1024 * _MIB},
        overhead={"cpu": 70 + 5 * cpu, "memory": size * 8 // 100 + 300 * _MIB},
        offerings=tuple(offerings),
    )


def _offering(capacity_type: str, zone: str, price: float) -> Offering:
    exact = parse_money(Decimal(str(price)))
    return Offering(capacity_type=capacity_type, zone=zone, price=exact, price_float=price)


def times_of(section: CloudSection) -> CloudTimes:
    """Return the cloud's times."""
    prices = section.spot_prices
    return CloudTimes(
        create=span(section.create),
        register=span(section.register),
        ready=span(section.ready),
        shutdown=span(section.shutdown),
        interruptions_per_hour=section.interruptions_per_hour,
        price_interval=span(prices.every).low if prices is not None else 0,
        price_sigma=prices.sigma if prices is not None else 0.0,
        any_zone=section.zone_choice == "any",
    )
