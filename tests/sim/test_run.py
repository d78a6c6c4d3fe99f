"""Runs one after the other: a world that is over is gone."""

import gc
import weakref

import pytest

from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.sim.world.world import World

MINUTE = 60 * 10**9


@pytest.mark.parametrize("policy", ["karpenter-1.15", "both"])
def test_nothing_of_a_world_is_left_when_its_run_ends(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run frees its world, the parts of it and the engines, without a full garbage collection."""
    kept: list[weakref.ref[object]] = []
    close = World.close

    def watched(world: World) -> None:
        parts = (world, world.store, world.clock, world.scheduler, world.scheduler.table, world.provisioner)
        engines = (part for host in world.hosts for part in (host, host.engine, host.engine.store))
        kept.extend(map(weakref.ref, (*parts, *engines)))
        close(world)

    monkeypatch.setattr(World, "close", watched)
    scenario = load_scenario("issue-7146")
    chosen = next(entry for entry in scenario.policies if entry.name == policy)
    gc.disable()
    try:
        result = run_scenario(scenario, chosen, until=20 * MINUTE)
    finally:
        gc.enable()
    assert result.nodes_at_end
    assert len(kept) > 6
    assert not [ref() for ref in kept if ref() is not None]
