"""The price gates of a cost action, one by one (docs/rules.md#price)."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dovetail.decide.methods.method import blocked_move
from dovetail.decide.refusal import below_threshold
from dovetail.model import names
from dovetail.model.catalogue import InstanceType
from dovetail.model.money import format_money, parse_money
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, MinValuesPolicy
from tests.support.design_world import Town, kind
from tests.support.nodes import facts_of

FREE = {"consolidationSavingsThreshold": 0}
BOTH = (names.ON_DEMAND, names.SPOT)


def _in_zone(made: InstanceType, zone: str, price: str) -> InstanceType:
    """Return the same type with another price in one zone."""
    offers = tuple(
        replace(o, price=parse_money(price), price_float=float(price)) if o.zone == zone else o for o in made.offerings
    )
    return replace(made, offerings=offers)


def _alone(town: Town) -> Any:
    result = town.round(every_method=True, every_candidate=True)
    return result.methods[-1].alone[0]


def test_the_dearest_zone_counts() -> None:
    """Gate 2: a type that is cheaper in one zone only does not count as savings."""
    for price, goes in (("0.21", False), ("0.20", False), ("0.19", True)):
        town = Town(kind("old", "0.20"), _in_zone(kind("new", "0.10"), "c", price))
        town.pool(disruption=FREE)
        town.node("n", "old")
        town.fill("n", 2, cpu="1500m")
        assert (town.act() is not None) is goes


def test_savings_are_never_overstated() -> None:
    """The savings of a replacement use its most expensive zone."""
    town = Town(kind("old", "0.20"), _in_zone(kind("new", "0.10"), "c", "0.15"))
    town.pool(disruption=FREE)
    town.node("n", "old")
    town.fill("n", 2, cpu="1500m")
    command = town.act()
    assert command is not None
    assert format_money(command.savings) == "0.05"


def test_on_demand_to_a_mix_asks_for_spot_only() -> None:
    """Gate 5: if spot and on-demand are possible, Dovetail requests spot only."""
    town = Town(kind("m", "0.20", spot="0.06"))
    town.pool(capacity=BOTH, disruption=FREE)
    town.node("n", "m")
    town.fill("n", 2, cpu="1500m")
    command = town.act()
    assert command is not None
    assert command.replacements[0].capacity_types == (names.SPOT,)
    entry = next(r for r in command.replacements[0].requirements if r.key == names.CAPACITY_TYPE)
    assert entry.values == (names.SPOT,)


def test_narrowed_only_to_what_is_offered() -> None:
    """A pool without a spot offering keeps on-demand; Karpenter requests spot although it has no offering."""
    for settings, values in ((DOVETAIL, (names.ON_DEMAND, names.SPOT)), (KARPENTER_1_15, (names.SPOT,))):
        town = Town(kind("old", "0.20"), kind("new", "0.10"), settings=settings)
        town.pool(capacity=BOTH, disruption=FREE)
        town.node("n", "old", conditions=[{"type": "Consolidatable", "status": "True"}])
        town.fill("n", 2, cpu="1500m")
        command = town.act()
        assert command is not None
        entry = next(r for r in command.replacements[0].requirements if r.key == names.CAPACITY_TYPE)
        assert entry.values == values


def test_spot_to_spot_is_a_setting() -> None:
    """Gate 5: spot to spot is on by default and can be switched off; the gate says so."""
    kinds = [kind(f"t{n:02d}", "1", spot=f"0.{10 + n}") for n in range(20)]
    town = Town(kind("now", "1", spot="0.50"), *kinds)
    town.pool(capacity=(names.SPOT,), disruption=FREE)
    town.node("n", "now", capacity=names.SPOT)
    town.fill("n", 2, cpu="1500m")
    command = town.act()
    assert command is not None
    assert command.replacements[0].instance_types == tuple(f"t{n:02d}" for n in range(15))
    town.settings = replace(DOVETAIL, spot_to_spot_consolidation=False)
    assert town.act() is None
    assert town.verdicts()["n"] == "spot-to-spot"


def test_several_nodes_have_no_minimum_of_types() -> None:
    """Gate 5: the minimum of 15 types is for one node; several spot nodes may become one of a single type."""
    town = Town(kind("half", "1", cpu=4, spot="0.50"), kind("whole", "2", cpu=8, memory=32, spot="0.60"))
    town.pool(capacity=(names.SPOT,), disruption=FREE)
    for name in ("a", "b"):
        town.node(name, "half", capacity=names.SPOT)
        town.fill(name, 2, cpu="1900m")
    command = town.act()
    assert command is not None
    assert command.nodes == ("a", "b")
    assert command.replacements[0].instance_types == ("whole",)


def test_keeping_one_of_them_would_do_as_well() -> None:
    """Gate 4: two nodes are not replaced by one of the same type, since deleting one gives the same result."""
    town = Town(kind("m", "0.20", cpu=4), kind("x", "0.25", cpu=4))
    town.pool(disruption=FREE)
    for name in ("a", "b"):
        town.node(name, "m")
        town.fill(name, 1, cpu="1500m")
    batch = town.round(every_method=True).methods[3]
    assert all(command.action.value != "replaceCost" for command in batch.commands)


@pytest.mark.parametrize(("least", "goes"), [(1, True), (2, False)])
def test_min_values_are_checked_again(least: int, goes: bool) -> None:
    """After the price filter the remaining types must still meet the pool's minValues."""
    town = Town(kind("old", "0.20"), kind("new", "0.10"), kind("dear", "0.90"))
    wanted = {"key": names.INSTANCE_TYPE, "operator": "Exists", "minValues": least}
    town.pool(disruption=FREE, requirements=[wanted])
    town.node("n", "old")
    town.fill("n", 2, cpu="1500m")
    assert (town.act() is not None) is goes
    if not goes:
        assert town.verdicts()["n"] == "min-values"
        town.settings = replace(DOVETAIL, min_values_policy=MinValuesPolicy.BEST_EFFORT)
        assert town.act() is not None


def test_a_pending_pod_does_not_block_a_deletion() -> None:
    """A new node for a pending pod does not turn a deletion into a replacement, except under Karpenter's profile."""
    for settings, action in ((DOVETAIL, "deleteCost"), (KARPENTER_1_15, None)):
        town = Town(kind("m", "0.20"), settings=settings)
        town.pool(disruption=FREE)
        consolidatable = [{"type": "Consolidatable", "status": "True"}]
        town.node("a", "m", conditions=consolidatable)
        town.fill("a", 1)
        town.node("b", "m", conditions=consolidatable)
        town.fill("b", 1, cpu="3000m")
        town.pod("waiting", cpu="3900m")
        alone = _alone(town)
        assert alone.node == "a"
        assert (None if alone.command is None else alone.command.action.value) == action


def test_money_is_exact() -> None:
    """1.00 - 0.90 >= 0.10 holds; in binary floats it would not."""
    assert not 1.00 - 0.90 >= 0.10
    town = Town(kind("old", "1.00"), kind("new", "0.90"))
    town.pool(disruption={"consolidationSavingsThreshold": 0.01})
    town.node("n", "old")
    town.fill("n", 10, cpu="300m")
    assert town.act() is not None


def test_figures_of_a_batch_are_said_to_be_a_batchs() -> None:
    """A pool with a low threshold is not said to have to save what a batch with other pools has to.

    Design: savings-threshold.
    """
    refusal = below_threshold(10**18, 2 * 10**18, Fraction(3 * 10**18), replaced=False)
    one = facts_of(name="w", pool_name="web")
    others = [facts_of(name=f"b{index}", pool_name="batch") for index in range(3)]
    alone = blocked_move((one,), refusal)
    assert (alone.node_pools, alone.why) == (("web",), refusal.why)
    batch = blocked_move((one, *others), refusal)
    assert batch.node_pools == ("batch", "web")
    assert batch.why == (
        "As one batch, 4 nodes of NodePools batch, web would save $1.00/h; restarting their pods must save at "
        "least $3.00/h."
    )
    assert "3 nodes of NodePool batch would save" in blocked_move(others, refusal).why


@pytest.mark.parametrize(
    ("threshold", "gate"), [(1, "savings-threshold"), (0, "eligible")], ids=["saves too little", "nothing is asked for"]
)
def test_the_cheapest_type_says_which_gate_it_was(threshold: float, gate: str) -> None:
    """If one type is a little cheaper, the refusal names the threshold and not the price."""
    town = Town(kind("less", "0.19"), kind("same", "0.20"), kind("more", "0.30", cpu=8))
    town.pool(disruption={"consolidationSavingsThreshold": threshold})
    town.node("n", "same")
    town.pod("p", "n", cpu="2000m")
    assert town.verdicts()["n"] == gate
