"""The expected end of a roll, against the end that it really has in the simulator."""

from datetime import datetime

import pytest

from dovetail.sim.run import add_controllers
from dovetail.sim.scenarios.scenario import parse_scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import SECOND

SCENARIO = """
name: roll
about: the image of all nodes changes at once
until: 3h
catalogue:
  - {name: m.large, cpu: 2, memory: 8Gi, price: 0.1}
pools:
  - name: web
    disruption: {consolidateAfter: Never, budgets: BUDGETS}
nodes:
  - {pool: web, type: m.large, count: 12}
workloads:
  - {name: shop, replicas: 22, cpu: 800m}
steps:
  - {at: 5m, image: {id: v2, within: 0s}}
policies:
  mine: {}
"""
EVERY = 5 * SECOND
WITHIN = 0.2


def forecasts(budgets: str, seed: int) -> tuple[list[tuple[datetime, datetime | None]], datetime]:
    """Run a roll; return what was expected when, and when it really ended."""
    scenario = parse_scenario(SCENARIO.replace("BUDGETS", budgets), "test")
    policy = next(iter(scenario.policies))
    world = Stage(scenario, policy, seed).build()
    world.run(scenario.warm_up)
    _, (host, *others) = add_controllers(world, policy)
    for each in (host, *others):
        each.start()
    found: list[tuple[datetime, datetime | None]] = []
    for at in range(scenario.warm_up + EVERY, scenario.warm_up + scenario.until, EVERY):
        world.run(at)
        rolling = host.engine.last_round.rollouts if host.engine.last_round is not None else ()
        if rolling:
            assert not rolling[0].blocked
            found.append((host.now(), rolling[0].expected_end))
        elif found:
            end = host.now()
            world.close()
            return found, end
    raise AssertionError("the roll did not end")


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "budgets",
    [
        pytest.param('[{nodes: "1"}]', id="one"),
        pytest.param('[{nodes: "3"}]', id="three"),
        pytest.param('[{nodes: "25%"}, {nodes: "1", per: 4m}]', id="a rate"),
        pytest.param(
            '[{nodes: "3"}, {nodes: "1", topologyKey: topology.kubernetes.io/zone, sequential: true}]', id="zones"
        ),
        pytest.param('[{nodes: "2"}, {nodes: "0", schedule: "0,30 * * * *", duration: 20m}]', id="a closed window"),
    ],
)
def test_the_expected_end_is_within_a_fifth(budgets: str, seed: int) -> None:
    """From its first moment on, a roll without a block is expected to end within 20 % of its length of the real end."""
    found, end = forecasts(budgets, seed)
    length = (end - found[0][0]).total_seconds()
    errors = [1.0 if when is None else abs((when - end).total_seconds()) / length for _, when in found]
    assert max(errors) <= WITHIN, (length, round(max(errors), 2), errors.index(max(errors)) / len(errors))
