"""Whole runs: a world that is over is gone, and what its provisioner keeps is what it would count."""

import gc
import weakref

import pytest

from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.sim.world.karpenter.provisioner import Provisioner
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


def test_pods_that_wait_are_in_the_batch_if_the_provisioner_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """While `_all_wait` is set, no pod without a place is missing from the open batch, and the others are placed."""
    seen = set[bool]()

    def checked(provisioner: Provisioner) -> None:
        without = {key for key, pod in provisioner.store.pods.items() if not pod.spec.node_name}
        without -= {key for key in without if provisioner.store.pods[key].metadata.deletion_timestamp is not None}
        assert provisioner._unplaced == without
        assert not provisioner._all_wait or provisioner._waiting >= without
        seen.add(provisioner._all_wait)
        close(provisioner)

    close = Provisioner._close
    monkeypatch.setattr(Provisioner, "_close", checked)
    scenario = load_scenario("issue-7146")
    run_scenario(scenario, next(iter(scenario.policies)), until=60 * MINUTE)
    assert seen == {True, False}
