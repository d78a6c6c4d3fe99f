"""The examples of the design documents, run over time in the simulated cluster with the real engine."""

from dataclasses import replace
from itertools import pairwise

import pytest
from msgspec.structs import replace as changed

from dovetail.model import names
from dovetail.model.objects import SelectorRequirement
from dovetail.model.settings import DOVETAIL, Stabilization
from dovetail.sim.checks.watch import Watch
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.sim.world.clock import MINUTE, SECOND
from dovetail.sim.world.world import World
from tests.support.rogue import settle, small_world, work

SETTLED = replace(DOVETAIL, stabilization=Stabilization(empty=0, expired=0, drifted=0, cost=0))
T0 = 36 * MINUTE


def grown() -> tuple[World, Watch]:
    """Node_A with a small pod, Node_B and Node_C full, all quiet for long; at T0 a pod comes that needs Node_D.

    Node_A's pod would fit on Node_D, so that Node_A is worth deleting as soon as Node_D may be looked at.
    """
    world = small_world(
        nodes=0, consolidationGracePeriod="30m", consolidationSavingsThreshold=0, consolidateAfter="30s"
    )
    only_small(world)
    for name, zone in (("node-a", "zone-a"), ("node-b", "zone-c"), ("node-c", "zone-c")):
        world.add_node("blue", "small-b", zone, names.ON_DEMAND, age=90 * MINUTE, name=name)
    world.workloads.add(work("full", replicas=2, cpu="1800m", node_selector={names.ZONE: "zone-c"}))
    settle(world, 5)
    world.workloads.add(work("little", replicas=1, cpu="500m"))
    world.workloads.add(work("late", replicas=0, cpu="900m", node_selector={names.ZONE: "zone-b"}))
    world.workloads.add(work("later", replicas=0, cpu="100m", node_selector={names.ZONE: "zone-b"}))
    world.run(35 * MINUTE)
    watch = Watch(world)
    host = world.add_engine(SETTLED)
    watch.follow(host)
    host.start()
    world.run(T0)
    assert sorted(world.store.nodes) == ["node-a", "node-b", "node-c"]
    world.scale("ReplicaSet", "default/late", 1)
    world.run(T0 + MINUTE)
    assert len(world.store.nodes) == 4
    return world, watch


def only_small(world: World) -> None:
    """Keep one instance type: the only useful move is to delete a node whose pods fit elsewhere."""
    pool = world.store.pools["blue"]
    only = SelectorRequirement(key=names.INSTANCE_TYPE, operator="In", values=("small-b",))
    spec = changed(pool.spec.template.spec, requirements=(*pool.spec.template.spec.requirements, only))
    world.put(changed(pool, spec=changed(pool.spec, template=changed(pool.spec.template, spec=spec))))


def newcomer(world: World) -> str:
    """Return Node_D."""
    return next(name for name in world.store.nodes if not name.startswith("node-"))


def test_node_that_received_pods_is_invisible_for_the_grace_period() -> None:
    """Before T + 30 min consolidation sees A, B and C only; after it, pods of A move to D, A goes.

    Design: grace-period, Example 1.
    """
    world, watch = grown()
    world.run(T0 + 30 * MINUTE)
    assert "node-a" in world.store.nodes
    world.run(T0 + 33 * MINUTE)
    assert "node-a" not in world.store.nodes
    little = next(pod for pod in world.store.pods.values() if pod.metadata.labels["app"] == "little")
    assert little.spec.node_name == newcomer(world)
    assert watch.violations == []


def test_pod_event_restarts_the_grace_period() -> None:
    """Grace-period, Example 2: a pod removed at T + 29 min keeps D invisible until T + 59 min."""
    world, watch = grown()
    world.scale("ReplicaSet", "default/later", 1)
    world.run(T0 + 29 * MINUTE)
    world.scale("ReplicaSet", "default/later", 0)
    world.run(T0 + 59 * MINUTE)
    assert "node-a" in world.store.nodes
    world.run(T0 + 63 * MINUTE)
    assert "node-a" not in world.store.nodes
    assert watch.violations == []


def test_empty_node_is_terminated_within_its_grace_period() -> None:
    """Grace-period, Example 3: at T + 10 min D loses its pod and is deleted, grace period or not."""
    world, watch = grown()
    world.run(T0 + 10 * MINUTE)
    world.scale("ReplicaSet", "default/late", 0)
    world.run(T0 + 13 * MINUTE)
    assert sorted(world.store.nodes) == ["node-a", "node-b", "node-c"]
    assert watch.violations == []


def test_replacement_that_never_comes_is_undone_in_time() -> None:
    """9 min 30 s after its launch the command is rolled back; nothing is lost.

    Design: lifecycle-controller, Replacement Node Timeout.
    """
    world = small_world(nodes=0, budgets=[{"nodes": "100%"}], consolidationSavingsThreshold=0)
    world.add_node("blue", "large", "zone-a", names.ON_DEMAND, age=30 * MINUTE, name="big")
    world.workloads.add(work(replicas=2, cpu="400m"))
    settle(world, 90)
    world.karpenter.bad_images.add("image-1")
    watch = Watch(world)
    host = world.add_engine(DOVETAIL)
    watch.follow(host)
    host.start()
    closed = world.now + 15 * SECOND
    world.run(closed + 9 * MINUTE)
    assert any(taint.key == names.DISRUPTION_TAINT for taint in world.store.nodes["big"].spec.taints)
    assert len(world.store.claims) == 2
    world.run(closed + 10 * MINUTE)
    assert world.store.nodes["big"].spec.taints == ()
    assert list(world.store.claims) == ["big"]
    assert all(pod.status.phase == "Running" for pod in world.store.pods.values())
    assert watch.violations == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["zone-by-zone", "quarter-of-a-zone"])
def test_image_roll_finishes_a_zone_before_the_next(policy: str, seed: int) -> None:
    """Every node gets the new image, and the roll changes zone twice, though machines die on the way.

    Design: topology-budgets, User Stories.
    """
    scenario = load_scenario("image-roll")
    chosen = next(entry for entry in scenario.policies if entry.name == policy)
    result = run_scenario(scenario, chosen, seed)
    assert result.violations == ()
    old = [life for life in result.lives if life.started < 0 and life.ended is None]
    assert old == []
    zones = {life.node: life.zone for life in result.lives}
    ended = {life.node: life.ended for life in result.lives}
    drifts = [(c.at, ended[c.nodes[0]], zones[c.nodes[0]]) for c in result.commands if c.action.endswith("Drifted")]
    assert len(drifts) >= 12
    for begin, _, zone in drifts:
        others = {where for start, end, where in drifts if start < begin < (end or begin) - 10}
        assert others <= {zone}
    assert sum(one != other for (_, _, one), (_, _, other) in pairwise(drifts)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["image-roll", "fleet-expiry", "bad-image", "spot-market"])
def test_shipped_scenarios_break_no_promise(name: str) -> None:
    """Shipped scenarios break no promise under any policy that they name."""
    scenario = load_scenario(name)
    for policy in scenario.policies:
        result = run_scenario(scenario, policy, 2, until=min(scenario.until, 150 * MINUTE))
        assert result.violations == (), policy.name
