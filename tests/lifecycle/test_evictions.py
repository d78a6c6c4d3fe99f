"""Ordered evictions (docs/rules.md#evictions): the next pod, the end of each wait, and what the drain does."""

import itertools
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.messages import DeleteNodeClaim, EvictPod, Failure, Instruction, UntaintNode
from dovetail.model import names
from dovetail.model.objects import Node, Pod
from tests.support.lifecycle_world import CALM, Driver, World, engine_for

IN_ORDER = replace(CALM, evictions_in_order=True)


def _pod(world: World, name: str, cpu: str, node: str = "a", *, owner: str = "ReplicaSet", **parts: Any) -> None:
    uid = f"of-{parts.pop('of', name)}"
    tree = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": parts.pop("annotations", {}),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": uid, "uid": uid}],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}],
            **parts,
        },
        "status": {"phase": "Running"},
    }
    world.put(msgspec.convert(tree, Pod, strict=False))


def _world(want: str = "cost-delete") -> World:
    world = World()
    world.add_pool()
    world.add_node("a", want=want)
    world.add_node("rest")
    _pod(world, "small", "100m")
    _pod(world, "large", "4")
    _pod(world, "medium", "1")
    return world


def _times(driver: Driver, kind: type[Instruction]) -> list[float]:
    return [(at - driver.log[0][0]).total_seconds() for at, item in driver.log if isinstance(item, kind)]


@pytest.mark.parametrize("want", ["cost-delete", "cost-replace"])
def test_largest_first_one_after_the_other(want: str) -> None:
    """The next pod is evicted when the previous one is bound; the claims are deleted after the last."""
    world = _world(want)
    driver = Driver(world, engine_for(IN_ORDER)).begin().run(150)
    assert world.evicted == ["large", "medium", "small"]
    evictions, [deletion] = _times(driver, EvictPod), _times(driver, DeleteNodeClaim)
    assert all(later - sooner >= 1 for sooner, later in itertools.pairwise(evictions))
    assert evictions[-1] < deletion <= evictions[-1] + 5
    assert driver.ends() == ["done"]


def test_pods_that_ask_for_certain_nodes_come_before_all_others() -> None:
    """Pods with node requirements are evicted before larger pods without."""
    world = _world()
    _pod(world, "picky", "200m", nodeSelector={"disk": "ssd"})
    Driver(world, engine_for(IN_ORDER)).begin().run(100)
    assert world.evicted == ["picky", "large", "medium", "small"]


def test_a_pod_that_has_a_node_at_once_lets_the_next_follow_at_once() -> None:
    """The next eviction follows the moment the new pod is bound, not at the next look."""
    world = _world()
    world.bind_seconds = 0.125
    driver = Driver(world, engine_for(IN_ORDER)).begin().run(60)
    evictions = _times(driver, EvictPod)
    assert [later - sooner for sooner, later in itertools.pairwise(evictions)] == [0.125, 0.125]
    assert world.evicted == ["large", "medium", "small"]
    assert driver.ends() == ["done"]


def test_pods_that_were_there_before_do_not_count_as_the_evicted_one() -> None:
    """Other pods of the same owner don't end the wait, even when one of them changes: the new one has no node yet."""
    world = _world()
    world.bind_seconds = 0.75
    _pod(world, "sibling", "8", "rest", of="large")
    [sibling] = [pod for pod in world.all(Pod) if pod.metadata.name == "sibling"]
    driver = Driver(world, engine_for(IN_ORDER)).begin()
    while not world.evicted:
        driver.run(0.25)
    world.put(sibling)
    driver.run(0.25)
    assert world.evicted == ["large"]
    driver.run(1)
    assert world.evicted[:2] == ["large", "medium"]


def test_a_pod_that_is_not_replaced_is_waited_for_a_second() -> None:
    """A pod whose owner makes no new one delays the next eviction by a second."""
    world = _world()
    world.comes_again = False
    driver = Driver(world, engine_for(IN_ORDER)).begin().run(60)
    evictions = _times(driver, EvictPod)
    assert [later - sooner for sooner, later in itertools.pairwise(evictions)] == [1.0, 1.0]


def test_a_pod_that_finds_no_node_is_waited_for_a_short_time_only() -> None:
    """The engine waits a few seconds for a pod without a node, then evicts the next."""
    world = _world()
    world.bind_seconds = None
    driver = Driver(world, engine_for(IN_ORDER)).begin().run(120)
    evictions = _times(driver, EvictPod)
    assert [later - sooner for sooner, later in itertools.pairwise(evictions)] == [6.0, 6.0]
    assert driver.ends() == ["done"]


def test_a_pod_that_comes_back_is_not_evicted_again() -> None:
    """A pod that returns to the node is not evicted again; the drain follows."""
    world = _world()
    world.bind_to = "a"
    driver = Driver(world, engine_for(IN_ORDER)).begin().run(120)
    assert world.evicted == ["large", "medium", "small"]
    assert driver.ends() == ["done"]


def test_patience_ends_and_the_drain_does_the_rest() -> None:
    """Evictions last at most three minutes; then the drain removes the remaining pods."""
    world = _world()
    world.bind_seconds = None
    for number in range(100):
        _pod(world, f"one-{number:03d}", "50m")
    driver = Driver(world, engine_for(IN_ORDER)).begin().run(400)
    [deletion] = _times(driver, DeleteNodeClaim)
    assert 180 <= deletion - _times(driver, EvictPod)[0] <= 190
    assert len(world.evicted) < 40
    assert driver.ends() == ["done"]


@pytest.mark.parametrize(("failure", "asked"), [(Failure.THROTTLED, 3), (Failure.NOT_FOUND, 3), (Failure.FORBIDDEN, 1)])
def test_what_is_refused_is_left_to_the_drain(failure: Failure, asked: int) -> None:
    """A pod that a PDB protects is left to the drain; without permission no more pods are evicted."""
    world = _world()
    world.fail = lambda instruction: failure if isinstance(instruction, EvictPod) else None
    driver = Driver(world, engine_for(IN_ORDER)).begin().run(120)
    assert len(driver.told(EvictPod)) == asked
    assert driver.ends() == ["done"]


def test_without_the_right_a_command_asks_once_and_says_so_once() -> None:
    """A forbidden eviction is tried once more by a command more than a minute later; one sentence names the right."""
    world = _world()
    world.fail = lambda instruction: Failure.FORBIDDEN if isinstance(instruction, EvictPod) else None
    driver = Driver(world, engine_for(IN_ORDER)).begin().run(120)
    world.add_node("b", want="cost-delete")
    _pod(world, "other", "1", "b")
    driver.run(200)
    assert driver.ends() == ["done", "done"]
    assert len(driver.told(EvictPod)) == 2
    [said] = driver.reports("right")
    assert "rights.evictions=true" in said.message


@pytest.mark.parametrize(
    "case",
    ["off by default", "not for drift", "daemons stay", "do-not-disrupt stays"],
)
def test_who_is_not_evicted(case: str) -> None:
    """Only pods that move are evicted, for cost commands, if the setting is on."""
    settings = CALM if case == "off by default" else IN_ORDER
    world = World()
    world.add_pool()
    world.add_node("a", want="delete" if case == "not for drift" else "cost-delete")
    marks = {names.DO_NOT_DISRUPT: "true"} if case == "do-not-disrupt stays" else {}
    _pod(world, "one", "1", owner="DaemonSet" if case == "daemons stay" else "ReplicaSet", annotations=marks)
    driver = Driver(world, engine_for(settings)).begin().run(200)
    assert driver.told(EvictPod) == []
    # A pod that came to say do-not-disrupt keeps its node: the last look before the irreversible step sees it.
    assert driver.ends()[0] == ("failed" if case == "do-not-disrupt stays" else "done")


def test_hands_off_in_the_middle_rolls_back_and_keeps_what_pods_have_moved_to() -> None:
    """A person's mark stops the evictions; the replacement stays because pods may run on it."""
    world = _world("cost-replace")
    driver = Driver(world, engine_for(IN_ORDER)).begin()
    while not world.evicted:
        driver.run(1)
    node = world.get(Node, "a")
    assert node is not None
    world.annotate(node, **{names.ALWAYS_DO_NOT_DISRUPT: "true"})
    driver.run(8)
    assert driver.ends() == ["failed"]
    assert driver.told(UntaintNode)
    assert driver.told(DeleteNodeClaim) == []
    assert len(world.evicted) < 3
    assert world.tainted() == []
    assert world.recorded() == []
