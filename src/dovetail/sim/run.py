"""Runs a scenario under a policy: the only way from a scenario to a `Result`.

In the warm-up Karpenter's provisioner opens nodes for the pods, without any disruption; then the policy's engine starts
and is measured. Under `karpenter-1.15` the engine plays Karpenter; under the others it is Dovetail beside a Karpenter
that provisions and, if the policy says so, disrupts nodes that are not held.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from dovetail.lifecycle.announce import VERDICTS_EVERY
from dovetail.model.settings import Settings
from dovetail.sim.checks.watch import Watch
from dovetail.sim.ledger import Result, RunLedger
from dovetail.sim.scenarios.scenario import Policy, Scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.host import Host
from dovetail.sim.world.world import World, karpenter_settings

SAMPLES = 240
YOUNG_MAX = 5_000_000
"""How many objects come before the first are looked through for cycles: more than a world of 10,000 nodes has."""


def run_scenario(
    scenario: Scenario,
    policy: Policy,
    seed: int = 0,
    until: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Result:
    """Run a scenario: the same scenario, policy, seed and time give the same result, byte for byte."""
    with _collecting_rarely():
        return _run(scenario, policy, seed, scenario.until if until is None else until, progress)


def _run(
    scenario: Scenario, policy: Policy, seed: int, length: int, progress: Callable[[float], None] | None
) -> Result:
    world = Stage(scenario, policy, seed).build()
    step = max(SECOND, length // SAMPLES)
    ledger = RunLedger(world, step=step)
    _pass(world.run, 0, scenario.warm_up, None)
    watch = Watch(world)  # its promises are those of controllers, and there is none before
    # Verdicts are for the plot of gates: no more of them than it has points.
    _, hosts = add_controllers(world, policy, verdicts_every=max(VERDICTS_EVERY, step))
    for host in hosts:
        watch.follow(host)
        ledger.follow(host)
    ledger.begin()
    for host in hosts:
        host.start()
    _pass(world.run, scenario.warm_up, scenario.warm_up + length, progress)
    result = ledger.result(policy.name, tuple(watch.violations))
    world.close()
    return result


def add_controllers(
    world: World, policy: Policy, verdicts_every: int = VERDICTS_EVERY
) -> tuple[Settings, tuple[Host, ...]]:
    """Add the controllers that a policy names, not started yet; return the first one's settings, and all of them."""
    settings = policy.settings
    if settings.rules.plays_karpenter:
        settings = replace(settings, pools=karpenter_settings(world).pools)
    hosts = [world.add_engine(settings, name=policy.settings.profile.value, verdicts_every=verdicts_every)]
    if policy.beside_karpenter and not settings.rules.plays_karpenter:
        hosts.append(world.add_karpenter())
    return settings, tuple(hosts)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Run the cyclic garbage collector rarely: a world makes hardly any cycles but its own, which `close` breaks.

    What is left of them is freed at the end, so that one run after the other needs no more memory than one.
    """
    before = gc.get_threshold()
    gc.set_threshold(YOUNG_MAX, 50, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.collect(1)


def _pass(run: Callable[[int], None], begin: int, end: int, progress: Callable[[float], None] | None) -> None:
    """Advance time in a hundred steps, to report progress."""
    for percent in range(1, 101):
        run(begin + (end - begin) * percent // 100)
        if progress is not None:
            progress(percent / 100)
