"""The last pod event of a node: the later of what Karpenter wrote and what Dovetail saw (docs/rules.md#timers)."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from dovetail.decide.facts.node_facts import last_pod_event
from dovetail.lifecycle.memory.pod_events import PodEvents
from dovetail.lifecycle.messages import ObjectObserved, ObjectVanished
from dovetail.model import names
from dovetail.model.objects import (
    Condition,
    NodeClaim,
    NodeClaimStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
)
from tests.support.lifecycle_world import T0, Driver, ScriptedPlanner, World, engine_for

SECOND = 10**9


def pod(node: str = "n1", *, owner: str = "ReplicaSet", phase: str = "Running", leaving: bool = False) -> Pod:
    """Return a pod on a node."""
    version = "v1" if owner == "Node" else "apps/v1"
    return Pod(
        metadata=ObjectMeta(
            name="p",
            namespace="default",
            uid="p-1",
            owner_references=(OwnerReference(kind=owner, name="web", api_version=version),),
            deletion_timestamp=T0 if leaving else None,
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=phase),
    )


@pytest.mark.parametrize(
    ("old", "new", "nodes"),
    [
        pytest.param(None, pod(), ["n1"], id="it comes, bound"),
        pytest.param(pod(""), pod(), ["n1"], id="it is bound"),
        pytest.param(pod(), None, ["n1"], id="it is gone"),
        pytest.param(pod(), pod(leaving=True), ["n1"], id="it begins to terminate"),
        pytest.param(pod(), pod(phase="Succeeded"), ["n1"], id="it ends well"),
        pytest.param(pod(), pod(phase="Failed"), ["n1"], id="it ends badly"),
        pytest.param(pod("n1"), pod("n2"), ["n1", "n2"], id="another pod of the same name elsewhere"),
        pytest.param(None, pod(""), [], id="it waits"),
        pytest.param(pod(""), None, [], id="it waited in vain"),
        pytest.param(pod(), pod(), [], id="nothing happens"),
        pytest.param(pod(leaving=True), None, [], id="the end of one that terminated is no second event"),
        pytest.param(pod(phase="Succeeded"), None, [], id="nor of one that had ended"),
        pytest.param(None, pod(owner="DaemonSet"), [], id="a DaemonSet's pod"),
        pytest.param(pod(owner="DaemonSet"), None, [], id="a DaemonSet's pod goes"),
        pytest.param(None, pod(owner="Node"), [], id="a mirror pod"),
    ],
)
def test_what_is_a_pod_event(old: Pod | None, new: Pod | None, nodes: list[str]) -> None:
    """A pod added or removed; terminal and terminating count as removed; DaemonSet and mirror pods don't count."""
    events = PodEvents()
    events.note(old, new, 7 * SECOND)
    now = T0 + timedelta(seconds=60)
    assert events.times(now, 60 * SECOND) == dict.fromkeys(nodes, T0 + timedelta(seconds=7))


def test_times_move_with_a_clock_that_is_set() -> None:
    """An event keeps its age when the wall clock jumps; the mapping is reused while nothing changes."""
    events = PodEvents()
    events.note(None, pod(), 5 * SECOND)
    before = events.times(T0, 10 * SECOND)
    assert before == {"n1": T0 - timedelta(seconds=5)}
    assert events.times(T0 + timedelta(seconds=2), 12 * SECOND) is before
    assert events.times(T0 - timedelta(hours=3), 12 * SECOND) == {"n1": T0 - timedelta(hours=3, seconds=7)}
    events.forget("n2")
    again = events.times(T0, 10 * SECOND)
    assert again == before
    events.forget("n1")
    assert events.times(T0, 10 * SECOND) == {}


def at(second: int) -> datetime:
    """Return a time."""
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "initialized", "seen", "counts"),
    [
        (None, None, None, None),
        (5, None, None, 5),
        (None, 3, None, 3),
        (5, 3, None, 5),
        (5, 3, 9, 9),
        (9, 3, 5, 9),
        (None, 3, 9, 9),
        (None, None, 9, 9),
        (5, 3, 5, 5),
    ],
)
def test_the_later_of_both_counts(
    written: int | None, initialized: int | None, seen: int | None, counts: int | None
) -> None:
    """The later of Karpenter's and Dovetail's time counts; without either, the initialization."""
    conditions = ()
    if initialized is not None:
        done = Condition(type=names.CONDITION_INITIALIZED, status="True", last_transition_time=at(initialized))
        conditions = (done,)
    claim = NodeClaim(
        status=NodeClaimStatus(last_pod_event_time=None if written is None else at(written), conditions=conditions)
    )
    found = last_pod_event(claim, None if seen is None else at(seen))
    assert found == (None if counts is None else at(counts))


def test_engine_asks_with_what_it_saw_after_its_first_view() -> None:
    """Pods listed at the start are no events; later changes are, for observers too."""
    planner = ScriptedPlanner()
    world = World()
    world.add_pool()
    world.add_node("n1", want="delete")
    world.put(pod())
    driver = Driver(world, engine_for(planner=planner))
    driver.begin().run(30)
    assert all(not ask.pod_events for ask in planner.asks)
    driver.send(ObjectObserved(object=replace(pod("n2"), metadata=ObjectMeta(name="q", namespace="default", uid="q"))))
    came = world.now
    driver.run(20)
    assert planner.asks[-1].pod_events == {"n2": came}
    driver.send(ObjectVanished(kind="Pod", namespace="default", name="p", uid="p-1"))
    went = world.now
    driver.run(20)
    assert planner.asks[-1].pod_events == {"n1": went, "n2": came}
