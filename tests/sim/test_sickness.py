"""Unhealthy nodes: what happens to them and their pods, repair in the simulator, and the promises about both."""

from typing import Any

import pytest

from dovetail.lifecycle.messages import DeleteNodeClaim
from dovetail.model.command import Method
from dovetail.model.objects import condition, is_true
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import ScenarioError, parse_scenario
from dovetail.sim.world.clock import MINUTE, SECOND
from dovetail.sim.world.world import World
from tests.sim.test_checkers import watched
from tests.support.rogue import rules, settle, small_world, work

SILENT = {"condition": "Ready", "status": "Unknown", "for": "5m"}


def with_web(replicas: int = 3, **disruption: Any) -> World:
    """Build a world in which some pods run."""
    world = small_world(nodes=4, consolidateAfter="Never", budgets=[{"nodes": "100%"}], **disruption)
    world.workloads.add(work("web", replicas))
    settle(world)
    return world


def ready_pods(world: World) -> int:
    """Count the ready pods."""
    return sum(is_true(pod.status.conditions, "Ready") for pod in world.store.pods.values())


def busy(world: World) -> str:
    """Return a node with a pod."""
    return min(pod.spec.node_name for pod in world.store.pods.values())


def test_a_node_that_is_not_ready_serves_nobody_until_it_recovers() -> None:
    """A sick node's pods are not ready and it gets no others; afterwards everything is as before."""
    world = with_web()
    node = busy(world)
    there = len(world.store.pods_on[node])
    world.fall_ill(node, "Ready", "Unknown", 3 * MINUTE)
    world.run(world.now + MINUTE)
    assert ready_pods(world) == 3 - there
    assert [taint.key for taint in world.store.nodes[node].spec.taints] == ["node.kubernetes.io/not-ready"]
    world.run(world.now + 3 * MINUTE)
    assert ready_pods(world) == 3
    assert world.store.nodes[node].spec.taints == ()
    assert world.sickness.nodes == []


def test_after_five_minutes_other_pods_take_over() -> None:
    """Pods of an unreachable node can't terminate; their owner creates others elsewhere."""
    world = with_web()
    node = busy(world)
    world.fall_ill(node, "Ready", "Unknown")
    world.run(world.now + 7 * MINUTE)
    assert ready_pods(world) == 3
    assert all(pod.metadata.deletion_timestamp is not None for pod in world.store.pods_on[node].values())


def test_another_condition_is_only_shown() -> None:
    """With another condition pods keep running, and the condition disappears again."""
    world = with_web()
    node = busy(world)
    world.fall_ill(node, "KernelDeadlock", "True", 2 * MINUTE)
    world.run(world.now + MINUTE)
    found = condition(world.store.nodes[node].status.conditions, "KernelDeadlock")
    assert found is not None
    assert found.status == "True"
    assert ready_pods(world) == 3
    world.run(world.now + 2 * MINUTE)
    assert condition(world.store.nodes[node].status.conditions, "KernelDeadlock") is None


SCENARIO = """
name: sick
until: 1h
catalogue:
  - {name: m.large, cpu: 2, memory: 8Gi, price: 0.1}
pools:
  - name: web
    disruption: {consolidateAfter: Never, budgets: [{nodes: "1"}]}
nodes:
  - {pool: web, type: m.large, count: 6}
workloads:
  - {name: shop, replicas: 6, cpu: 500m}
steps:
  - {at: 5m, sick: STEP}
policies:
  mine: {disruption: {repair: RULES}}
"""


@pytest.mark.parametrize(
    ("step", "rules_text", "repaired"),
    [
        ("{}", '[{condition: Ready, status: Unknown, for: 5m, drainFor: "0s"}]', 1),
        ("{}", "[{condition: Ready, status: Unknown, for: 5m}]", 1),
        ("{for: 4m}", "[{condition: Ready, status: Unknown, for: 5m}]", 0),
        ("{status: 'False'}", "[{condition: Ready, status: Unknown, for: 5m}]", 0),
        ("{condition: Gpu, status: 'True', pool: web}", "[{condition: Gpu, status: 'True', for: 1m}]", 1),
        ("{nodes: 3}", "[{condition: Ready, status: Unknown, for: 5m}]", 0),
        ("{}", "[]", 0),
    ],
    ids=[
        "bounded drain",
        "drain that ends by itself",
        "too short",
        "another status",
        "another condition",
        "too many",
        "no rule",
    ],
)
def test_repair_is_tried_in_the_simulator(step: str, rules_text: str, repaired: int) -> None:
    """A scenario makes nodes unhealthy; the policy's rules decide which are repaired."""
    scenario = parse_scenario(SCENARIO.replace("STEP", step).replace("RULES", rules_text), "test")
    result = run_scenario(scenario, next(iter(scenario.policies)), seed=1)
    assert not result.violations
    assert sum(number for name, number in result.actions.items() if name.endswith("Unhealthy")) == repaired


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{nodes: 0}", "sick.nodes"),
        ("{for: 0s}", "never ends"),
        ("{status: Maybe}", "write one of: True, False, Unknown"),
        ("{pool: blue}", "write one of: web"),
    ],
)
def test_mistakes_in_the_step(step: str, said: str) -> None:
    """Each mistake is reported with what to write instead."""
    with pytest.raises(ScenarioError, match=said):
        parse_scenario(SCENARIO.replace("STEP", step).replace("RULES", "[]"), "test")


# ---------------------------------------------------------------- promises


@pytest.mark.parametrize(
    ("ill", "minutes", "broken"),
    [(1, 6, []), (1, 2, ["repair"]), (2, 6, ["repair"]), (0, 6, ["repair"])],
    ids=["due", "too early", "too many are ill", "nobody is ill"],
)
def test_a_repair_that_is_not_due_is_seen(ill: int, minutes: int, broken: list[str]) -> None:
    """The rule requires five minutes; one of four nodes may be unhealthy."""
    world = with_web(repair=[SILENT])
    watch, rogue = watched(world)
    for index in range(ill):
        world.fall_ill(f"n{index}", "Ready", "Unknown")
    world.run(world.now + minutes * MINUTE)
    rogue.taint("one", "n0", method=Method.UNHEALTHY)
    assert [rule for rule in rules(watch) if rule == "repair"] == broken


@pytest.mark.parametrize(
    ("method", "recovers", "broken"),
    [(Method.DRIFTED, False, ["health"]), (Method.DRIFTED, True, []), (Method.UNHEALTHY, False, [])],
)
def test_a_command_before_moved_pods_are_ready_is_seen(method: Method, recovers: bool, broken: list[str]) -> None:
    """If the target nodes of moved pods become unhealthy at once, only repair continues."""
    world = with_web(health={"movedPodsReadyWithin": "10m"})
    watch, rogue = watched(world)
    node = busy(world)
    rogue.taint("one", node, method=Method.DRIFTED)
    rogue.delete("one", node)
    world.run(world.now + 4 * SECOND)
    others = [name for name in sorted(world.store.nodes) if name != node]
    if not recovers:
        for name in others:
            world.fall_ill(name, "Ready", "Unknown")
    world.run(world.now + 2 * MINUTE)
    assert node not in world.store.nodes
    rogue.taint("two", others[0], method=method)
    assert [rule for rule in rules(watch) if rule == "health"] == broken


def test_a_node_that_a_command_gave_back_is_not_its_move() -> None:
    """A command that is rolled back moved nothing: when another command takes its node, it has no part in that."""
    world = with_web(health={"movedPodsReadyWithin": "10m"})
    watch, rogue = watched(world)
    node = busy(world)
    rogue.taint("one", node, method=Method.DRIFTED)
    uid = world.store.claims[node].metadata.uid
    watch.instruction(rogue.host, DeleteNodeClaim(id="one/delete", command_id="one", name=node, uid=uid))
    rogue.untaint("one", node)
    for name in sorted(world.store.nodes):
        world.fall_ill(name, "Ready", "Unknown")
    world.store.remove("Node", node)
    world.run(world.now + 2 * MINUTE)
    rogue.taint("two", next(name for name in sorted(world.store.nodes) if name != node), method=Method.DRIFTED)
    assert "health" not in rules(watch)
