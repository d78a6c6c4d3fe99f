"""Failed instructions, missing replacements, and events that are lost, late, repeated or reordered."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.lifecycle.commands.records import Candidate, Record, encode_record
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
    NoteDisruption,
    ObjectObserved,
    ObjectVanished,
    Synced,
    TaintNode,
    UntaintNode,
)
from dovetail.lifecycle.reports import CommandAdvanced, NodesBackOff
from dovetail.model import names
from dovetail.model.command import Action, Method
from dovetail.model.objects import (
    BudgetSpec,
    DisruptionSpec,
    Node,
    NodeClaim,
    NodePool,
    NodePoolSpec,
    NodeSpec,
    ObjectMeta,
    Taint,
)
from tests.support.lifecycle_world import CALM, EMPTY_CATALOGUE, SEAL, T0, Driver, ScriptedPlanner, World, engine_for

TRANSIENT = (Failure.CONFLICT, Failure.THROTTLED, Failure.UNREACHABLE)
LASTING = (Failure.FORBIDDEN, Failure.REFUSED)
KINDS = (TaintNode, CreateNodeClaim, DeleteNodeClaim, ClearRecord, HoldNode)


def world_with(**wishes: str) -> World:
    """Build a world with one managed pool and a node per wish."""
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
    """Check that nothing is tainted, recorded, in flight or duplicated."""
    world = driver.world
    assert world.tainted() == world.recorded() == []
    assert driver.engine.runs == ()
    assert len(world.created) == len(set(world.created))


@pytest.mark.parametrize("failure", TRANSIENT)
@pytest.mark.parametrize("kind", KINDS)
def test_transient_failures_are_tried_again(kind: type, failure: Failure) -> None:
    """A conflict, throttling or an unreachable server only delays a command; a taint for as long as it is fresh."""
    times = 2 if kind is TaintNode else 3
    world = world_with(a="replace")
    world.fail = fails(kind, failure, times)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(500)
    assert driver.ends() == ["done"]
    assert_clean(driver)
    assert len(driver.reports("instruction-failed")) == times


@pytest.mark.parametrize("kind", [TaintNode, NoteDisruption])
def test_a_command_begins_while_its_decision_is_fresh_or_not_at_all(kind: type) -> None:
    """Nothing is tainted later than 30 s after the validation: budgets and gates are asked again first."""
    world = world_with(a="replace")
    pool = world.all(NodePool)[0]
    rate = DisruptionSpec(budgets=(BudgetSpec(nodes="5", per="1h"),))
    world.put(msgspec.structs.replace(pool, spec=NodePoolSpec(disruption=rate)))
    down = lambda item: Failure.UNREACHABLE if isinstance(item, kind) else None  # noqa: E731
    world.fail = down
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(15 + 29)
    assert driver.ends() == []
    driver.run(2)
    assert driver.ends() == ["failed"]
    world.fail = lambda item: None
    driver.run(58)
    assert world.tainted() == [], "the pool is left alone for a minute"
    assert driver.engine.in_flight().back_off == {}, "and no launch is blamed"
    driver.run(300)
    assert driver.ends() == ["failed", "done"]
    first, *_ = [at for at, item in driver.log if isinstance(item, CreateNodeClaim)]
    assert (first - T0).total_seconds() >= 15 + 30 + 60 + 15
    assert_clean(driver)


@pytest.mark.parametrize("failure", LASTING)
@pytest.mark.parametrize("kind", [TaintNode, CreateNodeClaim, DeleteNodeClaim])
def test_lasting_failures_roll_back(kind: type, failure: Failure) -> None:
    """A permanent failure rolls the command back."""
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
    """An instruction for an object that is gone counts as done."""
    world = world_with(a="replace")
    world.fail = fails(kind, Failure.NOT_FOUND, 1)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(40)
    claim = world.get(NodeClaim, "a-claim")
    assert claim is not None
    world.delete_claim(claim)  # the watch confirms NOT_FOUND a little later
    driver.run(300)
    assert set(driver.ends()) == {"done"}
    assert_clean(driver)


def test_a_wrong_not_found_does_not_leave_a_command_draining() -> None:
    """If a server says that a NodeClaim is gone and its watch still shows it, the deletion is repeated."""
    world = world_with(a="delete")
    world.fail = fails(DeleteNodeClaim, Failure.NOT_FOUND, 1)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(120)
    assert world.deleted == ["a-claim"]
    assert driver.ends() == ["done"]
    assert_clean(driver)


def test_creation_without_a_pool_rolls_back() -> None:
    """A command is rolled back if the pool of its replacement is gone."""
    world = world_with(a="replace")
    world.fail = fails(CreateNodeClaim, Failure.NOT_FOUND, 1)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(60)
    assert driver.ends()[:1] == ["failed"]


@pytest.mark.parametrize(("failure", "rests"), [(Failure.FORBIDDEN, []), (Failure.OCCUPIED, [("b",)])])
def test_partial_deletion_refused_keeps_what_pods_need(failure: Failure, rests: list[tuple[str, ...]]) -> None:
    """With one of two nodes already leaving, a refused deletion frees the other and leaves the ready replacement.

    Where pods refused it, the node that stays backs off, and no other.
    """
    world = world_with(a="replace", b="replace")

    class Pair(ScriptedPlanner):
        def round(self, question):  # type: ignore[no-untyped-def]
            result = super().round(question)
            if result.commands and result.commands[0].nodes == ("a",):
                result.commands = (replace(result.commands[0], nodes=("a", "b")),)
            else:
                result.commands = ()
            return result

    world.fail = lambda item: failure if getattr(item, "name", "") == "b-claim" else None
    driver = Driver(world, engine_for(CALM, Pair(limit=1))).begin().run(200)
    assert driver.ends() == ["failed"]
    assert [report.nodes for report in driver.reports("back-off") if isinstance(report, NodesBackOff)] == rests
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
    """A command is rolled back at once if its replacement is deleted."""
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
    """A command succeeds if its node disappears while the replacement starts."""
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
    """A command whose node is gone before validation is refused."""
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
    """A failing pool is tried less and less often; other pools are not affected."""
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
    """The backoff of a pool ends with its first successful launch."""
    world = world_with(a="replace")
    world.launches = False
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(600)
    assert driver.engine.in_flight().back_off.keys() == {"web"}
    world.launches = True
    driver.run(600)
    assert driver.ends() == ["failed", "done"]
    assert driver.engine.in_flight().back_off == {}


def test_lost_answers_are_asked_for_again() -> None:
    """An instruction without an answer or visible effect is repeated with the same id."""
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
    """The deletion of an unseen replacement rolls the command back."""
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
    """A disruption taint without a record is removed in managed pools only."""
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
    """A replacement or taint that appears after the rollback is removed."""
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
    """Dovetail and a simulated Karpenter do not undo each other's commands."""
    world = world_with(a="replace")
    other = Engine(CALM, EMPTY_CATALOGUE, EngineRole(controller="karpenter", holds=False), decider=ScriptedPlanner())
    theirs = Driver(world, other).begin().run(20)
    ours = Driver(world, engine_for(CALM, ScriptedPlanner(limit=0))).begin().run(5)
    assert world.tainted() == ["a"]
    assert ours.engine.runs == ()
    assert theirs.told(HoldNode) == []
    assert theirs.run(200).ends() == ["done"]


def test_node_that_another_command_has_taken_is_left_to_it() -> None:
    """The later of two controllers gives way and removes neither taint nor record."""
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
    """The answer `taken` rolls the command back, and no pool backs off."""
    world = world_with(a="replace")
    world.fail = lambda item: Failure.TAKEN if isinstance(item, TaintNode) else None
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(16)
    assert driver.ends() == ["failed"]
    assert driver.reports("back-off") == []
    assert world.created == []


def test_two_engines_at_once_leave_the_cluster_clean() -> None:
    """Two engines that both believe they lead leave nothing behind."""
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
    """Answers with unknown ids change nothing."""
    driver = Driver(world_with(a="delete"), engine_for()).begin()
    for _ in range(2):
        driver.send(InstructionSucceeded(id="nobody/asked"))
        driver.send(InstructionFailed(id="hold/nobody", failure=Failure.REFUSED))
        driver.run(100)
    assert driver.ends() == ["done"]


@pytest.mark.parametrize("event", [Synced(), LeadershipGained(), ClockAdvanced()])
def test_repeated_plain_events_change_nothing(event: Event) -> None:
    """Repeated events are idempotent."""
    driver = Driver(world_with(a="replace"), engine_for()).begin().run(20)
    phases = [run.phase for run in driver.engine.runs]
    driver.send(event)
    driver.send(event)
    assert [run.phase for run in driver.engine.runs] == phases


class Chaos(Driver):
    """Deliver events late, twice and out of order, drop answers, and relist now and then."""

    def __init__(self, world: World, engine: Engine, dice: list[int]) -> None:
        super().__init__(world, engine)
        self.dice, self.at, self.late = dice or [0], 0, []  # type: ignore[var-annotated]

    def _roll(self) -> int:
        self.at += 1
        return self.dice[self.at % len(self.dice)]

    def send(self, event: Event) -> None:
        """Deliver an event late, twice or, for an answer, never."""
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
        """Deliver the late events, then the current state."""
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
    """Late, repeated, reordered and lost events only delay commands; nothing is left at the end."""
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
    """A node that outlives its NodeClaim by more than a minute loses its taint."""
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
    """A NodeClaim that was recreated with the same name is not deleted."""
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


def _left_over(world: World, ident: str, carrier: str) -> None:
    """Put a claim into the world that carries the record of a command over the nodes a and b."""
    entries = []
    for name in ("a", "b"):
        item = world.get(NodeClaim, f"{name}-claim")
        assert item is not None
        entries.append(Candidate(node=name, claim=f"{name}-claim", uid=item.metadata.uid, pool="web"))
    record = Record(
        id=ident,
        action=Action.REPLACE_DRIFTED,
        method=Method.DRIFTED,
        phase="launching",
        since=world.now,
        nodes=tuple(entries),
        replacements=(carrier,),
    )
    marks = {names.COMMAND: world.seal.sealed(encode_record(record))}
    world.put(NodeClaim(metadata=ObjectMeta(name=carrier, annotations=marks, labels={names.NODEPOOL: "web"})))


def _nodes_of(driver: Driver) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each command that took a step."""
    steps = [report for report in driver.reports("command") if isinstance(report, CommandAdvanced)]
    return {report.command_id: report.nodes for report in steps}


def test_a_left_over_command_leaves_the_nodes_of_commands_in_progress() -> None:
    """A node that a command of this engine has is not in the command that is found later."""
    world = world_with(a="delete", b="")
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(1)
    assert [run.nodes for run in driver.engine.runs] == [("a",)]
    _left_over(world, "first", "x")
    driver.run(10)
    assert _nodes_of(driver)["first"] == ("b",)


def test_a_node_of_two_left_over_commands_is_in_one_of_them() -> None:
    """The commands of two records that name the same nodes never hold a node both."""
    world = world_with(a="", b="")
    _left_over(world, "first", "x")
    _left_over(world, "second", "y")
    driver = Driver(world, engine_for()).begin().run(1)
    assert _nodes_of(driver) == {"first": ("a", "b"), "second": ()}
