"""What the leader publishes makes a plan beside it say what the controller says (docs/rules.md#one-truth)."""

from dataclasses import replace

import pytest

from dovetail.cli.simulation.simulate import chosen_policies
from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.lifecycle.published import decode_state, encode_state, live_question, state_of
from dovetail.model.policies.managed import managed_pools
from dovetail.model.settings import RECOMMENDED
from dovetail.sim.run import add_controllers
from dovetail.sim.scenarios.scenario import Policy, load_scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import SECOND
from tests.support.sizes import size

LOOKS = size(test=12, ci=24, long=200)
STEP = 7 * SECOND  # not a divisor of any timer
STEPS_MAX = 1_000


def _beside(question: Question, text: bytes) -> Question:
    """Return the question as a command line asks it that reads the objects and the published state."""
    state = decode_state(text)
    plain = Question(
        cluster=replace(question.cluster, notes=()),
        catalogue=question.catalogue,
        settings=state.settings,
        now=question.now,
        managed_pools=managed_pools(question.cluster.node_pools, state.settings) or None,
    )
    return live_question(plain, state)


RESTARTS = replace(RECOMMENDED, pool_defaults=(("restartPrice", "0.001"),))


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("issue-7146", Policy(name="one price", settings=RESTARTS)),
        ("issue-7146", "both"),
        ("issue-7146", "recommended"),
        ("batch-churn", "grace-5m"),
        ("image-roll", "zone-by-zone"),
    ],
)
def test_a_plan_beside_the_controller_says_what_the_controller_says(name: str, policy: str | Policy) -> None:
    """Whenever one looks, both have the same commands and the same verdict for every node."""
    scenario = load_scenario(name)
    chosen = chosen_policies(scenario, [policy])[0] if isinstance(policy, str) else policy
    world = Stage(scenario, chosen, 3).build()
    world.run(scenario.warm_up)
    _, hosts = add_controllers(world, chosen)
    for host in hosts:
        host.start()
    engine, looks, waits = hosts[0].engine, 0, 0
    for step in range(1, STEPS_MAX):
        world.run(scenario.warm_up + step * STEP)
        if not engine.acts or (not engine.runs and step % 20):
            continue
        own = engine.question()
        beside = _beside(own, encode_state(state_of(engine)))
        looks += len(engine.runs) > 0
        waits += len(own.settling) + len(own.settling_nodes) + len(own.waste)
        phases = [(run.phase, run.nodes) for run in engine.runs]
        priced = isinstance(policy, Policy) or policy == "recommended"
        assert beside.persistence == (own.persistence if priced else {})
        assert beside.earning.keys() == own.earning.keys()
        assert beside.in_flight.leaving == own.in_flight.leaving, phases
        assert beside.in_flight.nominated == own.in_flight.nominated, phases
        assert beside.in_flight.under_way == own.in_flight.under_way, phases
        ours, theirs = Decider(memory=False).round(own), Decider(memory=False).round(beside)
        assert theirs.commands == ours.commands
        mine = [(entry.node, entry.verdict) for entry in ours.verdicts]
        assert [(entry.node, entry.verdict) for entry in theirs.verdicts] == mine
        if looks >= LOOKS:
            break
    assert looks, "no command was in progress at any look"
    assert waits, "nothing was waited for at any look"
    world.close()
