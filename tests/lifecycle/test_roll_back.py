"""What a command undoes and when, and how long its pool waits after that."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.messages import (
    CreateNodeClaim,
    DeleteNodeClaim,
    Failure,
    Instruction,
    InstructionFailed,
    InstructionSucceeded,
    NoteDisruption,
    ObjectObserved,
    SurgeDeployment,
    TaintNode,
    UntaintNode,
)
from dovetail.model import names
from dovetail.model.objects import Node, NodeClaim
from dovetail.model.settings import Stabilization, StabilizationEnds
from dovetail.scheduling.pods.surge import SURGE
from tests.support.conversation import Talk, deployment, pod, pool, replica_set
from tests.support.lifecycle_world import CALM, Crash, Driver, World, engine_for

TIMEOUT = CALM.replacement_timeout / 10**9


def world_of(want: str, **changes: object) -> World:
    """Return a world with one node for this wish."""
    world = World(**changes)  # type: ignore[arg-type]
    world.add_pool()
    world.add_node("n1", want=want)
    return world


def asked(driver: Driver, kind: type[Instruction]) -> list[Instruction]:
    """Return the instructions of a kind, in order."""
    return driver.told(kind)


def test_candidates_go_only_when_all_replacements_are_ready() -> None:
    """If one of two replacements never starts, no candidate is deleted."""
    world = world_of("replace2", launches=False)
    driver = Driver(world, engine_for()).begin().run(30)
    first, second = world.created
    world.initialize(first)
    driver.run(120)
    assert asked(driver, DeleteNodeClaim) == []
    assert "n1-claim" not in world.deleted
    driver.run(TIMEOUT)
    assert driver.ends()[0] == "failed"
    assert set(world.deleted[:2]) == {first, second}
    assert world.get(Node, "n1") is not None


def test_time_out_goes_on_at_a_take_over() -> None:
    """A successor gives a command only the rest of its time."""
    world = world_of("replace", launches=False)
    Driver(world, engine_for()).begin().run(TIMEOUT / 2)
    successor = Driver(world, engine_for(identity="two")).begin()
    began = world.now
    successor.run(TIMEOUT / 2 + 25)
    assert [item for item in asked(successor, DeleteNodeClaim) if isinstance(item, DeleteNodeClaim)], "it is undone"
    assert world.now - began < timedelta(seconds=TIMEOUT * 0.75)
    assert not world.tainted() or world.created[1:], "a node that was given back may be taken again"


def test_taint_that_lands_after_the_roll_back_began_is_taken_off() -> None:
    """A taint that lands after the rollback began is removed."""
    world = world_of("delete")
    world.add_node("n2", want="delete")
    late: list[TaintNode] = []

    def fail(instruction: Instruction) -> Failure | None:
        if isinstance(instruction, TaintNode) and instruction.node == "n1":
            late.append(instruction)
        lost = isinstance(instruction, (TaintNode, UntaintNode)) and instruction.node == "n1"
        return Failure.UNREACHABLE if lost else None

    world.fail = fail
    driver = Driver(world, engine_for()).begin().run(16)
    assert late
    node = world.get(Node, "n1")
    assert node is not None
    world.annotate(node, **{"dovetail.dev/do-not-disrupt": "true"})
    for event in world.changes:
        driver.send(event)
    world.changes.clear()
    driver.run(1)
    wanted = [item for item in asked(driver, UntaintNode) if isinstance(item, UntaintNode) and item.node == "n1"]
    assert wanted, "it may still land: the roll-back takes it off before it counts as done"
    world.fail = lambda instruction: None
    world.carry_out(late[0])  # now it lands
    for event in world.changes:
        driver.send(event)
    world.changes.clear()
    driver.run(60)
    assert "n1" not in world.tainted()


def test_replacement_that_was_never_seen_is_deleted_at_the_roll_back() -> None:
    """The rollback deletes an unseen replacement by the uid from the creation's answer."""
    world = world_of("replace2", launches=False)
    hidden: dict[str, None] = {}

    def lose(event: object) -> bool:
        return isinstance(event, ObjectObserved) and event.object.metadata.name in hidden

    driver = Driver(world, engine_for())
    driver.lose = lose
    driver.begin().run(14)
    original = world.carry_out

    def carry_out(instruction: Instruction) -> InstructionSucceeded | InstructionFailed:
        if isinstance(instruction, CreateNodeClaim):
            hidden.setdefault(instruction.name)
        return original(instruction)

    world.carry_out = carry_out  # type: ignore[method-assign]
    driver.run(30)
    assert len(world.created) == 2
    driver.run(TIMEOUT + 60)
    first, second = world.created[:2]
    assert {first, second} <= set(world.deleted)


@pytest.mark.parametrize("carried_out", [False, True])
def test_crash_at_any_launch_leaves_no_replacement_behind(carried_out: bool) -> None:
    """After a crash around the second creation, the successor deletes the first replacement."""
    world = world_of("replace2", launches=False)
    driver = Driver(world, engine_for())
    driver.crash_at = (2, carried_out)
    with pytest.raises(Crash):
        driver.begin().run(60)
    world.launches = True
    engine: Engine = engine_for(identity="two")
    Driver(world, engine).begin().run(TIMEOUT + 120)
    assert world.recorded() == []
    assert (
        not [claim for claim in world.all(NodeClaim) if claim.metadata.name in world.created[:1]]
        or world.get(Node, "n1") is None
    )


@pytest.mark.parametrize("failure", [Failure.REFUSED, Failure.FORBIDDEN])
def test_a_deployment_that_may_not_be_rolled_launches_no_machine_again_and_again(failure: Failure) -> None:
    """A pool whose Deployment may not roll waits longer after each rollback."""
    world = world_of("replace")
    for item in (deployment("app", **{SURGE: "true"}), replica_set("app-1", 2, of="app"), pod("rolls", "n1", "app-1")):
        world.put(item)
    world.fail = lambda instruction: failure if isinstance(instruction, SurgeDeployment) else None
    driver = Driver(world, engine_for()).begin().run(600)
    assert set(driver.ends()) == {"failed"}
    assert 2 <= len(world.created) <= 4


def test_a_pool_whose_notes_may_not_be_written_is_not_asked_at_every_turn() -> None:
    """Without permission to write its history a pool with a rate budget waits longer each time."""
    world = world_of("delete")
    world.put(pool("web", disruption={"budgets": [{"nodes": "2", "per": "1h"}]}))
    world.fail = lambda instruction: Failure.FORBIDDEN if isinstance(instruction, NoteDisruption) else None
    driver = Driver(world, engine_for()).begin().run(600)
    assert 2 <= len(asked(driver, NoteDisruption)) <= 4
    assert asked(driver, TaintNode) == []


def test_nothing_is_remembered_of_a_command_that_was_undone() -> None:
    """A command whose deletion is refused leaves nothing in the memory."""
    settings = replace(
        CALM, stabilization=Stabilization(), stabilization_ends=StabilizationEnds.LANDED, validation_delay=0
    )
    talk = Talk(settings)
    limits = json.dumps({"health": {"movedPodsReadyWithin": "60s"}})
    for item in (pool(annotations={names.POLICY_ANNOTATION: limits}), replica_set("rs", 1), pod("a", "n1", "rs")):
        talk.world.put(item)
    talk.world.add_node("n1", want="cost-delete")
    state = talk.engine._state
    noted = []

    def fail(asked: Instruction) -> Failure | None:
        if not isinstance(asked, DeleteNodeClaim):
            return None
        books = (state.aftercare._moved, state.landing._moved, state.regrowth._watched, state.outcomes._watched)
        noted.append(tuple(len(book) for book in books))
        return Failure.REFUSED

    talk.world.fail = fail
    talk.begin().run(5)
    assert talk.ends() == ["failed"]
    assert noted == [(1, 1, 1, 1)]
    assert (state.aftercare._moved, state.landing._moved) == ({}, {})
    assert (state.regrowth._watched, state.outcomes._watched) == ({}, {})
