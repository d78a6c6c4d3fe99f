"""A loop of pods that come back larger than they left ends after one move."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from dovetail.lifecycle.commands.records import decode_record
from dovetail.lifecycle.messages import Instruction, TaintNode
from dovetail.model import names
from dovetail.model.objects import SelectorRequirement
from dovetail.model.settings import DOVETAIL, Settings, Stabilization
from dovetail.sim.checks.watch import Watch
from dovetail.sim.world.clock import MINUTE
from dovetail.sim.world.host import Host
from dovetail.sim.world.world import World
from tests.support.rogue import settle, small_world, work

REMEMBERING = replace(
    DOVETAIL,
    stabilization=Stabilization(empty=0, expired=0, drifted=0, cost=0),
    rules=replace(DOVETAIL.rules, remembers_regrowth=False),
)
FORGETFUL = replace(REMEMBERING, rules=replace(REMEMBERING.rules, resizes_moved=False))


def growing() -> World:
    """Return six nodes of 4 CPUs with a pod of 1.2 each, whose owner makes its next pods with 3.5.

    As they are, three pods fit on a node; as they come back, one does. So each node that is removed is opened again.
    """
    world = small_world(nodes=6, consolidationSavingsThreshold=0, consolidateAfter="30s", budgets=[{"nodes": "1"}])
    pool = world.store.pools["blue"]
    only = SelectorRequirement(key=names.INSTANCE_TYPE, operator="In", values=("medium",))
    spec = changed(pool.spec.template.spec, requirements=(*pool.spec.template.spec.requirements, only))
    world.put(changed(pool, spec=changed(pool.spec, template=changed(pool.spec.template, spec=spec))))
    world.workloads.add(work("web", replicas=6, cpu="1200m"))
    settle(world, 30)
    assert {len(pods) for pods in world.store.pods_on.values()} == {1}
    world.workloads.respec("ReplicaSet", "default/web", work(cpu="3500m").spec)
    return world


@pytest.mark.parametrize(("settings", "moves"), [(REMEMBERING, {1}), (FORGETFUL, {3, 4, 5, 6})])
def test_a_loop_of_growing_pods_ends_after_one_move(settings: Settings, moves: set[int]) -> None:
    """The owner is remembered for an hour; without that one node after the other is emptied and opened again."""
    world = growing()
    watch = Watch(world)
    host = world.add_engine(settings)
    watch.follow(host)
    commands: dict[str, str] = {}

    def note(_: Host, asked: Instruction) -> None:
        if isinstance(asked, TaintNode) and (record := decode_record(asked.record)) is not None:
            commands[record.id] = record.action.value

    host.on_instruction.append(note)
    host.start()
    world.run(world.now + 40 * MINUTE)
    assert len([action for action in commands.values() if action == "deleteCost"]) in moves
    assert len(world.store.nodes) == 6
    assert watch.violations == []
