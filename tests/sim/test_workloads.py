"""Workloads keep their number of pods; PodDisruptionBudgets keep their status."""

import dataclasses

import pytest

from dovetail.model import names
from dovetail.model.objects import LabelSelectorSpec, ObjectMeta, PodDisruptionBudget, PodDisruptionBudgetSpec
from dovetail.sim.world.clock import seconds
from dovetail.sim.world.eviction import EvictionAnswer
from dovetail.sim.world.world import World
from tests.support.rogue import settle, small_world, work


def budget(world: World, **spec: int | str) -> None:
    """Return a PodDisruptionBudget for `web`."""
    world.put(
        PodDisruptionBudget(
            metadata=ObjectMeta(name="web", namespace="default"),
            spec=PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels={"app": "web"}), **spec),
        )
    )


def test_evicted_pod_is_made_anew_and_its_line_goes_on() -> None:
    """The new pod has a new name and the same lineage, so that moves of one replica can be counted."""
    world = small_world()
    world.workloads.add(work(replicas=2))
    settle(world)
    first = min(world.store.pods)
    line = world.workloads.line_of[first]
    assert world.evictions.evict(first) is EvictionAnswer.EVICTED
    settle(world)
    assert first not in world.store.pods
    assert len(world.store.pods) == 2
    assert line in {world.workloads.line_of[key] for key in world.store.pods}


def test_scaling_down_gives_up_doubled_pods_first() -> None:
    """Scaling down three pods on two nodes removes one of the pair."""
    world = small_world(nodes=2)
    world.workloads.add(work(replicas=3, cpu="500m"))
    settle(world)
    world.scale("ReplicaSet", "default/web", 2)
    settle(world)
    assert sorted(pod.spec.node_name for pod in world.store.pods.values()) == ["n0", "n1"]


def test_scaling_down_heeds_the_deletion_cost() -> None:
    """A pod with a lower deletion cost is removed first, even if it is alone on its node."""
    world = small_world(nodes=2)
    cheap = dataclasses.replace(work(replicas=1), annotations={names.POD_DELETION_COST: "-5"})
    world.workloads.add(work(replicas=2))
    settle(world)
    entry = world.workloads._sets["ReplicaSet/default/web"]
    pod = world.store.pods[max(entry.pods)]
    world.store.touch_meta(pod, annotations=cheap.annotations)
    chosen = max(entry.pods)
    world.scale("ReplicaSet", "default/web", 1)
    settle(world)
    assert chosen not in world.store.pods


def test_stateful_pod_comes_back_under_its_name_when_the_old_one_is_gone() -> None:
    """Two pods of a StatefulSet never have the same name."""
    world = small_world()
    world.workloads.add(work("db", replicas=2, kind="StatefulSet"))
    settle(world)
    uid = world.store.pods["default/db-0"].metadata.uid
    world.evictions.evict("default/db-0")
    settle(world)
    assert world.store.pods["default/db-0"].metadata.uid != uid
    world.scale("StatefulSet", "default/db", 1)
    settle(world)
    assert list(world.store.pods) == ["default/db-0"]


def test_job_works_and_ends_and_an_evicted_pod_of_it_starts_again() -> None:
    """A Job is done when all its pods have succeeded."""
    world = small_world()
    done: list[str] = []
    world.workloads.on_job_done = done.append
    world.workloads.add(dataclasses.replace(work("crunch", replicas=2, kind="Job"), duration=seconds(60)))
    settle(world, 30)
    world.evictions.evict(min(world.store.pods))
    settle(world, 50)
    assert done == []
    settle(world, 60)
    assert done == ["default/crunch"]
    assert world.store.pods == {}


def test_daemon_pod_comes_with_the_node_and_goes_with_it() -> None:
    """A DaemonSet has one pod per node, which counts neither as moved nor as lost."""
    world = small_world(nodes=2)
    world.workloads.add(work("agent", kind="DaemonSet", cpu="10m"))
    settle(world)
    assert sorted(world.store.pods) == ["default/agent-n0", "default/agent-n1"]
    world.karpenter.delete("n0")
    settle(world)
    assert sorted(world.store.pods) == ["default/agent-n1"]


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"max_unavailable": 1}, 1),
        ({"max_unavailable": 0}, 0),
        ({"max_unavailable": "26%"}, 2),
        ({"min_available": 3}, 1),
        ({"min_available": "50%"}, 2),
        ({"min_available": "100%"}, 0),
    ],
)
def test_status_of_a_budget(spec: dict[str, int | str], allowed: int) -> None:
    """Each form of a budget is correct for four healthy pods; percentages round up."""
    world = small_world()
    budget(world, **spec)
    world.workloads.add(work(replicas=4))
    settle(world)
    status = world.store.pdbs["default/web"].status
    assert (status.disruptions_allowed, status.current_healthy, status.expected_pods) == (allowed, 4, 4)


def test_eviction_is_refused_until_the_pod_is_back() -> None:
    """One pod may be unavailable; the second waits until the first one's successor is ready."""
    world = small_world()
    budget(world, max_unavailable=1)
    world.workloads.add(work(replicas=3))
    settle(world)
    first, second, _ = sorted(world.store.pods)
    assert world.evictions.evict(first) is EvictionAnswer.EVICTED
    assert world.evictions.evict(second) is EvictionAnswer.REFUSED
    settle(world)
    assert world.evictions.evict(second) is EvictionAnswer.EVICTED
    assert world.evictions.evict("default/nobody") is EvictionAnswer.GONE


def test_pod_under_two_budgets_is_never_evicted() -> None:
    """The eviction API rejects a pod with two budgets."""
    world = small_world()
    budget(world, max_unavailable=1)
    world.put(
        PodDisruptionBudget(
            metadata=ObjectMeta(name="all", namespace="default"),
            spec=PodDisruptionBudgetSpec(selector=LabelSelectorSpec(), max_unavailable=3),
        )
    )
    world.workloads.add(work(replicas=3))
    settle(world)
    assert world.evictions.evict(min(world.store.pods)) is EvictionAnswer.REFUSED
