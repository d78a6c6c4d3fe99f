"""Surge in the simulator: a Deployment with one replica leaves a drifted node without a gap."""

from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import parse_scenario

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
    """With surge both drifted nodes go; without it the one with the guarded pod stays."""
    with_surge, without = ended(surge=True), ended(surge=False)
    count = lambda actions: sum(number for name, number in actions.items() if name.endswith("Drifted"))  # noqa: E731
    assert count(with_surge) == 2
    assert count(without) == 1
