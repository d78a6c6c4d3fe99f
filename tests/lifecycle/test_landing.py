"""The pause that ends when the pods have landed (docs/rules.md#landed)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dovetail.decide.question import CostHold
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.memory.landing import Landing
from dovetail.lifecycle.messages import DeleteNodeClaim, Failure
from dovetail.lifecycle.reports import CommandAdvanced
from dovetail.lifecycle.store import Store
from dovetail.model.command import Action, Method
from dovetail.model.objects import Pod, ReplicaSet
from dovetail.model.settings import Settings, Stabilization, StabilizationEnds
from tests.support.lifecycle_world import CALM, Driver, ScriptedPlanner, World, engine_for

MINUTE = 60 * 10**9
WINDOW = replace(CALM, stabilization=Stabilization(empty=0, expired=0, drifted=0, cost=5 * MINUTE))
LANDED = replace(WINDOW, stabilization_ends=StabilizationEnds.LANDED)


def _pod(name: str, node: str, *, ready: bool = True) -> Pod:
    tree = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}],
        },
        "spec": {"nodeName": node},
        "status": {
            "phase": "Running" if node else "Pending",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    return msgspec.convert(tree, Pod, strict=False)


def _owner(replicas: int) -> ReplicaSet:
    tree = {"metadata": {"name": "web", "namespace": "default", "uid": "web"}, "spec": {"replicas": replicas}}
    return msgspec.convert(tree, ReplicaSet, strict=False)


def _until_the_next(settings: object, *, comes: float | None, ready: float | None, replicas: int = 2) -> float:
    """Return the time between two cost commands if the moved pod is bound and ready at these times."""
    world = World()
    world.add_pool()
    world.add_node("a", want="cost-delete")
    world.add_node("rest")
    world.put(_owner(2))
    world.put(_pod("one", "a"))
    world.put(_pod("two", "rest"))
    driver = Driver(world, engine_for(settings)).begin()  # type: ignore[arg-type]
    while not world.deleted:
        driver.run(1)
    world.drop("Pod", "one", "default")
    world.put(_owner(replicas))
    if replicas > 1:
        world.put(_pod("new", ""))
    if comes is not None:
        world.later(comes, lambda: world.put(_pod("new", "rest", ready=False)) and None)
    if ready is not None:
        world.later(ready, lambda: world.put(_pod("new", "rest")) and None)
    while driver.ends() != ["done"]:
        driver.run(1)
    ended = world.now
    world.add_node("b", want="cost-delete")
    while len(world.deleted) < 2:
        driver.run(1)
    return (world.now - ended).total_seconds()


VALIDATION = 15 + 12
"""A command's validation and what a round's turn may add."""


@pytest.mark.parametrize(
    ("comes", "ready", "replicas", "least", "most"),
    [
        (1, 2, 2, 30, 30),
        (1, 90, 2, 65, 80),
        (1, None, 2, 300, 300),
        (None, None, 2, 300, 300),
        (None, None, 1, 30, 30),
    ],
    ids=["at once: half a minute", "when it is ready", "never ready: the window", "never bound", "no longer wanted"],
)
def test_the_pause_ends_when_pods_have_landed(
    comes: float | None, ready: float | None, replicas: int, least: float, most: float
) -> None:
    """The pause ends when all moved pods are ready or unwanted: at least half a minute, at most the window."""
    waited = _until_the_next(LANDED, comes=comes, ready=ready, replicas=replicas)
    assert least <= waited <= most + VALIDATION


def test_the_window_stays_the_default() -> None:
    """Without the setting the pause lasts five minutes."""
    assert _until_the_next(WINDOW, comes=1, ready=2) >= 300


@pytest.mark.parametrize("settings", [WINDOW, LANDED], ids=["window", "landed"])
def test_a_command_that_must_wait_is_validated_with_the_pause(settings: Settings) -> None:
    """A command whose validation falls into the pause is asked with it, and refused."""
    world = World(drain_seconds=0)
    world.add_pool()
    world.add_node("a", want="cost-delete")
    planner = ScriptedPlanner()
    driver = Driver(world, engine_for(settings, planner)).begin().run(5)
    world.add_node("b", want="cost-delete")
    driver.send(world.changes.pop())
    driver.run(40)
    assert driver.ends() == ["done", "refused"]
    done = next(at for at, item in driver.log if isinstance(item, CommandAdvanced) and item.phase is Phase.DONE)
    hold = CostHold(until=done + timedelta(minutes=5), after="an action of method singleNode in NodePool web")
    assert {"web": hold} in [ask.settling for ask in planner.asks]


def test_a_command_that_moved_nothing_is_not_waited_for() -> None:
    """A command that moved no pods is dropped and its end is no landing."""
    store, landing = Store(), Landing()
    for item in (_owner(1), _pod("one", "a")):
        store.observe(item)
    candidate = Candidate(node="a", claim="a", uid="a", pool="web")
    run = Run(
        id="c1",
        action=Action.DELETE_COST,
        method=Method.SINGLE_NODE,
        candidates=(candidate,),
        phase=Phase.DELETING,
        began=datetime(2026, 5, 11, tzinfo=UTC),
    )
    for dropped in (False, True):
        landing.begin(run, store)
        if dropped:
            landing.drop(run.id)
        landing.end(run.id, 0, 5 * MINUTE)
        assert (landing.next_at() is None) == dropped


def test_nothing_is_remembered_of_a_command_that_failed() -> None:
    """The landing data of a command is removed if its deletion is refused."""
    world = World()
    world.add_pool()
    world.add_node("a", want="cost-delete")
    world.put(_owner(1))
    world.put(_pod("one", "a"))
    world.fail = lambda asked: Failure.REFUSED if isinstance(asked, DeleteNodeClaim) else None
    engine = engine_for(LANDED)
    driver = Driver(world, engine).begin()
    for _ in range(900):
        driver.run(1)
        if driver.ends():
            break
    assert driver.ends()
    assert driver.ends()[0] != "done"
    assert engine._state.landing._moved == {}
