"""The pause that ends when the pods have landed (docs/rules.md#landed)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dovetail.decide.question import CostHold
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.memory.landing import LEAST, Landing
from dovetail.lifecycle.messages import DeleteNodeClaim, Failure
from dovetail.lifecycle.reports import CommandAdvanced
from dovetail.lifecycle.store import Store
from dovetail.model.command import Action, Method
from dovetail.model.objects import Pod, ReplicaSet
from dovetail.model.settings import Settings, Stabilization, StabilizationEnds
from tests.support.conversation import pod, replica_set
from tests.support.lifecycle_world import CALM, Driver, ScriptedPlanner, World, engine_for
from tests.support.runs import run, store_of

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


def landing_of(store: Store, *idents: str) -> Landing:
    """Return the landings of commands on node n1 that ended at 100 s."""
    landing = Landing()
    for ident in idents:
        landing.begin(run("n1", ident=ident), store)
        landing.end(ident, 100 * SECOND, 300 * SECOND, ("web",))
    return landing


def test_landing_is_looked_for_after_half_a_minute_every_five_seconds() -> None:
    """Landing is checked after half a minute, every five seconds, and at the window's end."""
    store = store_of(replica_set("rs", 1), pod("a", "n1", "rs"))
    landing = landing_of(store, "c1")
    store.vanish("Pod", "d", "a")
    assert landing.next_at() == 100 * SECOND + LEAST
    assert not landing.look(store, 130 * SECOND - 1)
    assert not landing.look(store, 130 * SECOND)
    assert landing.next_at() == 135 * SECOND
    store.observe(pod("b", "n2", "rs"))
    assert not landing.look(store, 135 * SECOND - 1)
    assert landing.look(store, 135 * SECOND)
    assert landing.next_at() is None
    assert not landing.look(store, 500 * SECOND)


@pytest.mark.parametrize(("at", "over"), [(399, False), (400, True), (401, True)])
def test_landing_ends_with_the_window(at: int, over: bool) -> None:
    """A landing ends exactly with the window."""
    store = store_of(replica_set("rs", 1), pod("a", "n1", "rs"))
    landing = landing_of(store, "c1")
    store.vanish("Pod", "d", "a")
    assert bool(landing.look(store, at * SECOND)) == over


def test_landing_is_over_when_all_have_landed() -> None:
    """Commands in progress delay no landing; aftercare and pending pods do."""
    store = store_of(replica_set("rs", 1), pod("a", "n1", "rs"), replica_set("db", 1), pod("b", "n2", "db"))
    landing = landing_of(store, "c1")
    landing.begin(run("n2", ident="c2"), store)
    store.vanish("Pod", "d", "a")
    store.observe(pod("a2", "n3", "rs"))
    assert landing.next_at() == 130 * SECOND, "c2 has not ended"
    store.observe(pod("w", "", "rs"))
    assert not landing.look(store, 130 * SECOND), "one of its owner's pods waits"
    store.vanish("Pod", "d", "w")
    store.observe(pod("w", "", "other", uid="w2"))
    assert landing.look(store, 135 * SECOND), "somebody else's pod does not count"
    landing.end("c2", 140 * SECOND, 300 * SECOND, ("web",))
    store.vanish("Pod", "d", "b")
    assert not landing.look(store, 170 * SECOND)
    landing.drop("c2")
    assert landing.next_at() is None
    landing.end("c2", 0, 0)
    landing.begin(run("n1"), store)
    landing.forget()
    landing.end("c1", 0, 0)
    assert landing.next_at() is None


def test_landing_of_two_commands_is_over_with_the_later() -> None:
    """The landing of two commands ends with the later one."""
    store = store_of(replica_set("rs", 1), pod("a", "n1", "rs"), replica_set("db", 1), pod("b", "n2", "db"))
    landing = landing_of(store, "c1")
    landing.begin(run("n2", ident="c2"), store)
    landing.end("c2", 104 * SECOND, 300 * SECOND, ("web", "two"))
    for name, owner in (("a", "rs"), ("b", "db")):
        store.vanish("Pod", "d", name)
        store.observe(pod(f"{name}2", "n3", owner))
    assert not landing.look(store, 130 * SECOND)
    assert landing.next_at() == 135 * SECOND
    assert not landing.is_over
    assert landing.look(store, 135 * SECOND) == ("web", "two")
    assert landing.is_over
