"""Runs a scenario under a policy and closes the books: the one way from a scenario to a `Result`.

The warm-up lets Karpenter's provisioner open nodes for what is there, with nobody disrupting; then the policy's engine
starts and is measured. Under `karpenter-1.15` the engine plays Karpenter; under the others it is Dovetail beside a
Karpenter that provisions, and, where the policy says so, disrupts what nobody holds.
"""

from collections.abc import Callable
from dataclasses import replace

from dovetail.sim.checkers import Watch
from dovetail.sim.clock import SECOND
from dovetail.sim.ledger import Ledger, Result
from dovetail.sim.scenario import Policy, Scenario
from dovetail.sim.stage import Stage
from dovetail.sim.world import karpenter_settings

SAMPLES = 240


def run_scenario(
    scenario: Scenario,
    policy: Policy,
    seed: int = 0,
    until: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Result:
    """One run: the same scenario, policy, seed and time give the same result, byte for byte."""
    length = scenario.until if until is None else until
    world = Stage(scenario, policy, seed).build()
    watch = Watch(world)
    ledger = Ledger(world, step=max(SECOND, length // SAMPLES))
    _pass(world.run, 0, scenario.warm_up, None)
    settings = policy.settings
    if settings.is_karpenter:
        settings = replace(settings, pools=karpenter_settings(world).pools)
    hosts = [world.add_engine(settings, name=policy.settings.profile.value)]
    if policy.beside_karpenter and not settings.is_karpenter:
        hosts.append(world.add_karpenter())
    for host in hosts:
        watch.follow(host)
        ledger.follow(host)
    ledger.begin()
    for host in hosts:
        host.start()
    _pass(world.run, scenario.warm_up, scenario.warm_up + length, progress)
    return ledger.result(policy.name, tuple(watch.violations))


def _pass(run: Callable[[int], None], begin: int, end: int, progress: Callable[[float], None] | None) -> None:
    """Let time pass in a hundred pieces, to say how far it is."""
    for percent in range(1, 101):
        run(begin + (end - begin) * percent // 100)
        if progress is not None:
            progress(percent / 100)
