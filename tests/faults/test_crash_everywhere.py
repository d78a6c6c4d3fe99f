"""A crash at every possible point of a command, one by one, in the simulated cluster."""

import pytest

from dovetail.model.settings import DOVETAIL
from dovetail.sim.checks.faults import Crashes
from dovetail.sim.checks.watch import Watch
from dovetail.sim.world.clock import MINUTE, SECOND
from dovetail.sim.world.host import Host
from dovetail.sim.world.world import World
from tests.support.rogue import settle, small_world, work

CALLS_MAX = 40


def wasteful() -> World:
    """Return one large node with two small pods and a medium node: a cheaper node will replace the large one."""
    world = small_world(nodes=0, budgets=[{"nodes": "100%"}], consolidationSavingsThreshold=0)
    world.add_node("blue", "large", "zone-a", "on-demand", age=30 * MINUTE, name="big")
    world.workloads.add(work(replicas=2, cpu="400m"))
    settle(world, 90)
    return world


def drifted() -> World:
    """Return three nodes of an old image with pods; all of them will be replaced."""
    world = small_world(nodes=3, budgets=[{"nodes": "1"}], consolidationPolicy="WhenEmpty")
    world.workloads.add(work(replicas=6, cpu="900m"))
    settle(world, 90)
    world.set_image("default", "image-2")
    return world


def empty() -> World:
    """Return two empty nodes; both will be deleted."""
    world = small_world(nodes=3, budgets=[{"nodes": "100%"}])
    world.workloads.add(work(replicas=1, cpu="400m"))
    settle(world, 90)
    return world


def run(world: World, points: dict[int, bool]) -> tuple[Watch, Host, int]:
    """Run the engine for an hour with a crash at the given call; return the number of calls."""
    watch = Watch(world, lag=10 * SECOND, patience=3 * MINUTE)
    host = world.add_engine(DOVETAIL)
    watch.follow(host)
    crashes = Crashes(host, points, wait=7 * SECOND)
    host.start()
    world.run(world.now + 60 * MINUTE)
    watch.ended()
    return watch, host, crashes.calls


STORIES = {"replace": wasteful, "drift": drifted, "empty": empty}


@pytest.mark.parametrize("story", sorted(STORIES))
def test_every_point_of_a_command(story: str) -> None:
    """After a crash before or after any call, the engine restarts from the objects alone and finishes the work."""
    watch, host, calls = run(STORIES[story](), {})
    assert watch.violations == []
    assert host.starts == 1
    assert 3 < calls < CALLS_MAX * 3
    for call in range(1, min(calls, CALLS_MAX) + 1):
        for after in (False, True):
            watch, host, _ = run(STORIES[story](), {call: after})
            assert watch.violations == [], f"crash {'after' if after else 'before'} call {call}"
            assert host.starts == 2
            assert not host.engine.runs


def test_the_stories_end_where_they_should() -> None:
    """Without a crash the runs end with a cheaper node, only new images, and one node."""
    world = wasteful()
    run(world, {})
    assert "big" not in world.store.nodes
    world = drifted()
    run(world, {})
    assert {claim.status.image_id for claim in world.store.claims.values()} == {"image-2"}
    world = empty()
    run(world, {})
    assert len(world.store.nodes) == 1
