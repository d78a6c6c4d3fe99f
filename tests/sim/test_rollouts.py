"""Surge in the simulator: a Deployment with one replica leaves a drifted node without downtime."""

from dataclasses import replace

from dovetail.lifecycle.messages import SurgeDeployment
from dovetail.model.command import Method
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import parse_scenario
from dovetail.sim.world.clock import MINUTE, SECOND
from tests.sim.test_checkers import watched
from tests.support.rogue import rules, settle, small_world, work

SCENARIO = """
name: surge
about: one pod behind a PDB that allows nothing, on nodes whose image changes
until: 2h
catalogue:
  - {name: m.large, cpu: 2, memory: 8Gi, price: 0.1}
pools:
  - name: web
    disruption: {consolidateAfter: Never, budgets: [{nodes: "1"}]}
nodes:
  - {pool: web, type: m.large, count: 2}
workloads:
  - {name: shop, replicas: 1, cpu: 500m, surge: SURGE, pdb: {minAvailable: 1}}
  - {name: other, replicas: 2, cpu: 500m}
steps:
  - {at: 20m, image: {id: v2, within: 0s}}
policies:
  mine: {}
"""


def ended(surge: bool) -> dict[str, int]:
    """Return the actions of a run."""
    scenario = parse_scenario(SCENARIO.replace("SURGE", str(surge).lower()), "test")
    result = run_scenario(scenario, next(iter(scenario.policies)), seed=1)
    assert not result.violations
    return dict(result.actions)


def test_a_pod_that_cant_be_evicted_moves_by_a_rolling_update() -> None:
    """With surge both drifted nodes are replaced; without it the node with the protected pod stays."""
    with_surge, without = ended(surge=True), ended(surge=False)
    count = lambda actions: sum(number for name, number in actions.items() if name.endswith("Drifted"))  # noqa: E731
    assert count(with_surge) == 2
    assert count(without) == 1


def test_a_rollout_that_loses_a_pod_is_seen() -> None:
    """A missing ready pod of the rolling Deployment is reported; otherwise nothing is."""
    for lost in (False, True):
        world = small_world()
        world.rollouts.add(replace(work("shop", 3), surges=True))
        settle(world)
        watch, rogue = watched(world)
        rogue.do(SurgeDeployment(id="one/surge", command_id="one", namespace="default", name="shop", mark="x one"))
        if lost:
            world.kubelets.stop(world.workloads.pods_of("ReplicaSet", "default/shop")[0])
        world.run(world.now + 5 * MINUTE)
        assert rules(watch) == (["surge"] if lost else [])


def test_a_machine_that_dies_meanwhile_takes_its_pods_along() -> None:
    """A pod lost with a machine that died by itself is no fault of the command; one lost by its deletion is."""
    for deleted in (False, True):
        world = small_world()
        world.rollouts.add(replace(work("shop", 3), surges=True))
        settle(world)
        watch, rogue = watched(world)
        node = next(name for name, pods in sorted(world.store.pods_on.items()) if pods)
        if not deleted:
            world.kill(node)
        rogue.taint("one", node, method=Method.DRIFTED)
        rogue.do(SurgeDeployment(id="one/surge", command_id="one", namespace="default", name="shop", mark="x one"))
        world.run(world.now + SECOND)
        if deleted:
            rogue.delete("one", node)
            world.draining.abandon(node)
        else:
            world.karpenter._collect(node, world.store.claims[node].metadata.uid)
        assert [rule for rule in rules(watch) if rule == "surge"] == (["surge"] if deleted else [])
