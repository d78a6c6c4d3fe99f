"""Decisions under commitments, discounts and surcharges: savings are the bill before less the bill after, exact."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.in_flight import InFlight, LeavingNode
from dovetail.model.money import format_money
from dovetail.model.objects import SelectorRequirement
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, RECOMMENDED, Settings
from dovetail.plan.apply import apply_commands
from dovetail.scheduling.under_way import UnderWay
from tests.support.commitments import paying, plan, reserved
from tests.support.design_world import Town, kind, moved

FREE = {"consolidationSavingsThreshold": 0}


def _empties(settings: Settings, count: int) -> Town:
    town = Town(kind("m", "0.10"), settings=settings)
    town.pool(disruption={**FREE, "budgets": [{"nodes": "100%"}]})
    for number in range(count):
        town.node(f"n{number}", "m")
    return town


@pytest.mark.parametrize(("reservations", "saved"), [(0, "0.3"), (1, "0.2"), (2, "0.1"), (3, "0"), (9, "0")])
def test_empty_nodes_that_reservations_pay_for_save_nothing(reservations: int, saved: str) -> None:
    """Three empty nodes save what the reservations don't pay for, not three prices."""
    command = _empties(paying(commitments=[reserved(reservations, "m")]), 3).act()
    assert command is not None
    assert len(command.nodes) == 3
    assert format_money(command.savings) == saved


def _pair(settings: Settings) -> Town:
    """Return two nodes of which one would hold the pods of both."""
    town = Town(kind("m", "0.10"), settings=settings)
    town.pool(disruption=FREE)
    for name in ("a", "b"):
        town.node(name, "m")
        town.pod(f"p-{name}", name)
    return town


@pytest.mark.parametrize(
    ("commitments", "saved"),
    [
        ([], "0.1"),
        ([reserved(1, "m")], "0.1"),
        ([plan("0.05", "50%")], "0.1"),
        ([plan("0.075", "50%")], "0.05"),
    ],
)
def test_a_deletion_saves_the_difference_of_two_bills(commitments: list[dict[str, Any]], saved: str) -> None:
    """One of two nodes goes and saves what is not covered any more."""
    command = _pair(paying(commitments=commitments)).act()
    assert command is not None
    assert format_money(command.savings) == saved


@pytest.mark.parametrize("commitments", [[reserved(2, "m")], [plan("0.10", "50%")], [plan("5", {"m": "0.06"})]])
def test_nodes_that_are_paid_for_anyway_are_not_worth_a_restart(commitments: list[dict[str, Any]]) -> None:
    """With a threshold above 0, a node whose going saves nothing stays; a warning-free plan says why."""
    settings = paying(commitments=commitments)
    town = Town(kind("m", "0.10"), settings=settings)
    town.pool(disruption={"consolidationSavingsThreshold": 0.01})
    for name in ("a", "b"):
        town.node(name, "m")
        town.pod(f"p-{name}", name)
    assert town.act() is None
    assert town.verdicts()["a"] == "savings-threshold"


@pytest.mark.parametrize("settings", [DOVETAIL, RECOMMENDED])
@pytest.mark.parametrize(("reservations", "gone"), [(0, 3), (1, 3), (2, 2), (3, 1), (4, 0)])
def test_a_batch_has_no_node_that_saves_nothing(settings: Settings, reservations: int, gone: int) -> None:
    """Of four nodes as many go as are not paid for anyway: another one would restart pods for nothing."""
    town = Town(kind("m", "0.10"), settings=paying(settings, commitments=[reserved(reservations, "m")]))
    town.pool(disruption={"consolidationSavingsThreshold": 0.01, "restartPrice": "1m"})
    for name in ("a", "b", "c", "d"):
        town.node(name, "m")
        town.pod(f"p-{name}", name)
    command = town.act()
    assert (0 if command is None else len(command.nodes)) == gone
    assert command is None or format_money(command.savings) == f"0.{min(gone, 4 - reservations)}"


def _replaceable(settings: Settings, **more: Any) -> Town:
    """Return one large node whose pod fits on smaller types: a cheap one, and a dearer one that may be covered."""
    kinds = (kind("large", "0.40", cpu=16), kind("cheap", "0.10", cpu=4), kind("covered", "0.15", cpu=4))
    town = Town(*kinds, settings=settings)
    town.pool(disruption=FREE, **more)
    town.node("n", "large")
    town.pod("p", "n", cpu="2")
    return town


def test_a_covered_type_costs_nothing_until_the_commitment_is_used_up() -> None:
    """The replacement is of the covered type, and not of the cheaper one that would be launched in its place."""
    command = _replaceable(paying(commitments=[reserved(1, "covered")])).act()
    assert command is not None
    assert format_money(command.savings) == "0.4"
    assert command.replacements[0].instance_types == ("covered",)


def test_a_used_up_commitment_makes_no_type_cheaper() -> None:
    """Once another node uses the reservation, the cheaper type is the better one."""
    town = _replaceable(paying(commitments=[reserved(1, "covered")]))
    town.node("other", "covered")
    town.pod("q", "other", cpu="3500m")
    command = town.act()
    assert command is not None
    assert format_money(command.savings) == "0.3"
    assert command.replacements[0].instance_types[0] == "cheap"


def test_what_a_command_in_flight_launches_uses_up_the_commitment() -> None:
    """Two commands don't promise the same reservation, though the first one's machine is not there yet."""
    town = _replaceable(paying(commitments=[reserved(1, "covered")]))
    town.node("m", "large")
    town.pod("p", "n", cpu="9")
    town.pod("q", "m", cpu="9")
    town.kinds.update(cheap=kind("cheap", "0.10", cpu=10), covered=kind("covered", "0.15", cpu=10))
    first = town.act()
    assert first is not None
    assert first.replacements[0].instance_types == ("covered",)
    going = tuple(LeavingNode(node=name, method=first.method, since=town.now) for name in first.nodes)
    flight = InFlight(leaving=going, under_way=UnderWay(launches=first.replacements))
    question = town.question(in_flight=flight)
    (second,) = Decider().round(question).commands
    assert second.replacements[0].instance_types[0] == "cheap"
    both = sum(command.savings for command in (first, second))
    applied = apply_commands(town.cluster, (first, second), town.catalogue, town.now)
    after = Decider().round(town.question(cluster=applied.cluster))
    assert both == town.round().staying_cost - after.staying_cost


def test_a_plan_that_becomes_free_pays_for_the_replacement() -> None:
    """The plan that the leaving node used covers the new one, so only what was not covered is saved."""
    command = _replaceable(paying(commitments=[plan("0.05", "50%")])).act()
    assert command is not None
    # before: 0.05 + (0.40 - 0.10); after: 0.05 covers all of the cheap type
    assert format_money(command.savings) == "0.3"
    assert command.replacements[0].instance_types[0] == "cheap"


def test_a_replacement_of_a_covered_node_saves_nothing() -> None:
    """A node that a reservation pays for is not replaced by a cheaper type that none pays for."""
    town = _replaceable(paying(commitments=[reserved(1, "large")]))
    assert town.act() is None
    assert town.verdicts()["n"] == "price"


def test_a_discount_and_a_surcharge() -> None:
    """A discount is off on-demand prices of its cloud, a surcharge on top of the pools with its kind of NodeClass."""
    settings = paying(discount={"aws": "20%"}, surcharge=[{"nodeClassKind": "EC2NodeClass", "percent": 12}])
    town = _empties(settings, 1)
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    town.pool(disruption=FREE, template={"spec": {"nodeClassRef": reference}})
    command = town.act()
    assert command is not None
    assert format_money(command.savings) == "0.0896"


@pytest.mark.parametrize(
    ("discount", "saves", "told"),
    [
        ({"aws": "20%"}, "0.08", "discount.aws: no node, NodeClass or price (the catalogue) says which cloud this is"),
        ({"aws": "20%", "gcp": "10%"}, "0.1", "none of aws, gcp is taken off"),
    ],
)
def test_a_discount_where_nothing_says_the_cloud(discount: dict[str, str], saves: str, told: str) -> None:
    """The only discount is taken to be for this cluster; of several none is. A warning says so."""
    town = _empties(paying(discount=discount), 1)
    command = town.act()
    assert command is not None
    assert format_money(command.savings) == saves
    assert any(told in text for text in town.round().warnings)


def test_the_catalogue_says_the_cloud() -> None:
    """A discount is for the cloud whose labels the instance types carry, and for no other."""
    label = SelectorRequirement(key="karpenter.k8s.aws/instance-cpu", operator="In", values=("4",))
    for discount, saves in (({"aws": "20%"}, "0.08"), ({"gcp": "20%"}, "0.1")):
        town = _empties(paying(discount=discount), 1)
        only = town.kinds["m"]
        town.kinds["m"] = replace(only, requirements=(*only.requirements, label))
        command = town.act()
        assert command is not None
        assert format_money(command.savings) == saves
        assert not any("discount" in text for text in town.round().warnings)


def test_karpenters_decisions_stay_and_the_money_changes() -> None:
    """Under Karpenter's rules the command is the same with commitments; only what it saves is another sum."""
    plain = _empties(KARPENTER_1_15, 3)
    paid = _empties(paying(KARPENTER_1_15, commitments=[reserved(2, "m")]), 3)
    for town in (plain, paid):
        for name in ("n0", "n1", "n2"):
            town.remove(name)
            town.node(name, "m", conditions=[{"type": "Consolidatable", "status": "True"}])
    first, second = plain.act(), paid.act()
    assert first is not None
    assert second is not None
    assert moved(first) == moved(second)
    assert (format_money(first.savings), format_money(second.savings)) == ("0.3", "0.1")


def test_the_bill_of_a_round() -> None:
    """A round knows what is committed, what is not covered and what is free."""
    result = _empties(paying(commitments=[plan("0.5", "50%")]), 3).round()
    assert result.bill is not None
    assert format_money(result.cost_per_hour) == "0.5"
    (use,) = result.bill.uses
    assert use.free == Fraction(35, 100) * 10**18
    assert set(result.prices.values()) == {0}


def test_memory_never_changes_the_answer() -> None:
    """A decider that remembers earlier rounds gives the prices of one that doesn't."""
    town, remembering = _pair(paying(commitments=[plan("0.05", "50%"), reserved(1, "m")])), Decider()
    for step in range(4):
        town.node(f"more{step}", "m")
        town.pod(f"q{step}", f"more{step}")
        question = town.question()
        one, other = remembering.round(question), Decider(memory=False).round(question)
        assert one.prices == other.prices
        assert [moved(c) for c in one.commands] == [moved(c) for c in other.commands]
        assert one.cost_per_hour == other.cost_per_hour
