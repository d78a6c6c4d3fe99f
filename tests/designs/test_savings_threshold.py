"""Design savings-threshold: its worked examples, to the cent."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from dovetail.decide.refusal import below_threshold
from dovetail.model import names
from dovetail.model.money import format_money, parse_money
from dovetail.model.settings import DOVETAIL
from tests.support.design_world import Town, kind, moved, spot_kind

LIFE = "1000h"


def _threshold(value: float) -> dict[str, Any]:
    return {"consolidationSavingsThreshold": value}


def _aged(share: float) -> timedelta:
    """Return the age at this share of a life of a thousand hours."""
    return timedelta(hours=1000) * share


@pytest.mark.parametrize(
    ("threshold", "through_life", "pods", "goes"),
    [
        pytest.param(0, 0.0, 5, True, id="Problem Statement: before, $0.006 is enough"),
        pytest.param(0.01, 0.0, 5, False, id="Issue #7146 with proposed algorithm: $0.006 < $0.05"),
        pytest.param(0.01, 0.9, 5, True, id="the same at 90 %: cost 0.5 asks for $0.005 <= $0.006"),
    ],
)
def test_issue_7146(threshold: float, through_life: float, pods: int, goes: bool) -> None:
    """Savings-threshold, Issue #7146: m6a.large at $0.086 with five pods, m7i-flex.large at $0.080."""
    town = Town(kind("m6a.large", "0.086", cpu=2, memory=8), kind("m7i-flex.large", "0.080", cpu=2, memory=8))
    town.pool(disruption=_threshold(threshold))
    town.node("n", "m6a.large", age=_aged(through_life), life=LIFE)
    town.fill("n", pods, cpu="300m")
    command = town.act()
    assert moved(command) == (("replaceCost", ("n",)) if goes else None)
    if command is not None:
        assert format_money(command.savings) == "0.006"
        assert command.replacements[0].instance_types == ("m7i-flex.large",)
    if through_life == 0.9:
        assert command is not None
        assert format_money(command.required_savings) == "0.005"


def test_five_pods_need_five_cents() -> None:
    """For a 5-pod node with threshold 0.01, required savings is $0.05/hr; exactly that is enough.

    Design: savings-threshold, Context.
    """
    for price, goes in (("0.15", True), ("0.1499", False)):
        town = Town(kind("old", price), kind("new", "0.10"))
        town.pool(disruption=_threshold(0.01))
        town.node("n", "old")
        town.fill("n", 5, cpu="500m")
        assert (town.act() is not None) is goes


@pytest.mark.parametrize(
    ("replacement", "through_life", "goes"),
    [
        pytest.param("0.90", 0.0, True, id="$0.10 >= $0.10, exactly"),
        pytest.param("0.901", 0.0, False, id="a tenth of a cent less"),
        pytest.param("0.95", 0.5, True, id="half way through its life $0.05 is enough"),
        pytest.param("0.951", 0.5, False, id="and a tenth of a cent less is not"),
    ],
)
def test_several_nodes_add_up(replacement: str, through_life: float, goes: bool) -> None:
    """A and B at $0.50 with 3 and 7 pods into one at $0.90, at exactly $0.10.

    Design: savings-threshold, Multi-node consolidation.

    Alone neither may go: nothing cheaper holds its pods.
    """
    town = Town(kind("half", "0.50", cpu=4, memory=16), kind("whole", replacement, cpu=8, memory=32))
    town.pool(disruption=_threshold(0.01))
    for name, pods in (("a", 3), ("b", 7)):
        town.node(name, "half", age=_aged(through_life), life=LIFE)
        town.fill(name, pods, cpu=f"{3600 // pods}m", memory="64Mi")
    command = town.act()
    assert moved(command) == (("replaceCost", ("a", "b")) if goes else None)
    if command is not None:
        assert command.replacements[0].instance_types == ("whole",)
        assert command.disruption_cost == 10.0 * (1 - through_life)


def test_sum_over_pools() -> None:
    """docs/rules.md#price, gate 3: the required savings are the sum over nodes with their pool's threshold."""
    for threshold_b, goes in ((0.01, True), (0.011, False)):
        town = Town(kind("half", "0.50", cpu=4, memory=16), kind("whole", "0.90", cpu=8, memory=32))
        town.pool("pa", disruption=_threshold(0.01))
        town.pool("pb", disruption=_threshold(threshold_b))
        town.node("a", "half", pool="pa")
        town.fill("a", 3, cpu="1200m")
        town.node("b", "half", pool="pb")
        town.fill("b", 7, cpu="510m")
        assert (town.act() is not None) is goes


@pytest.mark.parametrize(
    ("pods", "goes"), [(5, True), (10, True), (11, False), (50, False)], ids=lambda value: str(value)
)
def test_ten_cents_for_five_pods_but_not_for_fifty(pods: int, goes: bool) -> None:
    """Savings-threshold, the first plus of option 1: to save $0.10, disrupting 5 pods passes while 50 pods fail."""
    town = Town(kind("old", "0.40", cpu=8), kind("new", "0.30", cpu=8))
    town.pool(disruption=_threshold(0.01))
    town.node("n", "old")
    town.fill("n", pods, cpu="100m")
    assert (town.act() is not None) is goes


# ---------------------------------------------------------------- spot (the proposal's figures can't be: a dearer node)


def _spot_town(saving: list[str], price: str = "1.00", pods: int = 8, **node: Any) -> Town:
    """Return a spot node that many cheaper spot types could replace, with these savings."""
    source = Decimal(price)
    kinds = [spot_kind(f"t{place:03d}", str(source - Decimal(text))) for place, text in enumerate(saving)]
    town = Town(spot_kind("now", price), *kinds)
    town.pool(capacity=(names.SPOT,), disruption=_threshold(0.01))
    town.node("n", "now", capacity=names.SPOT, **node)
    town.fill("n", pods, cpu="400m")
    return town


def _spread(low: str, high: str, count: int) -> list[str]:
    first, step = Decimal(low), (Decimal(high) - Decimal(low)) / max(1, count - 1)
    return [str(first + step * place) for place in range(count)]


FIFTY = [*_spread("0.02", "0.05", 12), *_spread("0.08", "0.14", 18), *_spread("0.15", "0.30", 20)]


def test_fifty_thirty_eight_fifteen() -> None:
    """50 cheaper types, 38 save enough for 8 pods, the 15 cheapest are launched.

    Design: savings-threshold, pipeline and Appendix A.
    """
    command = _spot_town(FIFTY).act()
    assert moved(command) == ("replaceCost", ("n",))
    assert command is not None
    assert format_money(command.required_savings) == "0.08"
    dearest_first = [f"t{place:03d}" for place in range(49, 34, -1)]
    assert list(command.replacements[0].instance_types) == dearest_first
    every = _spot_town(FIFTY)
    every.settings = replace(DOVETAIL, spot_minimum_types=38)
    command = every.act()
    assert command is not None
    assert len(command.replacements[0].instance_types) == 38
    every.settings = replace(DOVETAIL, spot_minimum_types=39)
    assert every.act() is None


def test_half_way_all_fifty_pass() -> None:
    """Savings-threshold, Appendix A: at 50 % of its life the cost is 4.0, $0.04 is asked for.

    savings-threshold says that all 50 pass; of its twelve marginal types those that save $0.02 to $0.04 can't.
    """
    town = _spot_town(["0.04"] * 12 + FIFTY[12:], age=_aged(0.5), life=LIFE)
    town.settings = replace(DOVETAIL, spot_minimum_types=50)
    command = town.act()
    assert command is not None
    assert len(command.replacements[0].instance_types) == 50


@pytest.mark.parametrize(("passing", "goes"), [(14, False), (15, True)])
def test_fourteen_are_too_few(passing: int, goes: bool) -> None:
    """14 of 50 types pass the threshold and 15 are the least: refused at that gate.

    Design: savings-threshold, Edge case example.
    """
    town = _spot_town([*_spread("0.02", "0.07", 50 - passing), *_spread("0.08", "0.15", passing)])
    assert (town.act() is not None) is goes
    if not goes:
        verdict = next(entry for entry in town.round(every_method=True).verdicts if entry.node == "n")
        assert verdict.verdict == "spot-flexibility"
        assert verdict.gates[-1].figures["types"] == 14


# ---------------------------------------------------------------- deletion


@pytest.mark.parametrize(
    ("through_life", "goes"),
    [
        pytest.param(0.0, False, id="fresh: $0.10 < $0.20"),
        pytest.param(0.4, False, id="at 40 %: $0.10 < $0.12"),
        pytest.param(0.5, True, id="at half: $0.10 >= $0.10"),
        pytest.param(0.9, True, id="at 90 %: $0.10 >= $0.02"),
    ],
)
def test_a_dense_cheap_node_stays_until_it_ages(through_life: float, goes: bool) -> None:
    """Savings-threshold, Consolidate-delete behavior: a $0.10 node with 20 pods, fresh and at 90 % of its life."""
    town = Town(kind("cheap", "0.10"), kind("big", "1.00", cpu=32))
    town.pool(disruption=_threshold(0.01))
    town.node("n", "cheap", age=_aged(through_life), life=LIFE)
    town.fill("n", 20)
    town.node("other", "big", annotations={names.DO_NOT_DISRUPT: "true"})
    town.fill("other", 1)
    assert moved(town.act()) == (("deleteCost", ("n",)) if goes else None)
    if not goes:
        assert town.verdicts()["n"] == "savings-threshold"


def test_zero_is_the_old_behaviour() -> None:
    """Savings-threshold, Lifecycle and Rollback: a threshold of 0 lets any savings do; the default is 0.01."""
    for disruption, goes in (({}, False), (_threshold(0), True), (_threshold(0.01), False)):
        town = Town(kind("old", "0.1001"), kind("new", "0.10"))
        town.pool(disruption=disruption)
        town.node("n", "old")
        town.fill("n", 1, cpu="3000m")
        assert (town.act() is not None) is goes


def test_negative_costs_ask_for_less() -> None:
    """docs/rules.md#cost: pods of negative cost lower the required savings; a node's cost may be negative."""
    town = Town(kind("old", "0.1001"), kind("new", "0.10"))
    town.pool(disruption=_threshold(0.01))
    town.node("n", "old")
    town.fill("n", 1, cpu="3000m")
    town.pod("low", "n", annotations={names.POD_DELETION_COST: "-2147483647"})
    command = town.act()
    assert moved(command) == ("replaceCost", ("n",))
    assert command is not None
    assert command.disruption_cost < 0
    assert command.required_savings < 0


# ---------------------------------------------------------------- Appendix A: on-demand price calibration

PRICES = {
    "m8i.large": ("0.1058", 2, 8),
    "c8i.xlarge": ("0.1874", 4, 8),
    "m8i.xlarge": ("0.2117", 4, 16),
    "r8i.xlarge": ("0.2778", 4, 32),
    "m8i.2xlarge": ("0.4234", 8, 32),
}


@pytest.mark.parametrize(
    ("source", "target", "saves", "threshold", "goes"),
    [
        pytest.param("m8i.xlarge", "c8i.xlarge", "0.0243", 0.01, False, id="m8i to c8i is blocked"),
        pytest.param("r8i.xlarge", "m8i.xlarge", "0.0661", 0.01, True, id="r8i to m8i is allowed"),
        pytest.param("m8i.xlarge", "c8i.xlarge", "0.0243", 0.004, True, id="lower the threshold: m8i to c8i goes"),
        pytest.param("r8i.xlarge", "m8i.xlarge", "0.0661", 0.02, False, id="raise it: r8i to m8i stays"),
        pytest.param("m8i.2xlarge", "m8i.xlarge", "0.2117", 0.01, True, id="half the size"),
        pytest.param("m8i.xlarge", "m8i.large", "0.1059", 0.01, True, id="half the size again"),
        pytest.param("m8i.large", "c8i.xlarge", None, 0.01, False, id="dearer, never"),
    ],
)
def test_appendix_a(source: str, target: str, saves: str | None, threshold: float, goes: bool) -> None:
    """Savings-threshold, Appendix A: five pods on real prices of December 2025, allowed and blocked moves."""
    town = Town(
        *(kind(name, *PRICES[name][:1], cpu=PRICES[name][1], memory=PRICES[name][2]) for name in (source, target))
    )
    town.pool(disruption=_threshold(threshold))
    town.node("n", source)
    town.fill("n", 5, cpu="300m", memory="1Gi")
    command = town.act()
    assert moved(command) == (("replaceCost", ("n",)) if goes else None)
    if command is not None:
        assert format_money(command.savings) == saves


# ---------------------------------------------------------------- Appendix B: tuning guide


@pytest.mark.parametrize(
    ("threshold", "pods", "required"),
    [
        (0.005, 5, "0.025"),
        (0.005, 10, "0.05"),
        (0.005, 50, "0.25"),
        (0.01, 5, "0.05"),
        (0.01, 10, "0.1"),
        (0.01, 50, "0.5"),
        (0.02, 5, "0.1"),
        (0.02, 10, "0.2"),
        (0.02, 50, "1"),
    ],
)
def test_appendix_b(threshold: float, pods: int, required: str) -> None:
    """What each threshold asks for 5, 10 and 50 pods; that much passes, a hair less does not.

    Design: savings-threshold, Appendix B.
    """
    for spare, goes in (("0", True), ("0.0001", False)):
        price = str(Decimal(required) + Decimal("0.05") - Decimal(spare))
        town = Town(kind("old", price, cpu=8), kind("new", "0.05", cpu=8))
        town.pool(disruption=_threshold(threshold))
        town.node("n", "old")
        town.fill("n", pods, cpu="100m")
        command = town.act()
        assert (command is not None) is goes
        if command is not None:
            assert format_money(command.required_savings) == required


def test_figures_of_a_refusal_are_numbers() -> None:
    """The figures of a refusal are plain numbers without a currency sign or words."""
    refusal = below_threshold(parse_money("0.05"), parse_money("0.20"), Fraction(parse_money("0.10")), replaced=True)
    assert {key: float(str(value)) for key, value in refusal.figures.items()} == {
        "savingsPerHour": 0.05,
        "requiredSavingsPerHour": 0.1,
        "price": 0.2,
    }
