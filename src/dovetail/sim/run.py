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
from dovetail.sim.ledger import Interim, Result, RunLedger
from dovetail.sim.scenarios.scenario import Policy, Scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.host import Host
from dovetail.sim.world.world import World, karpenter_settings

SAMPLES = 240
NEVER = 2**62
STEPS = (1, 2, 5, *range(10, 1001, 10))
"""After which thousandths of its time a run reports: the first minutes of thousands of nodes may take a minute."""
YOUNG_MAX = 5_000_000
"""How many objects come before the first are looked through for cycles: more than a world of 10,000 nodes has."""


def run_scenario(
    scenario: Scenario,
    policy: Policy,
    seed: int = 0,
    until: int | None = None,
    progress: Callable[[float], None] | None = None,
    watch: Callable[[float, Interim], None] | None = None,
) -> Result:
    """Run a scenario: the same scenario, policy, seed and time give the same result, byte for byte.

    `progress` hears the share that is done, `watch` the figures so far as well.
    """

    def report(share: float, ledger: RunLedger) -> None:
        if progress is not None:
            progress(share)
        if watch is not None:
            watch(share, ledger.so_far())

    with _collecting_rarely():
        return _run(scenario, policy, seed, scenario.until if until is None else until, report)


def _run(
    scenario: Scenario, policy: Policy, seed: int, length: int, report: Callable[[float, RunLedger], None]
) -> Result:
    policy = policy.paying(scenario.tariff)
    world = Stage(scenario, policy, seed).build()
    step = max(SECOND, length // SAMPLES)
    ledger = RunLedger(world, step=step, keeps_history=not scenario.figures_only)
    _pass(world.run, 0, scenario.warm_up, None)
    watch = Watch(world)  # its promises are those of controllers, and there is none before
    # Verdicts are for the plot of gates: no more of them than it has points, and none if nothing is plotted.
    every = NEVER if scenario.figures_only else max(VERDICTS_EVERY, step)
    _, hosts = add_controllers(world, policy, verdicts_every=every)
    for host in hosts:
        watch.follow(host)
        ledger.follow(host)
    begin = scenario.warm_up + scenario.settle
    if not scenario.settle:
        ledger.begin()
    for host in hosts:
        host.start()
    if scenario.settle:
        world.run(begin)
        ledger.begin()
    _pass(world.run, begin, begin + length, lambda share: report(share, ledger))
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
        hosts.append(world.add_karpenter(settings=policy.karpenter))
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
    """Advance time in a hundred steps, and some short ones first, to report progress."""
    for part in STEPS:
        run(begin + (end - begin) * part // 1000)
        if progress is not None:
            progress(part / 1000)
