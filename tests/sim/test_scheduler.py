"""The simulated kube-scheduler places pods where the default one would."""

import dataclasses

import pytest
from msgspec.structs import replace

from dovetail.model import names
from dovetail.model.objects import (
    Affinity,
    ContainerPort,
    LabelSelectorSpec,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    SelectorRequirement,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.world import World
from tests.support.rogue import settle, small_world, work

WEB = LabelSelectorSpec(match_labels={"app": "web"})


def nodes_of(world: World, name: str) -> list[str]:
    """Return the sorted nodes of a workload's pods; empty for a pending pod."""
    return sorted(pod.spec.node_name for pod in world.store.pods.values() if pod.metadata.labels.get("app") == name)


def close(world: World, *nodes: str, effect: str = "NoSchedule") -> None:
    """Put a taint on nodes."""
    for name in nodes:
        node = world.store.nodes[name]
        world.put(replace(node, spec=replace(node.spec, taints=(Taint(key="closed", effect=effect),))))


def reopen(world: World, name: str) -> None:
    """Remove the taints of a node."""
    node = world.store.nodes[name]
    world.put(replace(node, spec=replace(node.spec, taints=())))


def test_pods_go_to_the_emptiest_node() -> None:
    """LeastAllocated and the default spread put equal pods on different nodes."""
    world = small_world(nodes=4)
    world.workloads.add(work(replicas=4))
    settle(world)
    assert nodes_of(world, "web") == ["n0", "n1", "n2", "n3"]


def test_pod_that_fits_nowhere_waits_and_asks_for_a_node() -> None:
    """A pod that fits nowhere is marked Unschedulable, and Karpenter opens a node for it."""
    world = small_world(nodes=1)
    world.workloads.add(work(replicas=3, cpu="3"))
    world.run(10**8 + 2 * 10**7)
    waiting = [pod for pod in world.store.pods.values() if not pod.spec.node_name]
    assert len(waiting) == 2
    assert all(pod.status.conditions[0].reason == "Unschedulable" for pod in waiting)
    settle(world, 30)
    assert "" not in nodes_of(world, "web")
    assert len(world.store.nodes) > 1


def test_taints_keep_pods_out_unless_tolerated() -> None:
    """NoSchedule is required, PreferNoSchedule is preferred."""
    world = small_world(nodes=3)
    close(world, "n0", "n1")
    world.workloads.add(work("web", replicas=2))
    world.workloads.add(work("friend", tolerations=(Toleration(key="closed", operator="Exists"),), replicas=6))
    settle(world)
    assert nodes_of(world, "web") == ["n2", "n2"]
    assert {"n0", "n1"} <= set(nodes_of(world, "friend"))


def test_node_that_is_shunned_is_taken_last() -> None:
    """A PreferNoSchedule taint outweighs an emptier node."""
    world = small_world(nodes=2)
    close(world, "n0", effect="PreferNoSchedule")
    world.workloads.add(work("web", replicas=1))
    settle(world)
    assert nodes_of(world, "web") == ["n1"]


def test_hard_spread_over_zones_is_kept() -> None:
    """With maxSkew 1 no zone gets two pods more than another."""
    world = small_world(nodes=6)
    spread = TopologySpreadConstraint(topology_key=names.ZONE, max_skew=1, label_selector=WEB)
    world.workloads.add(work(replicas=7, topology_spread_constraints=(spread,)))
    settle(world)
    zones = [world.store.nodes[name].metadata.labels[names.ZONE] for name in nodes_of(world, "web")]
    assert sorted(zones.count(zone) for zone in sorted(set(zones))) == [2, 2, 3]


def test_required_anti_affinity_keeps_pods_apart_both_ways() -> None:
    """A pod with anti-affinity keeps others of its kind off its node, in either order."""
    world = small_world(nodes=3)
    term = PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=WEB)
    apart = Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    world.workloads.add(work("web", replicas=2, affinity=apart))
    settle(world)
    alone = nodes_of(world, "web")
    assert len(set(alone)) == 2
    world.workloads.add(dataclasses.replace(work("web", replicas=1), name="intruder"))
    settle(world)
    intruder = [p.spec.node_name for p in world.store.pods.values() if p.metadata.name.startswith("intruder")]
    assert intruder[0] not in alone


def test_required_affinity_brings_pods_together() -> None:
    """The first of a group can start anywhere; the others follow it."""
    world = small_world(nodes=3)
    term = PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=WEB)
    near = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    world.workloads.add(work("web", replicas=3, cpu="200m", affinity=near))
    settle(world)
    assert len(set(nodes_of(world, "web"))) == 1


@pytest.mark.parametrize(("sign", "together"), [(1, True), (-1, False)])
def test_preferences_decide_among_nodes_that_fit(sign: int, together: bool) -> None:
    """A preferred affinity attracts pods to a node, a preferred anti-affinity repels them."""
    world = small_world(nodes=2)
    term = PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=LabelSelectorSpec(match_labels={"app": "base"}))
    world.workloads.add(work("base", replicas=1, cpu="100m"))
    settle(world)
    wish = PodAffinity(
        preferred_during_scheduling_ignored_during_execution=(
            WeightedPodAffinityTerm(weight=100, pod_affinity_term=term),
        )
    )
    affinity = Affinity(pod_affinity=wish) if sign > 0 else Affinity(pod_anti_affinity=wish)
    world.workloads.add(work("web", replicas=1, cpu="100m", affinity=affinity))
    settle(world)
    assert (nodes_of(world, "web") == nodes_of(world, "base")) is together


def test_preferred_node_affinity_draws_pods() -> None:
    """A preferred zone wins over an equal node elsewhere."""
    world = small_world(nodes=3)
    entry = SelectorRequirement(key=names.ZONE, operator="In", values=("zone-c",))
    wish = PreferredSchedulingTerm(weight=50, preference=NodeSelectorTerm(match_expressions=(entry,)))
    affinity = Affinity(node_affinity=NodeAffinity(preferred_during_scheduling_ignored_during_execution=(wish,)))
    world.workloads.add(work("web", replicas=1, affinity=affinity))
    settle(world)
    assert nodes_of(world, "web") == ["n2"]


def test_host_port_is_taken_once_per_node() -> None:
    """Two pods with one host port can't share a node."""
    world = small_world(nodes=2)
    base = work("web", replicas=2, cpu="100m")
    ports = (ContainerPort(container_port=80, host_port=8080),)
    containers = tuple(replace(container, ports=ports) for container in base.spec.containers)
    world.workloads.add(dataclasses.replace(base, spec=replace(base.spec, containers=containers)))
    settle(world)
    assert nodes_of(world, "web") == ["n0", "n1"]


def test_room_is_given_back_when_pods_go() -> None:
    """A pod's resources are free once it is gone, but not while it terminates."""
    world = small_world(nodes=1)
    world.workloads.add(work("web", replicas=2, cpu="1900m"))
    settle(world)
    table = world.scheduler.table
    row = table.rows["n0"]
    full = int(table.room[row, 0])
    world.workloads.scale("ReplicaSet", "default/web", 1)
    world.run(world.now + 10**9 // 2)
    assert int(table.room[row, 0]) == full
    settle(world)
    assert int(table.room[row, 0]) == full + 1900


def test_scheduler_with_a_pace_fills_the_nodes_that_are_there_first() -> None:
    """If nodes open one after another, earlier pods went to the nodes that were open."""
    spread = {}
    for pace in (0, SECOND // 10):
        world = small_world(nodes=2)
        world.scheduler.pace = pace
        close(world, "n0", "n1")
        world.workloads.add(work(replicas=6, cpu="100m"))
        settle(world, 5)
        reopen(world, "n0")
        world.clock.after(3 * SECOND // 10, reopen, world, "n1")
        settle(world, 8)
        spread[pace] = [nodes_of(world, "web").count(name) for name in ("n0", "n1")]
    assert sum(spread[SECOND // 10]) == sum(spread[0]) == 6
    assert spread[0] == [6, 0]  # all at once, as soon as one is ready
    assert 3 <= spread[SECOND // 10][0] <= 4


def test_shape_that_was_full_is_looked_at_again_where_a_node_opens() -> None:
    """A removed taint, more room and a deleted pod each trigger a retry; nothing else is retried."""
    world = small_world(nodes=2)
    world.workloads.add(work(replicas=2, cpu="3"))
    settle(world)
    assert nodes_of(world, "web") == ["n0", "n1"]
    key, pod = next(iter(world.store.pods.items()))
    scheduler, table = world.scheduler, world.scheduler.table
    shape = scheduler.shapes.of(key, pod)
    assert scheduler.choice.pick(shape) == -1
    assert scheduler.choice.pick(shape) == -1

    node = world.store.nodes["n0"]
    larger = {**node.status.allocatable, "cpu": "64"}
    world.put(replace(node, status=replace(node.status, allocatable=larger)))
    assert scheduler.choice.pick(shape) == table.rows["n0"]

    close(world, "n0")
    assert scheduler.choice.pick(shape) == -1
    reopen(world, "n0")
    assert scheduler.choice.pick(shape) == table.rows["n0"]

    close(world, "n0")
    assert scheduler.choice.pick(shape) == -1
    away = next(key for key, pod in world.store.pods.items() if pod.spec.node_name == "n1")
    table.release(away)
    assert scheduler.choice.pick(shape) == table.rows["n1"]
