"""What a round leaves behind is freed at once: a long run needs no garbage collector to keep its memory."""

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from dovetail.decide.decider import Decider
from dovetail.model.settings import Search
from dovetail.sim.run import add_controllers
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import MINUTE
from tests.support.design_world import Town
from tests.support.towns import KINDS


def test_rounds_leave_no_reference_cycles() -> None:
    """After rounds, simulations and commands, nothing of them is left for the garbage collector."""
    scenario = load_scenario("issue-7146")
    policy = next(policy for policy in scenario.policies if policy.name == "both")
    world = Stage(scenario, policy, 0).build()
    world.run(scenario.warm_up)
    _, hosts = add_controllers(world, policy)
    for host in hosts:
        host.start()
    world.run(scenario.warm_up + MINUTE)
    with _no_garbage():
        world.run(scenario.warm_up + 30 * MINUTE)
        assert sum(host.engine.rounds for host in hosts) > 20


def test_rounds_without_budget_leave_no_reference_cycles() -> None:
    """The results of nodes that wait for a budget don't keep the round that made them."""
    town = Town(*KINDS)
    town.pool(disruption={"budgets": [{"nodes": "0"}]})
    for at in range(4):
        town.node(f"n{at}", "l")
        town.pod(f"p{at}", f"n{at}", cpu="500m")
    town.settings = replace(town.settings, search=Search.VALUE)
    decider = Decider()
    with _no_garbage():
        for _ in range(3):
            town.now += timedelta(minutes=1)
            assert len(decider.round(town.question()).verdicts) == 4


def test_the_first_round_is_not_kept() -> None:
    """A decider keeps nothing of the pods of its first round once later ones have been read."""
    town, decider = Town(*KINDS), Decider()
    town.pool(disruption={"consolidateAfter": "0s"})
    for at in range(3):
        town.node(f"n{at}", "s")
        town.pod(f"p{at}", f"n{at}", cpu="1500m")
    catalogue = town.catalogue
    with _no_garbage():
        scene = decider.scene(town.question(catalogue=catalogue))
        assert scene.snapshot.movers(0).classes
        first = weakref.ref(scene.snapshot.bindings)
        del scene
        for at in range(3):
            town.pod(f"more-{at}", "n0", cpu="10m")
            decider.round(town.question(catalogue=catalogue))
        assert first() is None


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Check that nothing of Dovetail is left for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(type(item).__qualname__ for item in gc.garbage if type(item).__module__.startswith("dovetail"))
        assert not left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
