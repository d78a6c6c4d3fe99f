"""The Balanced score as Karpenter v1.15 computes it in Karpenter's profile, and the exact score in Dovetail's."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.decide.decider import Decider
from dovetail.model.catalogue import InstanceType, Offering
from dovetail.model.money import parse_money
from dovetail.model.objects import NodeClaim
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from tests.support.design_world import Town, kind, moved

CONSOLIDATABLE = {"type": "Consolidatable", "status": "True"}
BALANCED = {"consolidationPolicy": "Balanced", "consolidationSavingsThreshold": 0}


def _zoned(made: InstanceType, prices: dict[str, str]) -> InstanceType:
    offers = tuple(
        Offering(capacity_type="on-demand", zone=zone, price=parse_money(text), price_float=float(text))
        for zone, text in prices.items()
    )
    return InstanceType(
        name=made.name,
        requirements=made.requirements,
        capacity=made.capacity,
        overhead=made.overhead,
        offerings=offers,
    )


def _town(settings: Settings, *kinds: InstanceType, **disruption: Any) -> Town:
    town = Town(*kinds, settings=settings)
    town.pool(disruption={**BALANCED, **disruption})
    return town


@pytest.mark.parametrize(("settings", "goes"), [(KARPENTER_1_15, True), (DOVETAIL, False)])
def test_savings_are_by_the_cheapest_zone_for_karpenter(settings: Settings, goes: bool) -> None:
    """Karpenter scores with the cheapest zone that can launch, Dovetail with the most expensive one."""
    small = _zoned(kind("small", "1", cpu=2), {"a": "0.20", "b": "0.95", "c": "0.95"})
    town = _town(settings, kind("big", "1", cpu=4), small)
    for name in ("one", "two"):
        town.node(name, "big", conditions=[CONSOLIDATABLE])
        town.pod(f"on-{name}", name, cpu="1900m" if name == "one" else "3900m")
    # Half of the pool's disruption has to save a quarter of its cost: 0.50 of 2.00.
    command = town.act()
    assert (moved(command) == ("replaceCost", ("one",))) is goes


def test_claims_that_do_not_say_what_they_are_are_not_in_karpenters_total() -> None:
    """Without a claim that carries its labels, the total is the sum over the candidates."""
    town = _town(KARPENTER_1_15, kind("m", "1", cpu=4))
    for name in ("one", "two", "three"):
        town.node(name, "m", conditions=[CONSOLIDATABLE])
        town.pod(f"on-{name}", name, cpu="1")
    whole = town.act()
    for name, claim in town.claims.items():
        bare: NodeClaim = msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, labels={}))
        town.claims[name] = bare
    assert moved(town.act()) == moved(whole)


def test_karpenter_does_not_score_again_at_validation() -> None:
    """An approved command stays valid if the pool's totals change against it later."""
    outcomes = {}
    for settings in (KARPENTER_1_15, DOVETAIL):
        town = _town(settings, kind("cheap", "0.10", cpu=4), kind("dear", "10", cpu=4))
        town.node("one", "cheap", conditions=[CONSOLIDATABLE])
        town.node("two", "cheap", conditions=[CONSOLIDATABLE])
        for name in ("one", "two"):
            town.pod(f"on-{name}", name, cpu="1")
        command = town.act()
        assert command is not None
        town.node("new", "dear", idle=timedelta(0))
        town.fill("new", 1, cpu="3900m")
        again = Decider(memory=False).revalidate(command, town.question())
        outcomes[settings.profile.value] = getattr(again, "gate", None)
    assert outcomes == {"karpenter-1.15": None, "dovetail": "balanced"}
