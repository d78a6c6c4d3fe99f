"""The course of a command that succeeds or is refused, and what the engine holds back meanwhile."""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from dovetail.decide.question import Question
from dovetail.decide.refusal import Refusal
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import decode_record
from dovetail.lifecycle.conditions import POLICY_READABLE
from dovetail.lifecycle.effects.objects import Answer
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.engine_state import EngineRole
from dovetail.lifecycle.messages import (
    ClearRecord,
    ClockAdvanced,
    ClusterInstruction,
    CreateNodeClaim,
    DeleteNodeClaim,
    Failure,
    HoldNode,
    Instruction,
    InstructionFailed,
    LeadershipGained,
    LeadershipLost,
    ObjectObserved,
    PublishEvent,
    ReleaseNode,
    SetPoolCondition,
    SettingsChanged,
    Synced,
    TaintNode,
    UntaintNode,
    ViewGrewOld,
    WakeAt,
)
from dovetail.lifecycle.reports import CommandProposed, NodesBackOff, Report
from dovetail.model import names
from dovetail.model.command import Action, Command
from dovetail.model.objects import (
    BudgetSpec,
    DisruptionSpec,
    Node,
    NodeClaim,
    NodePool,
    NodePoolSpec,
    NodeSpec,
    ObjectMeta,
    Pod,
    PodSpec,
    Taint,
)
from dovetail.model.settings import Settings, Stabilization
from dovetail.model.verdicts import Gate, NodeVerdict
from tests.support.lifecycle_world import (
    ACTING,
    CALM,
    EMPTY_CATALOGUE,
    T0,
    WANT,
    Driver,
    Found,
    ScriptedPlanner,
    World,
    engine_for,
)


def world_with(**wishes: str) -> World:
    """Build a world with one managed pool and a node per wish."""
    world = World()
    world.add_pool()
    for name, wish in wishes.items():
        world.add_node(name, want=wish)
    return world


def seconds(driver: Driver, kind: type[Instruction]) -> list[float]:
    """Return the times of instructions of a kind, in seconds from the start."""
    return [(at - T0).total_seconds() for at, item in driver.log if isinstance(item, kind)]


def acting(driver: Driver) -> list[str]:
    """Return the names of the acting instructions so far, without holds."""
    kinds = [type(item) for _, item in driver.log if isinstance(item, ACTING)]
    return [kind.__name__ for kind in kinds if kind is not HoldNode]


def test_replace_in_order_and_in_time() -> None:
    """Validate after 15 s, taint, create, wait for Initialized, delete, wait until gone, clear the record."""
    driver = Driver(world_with(a="replace"), engine_for()).begin().run(300)
    assert acting(driver) == ["TaintNode", "CreateNodeClaim", "DeleteNodeClaim", "ClearRecord"]
    assert seconds(driver, TaintNode) == [15]
    assert seconds(driver, CreateNodeClaim) == [15]
    assert seconds(driver, DeleteNodeClaim) == [55]
    assert seconds(driver, ClearRecord) == [75]
    assert driver.ends() == ["done"]
    assert driver.world.tainted() == driver.world.recorded() == []


def test_deletion_names_the_uid() -> None:
    """A deletion names the uid of the NodeClaim that was decided on."""
    world = world_with(a="delete")
    claim = world.get(NodeClaim, "a-claim")
    assert claim is not None
    driver = Driver(world, engine_for()).begin().run(60)
    [deletion] = driver.told(DeleteNodeClaim)
    assert isinstance(deletion, DeleteNodeClaim)
    assert deletion.uid == claim.metadata.uid


def test_record_says_all_that_a_successor_needs() -> None:
    """The annotation holds id, action, nodes with their NodeClaims, replacements and time."""
    driver = Driver(world_with(a="replace"), engine_for()).begin().run(20)
    [taint], [creation] = driver.told(TaintNode), driver.told(CreateNodeClaim)
    assert isinstance(taint, TaintNode)
    assert isinstance(creation, CreateNodeClaim)
    record = decode_record(taint.record)
    assert record is not None
    assert (record.id, record.replacements, record.pools) == (taint.command_id, (creation.name,), ("web",))
    assert [(entry.node, entry.claim) for entry in record.nodes] == [("a", "a-claim")]
    assert record.since == T0 + timedelta(seconds=15)


@pytest.mark.parametrize("missing", ["leader", "synced"])
def test_nothing_is_done_without_leadership_or_before_all_was_seen(missing: str) -> None:
    """An engine that does not lead, or has not seen everything yet, gives no acting instruction."""
    world = world_with(a="delete")
    driver = Driver(world, engine_for())
    for event in list(world.changes):
        driver.send(event)
    driver.send(Synced() if missing == "leader" else LeadershipGained())
    driver.run(100)
    assert [item for _, item in driver.log if not isinstance(item, (Report, WakeAt))] == []


def test_leadership_lost_stops_everything_and_gained_again_resumes() -> None:
    """Without leadership no instruction comes; with it the command goes on from what the cluster says."""
    driver = Driver(world_with(a="replace"), engine_for()).begin().run(20)
    driver.send(LeadershipLost())
    before = driver.acted
    driver.run(60)
    assert driver.acted == before
    assert driver.engine.runs == ()
    driver.send(LeadershipGained())
    driver.run(200)
    assert driver.ends() == ["done"]
    assert len(driver.world.created) == 1
    assert driver.world.tainted() == driver.world.recorded() == []


def test_observe_mode_says_and_touches_nothing() -> None:
    """An observer reports its proposals and sends no acting instruction."""
    engine = Engine(CALM, EMPTY_CATALOGUE, EngineRole(observe=True), decider=ScriptedPlanner())
    driver = Driver(world_with(a="replace"), engine).begin().run(100)
    assert all(isinstance(item, Report | WakeAt) for _, item in driver.log)
    assert len(driver.reports("proposal")) == 1


@pytest.mark.parametrize(
    ("labelled", "named", "managed"),
    [
        ((), (), ("one", "two")),
        (("one",), (), ("one",)),
        ((), ("two",), ("two",)),
        (("one",), ("two",), ("one", "two")),
    ],
)
def test_observing_covers_all_pools_unless_some_are_named(
    labelled: tuple[str, ...], named: tuple[str, ...], managed: tuple[str, ...]
) -> None:
    """An observer covers all pools if none is labelled; an acting engine never does."""
    for observe in (True, False):
        engine = Engine(
            replace(CALM, pools=named), EMPTY_CATALOGUE, EngineRole(observe=observe), decider=ScriptedPlanner()
        )
        for name in ("one", "two"):
            labels = {names.MANAGE: "true"} if name in labelled else {}
            engine.store.observe(NodePool(metadata=ObjectMeta(name=name, labels=labels)))
        assert engine.managed_pools() == (managed if observe or labelled or named else ())


def test_a_proposal_says_what_it_saves_and_whom_it_disturbs() -> None:
    """A proposal names its nodes, its savings and its pods."""
    proposed = CommandProposed(action=Action.REPLACE_COST, nodes=("a", "b"), replacements=1, savings=1.25, pods=7)
    assert proposed.message == "replaceCost of a, b would be begun, after 1 new: it saves $1.25/h and restarts 7 pods"
    assert proposed.figures["savings"] == 1.25
    assert proposed.figures["pods"] == 7


def test_validation_refusal_ends_the_command_before_it_touches_anything() -> None:
    """A command that is refused after 15 s changes nothing and delays no other command."""
    planner = ScriptedPlanner()
    planner.refuse = lambda command: "a is needed again" if command.nodes == ("a",) else ""
    driver = Driver(world_with(a="delete", b="delete"), engine_for(CALM, planner)).begin().run(40)
    assert driver.ends()[:1] == ["refused"]
    assert [item.node for item in driver.told(TaintNode) if isinstance(item, TaintNode)] == ["b"]
    refused = [report for report in driver.reports("command") if "refused" in report.message]
    assert "a is needed again" in refused[0].message


def test_refusal_without_delay_does_not_spin() -> None:
    """Without a validation delay the same refusal is not repeated in one instant."""
    planner = ScriptedPlanner()
    planner.refuse = lambda command: "no"
    Driver(world_with(a="delete"), engine_for(replace(CALM, validation_delay=0), planner)).begin().run(100)
    assert 5 <= planner.validations <= 25


def test_two_commands_do_not_refuse_each_other_for_ever() -> None:
    """Two commands that refuse each other are started again one by one, and both finish."""

    class Fussy(ScriptedPlanner):
        """Approve only commands that were found with the same nodes in flight."""

        found: dict[tuple[str, ...], tuple[str, ...]]
        first = True

        def round(self, question: Question) -> Found:
            result = super().round(question)
            for command in result.commands:
                self.found[command.nodes] = question.in_flight.leaving_names
            return result

        def revalidate(self, command: Command, question: Question) -> Command | Refusal:
            spoiled, self.first = self.first, False
            same = self.found[command.nodes] == question.in_flight.leaving_names
            if same and not spoiled:
                return super().revalidate(command, question)
            return Refusal(gate=Gate.SIMULATION, why="changed")

    planner = Fussy()
    planner.found = {}
    world = world_with(a="replace")
    driver = Driver(world, engine_for(CALM, planner)).begin().run(5)
    world.add_node("b", want="replace")
    changes, world.changes = world.changes, []
    for event in changes:
        driver.send(event)
    driver.run(300)
    assert driver.ends().count("done") == 2
    assert driver.ends().count("refused") <= 3


def test_commands_go_side_by_side_within_the_limit() -> None:
    """A round starts one command and the next follows at once; nodes in flight count against the budget."""
    world = world_with(a="replace", b="replace", c="replace", d="replace")
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=3))).begin().run(16)
    assert len(driver.engine.runs) == 3
    assert [run.phase for run in driver.engine.runs] == [Phase.WAITING] * 3
    assert driver.engine.in_flight().leaving_names == ("a", "b", "c")
    driver.run(300)
    assert driver.ends() == ["done"] * 4


def test_rounds_are_skipped_when_nothing_can_have_changed() -> None:
    """With no event and no timer the planner is not asked again; a change or a timer brings it back."""
    planner = ScriptedPlanner()
    driver = Driver(world_with(a=""), engine_for(CALM, planner)).begin().run(20)
    asked = planner.plans
    driver.run(1000)
    assert planner.plans == asked
    assert driver.engine.rounds_skipped >= 99
    driver.world.add_node("b")
    for event in driver.world.changes:
        driver.send(event)
    driver.world.changes.clear()
    driver.run(11)
    assert planner.plans > asked


def test_rounds_come_back_when_a_timer_of_the_last_result_runs_out() -> None:
    """The engine runs a round at the time `next_change` of the last one."""
    planner = ScriptedPlanner()
    planner.next_change = T0 + timedelta(seconds=100)
    driver = Driver(world_with(a=""), engine_for(CALM, planner)).begin().run(95)
    asked = planner.plans
    driver.run(10)
    assert planner.plans == asked + 1


def test_settings_change_is_a_change() -> None:
    """New settings start a new round."""
    planner = ScriptedPlanner()
    driver = Driver(world_with(a=""), engine_for(CALM, planner)).begin().run(50)
    asked = planner.plans
    driver.send(SettingsChanged(settings=replace(CALM, batch_maximum=7)))
    driver.run(11)
    assert planner.plans == asked + 1
    assert planner.asks[-1].settings.batch_maximum == 7


def test_stabilization_holds_cost_actions_only() -> None:
    """After an action has finished no cost action starts for its window; drift goes on."""
    settings = replace(CALM, stabilization=Stabilization(empty=0, expired=0, drifted=120 * 10**9, cost=0))
    world = world_with(a="delete", z="cost-delete")
    planner = ScriptedPlanner(limit=1)
    driver = Driver(world, engine_for(settings, planner)).begin().run(40)
    assert driver.ends() == ["done"]
    world.add_node("b", want="delete")
    for event in world.changes:
        driver.send(event)
    world.changes.clear()
    driver.run(300)
    tainted = [(item.node, (at - T0).total_seconds()) for at, item in driver.log if isinstance(item, TaintNode)]
    assert [node for node, _ in tainted] == ["a", "b", "z"]
    ended = [
        (at - T0).total_seconds()
        for at, item in driver.log
        if isinstance(item, Report) and dict(item.figures).get("phase") == "done"
    ]
    assert tainted[2][1] >= ended[1] + 120
    held = {hold.after for ask in planner.asks for hold in ask.settling.values()}
    assert held == {"an action of method drifted in NodePool web"}, "people are told which pool's action it was"


def test_cost_command_waiting_for_validation_is_held_too() -> None:
    """A cost command in validation does not start if another action finishes meanwhile."""
    settings = replace(CALM, stabilization=Stabilization(empty=0, expired=0, drifted=300 * 10**9, cost=0))
    world = world_with(a="delete")
    driver = Driver(world, engine_for(settings)).begin().run(25)
    world.add_node("z", want="cost-delete")
    for event in world.changes:
        driver.send(event)
    world.changes.clear()
    driver.run(60)
    assert driver.ends()[:2] == ["done", "refused"]
    assert "z" not in driver.world.tainted()


def test_replacement_and_destination_are_nominated_until_the_end() -> None:
    """Nodes that expect moved pods are not disrupted."""
    world = world_with(b="")
    world.add_node("a", want="replace", to="b")
    driver = Driver(world, engine_for()).begin().run(60)
    [name] = world.created
    assert driver.engine.nominated() == ("b", name, f"{name}-node")
    driver.run(20)
    assert driver.ends() == ["done"]
    assert driver.engine.nominated() == (name, f"{name}-node")
    driver.run(120)
    assert driver.engine.nominated() == ()


def test_nomination_after_the_end_stops_when_pods_have_come() -> None:
    """A replacement is no longer nominated once its pods run on it."""
    world = world_with(a="replace")
    driver = Driver(world, engine_for()).begin().run(80)
    [name] = world.created
    assert driver.engine.nominated() != ()
    pod = Pod(metadata=ObjectMeta(name="p", namespace="shop"), spec=PodSpec(node_name=f"{name}-node"))
    driver.send(ObjectObserved(object=pod))
    assert driver.engine.nominated() == ()


def test_node_nominated_by_the_scheduler_counts() -> None:
    """A node that the scheduler nominated for a pending pod is kept."""
    driver = Driver(world_with(a=""), engine_for()).begin()
    pod = Pod(metadata=ObjectMeta(name="p", namespace="shop"))
    pod = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name="a"))
    driver.send(ObjectObserved(object=pod))
    assert driver.engine.nominated() == ("a",)


def test_holds_new_nodes_of_managed_pools_only() -> None:
    """New nodes of managed pools are held; other nodes and nodes that a person annotated are not."""
    world = world_with(a="")
    world.add_pool("theirs", managed=False)
    world.add_node("x", pool="theirs")
    world.add_node("p", **{names.DO_NOT_DISRUPT: "true"})
    driver = Driver(world, engine_for()).begin().run(100)
    assert [item.node for item in driver.told(HoldNode) if isinstance(item, HoldNode)] == ["a"]
    node = world.get(Node, "a")
    assert node is not None
    assert node.metadata.annotations[names.HOLD] == "true"


def test_a_pool_that_is_closed_to_karpenter_is_not_held() -> None:
    """Where the spec's budgets allow Karpenter nothing and the annotation has Dovetail's, nodes are released.

    Budgets that are closed without the annotation are the pool's own policy: its nodes stay held.
    """
    world = world_with(a="", b="")
    driver = Driver(world, engine_for()).begin().run(20)
    pool = world.get(NodePool, "web")
    assert pool is not None
    budgets = (BudgetSpec(nodes="0", reasons=("Empty", "Drifted", "Underutilized")),)
    closed = msgspec.structs.replace(pool.spec, disruption=DisruptionSpec(budgets=budgets))
    frozen = msgspec.structs.replace(pool, spec=closed)
    world.put(frozen)
    driver.run(20)
    assert driver.told(ReleaseNode) == []
    policy = {**pool.metadata.annotations, names.POLICY_ANNOTATION: '{"budgets": [{"nodes": "10%"}]}'}
    world.put(msgspec.structs.replace(frozen, metadata=msgspec.structs.replace(pool.metadata, annotations=policy)))
    driver.run(20)
    world.add_node("c")
    driver.run(20)
    assert [node.metadata.name for node in world.all(Node) if names.HOLD in node.metadata.annotations] == []
    assert [item.node for item in driver.told(ReleaseNode) if isinstance(item, ReleaseNode)] == ["a", "b"]
    world.put(pool)
    driver.run(20)
    held = [node.metadata.name for node in world.all(Node) if names.DO_NOT_DISRUPT in node.metadata.annotations]
    assert held == ["a", "b", "c"]


@pytest.mark.parametrize("label_first", [True, False])
def test_decisions_wait_for_the_holds_of_a_new_pool(*, label_first: bool) -> None:
    """Decisions wait until the holds of a new pool are seen, for at most half a minute."""
    for failures, begins in ((0, 0), (2, 15), (99, 30)):
        world = World()
        world.add_pool(managed=label_first)
        world.add_node("a", want="delete")
        left = [failures]

        def judge(instruction: Instruction, left: list[int] = left) -> Failure | None:
            if not isinstance(instruction, HoldNode) or not left[0]:
                return None
            left[0] -= 1
            return Failure.UNREACHABLE

        world.fail = judge
        engine = Engine(CALM, EMPTY_CATALOGUE, EngineRole(holds_first=True), decider=ScriptedPlanner(limit=1))
        driver = Driver(world, engine).begin()
        if not label_first:
            world.add_pool(managed=True)
        driver.run(0)
        for event in world.changes:
            driver.send(event)
        driver.run(200)
        begun = next(at for at, item in driver.log if isinstance(item, Report) and item.topic == "command")
        assert begun == T0 + timedelta(seconds=begins)
        assert driver.ends() == ["done"]


def test_releases_nodes_of_a_pool_that_is_no_longer_managed() -> None:
    """Nodes of a pool that loses its label are released, and a command there is rolled back."""
    world = world_with(a="replace", b="")
    driver = Driver(world, engine_for()).begin().run(20)
    assert world.tainted() == ["a"]
    pool = world.get(NodePool, "web")
    assert pool is not None
    world.put(msgspec.structs.replace(pool, metadata=msgspec.structs.replace(pool.metadata, labels={})))
    driver.send(world.changes.pop())
    driver.run(100)
    assert {item.node for item in driver.told(ReleaseNode) if isinstance(item, ReleaseNode)} == {"a", "b"}
    assert driver.ends() == ["failed"]
    assert world.tainted() == world.recorded() == []
    assert all(names.HOLD not in node.metadata.annotations for node in world.all(Node) if node.metadata.name in "ab")


def test_pools_named_in_the_settings_are_managed() -> None:
    """A pool needs the label or a line in the settings."""
    world = World()
    world.add_pool("web", managed=False)
    world.add_node("a")
    driver = Driver(world, engine_for(replace(CALM, pools=("web",)))).begin()
    assert driver.engine.managed_pools() == ("web",)
    driver.send(SettingsChanged(settings=CALM))
    assert driver.engine.managed_pools() == ()
    driver.run(1)
    assert len(driver.told(ReleaseNode)) == 1


def test_nodes_of_pools_not_managed_are_never_touched() -> None:
    """The engine ignores proposals for nodes of unmanaged pools."""
    world = World()
    world.add_pool("theirs", managed=False)
    world.add_node("x", pool="theirs", want="delete")

    class Careless(ScriptedPlanner):
        def round(self, question):  # type: ignore[no-untyped-def]
            return super().round(replace(question, managed_pools=("theirs",)))

    driver = Driver(world, engine_for(CALM, Careless())).begin().run(60)
    assert acting(driver) == []
    assert driver.reports("proposal-dropped")


def test_person_says_hands_off_in_the_middle() -> None:
    """`dovetail.dev/do-not-disrupt` on a candidate before its deletion undoes the command."""
    world = world_with(a="replace")
    driver = Driver(world, engine_for()).begin().run(30)
    node = world.get(Node, "a")
    assert node is not None
    world.annotate(node, **{names.ALWAYS_DO_NOT_DISRUPT: "true", WANT: None})
    driver.send(world.changes.pop())
    driver.run(100)
    assert driver.ends() == ["failed"]
    assert world.tainted() == world.recorded() == []
    assert [node.metadata.name for node in world.all(Node)] == ["a"]


def test_events_come_only_when_a_verdict_changes() -> None:
    """A node's verdict is published once, not every round."""
    driver = Driver(world_with(a="", b=""), engine_for()).begin().run(500)
    blocked = [item for item in driver.told(PublishEvent) if isinstance(item, PublishEvent)]
    assert [(item.name, item.reason) for item in blocked] == [("a", "DisruptionBlocked"), ("b", "DisruptionBlocked")]


def test_broken_budget_is_reported_on_the_pool_and_taken_back() -> None:
    """A pool with an unreadable budget gets a condition once, until the budget can be read."""
    world = world_with(a="")
    pool = world.get(NodePool, "web")
    assert pool is not None
    broken = DisruptionSpec(budgets=(BudgetSpec(nodes="many"),))
    world.put(msgspec.structs.replace(pool, spec=NodePoolSpec(disruption=broken)))
    driver = Driver(world, engine_for()).begin().run(200)
    asked = [one for one in driver.told(SetPoolCondition) if isinstance(one, SetPoolCondition)]
    [told] = [one for one in asked if one.type == POLICY_READABLE]
    assert (told.node_pool, told.status) == ("web", "False")
    assert "nodes" in told.message


def test_time_that_goes_back_stretches_no_wait() -> None:
    """A wall clock that is set back an hour does not delay validation."""
    world = world_with(a="delete")
    driver = Driver(world, engine_for()).begin().run(5)
    world.now -= timedelta(hours=1)
    driver.send(ClockAdvanced())
    driver.run(30)
    assert len(driver.told(TaintNode)) == 1


def test_wakes_are_asked_for_in_time() -> None:
    """The next wake-up is always at most a poll interval away."""
    driver = Driver(world_with(a="replace"), engine_for()).begin()
    for _ in range(20):
        driver.run(5)
        assert any(driver.world.now < at <= driver.world.now + timedelta(seconds=10) for at in driver.wakes)


def test_default_settings_wait_five_minutes() -> None:
    """The default stabilization windows are five minutes for each kind (lifecycle-controller)."""
    five = 300 * 10**9
    assert Settings().stabilization == Stabilization(empty=five, expired=five, drifted=five, cost=five)


def test_untaint_is_never_part_of_a_good_run() -> None:
    """A command that succeeds never removes a taint."""
    driver = Driver(world_with(a="replace2"), engine_for()).begin().run(300)
    assert driver.told(UntaintNode) == []
    assert len(driver.world.created) == 2


def test_a_view_that_grew_old_stops_everything_until_it_is_fresh_again() -> None:
    """With a stale view no round, step or rollback runs; then the command continues."""
    driver = Driver(world_with(a="replace"), engine_for()).begin().run(20)
    driver.send(ViewGrewOld(kinds=("Pod",)))
    before, rounds = driver.acted, driver.engine.rounds
    driver.run(300)
    assert (driver.acted, driver.engine.rounds) == (before, rounds)
    driver.send(Synced())
    driver.run(300)
    assert driver.ends() == ["done"]
    assert driver.world.tainted() == driver.world.recorded() == []


def test_a_node_that_turned_out_occupied_is_left_alone() -> None:
    """If the final check refuses the deletion, the taints are removed and the node backs off, but not its pool."""
    world = world_with(a="delete")
    real = world.carry_out

    def carry_out(instruction: ClusterInstruction) -> Answer:
        if isinstance(instruction, DeleteNodeClaim):
            return InstructionFailed(id=instruction.id, failure=Failure.OCCUPIED, detail="pod d/p")
        return real(instruction)

    world.carry_out = carry_out  # type: ignore[method-assign]
    driver = Driver(world, engine_for()).begin().run(40)
    assert driver.ends()[0] == "failed"
    assert world.get(NodeClaim, "a-claim") is not None
    assert {type(report) for report in driver.reports("back-off")} == {NodesBackOff}
    [deletion, *_] = driver.told(DeleteNodeClaim)
    assert isinstance(deletion, DeleteNodeClaim)
    assert deletion.node == "a"


@pytest.mark.parametrize("seen", [True, False], ids=["seen without it meanwhile", "never seen without it"])
def test_a_taint_that_comes_back_after_it_was_swept_is_swept_again(seen: bool) -> None:
    """A taint that another process adds again after its removal is removed again."""
    world = world_with(a="")
    ours = Taint(key=names.DISRUPTION_TAINT, value=names.DISRUPTION_TAINT_VALUE, effect="NoSchedule")

    def taint() -> None:
        node = world.get(Node, "a")
        assert node is not None
        world.put(msgspec.structs.replace(node, spec=NodeSpec(taints=(ours,))))

    taint()
    driver = Driver(world, engine_for())
    if not seen:
        driver.lose = lambda event: (
            isinstance(event, ObjectObserved) and isinstance(event.object, Node) and not event.object.spec.taints
        )
    driver.begin().run(3)
    assert world.tainted() == []
    taint()
    for event in world.changes:
        driver.send(event)
    world.changes.clear()
    driver.lose = lambda event: False
    driver.run(120)
    assert world.tainted() == []


@pytest.mark.parametrize(
    ("change", "at_once"),
    [
        ({"annotations": {names.PAUSED: "true"}}, True),
        ({"annotations": {names.POLICY_ANNOTATION: "consolidateAfter: 1h"}}, True),
        ({"labels": {}}, True),
        ({"annotations": {names.RECENT_DISRUPTIONS: "[]"}}, False),
    ],
)
def test_verdicts_follow_a_change_of_policy_at_once(change: dict[str, dict[str, str]], at_once: bool) -> None:
    """A pause, or another policy, is decided on and shown within a second; what Dovetail notes itself is not news."""
    world = world_with(a="")
    driver = Driver(world, engine_for()).begin().run(65)
    driver.log.clear()
    rounds = driver.engine.rounds
    pool = world.get(NodePool, "web")
    assert pool is not None
    meta = msgspec.structs.replace(pool.metadata, **change)
    world.put(msgspec.structs.replace(pool, metadata=meta))
    changes, world.changes = world.changes, []
    for event in changes:
        driver.send(event)
    assert (driver.engine.rounds > rounds) is at_once


def test_verdicts_are_reported_with_the_round_that_a_change_of_policy_asked_for() -> None:
    """The counts of nodes by verdict don't wait for the next minute after a pause."""
    world = world_with(a="")
    planner = ScriptedPlanner()
    driver = Driver(world, engine_for(CALM, planner)).begin().run(65)
    pool = world.get(NodePool, "web")
    assert pool is not None
    usual = planner.round

    def paused(question: Question) -> Found:
        held = NodeVerdict(node="a", node_pool="web", verdict="paused", why="It is paused.")
        return replace(usual(question), verdicts=(held,))

    planner.round = paused  # type: ignore[method-assign]
    driver.log.clear()
    world.annotate(pool, **{names.PAUSED: "true"})
    changes, world.changes = world.changes, []
    for event in changes:
        driver.send(event)
    assert [dict(report.figures) for report in driver.reports("verdicts")] == [{"pool": "web", "paused": 1}]
