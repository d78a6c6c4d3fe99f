"""Design grace-period: its three timelines, sources and destinations, and what it does not affect."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.design_world import NOW, Town, kind, moved

HALF_AN_HOUR = {"consolidationGracePeriod": "30m", "consolidationSavingsThreshold": 0}
SECONDS, MINUTES = timedelta(seconds=1), timedelta(minutes=1)
LONG_AGO = timedelta(hours=10)


def _town(**disruption: Any) -> Town:
    """Return a pool with the design's grace period on nodes of four cores that cost the same."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={**HALF_AN_HOUR, **disruption})
    return town


def _later(town: Town, span: timedelta) -> Town:
    town.now = NOW + span
    return town


@pytest.mark.parametrize(
    ("after", "goes"),
    [
        (10 * SECONDS, None),
        (29 * MINUTES, None),
        (30 * MINUTES - SECONDS, None),
        (30 * MINUTES, "node-a"),
        (30 * MINUTES + 10 * SECONDS, "node-a"),
    ],
    ids=str,
)
def test_example_1_a_new_node_is_invisible(after: timedelta, goes: str | None) -> None:
    """Until its half hour has passed Node_D takes no pods; then A's pods move there and A goes.

    Design: grace-period, Example 1.

    A, B and C are full but for what D offers, so that only D can take anything.
    """
    town = _town()
    town.node("node-a", "m", idle=LONG_AGO)
    town.pod("a-0", "node-a", cpu="1500m")
    for name in ("node-b", "node-c"):
        town.node(name, "m", idle=LONG_AGO)
        town.pod(f"{name}-0", name, cpu="4000m")
    town.node("node-d", "m", age=timedelta(0), idle=timedelta(0))
    town.pod("d-0", "node-d", cpu="2000m")
    command = _later(town, after).act()
    assert moved(command) == (None if goes is None else ("deleteCost", (goes,)))
    if command is not None:
        assert [placement.node for placement in command.placements] == ["node-d"]


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (10 * SECONDS, "grace-period"),
        (29 * MINUTES, "grace-period"),
        (30 * MINUTES + 10 * SECONDS, "grace-period"),
        (59 * MINUTES - SECONDS, "grace-period"),
        (59 * MINUTES, "eligible"),
        (59 * MINUTES + 10 * SECONDS, "eligible"),
    ],
    ids=str,
)
def test_example_2_each_pod_event_starts_anew(after: timedelta, verdict: str) -> None:
    """Grace-period, Example 2: a pod added at 0 and one removed at 29 min hide Node_C until 59 min."""
    town = _town()
    for name in ("node-a", "node-b"):
        town.node(name, "m", idle=LONG_AGO)
        town.pod(f"{name}-0", name, cpu="2000m")
    town.node("node-c", "m", idle=timedelta(0))
    town.pod("c-0", "node-c", cpu="1000m")
    if after >= 29 * MINUTES:
        _later(town, 29 * MINUTES).event("node-c")
    assert _later(town, after).verdicts()["node-c"] == verdict


def test_example_3_an_empty_node_goes_at_once() -> None:
    """Grace-period, Example 3: a node in its grace period that becomes empty is deleted."""
    town = _town()
    town.node("node-d", "m", idle=timedelta(0))
    _later(town, 10 * MINUTES).event("node-d")
    assert moved(town.act()) == ("deleteEmpty", ("node-d",))


@pytest.mark.parametrize(
    ("disruption", "settled"),
    [
        ({"consolidationGracePeriod": "Never"}, True),
        ({"consolidationGracePeriod": None}, True),
        ({"consolidationGracePeriod": "30m"}, False),
        ({"consolidationGracePeriod": "1m"}, True),
    ],
    ids=["Never", "unset", "half an hour", "over already"],
)
def test_never_and_unset_are_off(disruption: dict[str, str | None], settled: bool) -> None:
    """Grace-period, Validation and Defaults: Never is the same as not set, and both leave a node visible."""
    town = _town(**disruption)
    town.node("node-a", "m", idle=5 * MINUTES)
    town.node("node-b", "m", idle=5 * MINUTES)
    town.pod("a-0", "node-a")
    town.pod("b-0", "node-b", cpu="2000m")
    assert (town.act() is not None) is settled


def test_initialized_stands_in_for_a_pod_event() -> None:
    """Grace-period, Core Logic: a node without any pod event counts from when it was initialized."""
    town = _town()
    town.node("node-a", "m", age=20 * MINUTES, idle=None)
    town.node("node-b", "m", age=LONG_AGO, idle=None)
    town.pod("a-0", "node-a")
    town.pod("b-0", "node-b")
    assert town.verdicts()["node-a"] == "grace-period"
    assert town.verdicts()["node-b"] != "grace-period"


def test_drift_does_not_look_at_it() -> None:
    """docs/rules.md#timers: drift ignores the grace period of both the drifted node and the destination."""
    town = _town()
    town.node("node-a", "m", idle=MINUTES, drifted=MINUTES)
    town.node("node-b", "m", idle=MINUTES)
    town.pod("a-0", "node-a")
    town.pod("b-0", "node-b")
    command = town.act()
    assert moved(command) == ("deleteDrifted", ("node-a",))
    assert command is not None
    assert [placement.node for placement in command.placements] == ["node-b"]


def test_pending_pods_may_land_there() -> None:
    """docs/rules.md#timers: a node in its grace period is closed to moved pods only.

    The pending pod takes the room that node-a's pod would need elsewhere; it lands on the settling node.
    """
    town = _town()
    town.node("node-a", "m", idle=LONG_AGO)
    town.pod("a-0", "node-a", cpu="500m")
    town.node("node-b", "m", idle=LONG_AGO)
    town.pod("b-0", "node-b", cpu="3000m")
    town.node("node-c", "m", idle=MINUTES)
    town.pod("c-0", "node-c", cpu="1000m")
    town.pod("waiting", cpu="2500m")
    command = town.act()
    assert moved(command) == ("deleteCost", ("node-a",))
    assert command is not None
    assert {p.node: p.pods for p in command.placements}["node-c"] == ("default/waiting",)


def test_static_pools_ignore_it() -> None:
    """Grace-period, Code Definition: with replicas set it is ignored; the node is a destination like any other."""
    town = _town()
    town.pool("fixed", replicas=1, disruption=HALF_AN_HOUR)
    town.node("node-a", "m", idle=LONG_AGO)
    town.pod("a-0", "node-a")
    town.node("node-s", "m", pool="fixed", idle=MINUTES)
    town.pod("s-0", "node-s")
    assert moved(town.act()) == ("deleteCost", ("node-a",))
