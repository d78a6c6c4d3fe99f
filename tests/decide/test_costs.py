"""The cost of disturbing pods, at its limits (docs/rules.md#cost)."""

import math
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from dovetail.decide.facts import cost
from dovetail.decide.facts.cost import UNIT
from dovetail.model import names
from dovetail.model.objects import Pod
from dovetail.model.rules import DOVETAIL_RULES
from tests.support.nodes import NOW

HOUR = 3600 * 10**9
RANKED = cost.cost_reading(DOVETAIL_RULES, ranked=True)
OWN, COMMON, MARK = names.DISRUPTION_COST, names.POD_DELETION_COST, names.STEERING_MARK


def _pod(priority: int | None = None, **annotations: str) -> Pod:
    tree: dict[str, Any] = {"metadata": {"annotations": annotations}, "spec": {"priority": priority}}
    return msgspec.convert(tree, Pod, strict=False)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-1", -1),
        ("+7", 7),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("-2147483648", -2147483648),
        ("-2147483649", None),
        ("1.5", None),
        ("", None),
        ("much", None),
    ],
)
def test_what_is_a_number(text: str, number: int | None) -> None:
    """A deletion cost is a 32-bit integer; any other value costs nothing and causes a warning."""
    read = (0, f"{OWN}: {text!r}") if number is None else (number, None)
    assert cost.deletion_cost({OWN: text}) == read


@pytest.mark.parametrize(
    ("annotations", "ranked", "number"),
    [
        ({}, False, 0),
        ({COMMON: "3"}, False, 3),
        ({COMMON: "3"}, True, 0),
        ({OWN: "5", COMMON: "3"}, False, 5),
        ({OWN: "5", COMMON: "3"}, True, 5),
        ({COMMON: "3", MARK: "3"}, False, 0),
        ({COMMON: "3", MARK: "4"}, False, 3),
        ({OWN: "3", MARK: "3"}, False, 3),
    ],
)
def test_which_cost_counts(annotations: dict[str, str], ranked: bool, number: int) -> None:
    """Karpenter's own annotation wins; ranks from Karpenter and costs from Dovetail are ignored."""
    assert cost.deletion_cost(annotations, RANKED if ranked else cost.ORDINARY) == (number, None)


@pytest.mark.parametrize(
    ("priority", "annotations", "units"),
    [
        (None, {}, UNIT),
        (0, {}, UNIT),
        (0, {"other": "x"}, UNIT),
        (None, {"other": "x"}, UNIT),
        (1, {}, UNIT + 4),
        (-1, {}, UNIT - 4),
        (None, {OWN: "9"}, UNIT + 9),
        (2, {OWN: "9"}, UNIT + 17),
        (2_000_000_000, {}, 10 * UNIT),
        (-2_000_000_000, {}, -10 * UNIT),
        (None, {OWN: "2147483647"}, 10 * UNIT),
    ],
)
def test_cost_of_a_pod(priority: int | None, annotations: dict[str, str], units: int) -> None:
    """A pod costs 1 plus its deletion cost and priority, at most 10 in either direction."""
    assert cost.eviction_cost(_pod(priority, **annotations)) == units


def test_ranks_are_no_costs() -> None:
    """If Karpenter writes ranks as deletion costs, they cost nothing and cause no warning."""
    pod = _pod(**{COMMON: "x"})
    assert cost.unreadable_cost(pod) == f"{COMMON}: 'x'"
    assert cost.unreadable_cost(pod, RANKED) is None
    assert cost.unreadable_cost(_pod()) is None
    assert cost.eviction_cost(_pod(**{COMMON: "3"})) == UNIT + 3
    assert cost.eviction_cost(_pod(**{COMMON: "3"}), RANKED) == UNIT


@pytest.mark.parametrize(
    ("life", "age", "left"),
    [
        (None, timedelta(hours=1), Fraction(1)),
        (HOUR, None, Fraction(1)),
        (HOUR, timedelta(), Fraction(1)),
        (HOUR, timedelta(minutes=-5), Fraction(1)),
        (HOUR, timedelta(minutes=15), Fraction(3, 4)),
        (HOUR, timedelta(microseconds=1), Fraction(HOUR - 1000, HOUR)),
        (HOUR, timedelta(minutes=60), Fraction(0)),
        (HOUR, timedelta(minutes=61), Fraction(0)),
        (0, timedelta(minutes=-1), Fraction(0)),
        (1000, timedelta(), Fraction(1)),
        (1, timedelta(microseconds=-1), Fraction(1)),
    ],
)
def test_life_that_is_left(life: int | None, age: timedelta | None, left: Fraction) -> None:
    """The remaining life is between 1 and 0 for any clock; it is 1 without an expiry or creation time."""
    created = None if age is None else NOW - age
    assert cost.lifetime_remaining(life, created, NOW) == left
    amount, unit = cost.node_cost(3 * UNIT, life, created, NOW)
    assert Fraction(amount, unit) == 3 * left
    if life:
        assert cost.lifetime_remaining_float(life, created, NOW) == pytest.approx(float(left))


@pytest.mark.parametrize(("age", "left"), [(0, math.nan), (1, 0.0), (-1, 1.0)])
def test_karpenters_life_of_nothing(age: int, left: float) -> None:
    """Karpenter divides by zero for a lifetime of zero, and so does its profile."""
    found = cost.lifetime_remaining_float(0, NOW - timedelta(seconds=age), NOW)
    assert found == left or (math.isnan(found) and math.isnan(left))


@pytest.mark.parametrize(("life", "created"), [(None, NOW), (0, None), (None, None)])
def test_karpenters_life_without_end(life: int | None, created: datetime | None) -> None:
    """A node without an expiry or a creation time has its whole life left."""
    assert cost.lifetime_remaining_float(life, created, NOW + timedelta(hours=1)) == 1.0


def test_a_node_without_life_costs_nothing() -> None:
    """A node with a lifetime of zero has a cost of 0."""
    assert cost.node_cost(3 * UNIT, 0, NOW, NOW) == (0, UNIT)


def test_rescheduling_cost() -> None:
    """The rescheduling cost is one more than the sum of the pods' costs."""
    assert cost.rescheduling_cost(0) == 1
    assert cost.rescheduling_cost(UNIT // 2) == Fraction(3, 2)
