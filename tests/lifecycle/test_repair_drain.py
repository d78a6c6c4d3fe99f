"""The drain limit of an unhealthy node: the shortest limit of the repair rules that match."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.model import names
from dovetail.model.objects import Condition, Node, NodePool, NodeStatus, ObjectMeta
from tests.support.lifecycle_world import Driver, World, engine_for

MINUTE = 60 * 10**9
RULES: list[dict[str, Any]] = [
    {"condition": "Ready", "status": "Unknown", "for": "10m", "drainFor": "5m"},
    {"condition": "Ready", "status": "False", "for": "10m"},
    {"condition": "DiskPressure", "status": "True", "for": "10m", "drainFor": "2m"},
]


@pytest.mark.parametrize(
    ("conditions", "minutes"),
    [
        ({"Ready": "Unknown"}, 5),
        ({"Ready": "Unknown", "DiskPressure": "True"}, 2),
        ({"Ready": "Unknown", "DiskPressure": "False"}, 5),
        ({"Ready": "False"}, None),
        ({"Ready": "True"}, None),
        ({}, None),
    ],
    ids=["one rule", "two: the shorter", "the other's condition is well", "a rule without a bound", "well", "unknown"],
)
def test_the_shortest_bound_of_the_rules_that_are_met(conditions: dict[str, str], minutes: int | None) -> None:
    """Rules with another status, an absent condition or no limit are ignored."""
    tree = {"metadata": {"name": "web", "labels": {names.MANAGE: "true"}}, "spec": {"disruption": {"repair": RULES}}}
    pool = msgspec.convert(tree, NodePool, strict=False)
    since = datetime(2026, 1, 1, tzinfo=UTC)
    found = tuple(Condition(type=key, status=value, last_transition_time=since) for key, value in conditions.items())
    node = Node(metadata=ObjectMeta(name="a", labels={names.NODEPOOL: "web"}), status=NodeStatus(conditions=found))
    world, engine = World(), engine_for()
    for item in (pool, node):
        world.put(item)
    Driver(world, engine).begin()
    bound = engine._state.view().drain_for(pool, node)
    assert bound == (None if minutes is None else minutes * MINUTE)
