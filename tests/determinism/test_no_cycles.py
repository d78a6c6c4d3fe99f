"""What a round leaves behind is freed at once: a long run needs no garbage collector to keep its memory."""

import gc
from collections import Counter

from dovetail.sim.run import add_controllers
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import MINUTE


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
    gc.collect()
    gc.disable()
    try:
        world.run(scenario.warm_up + 30 * MINUTE)
        assert sum(host.engine.rounds for host in hosts) > 20
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(type(item).__qualname__ for item in gc.garbage if type(item).__module__.startswith("dovetail"))
        assert not left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
