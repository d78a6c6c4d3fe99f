"""When steering marks are written: rate, one minute per ReplicaSet, three minutes per node, permissions."""

from typing import Any

import msgspec
import pytest

from dovetail.decide.outcome import NOTHING, SteeringPlan, Victim
from dovetail.lifecycle.commands.attempts import RIGHT_MISSING
from dovetail.lifecycle.messages import Failure, InstructionFailed, InstructionSucceeded
from dovetail.lifecycle.steering import MINUTE, OPENS_AFTER, Steering
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.objects import Node, Pod
from tests.support.conversation import pod

NOW = 100 * MINUTE


def victim(name: str, owner: str = "rs") -> Victim:
    """Return a victim of an owner."""
    return Victim(owner=owner, namespace="d", name=name, uid=name)


def marked(name: str, owner: str = "rs", **more: Any) -> Pod:
    """Return a pod that is marked."""
    return pod(name, "n", owner, annotations={names.STEERING_MARK: "-100"}, **more)


def closing(name: str) -> Node:
    """Return a node that is closing."""
    tree = {"metadata": {"name": name}, "spec": {"taints": [{"key": names.CLOSING_TAINT, "effect": "NoExecute"}]}}
    return msgspec.convert(tree, Node, strict=False)


def asked(steering: Steering, plan: SteeringPlan, store: Store, at: int = NOW, rate: int = 100) -> list[str]:
    """Return the ids of the writes."""
    return [write.id.removeprefix("steer/") for write in steering.wanted(plan, store, at, rate)]


def store_of(*items: Node | Pod) -> Store:
    """Return a store that holds these objects."""
    store = Store()
    for item in items:
        store.observe(item)
    return store


def test_order_of_writes() -> None:
    """Nodes come before pods, and removals before additions; correct marks are left alone."""
    store = store_of(closing("a"), closing("b"), marked("x", "one"), marked("y", "two"), pod("z", "n", "three"))
    plan = SteeringPlan(closing=("b", "c"), victims=(victim("y", "two"), victim("z", "three")))
    assert asked(Steering(), plan, store) == ["node/open/a", "node/close/c", "pod/unmark/d/x", "pod/mark/d/z"]
    assert asked(Steering(), NOTHING, store) == ["node/open/a", "node/open/b", "pod/unmark/d/x", "pod/unmark/d/y"]


def test_a_write_is_asked_for_once_and_again_where_nobody_answers() -> None:
    """A write without an answer is repeated after half a minute."""
    steering, store, plan = Steering(), Store(), SteeringPlan(closing=("a",))
    times = [at for at in range(100) if asked(steering, plan, store, NOW + at * 10**9)]
    assert times == [0, 30, 60, 90]


@pytest.mark.parametrize(("rate", "counts"), [(0, [0, 0, 0]), (1, [1, 0, 1]), (3, [3, 0, 3]), (5, [4, 1, 3])])
def test_rate(rate: int, counts: list[int]) -> None:
    """The rate limits the writes in a minute; the rest follow later."""
    steering, store = Steering(), Store()
    plan = SteeringPlan(closing=("a", "b", "c", "d"))
    times = (NOW, NOW + MINUTE - 1, NOW + MINUTE)
    assert [len(asked(steering, plan, store, at, rate)) for at in times] == counts


def test_a_replica_set_changes_once_a_minute() -> None:
    """A ReplicaSet's mark moves after a minute; other owners' marks move at once."""
    steering, store = Steering(), store_of(pod("x", "n"), pod("y", "n"))
    assert asked(steering, SteeringPlan(victims=(victim("x"),)), store) == ["pod/mark/d/x"]
    store.observe(marked("x"))
    store.observe(marked("o", "other"))
    plan = SteeringPlan(victims=(victim("y"),))
    assert asked(steering, plan, store, NOW + MINUTE - 1) == ["pod/unmark/d/o"]
    assert asked(steering, plan, store, NOW + MINUTE) == ["pod/unmark/d/x", "pod/mark/d/y"]


def test_a_mark_that_nobody_replaces_goes_at_once() -> None:
    """A mark without a new victim is removed at once; a leaving pod takes its mark along."""
    steering, store = Steering(), store_of(pod("x", "n"), pod("y", "n"))
    asked(steering, SteeringPlan(victims=(victim("x"),)), store)
    store.observe(marked("x"))
    leaving = msgspec.to_builtins(marked("z"))
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    store.observe(msgspec.convert(leaving, Pod, strict=False))
    assert asked(steering, SteeringPlan(closing=("a",)), store, NOW + 1) == ["node/close/a", "pod/unmark/d/x"]


def test_a_pod_of_two_owners_waits_for_both() -> None:
    """A pod with two owners waits until neither has changed within the minute."""
    steering, store = Steering(), store_of(pod("x", "n", "one"))
    asked(steering, SteeringPlan(victims=(victim("x", "one"),)), store)
    tree = msgspec.to_builtins(marked("y", "one"))
    second = {**tree["metadata"]["ownerReferences"][0], "uid": "two", "name": "two"}
    tree["metadata"]["ownerReferences"] = [*tree["metadata"]["ownerReferences"], second]
    store.observe(msgspec.convert(tree, Pod, strict=False))
    store.observe(marked("z", "two"))
    plan = SteeringPlan(victims=(victim("x", "one"), victim("z", "two")))
    assert "pod/unmark/d/y" not in asked(steering, plan, store, NOW + MINUTE - 1)
    assert "pod/unmark/d/y" in asked(steering, plan, store, NOW + MINUTE)


@pytest.mark.parametrize(("after", "opens"), [(OPENS_AFTER - 1, False), (OPENS_AFTER, True)])
def test_a_node_stays_closing_for_three_minutes(after: int, opens: bool) -> None:
    """A node stays closing for three minutes while others are closing; otherwise it opens at once."""
    for plan, at_once in ((SteeringPlan(closing=("b",)), False), (NOTHING, True)):
        steering, store = Steering(), Store()
        asked(steering, SteeringPlan(closing=("a",)), store)
        store.observe(closing("a"))
        assert ("node/open/a" in asked(steering, plan, store, NOW + after)) == (opens or at_once)
    assert asked(Steering(), SteeringPlan(closing=("b",)), store_of(closing("a")), OPENS_AFTER - 1) == ["node/close/b"]
    assert "node/open/a" in asked(Steering(), SteeringPlan(closing=("b",)), store_of(closing("a")), OPENS_AFTER)


def test_a_missing_right_bars_its_kind_but_for_one_a_minute() -> None:
    """A forbidden write stops its kind but for one attempt a minute; other kinds and failures do not."""
    steering, store = Steering(), store_of(pod("x", "n"), pod("y", "n", "two"))
    plan = SteeringPlan(closing=("a",), victims=(victim("x"), victim("y", "two")))
    first = asked(steering, plan, store)
    assert first == ["node/close/a", "pod/mark/d/x", "pod/mark/d/y"]
    assert not steering.answer(InstructionFailed(id="steer/node/close/z", failure=Failure.FORBIDDEN), NOW)
    assert steering.answer(InstructionFailed(id="steer/pod/mark/d/x", failure=Failure.FORBIDDEN), NOW)
    assert steering.answer(InstructionFailed(id="steer/pod/mark/d/y", failure=Failure.CONFLICT), NOW)
    assert steering.answer(InstructionFailed(id="steer/node/close/a", failure=Failure.THROTTLED), NOW)
    assert asked(steering, plan, store, NOW + RIGHT_MISSING - 1) == ["node/close/a"]
    assert asked(steering, plan, store, NOW + RIGHT_MISSING) == ["pod/mark/d/x"]
    assert asked(steering, plan, store, NOW + 2 * RIGHT_MISSING - 1) == ["node/close/a"]
    assert steering.answer(InstructionSucceeded(id="steer/pod/mark/d/x"), NOW)
    assert asked(steering, plan, store, NOW + 2 * RIGHT_MISSING - 1) == ["pod/mark/d/y"]
    assert Steering().wanted(plan, store, 0, 100) != []


def test_what_was_changed_long_ago_is_forgotten() -> None:
    """A change is forgotten after exactly ten minutes."""
    steering, store = Steering(), store_of(pod("x", "n"))
    asked(steering, SteeringPlan(closing=("a",), victims=(victim("x"),)), store)
    asked(steering, SteeringPlan(closing=("b",)), store, NOW + 10 * MINUTE - 1)
    assert sorted(steering._closed_at) == ["a", "b"]
    asked(steering, SteeringPlan(closing=("c",)), store, NOW + 10 * MINUTE)
    assert (sorted(steering._closed_at), steering._changed_at) == (["b", "c"], {})
