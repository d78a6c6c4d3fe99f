"""Failed instructions of every kind, replacements that don't come, and events lost, late, repeated and out of order."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.lifecycle.commands.seal import admit
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.engine_state import EngineRole
from dovetail.lifecycle.messages import (
    ClearRecord,
    ClockAdvanced,
    CreateNodeClaim,
    DeleteNodeClaim,
    Event,
    Failure,
    HoldNode,
    Instruction,
    InstructionFailed,
    InstructionSucceeded,
    LeadershipGained,
    LeadershipLost,
    ObjectObserved,
    ObjectVanished,
    Synced,
    TaintNode,
    UntaintNode,
)
from dovetail.model import names
from dovetail.model.objects import Node, NodeClaim, NodeSpec, ObjectMeta, Taint
from tests.support.lifecycle_world import CALM, EMPTY_CATALOGUE, SEAL, T0, Driver, ScriptedPlanner, World, engine_for

TRANSIENT = (Failure.CONFLICT, Failure.THROTTLED, Failure.UNREACHABLE)
LASTING = (Failure.FORBIDDEN, Failure.REFUSED)
KINDS = (TaintNode, CreateNodeClaim, DeleteNodeClaim, ClearRecord, HoldNode)


def world_with(**wishes: str) -> World:
    """Make a world with one managed pool and a node per wish."""
    world = World()
    world.add_pool()
    for name, wish in wishes.items():
        world.add_node(name, want=wish)
    return world


def fails(kind: type, failure: Failure, times: int) -> Callable[[Instruction], Failure | None]:
    """Let the first instructions of a kind fail."""
    left = [times]

    def judge(instruction: Instruction) -> Failure | None:
        if not isinstance(instruction, kind) or not left[0]:
            return None
        left[0] -= 1
        return failure

    return judge


def assert_clean(driver: Driver) -> None:
    """Nothing tainted, nothing recorded, nothing under way, nothing doubled."""
    world = driver.world
    assert world.tainted() == world.recorded() == []
    assert driver.engine.runs == ()
    assert len(world.created) == len(set(world.created))


@pytest.mark.parametrize("failure", TRANSIENT)
@pytest.mark.parametrize("kind", KINDS)
def test_transient_failures_are_tried_again(kind: type, failure: Failure) -> None:
    """A conflict, a throttled or an unreachable server delays a command and changes nothing else."""
    world = world_with(a="replace")
    world.fail = fails(kind, failure, 3)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(500)
    assert driver.ends() == ["done"]
    assert_clean(driver)
    assert len(driver.reports("instruction-failed")) == 3


@pytest.mark.parametrize("failure", LASTING)
@pytest.mark.parametrize("kind", [TaintNode, CreateNodeClaim, DeleteNodeClaim])
def test_lasting_failures_roll_back(kind: type, failure: Failure) -> None:
    """What will not change by itself undoes the command."""
    world = world_with(a="replace")
    world.fail = lambda item: failure if isinstance(item, kind) and item.command_id and not _undoing(item) else None
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(74)
    assert driver.ends() == ["failed"], "and it is not tried again and again"
    driver.run(6 * 3600)
    assert 5 <= len(driver.ends()) <= 20
    world.fail = lambda item: None
    driver.run(5000)
    assert driver.ends()[-1] == "done"
    assert_clean(driver)


def _undoing(item: Instruction) -> bool:
    return isinstance(item, DeleteNodeClaim) and item.name != "a-claim"


@pytest.mark.parametrize("kind", [TaintNode, DeleteNodeClaim, ClearRecord, UntaintNode])
def test_not_found_means_gone(kind: type) -> None:
    """An instruction about an object that is gone counts as done."""
    world = world_with(a="replace")
    world.fail = fails(kind, Failure.NOT_FOUND, 1)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(40)
    claim = world.get(NodeClaim, "a-claim")
    assert claim is not None
    world.delete_claim(claim)  # what NOT_FOUND said, a little later
    driver.run(300)
    assert set(driver.ends()) == {"done"}
    assert_clean(driver)


def test_creation_without_a_pool_rolls_back() -> None:
    """A replacement whose pool is gone can't come."""
    world = world_with(a="replace")
    world.fail = fails(CreateNodeClaim, Failure.NOT_FOUND, 1)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(60)
    assert driver.ends()[:1] == ["failed"]


def test_partial_deletion_refused_keeps_what_pods_need() -> None:
    """With one of two nodes already leaving, a refused deletion frees the other and leaves the ready replacement."""
    world = world_with(a="replace", b="replace")

    class Pair(ScriptedPlanner):
        def round(self, question):  # type: ignore[no-untyped-def]
            result = super().round(question)
            if result.commands and result.commands[0].nodes == ("a",):
                result.commands = (replace(result.commands[0], nodes=("a", "b")),)
            else:
                result.commands = ()
            return result

    world.fail = lambda item: Failure.FORBIDDEN if getattr(item, "name", "") == "b-claim" else None
    driver = Driver(world, engine_for(CALM, Pair(limit=1))).begin().run(200)
    assert driver.ends() == ["failed"]
    left = {node.metadata.name for node in world.all(Node)}
    assert left == {"b", f"{world.created[0]}-node"}
    assert_clean(driver)


def test_replacement_that_never_comes_times_out_after_nine_and_a_half_minutes() -> None:
    """Taints off, replacement deleted, recorded as failed, at 9 min 30 s from the launch; nothing lost."""
    world = world_with(a="replace")
    world.launches = False
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(620)
    [untaint] = [(at - T0).total_seconds() for at, item in driver.log if isinstance(item, UntaintNode)]
    assert untaint == 15 + 570
    assert driver.ends() == ["failed"]
    assert [node.metadata.name for node in world.all(Node)] == ["a"]
    assert_clean(driver)


@pytest.mark.parametrize("graceful", [True, False])
def test_replacement_that_vanishes_rolls_back(graceful: bool) -> None:
    """A replacement that is deleted by anyone undoes the command at once."""
    world = world_with(a="replace")
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(30)
    [name] = world.created
    claim = world.get(NodeClaim, name)
    assert claim is not None
    if graceful:
        world.delete_claim(claim)
    else:
        world.drop("NodeClaim", name)
    driver.send(world.changes.pop())
    driver.run(20)
    assert driver.ends() == ["failed"]
    assert "a" not in world.tainted()


def test_candidates_that_vanish_meanwhile_are_fine() -> None:
    """A node that dies while its replacement comes leaves a command that ends well."""
    world = world_with(a="replace")
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(30)
    world.drop("Node", "a")
    world.drop("NodeClaim", "a-claim")
    changes, world.changes = world.changes, []
    for event in changes:
        driver.send(event)
    driver.run(100)
    assert driver.ends() == ["done"]
    assert_clean(driver)


def test_candidate_gone_before_validation_is_refused() -> None:
    """Nothing is left to do."""
    world = world_with(a="delete")
    driver = Driver(world, engine_for()).begin().run(5)
    world.finish("a-claim")
    changes, world.changes = world.changes, []
    for event in changes:
        driver.send(event)
    driver.run(30)
    assert driver.ends() == ["refused"]
    assert driver.told(TaintNode) == []


def test_bad_pool_backs_off_and_starves_nobody() -> None:
    """Replacements that never come are tried less and less often; other pools go on as if nothing was."""
    world = world_with(a="replace", b="replace")
    world.add_pool("good")
    for index in range(3):
        world.add_node(f"g{index}", pool="good", want="replace")
    original = world.initialize
    world.initialize = lambda name: None if name.startswith("web") else original(name)  # type: ignore[method-assign]
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=4))).begin().run(6 * 3600)
    launches = [(at, item.name) for at, item in driver.log if isinstance(item, CreateNodeClaim)]
    bad = [(at - T0).total_seconds() for at, name in launches if name.startswith("web")]
    good = [name for name in world.created if name.startswith("good")]
    assert len(good) == 3
    waves = sorted({round(at / 60) for at in bad})
    gaps = [later - earlier for earlier, later in pairwise(waves)]
    assert gaps[:6] == sorted(gaps[:6]), "each pause is at least as long as the one before"
    assert gaps[5] > 3 * gaps[0]
    assert max(gaps) <= 75, "but never longer than an hour and the wait itself"
    assert len(bad) <= 20, "it does not launch for ever"
    assert driver.ends().count("done") == 3


def test_back_off_ends_with_the_first_success() -> None:
    """A pool that launches again is a pool like any other."""
    world = world_with(a="replace")
    world.launches = False
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(600)
    assert driver.engine.in_flight().back_off.keys() == {"web"}
    world.launches = True
    driver.run(600)
    assert driver.ends() == ["failed", "done"]
    assert driver.engine.in_flight().back_off == {}


def test_lost_answers_are_asked_for_again() -> None:
    """An instruction whose answer and effect were never seen is repeated under the same id."""
    world = world_with(a="replace")
    lost: list[str] = []

    def lose(event: Event) -> bool:
        about_create = isinstance(event, InstructionSucceeded) and "/create/" in event.id
        if about_create and len(lost) < 1:
            lost.append(event.id)
            return True
        new = isinstance(event, ObjectObserved) and names.COMMAND in event.object.metadata.annotations
        return new and isinstance(event.object, NodeClaim) and not event.object.status.node_name

    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1)), lose=lose).begin().run(300)
    ids = [item.id for item in driver.told(CreateNodeClaim) if isinstance(item, CreateNodeClaim)]
    assert len(ids) >= 1
    assert set(ids) == set(lost)
    assert driver.ends() == ["done"]
    assert_clean(driver)


def test_replacement_that_came_and_went_unseen_is_not_launched_again() -> None:
    """Its creation was not answered and its beginning not seen: its end alone undoes the command."""
    world = world_with(a="replace")

    def lose(event: Event) -> bool:
        if isinstance(event, InstructionSucceeded):
            return "/create/" in event.id
        return isinstance(event, ObjectObserved) and event.object.metadata.name in world.created

    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1)), lose=lose).begin().run(20)
    [name] = world.created
    world.drop("NodeClaim", name)
    driver.send(world.changes.pop())
    driver.run(40)
    assert driver.ends() == ["failed"]
    assert world.created == [name]


def test_taint_of_ours_without_a_record_is_removed() -> None:
    """A node is never left tainted, whoever forgot it; pools that are not ours are left alone."""
    world = world_with(a="")
    world.add_pool("theirs", managed=False)
    world.add_node("x", pool="theirs")
    ours = Taint(key=names.DISRUPTION_TAINT, value=names.DISRUPTION_TAINT_VALUE, effect="NoSchedule")
    for name in ("a", "x"):
        node = world.get(Node, name)
        assert node is not None
        world.put(msgspec.structs.replace(node, spec=NodeSpec(taints=(ours,))))
    driver = Driver(world, engine_for()).begin().run(30)
    assert world.tainted() == ["x"]
    assert [item.node for item in driver.told(UntaintNode) if isinstance(item, UntaintNode)] == ["a"]


@pytest.mark.parametrize("kind", [CreateNodeClaim, TaintNode])
def test_instruction_of_a_predecessor_that_lands_late_is_cleaned_up(kind: type[Instruction]) -> None:
    """A replacement, or a taint, that appears after its command was rolled back is removed."""
    world = world_with(a="replace")
    first = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(16)
    [late] = first.told(kind)
    [name] = world.created
    world.drop("NodeClaim", name)
    second = Driver(world, engine_for(CALM, ScriptedPlanner(limit=0), identity="two")).begin().run(10)
    assert world.tainted() == []
    world.carry_out(late)
    changes, world.changes = world.changes, []
    for event in changes:
        second.send(event)
    second.run(200)
    assert world.tainted() == world.recorded() == []
    assert [claim.metadata.name for claim in world.all(NodeClaim)] == ["a-claim"]


def test_commands_of_another_kind_of_controller_are_left_alone() -> None:
    """A simulated Karpenter beside us carries its own commands on; neither undoes the other's."""
    world = world_with(a="replace")
    other = Engine(CALM, EMPTY_CATALOGUE, EngineRole(controller="karpenter", holds=False), decider=ScriptedPlanner())
    theirs = Driver(world, other).begin().run(20)
    ours = Driver(world, engine_for(CALM, ScriptedPlanner(limit=0))).begin().run(5)
    assert world.tainted() == ["a"]
    assert ours.engine.runs == ()
    assert theirs.told(HoldNode) == []
    assert theirs.run(200).ends() == ["done"]


def test_node_that_another_command_has_taken_is_left_to_it() -> None:
    """Two controllers at once: the later one gives way, and takes neither taint nor record off."""
    world = world_with(a="replace")
    ours = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(1)
    theirs = Engine(CALM, EMPTY_CATALOGUE, EngineRole(controller="karpenter", holds=False), decider=ScriptedPlanner())
    other = Driver(world, theirs).begin()
    world.fail = lambda item: Failure.UNREACHABLE if isinstance(item, TaintNode) else None
    ours.run(14)
    world.fail = lambda item: None
    other.run(1)
    for _, event, _ in other.journal:
        if isinstance(event, ObjectObserved):
            ours.send(event)
    ours.run(3)
    assert ours.ends() == ["failed"]
    assert ours.told(UntaintNode) == []
    assert world.tainted() == ["a"]


def test_node_taken_at_the_same_moment_is_given_up() -> None:
    """What the store did not show yet the API server does: `taken` undoes the command, and no pool is blamed."""
    world = world_with(a="replace")
    world.fail = lambda item: Failure.TAKEN if isinstance(item, TaintNode) else None
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(16)
    assert driver.ends() == ["failed"]
    assert driver.reports("back-off") == []
    assert world.created == []


def test_two_engines_at_once_leave_the_cluster_clean() -> None:
    """Two that both believe to lead may undo each other's work, but leave nothing behind."""
    world = world_with(a="replace", b="replace", c="delete")
    one = Driver(world, engine_for(CALM, ScriptedPlanner(limit=2), identity="one")).begin()
    two = Driver(world, engine_for(CALM, ScriptedPlanner(limit=2), identity="two")).begin()
    for _ in range(60):
        for mine, other in ((one, two), (two, one)):
            seen = len(mine.journal)
            mine.run(0)
            for _, event, _ in mine.journal[seen:]:
                if isinstance(event, (ObjectObserved, ObjectVanished)):
                    other.send(event)
        world.now += timedelta(seconds=5)
    two.send(LeadershipLost())
    one.send(LeadershipLost())
    last = Driver(world, engine_for(CALM, ScriptedPlanner(limit=0), identity="three")).begin().run(900)
    assert_clean(last)


def test_answers_nobody_asked_for_are_ignored() -> None:
    """Unknown ids, before and after everything, change nothing."""
    driver = Driver(world_with(a="delete"), engine_for()).begin()
    for _ in range(2):
        driver.send(InstructionSucceeded(id="nobody/asked"))
        driver.send(InstructionFailed(id="hold/nobody", failure=Failure.REFUSED))
        driver.run(100)
    assert driver.ends() == ["done"]


@pytest.mark.parametrize("event", [Synced(), LeadershipGained(), ClockAdvanced()])
def test_repeated_plain_events_change_nothing(event: Event) -> None:
    """Saying the same thing twice is saying it once."""
    driver = Driver(world_with(a="replace"), engine_for()).begin().run(20)
    phases = [run.phase for run in driver.engine.runs]
    driver.send(event)
    driver.send(event)
    assert [run.phase for run in driver.engine.runs] == phases


class Chaos(Driver):
    """Delivers events late, twice and out of order, and drops answers; relists now and then, as a watch does."""

    def __init__(self, world: World, engine: Engine, dice: list[int]) -> None:
        super().__init__(world, engine)
        self.dice, self.at, self.late = dice or [0], 0, []  # type: ignore[var-annotated]

    def _roll(self) -> int:
        self.at += 1
        return self.dice[self.at % len(self.dice)]

    def send(self, event: Event) -> None:
        """Maybe later, maybe twice, maybe (an answer) never."""
        roll = self._roll()
        answer = isinstance(event, (InstructionSucceeded, InstructionFailed))
        if roll == 1 and not isinstance(event, (Synced, LeadershipGained)):
            self.late.append(event)
            return
        if roll == 2 and answer:
            return
        super().send(event)
        if roll == 3:
            super().send(event)
        if roll == 4 and self.late:
            super().send(self.late.pop())

    def relist(self) -> None:
        """Deliver what was late, then the truth."""
        late, self.late = self.late, []
        for event in reversed(late):
            super().send(event)
        known = {("Node", n.metadata.name) for n in self.engine.store.nodes()}
        known |= {("NodeClaim", c.metadata.name) for c in self.engine.store.node_claims()}
        for kind, name in sorted(known):
            if (kind, "", name) not in self.world.objects:
                super().send(ObjectVanished(kind=kind, namespace="", name=name))
        for _, item in sorted(self.world.objects.items()):
            super().send(admit(ObjectObserved(object=item), SEAL))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    dice=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    wish=st.sampled_from(("delete", "replace", "replace2")),
)
def test_any_order_of_events_ends_clean(dice: list[int], wish: str) -> None:
    """Late, repeated, reordered and lost events delay commands; in the end all is done and nothing is left."""
    world = world_with(a=wish, b=wish)
    chaos = Chaos(world, engine_for(CALM, ScriptedPlanner(limit=2)), dice)
    chaos.begin()
    for _ in range(80):
        chaos.run(30)
        chaos.relist()
    assert chaos.engine.runs == ()
    assert world.tainted() == world.recorded() == []
    assert len(world.created) == len(set(world.created))
    left = [node.metadata.name for node in world.all(Node)]
    assert not {"a", "b"} & set(left)
    assert len(left) == 2 * {"delete": 0, "replace": 1, "replace2": 2}[wish]


def test_orphan_node_without_its_claim_is_not_left_tainted() -> None:
    """A node that outlives its NodeClaim by more than a minute gets its taint off."""
    world = world_with(a="delete")
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(16)
    world.agenda.clear()
    world.drop("NodeClaim", "a-claim")
    driver.send(world.changes.pop())
    driver.run(200)
    assert world.tainted() == []
    assert driver.ends() == ["done"]
    assert world.get(Node, "a") is not None


def test_same_name_another_uid_is_another_node() -> None:
    """A NodeClaim that was recreated under its old name is not deleted for its predecessor."""
    world = world_with(a="replace")
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=0 + 1))).begin().run(30)
    world.drop("NodeClaim", "a-claim")
    world.put(NodeClaim(metadata=ObjectMeta(name="a-claim", labels={names.NODEPOOL: "web"})))
    changes, world.changes = world.changes, []
    for event in changes:
        driver.send(event)
    driver.run(300)
    assert "a-claim" not in world.deleted
    assert world.tainted() == []
