"""How many nodes expire when, and which of them the budgets can't take before Karpenter ends them by force."""

from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any

import pytest

from dovetail.decide.methods.outlook import expiring_days, expiring_nodes
from dovetail.decide.scene import Scene
from dovetail.lifecycle.reports import ExpiryChanged, expiry_reports
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.model.timing.duration import MINUTE
from dovetail.plan.calendar import calendar_of
from dovetail.ui.document import _expiring
from tests.support.design_world import NOW, Town, kind

HOUR = timedelta(hours=1)
WEEK = timedelta(days=7)
SHORT = timedelta(minutes=20)


def town(
    count: int, left: timedelta, settings: Settings = DOVETAIL, launch: timedelta = timedelta(), **disruption: Any
) -> Town:
    """Build nodes whose NodeClaims Karpenter ends this long from now, after a life of a hundred hours.

    `launch`: how long each took from its claim to its initialized node; nothing: the pool shows no launch.
    """
    made = Town(kind("m", "0.20"), settings=settings)
    made.pool(disruption={"consolidateAfter": "Never", **disruption})
    for number in range(count):
        made.node(f"n{number:02d}", "m", age=100 * HOUR - left, life="100h", launch=launch)
    return made


def in_time(made: Town, span: timedelta = WEEK) -> tuple[int, int]:
    """Return how many nodes expire, and how many of them the budgets can take before."""
    found = expiring_nodes(Scene.of(made.question()), span)
    return len(found), sum(entry.in_time for entry in found)


@pytest.mark.parametrize(
    ("left", "disruption", "settings", "expected"),
    [
        pytest.param(20 * HOUR, {"budgets": [{"nodes": "100%"}]}, DOVETAIL, (12, 12), id="no limit"),
        pytest.param(20 * HOUR, {"budgets": [{"nodes": "1"}]}, DOVETAIL, (12, 12), id="one at a time, ten hours"),
        pytest.param(SHORT, {"budgets": [{"nodes": "1"}]}, DOVETAIL, (12, 10), id="one at a time, twenty minutes"),
        pytest.param(SHORT, {"budgets": [{"nodes": "20%"}]}, DOVETAIL, (12, 12), id="three at a time"),
        pytest.param(HOUR, {"budgets": [{"nodes": "0"}]}, DOVETAIL, (12, 0), id="none"),
        pytest.param(HOUR, {"budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}, DOVETAIL, (12, 12), id="not its"),
        pytest.param(20 * HOUR, {"budgets": [{"nodes": "2", "per": "5h"}]}, DOVETAIL, (12, 4), id="a rate"),
        pytest.param(
            20 * HOUR,
            {"budgets": [{"nodes": "2"}], "windows": [{"schedule": "0 3 * * *", "duration": "3m"}]},
            DOVETAIL,
            (12, 4),
            id="a window of three minutes",
        ),
        pytest.param(20 * HOUR, {}, replace(DOVETAIL, expiry_lead=0), (12, 0), id="no lead, no time"),
        pytest.param(20 * HOUR, {"budgets": [{"nodes": "0"}]}, KARPENTER_1_15, (0, 0), id="left to Karpenter"),
    ],
)
def test_what_the_budgets_can_take(
    left: timedelta, disruption: dict[str, Any], settings: Settings, expected: tuple[int, int]
) -> None:
    """A budget takes its number at once, 115 s each, from when nodes count as expired until they are ended.

    These are 15 s of validation, 40 s for a launch (the pool has shown none) and a minute for a drain; a replacement
    that is there in time is enough.
    """
    assert in_time(town(12, left, settings, **disruption)) == expected


@pytest.mark.parametrize(
    ("minutes", "expected"), [pytest.param(4, 10, id="as fast as it gets"), pytest.param(9, 6), pytest.param(29, 2)]
)
def test_a_node_takes_as_long_as_the_nodes_of_its_pool_took(minutes: int, expected: int) -> None:
    """In a pool whose machines take long to launch, a budget of one takes fewer nodes in an hour."""
    made = town(10, HOUR, launch=timedelta(minutes=minutes) - timedelta(seconds=15), budgets=[{"nodes": "1"}])
    assert in_time(made) == (10, expected)


def test_nodes_that_leave_or_are_not_ready_use_the_budget() -> None:
    """A node that leaves uses a budget until it is gone, one that is not ready uses it all the time."""
    made = town(4, SHORT, budgets=[{"nodes": "1"}])
    assert in_time(made) == (4, 4)
    made.node("ill", "m", ready=False)
    assert in_time(made) == (4, 0)


@pytest.mark.parametrize("days", [1, 2, 7, 30])
def test_everybody_says_the_same(days: int) -> None:
    """`budgets`, `top` and `ui`, and the metric agree on how many are late, however far ahead `budgets` looks."""
    made = town(9, SHORT, budgets=[{"nodes": "1", "reasons": ["Expired"]}, {"nodes": "12", "per": "48h"}])
    for number in range(9):
        made.node(f"m{number}", "m", age=100 * HOUR - 30 * HOUR, life="100h")
    scene = Scene.of(made.question())
    (pool,) = calendar_of(scene, days)
    late = [entry.node for entry in pool.expiring if not entry.in_time]
    week = made.round().expiring
    assert {entry.node for entry in week if not entry.in_time and entry.left <= timedelta(days=days)} == set(late)
    assert expiry_reports(week)["default"].late == sum(not entry.in_time for entry in week)
    shown = [row["what"] for row in _expiring(made.round(), made.now)]
    assert shown == ["Karpenter ends 18 nodes by force; the budgets can't take 6 of them before"]


@pytest.mark.parametrize(("budget", "expected"), [("0", (3, 0)), ("1", (3, 3)), ("100%", (3, 3))])
def test_a_short_life_is_judged_by_its_budgets(budget: str, expected: tuple[int, int]) -> None:
    """Nodes that live ten minutes, with a lead of five, go one by one before Karpenter ends them."""
    settings = replace(DOVETAIL, expiry_lead=5 * MINUTE)
    made = Town(kind("m", "0.20"), settings=settings)
    made.pool(disruption={"consolidateAfter": "Never", "budgets": [{"nodes": budget}]})
    for number in range(3):
        made.node(f"n{number}", "m", age=timedelta(minutes=3), life="10m")
    assert in_time(made) == expected
    made.now += timedelta(minutes=2)
    assert in_time(made) == expected, "they count as expired now"


def test_nodes_that_leave_already_or_expire_later_do_not_count() -> None:
    """Only nodes that Karpenter ends within the time asked for, and that are not leaving, are counted."""
    made = town(3, 20 * HOUR)
    assert in_time(made, 19 * HOUR) == (0, 0)
    assert in_time(made, 20 * HOUR) == (3, 3)
    command = made.act()
    assert command is None, "ten hours are to go before they count as expired"
    made.node("never", "m")
    assert in_time(made) == (3, 3)
    made.now += 11 * HOUR
    command = made.act()
    assert command is not None
    made.mark(command)
    assert in_time(made)[0] == 3 - len(command.nodes)
    made.now += 10 * HOUR
    assert in_time(made) == (0, 0), "their time has passed"


def test_days_and_the_warning() -> None:
    """Nodes are counted by day; the warning names the day, what the budgets allow and what Karpenter does."""
    made = town(4, HOUR, budgets=[{"nodes": "1"}])
    for number in range(3):
        made.node(f"m{number}", "m", age=100 * HOUR - 30 * HOUR, life="100h")
    made.node("other", "m", age=100 * HOUR - timedelta(minutes=20), life="100h")
    scene = Scene.of(made.question(now=NOW))
    days = expiring_days(expiring_nodes(scene, WEEK), UTC)
    assert [(day.nodes, day.in_time) for day in days] == [(5, 5), (3, 3)]
    tight = town(12, SHORT, budgets=[{"nodes": "1"}])
    found = expiring_nodes(Scene.of(tight.question()), WEEK)
    (day,) = expiring_days(found, UTC)
    assert day.late(UTC) == (
        "12 nodes of NodePool default expire on Wednesday 2026-05-13, the budgets allow 10: "
        "Karpenter will end the rest by force"
    )
    assert expiry_reports(found) == {
        "default": ExpiryChanged(pool="default", within_day=12, within_week=12, late=2, why=day.late(UTC))
    }


def test_one_node_is_told_in_the_singular() -> None:
    """A single node expires."""
    (day,) = expiring_days(expiring_nodes(Scene.of(town(1, HOUR, budgets=[{"nodes": "0"}]).question()), WEEK), UTC)
    assert day.late(UTC).startswith("1 node of NodePool default expires on Wednesday")


def test_a_round_has_them() -> None:
    """The result of a round lists the nodes that expire within a week."""
    assert [entry.node for entry in town(2, HOUR).round().expiring] == ["n00", "n01"]
