"""Aftercare: a pool waits for moved pods, halts if they stay away, and resumes when they are back."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.api.pool_marks import read_halt
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.memory.aftercare import Aftercare
from dovetail.lifecycle.memory.owners import ready_of
from dovetail.lifecycle.messages import (
    ClearRecord,
    Failure,
    HaltPool,
    Instruction,
    InstructionFailed,
    InstructionSucceeded,
)
from dovetail.lifecycle.store import Store
from dovetail.model.command import Action, Method
from dovetail.model.objects import NodePool, Pod, ReplicaSet
from tests.support.lifecycle_world import Driver, ScriptedPlanner, World, engine_for

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)
LIMIT = 60 * SECOND


def replica_set(replicas: int = 2) -> ReplicaSet:
    """Build the owner of the pods."""
    meta = {"name": "web", "namespace": "d", "uid": "rs", "resourceVersion": str(10 - replicas)}
    return msgspec.convert({"metadata": meta, "spec": {"replicas": replicas}}, ReplicaSet, strict=False)


def pod(name: str, node: str, *, ready: bool = True, version: str = "1") -> Pod:
    """Build a pod of the owner."""
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "rs", "apiVersion": "apps/v1"}
    tree: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": name,
            "resourceVersion": version,
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }
    return msgspec.convert(tree, Pod, strict=False)


def run(*nodes: str) -> Run:
    """Build a command in progress."""
    candidates = tuple(Candidate(node=node, claim=node, uid=node, pool="web") for node in nodes)
    return Run(
        id="c1",
        action=Action.DELETE_DRIFTED,
        method=Method.DRIFTED,
        candidates=candidates,
        phase=Phase.DELETING,
        began=NOW,
    )


@pytest.fixture
def store() -> Store:
    """Return a pool with two ready pods on two nodes."""
    made = Store()
    for item in (replica_set(), pod("a", "n1"), pod("b", "n2")):
        made.observe(item)
    made.observe(msgspec.convert({"metadata": {"name": "web", "uid": "p", "resourceVersion": "1"}}, NodePool))
    return made


def moved(store: Store, **replacement: Any) -> Aftercare:
    """Run a command that removes n1; `replacement` is the pod that replaces the one there, if any."""
    care = Aftercare()
    care.begin(run("n1"), store, lambda pool: LIMIT)
    store.vanish("Pod", "d", "a", "a")
    if replacement:
        store.observe(pod("c", "n2", **replacement))
    care.left("c1", 0)
    return care


def look(care: Aftercare, store: Store, elapsed: int) -> list[HaltPool]:
    """Run aftercare at this time."""
    return care.look(store, elapsed, lambda pool: True)[0]


def test_while_pods_are_missing_the_pool_waits(store: Store) -> None:
    """A pool waits and names the owner until the owner's pod is ready."""
    care = moved(store, ready=False)
    assert "d/ReplicaSet/web" in care.unsettled(store)["web"]
    store.observe(pod("c", "n2", ready=True, version="2"))
    assert care.unsettled(store) == {}
    orders, settled = care.look(store, SECOND, lambda pool: True)
    assert (orders, settled) == ([], True)
    assert care.next_at() is None


def test_a_moved_pod_whose_end_is_not_known_yet_does_not_count(store: Store) -> None:
    """If the node's end is seen before its pod's, the pool waits and keeps its deadline."""
    care = Aftercare()
    care.begin(run("n1"), store, lambda pool: LIMIT)
    care.left("c1", 0)
    assert "d/ReplicaSet/web" in care.unsettled(store)["web"]
    assert care.look(store, SECOND, lambda pool: True) == ([], False)
    store.vanish("Pod", "d", "a", "a")
    store.observe(pod("c", "n2", ready=False))
    assert len(look(care, store, LIMIT)) == 1


@pytest.mark.parametrize(("elapsed", "halts"), [(LIMIT - 1, False), (LIMIT, True)])
def test_after_the_limit_the_pool_halts(store: Store, elapsed: int, halts: bool) -> None:
    """A pool halts exactly at its limit; the annotation names the owner and the number of pods."""
    orders = look(moved(store, ready=False), store, elapsed)
    assert bool(orders) is halts
    if halts:
        (order,) = orders
        assert order.node_pool == "web"
        assert order.value is not None
        assert "d/ReplicaSet/web" in order.value


def test_a_halt_waits_for_every_owner_of_moved_pods(store: Store) -> None:
    """An owner that had all its pods when the pool halted and loses one afterwards must recover too."""
    other = msgspec.structs.replace(pod("x", "n1").metadata.owner_references[0], name="api", uid="rs2")

    def of_other(name: str, *, ready: bool = True, version: str = "1") -> Pod:
        made = pod(name, "n1" if name == "x" else "n2", ready=ready, version=version)
        meta = msgspec.structs.replace(made.metadata, owner_references=(other,))
        return msgspec.structs.replace(made, metadata=meta)

    api = replica_set(1)
    store.observe(msgspec.structs.replace(api, metadata=msgspec.structs.replace(api.metadata, name="api", uid="rs2")))
    store.observe(of_other("x"))
    care = moved(store, ready=False)
    store.vanish("Pod", "d", "x", "x")
    store.observe(of_other("y"))
    (order,) = look(care, store, LIMIT)
    annotations = {"dovetail.dev/halted": order.value}
    tree = {"metadata": {"name": "web", "uid": "p", "resourceVersion": "2", "annotations": annotations}}
    store.observe(msgspec.convert(tree, NodePool))
    store.observe(of_other("y", ready=False, version="2"))
    store.observe(pod("c", "n2", ready=True, version="2"))
    assert look(care, store, LIMIT + 20 * SECOND) == []
    store.observe(of_other("y", version="3"))
    (end,) = look(care, store, LIMIT + 40 * SECOND)
    assert end.value is None


def test_a_command_that_failed_halfway_waits_for_the_pods_that_it_moved(store: Store) -> None:
    """One node left and the other was given back: the pod that stays counts as ready, the moved one is missing."""
    care = Aftercare()
    care.begin(run("n1", "n2"), store, lambda pool: LIMIT)
    store.vanish("Pod", "d", "a", "a")
    care.left("c1", 0, stays=store.pods_on("n2"))
    assert "web" in care.unsettled(store)
    store.observe(pod("c", "n3"))
    assert care.unsettled(store) == {}


def test_the_pool_waits_until_its_halt_is_seen(store: Store) -> None:
    """A failed halt is written again; the pool waits until the annotation is seen."""
    care = moved(store, ready=False)
    (order,) = look(care, store, LIMIT)
    assert look(care, store, LIMIT + SECOND) == []
    care.answer(InstructionFailed(id=order.id, failure=Failure.UNREACHABLE), LIMIT + SECOND)
    assert look(care, store, LIMIT + 10 * SECOND) == [order]
    care.answer(InstructionSucceeded(id=order.id), LIMIT + 11 * SECOND)
    assert look(care, store, LIMIT + 12 * SECOND) == []
    assert "web" in care.unsettled(store)
    annotations = {"dovetail.dev/halted": order.value}
    tree = {"metadata": {"name": "web", "uid": "p", "resourceVersion": "2", "annotations": annotations}}
    store.observe(msgspec.convert(tree, NodePool))
    assert look(care, store, LIMIT + 14 * SECOND) == []
    assert care.unsettled(store) == {}


def test_a_halt_that_was_taken_off_before_it_was_seen_is_not_written_again(store: Store) -> None:
    """If a person removes the halt at once, the wait ends after half a minute."""
    care = moved(store, ready=False)
    (order,) = look(care, store, LIMIT)
    care.answer(InstructionSucceeded(id=order.id), LIMIT)
    assert look(care, store, LIMIT + 31 * SECOND) == []
    assert care.unsettled(store) == {}
    assert care.next_at() is None


def test_an_owner_that_wants_fewer_is_satisfied(store: Store) -> None:
    """An owner is satisfied with as many ready pods as before, or as it wants now."""
    care = moved(store)
    store.observe(replica_set(1))
    assert look(care, store, LIMIT) == []
    assert care.unsettled(store) == {}


def test_a_halt_ends_when_the_pods_are_back_also_after_a_restart(store: Store) -> None:
    """A successor reads the halt from the pool and removes it."""
    (order,) = look(moved(store, ready=False), store, LIMIT)
    annotations = {"dovetail.dev/halted": order.value}
    tree = {"metadata": {"name": "web", "uid": "p", "resourceVersion": "2", "annotations": annotations}}
    store.observe(msgspec.convert(tree, NodePool))
    halted = store.get(NodePool, "web")
    assert halted is not None
    assert read_halt(halted) is not None
    successor = Aftercare()
    assert look(successor, store, 0) == []
    store.observe(pod("c", "n2", ready=True, version="2"))
    (off,) = look(successor, store, SECOND)
    assert off.value is None


def test_a_command_that_was_rolled_back_leaves_nothing(store: Store) -> None:
    """A pool does not wait after a command that was rolled back."""
    care = Aftercare()
    care.begin(run("n1"), store, lambda pool: LIMIT)
    care.drop("c1")
    assert care.unsettled(store) == {}
    assert care.next_at() is None


def test_pools_without_the_limit_are_not_looked_after(store: Store) -> None:
    """A pool without the limit never waits for moved pods."""
    care = Aftercare()
    care.begin(run("n1"), store, lambda pool: None)
    store.vanish("Pod", "d", "a", "a")
    care.left("c1", 0)
    assert care.unsettled(store) == {}


def test_a_look_before_the_limit_changes_nothing(store: Store) -> None:
    """A pool that is checked repeatedly waits until the limit and then halts once."""
    care = moved(store, ready=False)
    for elapsed in range(SECOND, LIMIT, 10 * SECOND):
        assert look(care, store, elapsed) == []
        assert "web" in care.unsettled(store)
    assert [order.node_pool for order in look(care, store, LIMIT)] == ["web"]
    assert "web" in care.unsettled(store), "until the annotation is seen"
    assert care.next_at() is not None


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"metadata": {"deletionTimestamp": "2026-05-11T12:00:00Z"}}, False),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"status": {"phase": "Failed"}}, False),
        ({"status": {"conditions": ()}}, False),
        ({"spec": {"nodeName": ""}}, False),
    ],
    ids=["ready", "terminating", "succeeded", "failed", "not ready", "not bound"],
)
def test_which_pods_count_as_ready(changes: dict[str, dict[str, Any]], counts: bool) -> None:
    """A pod counts as ready if it is bound, ready and not leaving."""
    tree = msgspec.to_builtins(pod("a", "n1"))
    for part, values in changes.items():
        tree[part] |= values
    store = Store()
    store.observe(msgspec.convert(tree, Pod, strict=False))
    assert ready_of("rs", store) == counts


def test_a_pool_waits_from_the_moment_its_nodes_are_gone() -> None:
    """The pool waits before the command ends, since its records are cleared later."""
    world, planner = World(), ScriptedPlanner()
    pool = {"metadata": {"name": "web", "labels": {"dovetail.dev/manage": "true"}}}
    spec = {"disruption": {"health": {"movedPodsReadyWithin": "10m"}}}
    world.put(msgspec.convert({**pool, "spec": spec}, NodePool, strict=False))
    world.put(replica_set(1))
    world.add_node("n1", want="replace")
    world.put(pod("a", "n1"))
    held_up: list[Instruction] = []

    def fail(instruction: Instruction) -> Failure | None:
        if isinstance(instruction, ClearRecord) and len(held_up) < 3:
            held_up.append(instruction)
            return Failure.UNREACHABLE
        return None

    world.fail = fail
    world.later(60, lambda: world.drop("Pod", "a", "d"))
    driver = Driver(world, engine_for(planner=planner)).begin().run(300)
    assert driver.ends() == ["done"]
    assert held_up
    after = [ask for ask in planner.asks if not any(node.metadata.name == "n1" for node in ask.cluster.nodes)]
    assert after
    assert all("web" in ask.unsettled for ask in after)
