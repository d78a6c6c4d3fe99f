"""The checker of `quietBeforeHaste`: haste in a restless pool is seen, and nothing else is held against an engine."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.messages import TaintNode
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.settings import DOVETAIL
from dovetail.sim.checks.watch import Watch
from dovetail.sim.world.clock import MINUTE
from dovetail.sim.world.world import World
from tests.support.rogue import Rogue, rules, settle, small_world, work

BROKEN = ["quiet-before-haste"]
QUIET = 30 * MINUTE


def _restless(
    *, quiet: int = QUIET, pause: int = 90, came: int = 2, ordered: int = 0, method: Method = Method.EMPTY, **pool: Any
) -> tuple[World, Watch, Rogue]:
    """A node with two pods for $0.10; then another node goes, and others come: of their own accord, or ordered."""
    asked = {"consolidationSavingsThreshold": 0.04, "disruptionPrice": 1, "budgets": [{"nodes": "100%"}], **pool}
    world = small_world(4, **asked)
    world.workloads.add(work(replicas=2, node_selector={names.HOSTNAME: "n0"}))
    settle(world, 300)
    for pod in tuple(world.store.pods_on["n0"].values()):
        world.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_selector={})))
    watch = Watch(world)
    rogue = Rogue(world, watch)
    rogue.host = world.add_engine(replace(DOVETAIL, quiet_before_haste=quiet), name="hasty")
    rogue.taint("first", "n3", method=method)
    rogue.delete("first", "n3")
    settle(world)
    for index in range(came):
        world.add_node("blue", "medium", "zone-a", names.ON_DEMAND, name=f"late-{index}")
    for index in range(ordered):
        rogue.replace("third", "n2", f"ordered-{index}")
    settle(world, pause)
    watch.violations.clear()
    return world, watch, rogue


@pytest.mark.parametrize(
    ("case", "broken"),
    [
        ({}, BROKEN),
        ({"method": Method.SINGLE_NODE}, BROKEN),
        ({"came": 3}, BROKEN),
        ({"pause": 1_600}, BROKEN),
        ({"consolidationSavingsThreshold": 0.034}, BROKEN),
        ({"consolidationSavingsThreshold": 0.033}, []),
        ({"quiet": 0}, []),
        ({"disruptionPrice": None}, []),
        ({"disruptionPrice": 0.0001}, []),
        ({"came": 1}, []),
        ({"came": 1, "ordered": 1}, []),
        ({"method": Method.DRIFTED}, []),
        ({"pause": 20}, []),
        ({"pause": 1_810}, []),
        ({"quiet": 1 * MINUTE}, []),
    ],
)
def test_haste_in_a_restless_pool_is_seen(case: dict[str, Any], broken: list[str]) -> None:
    """Two pods on a node of $0.10 ask for $0.08, and for $0.12 while nodes come soon after others have gone.

    It takes two nodes that no command ordered, a command of the same engine that saved money, a pool with a price, and
    time to see them; the quiet ends, and what has wasted enough may go.
    """
    _, watch, rogue = _restless(**case)
    rogue.taint("second", "n0")
    assert rules(watch) == broken


def test_dearer_machine_is_too_much_in_a_restless_pool() -> None:
    """A replacement of $0.05 saves the other half: enough for two pods at $0.02, not for half as much again."""
    for came, broken in ((1, []), (2, BROKEN)):
        _, watch, rogue = _restless(came=came, consolidationSavingsThreshold=0.02)
        record = rogue.record("second", ("n0",), Method.SINGLE_NODE, ("new",))
        rogue.do(TaintNode(id="second/taint/n0", command_id="second", node="n0", record=record))
        rogue.replace("second", "n0", "new")
        assert rules(watch) == broken


@pytest.mark.parametrize("how", ["restarted", "another", "gone at once"])
def test_what_an_engine_can_not_know_is_not_held_against_it(how: str) -> None:
    """A restart forgets, another engine took the node away, or the new node was hardly there."""
    world, watch, rogue = _restless(came=1 if how == "gone at once" else 2)
    if how == "restarted":
        rogue.host.up_since = world.now
    elif how == "another":
        rogue.host = world.add_engine(rogue.host.engine.settings, name="another")
    else:
        world.add_node("blue", "medium", "zone-a", names.ON_DEMAND, name="hardly")
        world.store.remove("NodeClaim", "hardly")
        settle(world, 90)
    watch.violations.clear()
    rogue.taint("second", "n0")
    assert rules(watch) == []
