"""The irreversible step: before it all is read again; after it nothing ready is undone (docs/rules.md#carrying-out)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.commands import irreversible, signals, steps
from dovetail.lifecycle.commands.attempts import ANSWER_WAIT, SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.commands.records import record_of
from dovetail.lifecycle.messages import (
    DeleteNodeClaim,
    EvictPod,
    Failure,
    Instruction,
    LookAtPods,
    PublishEvent,
    TaintNode,
)
from dovetail.lifecycle.reports import DrainHangs, NodesBackOff
from dovetail.model import names
from dovetail.model.command import Action, Method
from dovetail.model.objects import (
    Condition,
    LabelSelectorSpec,
    Node,
    NodeClaim,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from tests.support.command_cases import answered, claim, its_claim, node, run, view
from tests.support.lifecycle_world import CALM, Driver, World, engine_for

IN_ORDER = replace(CALM, evictions_in_order=True)
READY = [(names.CONDITION_INITIALIZED, "True", "")]


def put_pod(world: World, name: str, on: str, **parts: Any) -> Pod:
    """Add a pod of a ReplicaSet of its own."""
    tree = {
        "metadata": {
            "name": name,
            "namespace": "d",
            "labels": {"app": name},
            "annotations": parts.get("annotations", {}),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"of-{name}"}],
        },
        "spec": {"nodeName": on, "containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }
    item = world.put(msgspec.convert(tree, Pod, strict=False))
    assert isinstance(item, Pod)
    return item


def put_pdb(world: World, allowed: int, app: str = "p", name: str = "guard") -> None:
    """Set the PDB over an app."""
    world.put(
        PodDisruptionBudget(
            metadata=ObjectMeta(name=name, namespace="d"),
            spec=PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels={"app": app}), max_unavailable=1),
            status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
        )
    )


def world_of(want: str = "replace") -> World:
    """Return a world with a node that has a pod under a PDB, and this wish."""
    world = World()
    world.add_pool()
    world.add_node("a", want=want)
    world.add_node("rest")
    put_pod(world, "p", "a")
    put_pdb(world, 1)
    return world


def until(driver: Driver, phase: Phase) -> Driver:
    """Run until a command is in a phase."""
    for _ in range(600):
        if any(made.phase is phase for made in driver.engine.runs):
            return driver
        driver.run(1)
    raise AssertionError(f"no command came to be {phase}")


def candidates_deleted(world: World) -> list[str]:
    """Return the claims of candidates that were deleted."""
    return [name for name in world.deleted if name not in world.created]


# ---------------------------------------------------------------- before it


@pytest.mark.parametrize("want", ["delete", "replace", "cost-delete", "cost-replace"])
@pytest.mark.parametrize("refuses", ["pdb", "two pdbs", "do-not-disrupt"])
def test_what_changed_while_a_replacement_started_is_read_again(want: str, refuses: str) -> None:
    """A PDB or a pod that refuses by now keeps every claim; the command waits with its taint and then goes on."""
    world = world_of(want)
    driver = until(Driver(world, engine_for(IN_ORDER)).begin(), Phase.VALIDATING if "delete" in want else Phase.WAITING)
    if refuses == "pdb":
        put_pdb(world, 0)
    elif refuses == "two pdbs":
        put_pdb(world, 1, name="second")
    else:
        world.annotate(world.all(Pod)[0], **{names.DO_NOT_DISRUPT: "true"})
    driver.run(80)
    assert (candidates_deleted(world), world.evicted, world.tainted()) == ([], [], ["a"])
    assert [made.phase for made in driver.engine.runs] == [Phase.CHECKING]
    put_pdb(world, 1)
    world.drop("PodDisruptionBudget", "second", "d")
    world.annotate(world.all(Pod)[0], **{names.DO_NOT_DISRUPT: None})
    driver.run(120)
    assert driver.ends()[0] == "done"
    assert candidates_deleted(world) == ["a-claim"]


def test_patience_ends_and_the_node_backs_off_longer_each_time() -> None:
    """After drainPatience the command is rolled back; its node waits 1 min, then 2, then 4, at most 30."""
    world = world_of("replace")
    driver = until(Driver(world, engine_for()).begin(), Phase.WAITING)
    put_pdb(world, 0)
    driver.run(30 * 60)
    assert candidates_deleted(world) == []
    assert world.tainted() == []
    assert set(driver.ends()) == {"failed"}
    rests = [report for report in driver.reports("back-off") if isinstance(report, NodesBackOff)]
    assert [report.seconds for report in rests] == [60, 120, 240, 480, 960, 1800][: len(rests)]
    assert len(rests) >= 3
    assert rests[0].message == (
        "a is left alone for 60 s: PodDisruptionBudget d/guard allows no disruption of pod d/p now"
    )
    assert len(world.created) == len(rests), "one machine for each try, not one every half minute"
    for _ in range(60):
        driver.run(600)
    longest = [report.seconds for report in driver.reports("back-off") if isinstance(report, NodesBackOff)]
    assert max(longest) == 1800


def test_patience_is_a_setting_and_counts_from_the_first_refusal() -> None:
    """With `drainPatience: 0s` the first refusal rolls back."""
    world = world_of("replace")
    driver = until(Driver(world, engine_for(replace(CALM, drain_patience=0))).begin(), Phase.WAITING)
    put_pdb(world, 0)
    driver.run(60)
    assert driver.ends() == ["failed"]
    assert len(driver.told(LookAtPods)) == 1


def test_an_api_server_that_does_not_answer_is_not_a_refusal() -> None:
    """If pods can't be read the command waits for longer than its patience, and nothing is deleted."""
    world = world_of("replace")
    world.fail = lambda asked: Failure.UNREACHABLE if isinstance(asked, LookAtPods) else None
    driver = until(Driver(world, engine_for()).begin(), Phase.CHECKING).run(240)
    assert [made.phase for made in driver.engine.runs] == [Phase.CHECKING]
    world.fail = lambda asked: None
    driver.run(150)
    assert driver.ends() == ["done"]


def test_a_last_look_that_is_never_answered_rests_the_node_too() -> None:
    """A command that can't read pods and PDBs in time is rolled back, and its node backs off like one that refused."""
    world = world_of("replace")
    world.fail = lambda asked: Failure.UNREACHABLE if isinstance(asked, LookAtPods) else None
    driver = until(Driver(world, engine_for()).begin(), Phase.CHECKING)
    driver.run(12 * 60)
    rests = [report for report in driver.reports("back-off") if isinstance(report, NodesBackOff)]
    assert [(report.nodes, report.seconds, report.why) for report in rests] == [
        (("a",), 60, "pods and PDBs could not be read in time")
    ]
    assert candidates_deleted(world) == []


def test_a_missing_right_rolls_back_and_leaves_the_pool_alone() -> None:
    """Without the right to read PDBs no claim is deleted."""
    world = world_of("replace")
    world.fail = lambda asked: Failure.FORBIDDEN if isinstance(asked, LookAtPods) else None
    driver = Driver(world, engine_for()).begin().run(100)
    assert driver.ends()[0] == "failed"
    assert candidates_deleted(world) == []


def test_hands_off_and_a_lost_replacement_end_the_wait() -> None:
    """A person's mark, or the end of a replacement, rolls a waiting command back at once."""
    for what in ("mark", "loss"):
        world = world_of("replace")
        driver = until(Driver(world, engine_for()).begin(), Phase.WAITING)
        put_pdb(world, 0)
        until(driver, Phase.CHECKING)
        item = world.get(Node, "a") if what == "mark" else world.get(NodeClaim, world.created[0])
        assert item is not None
        if isinstance(item, Node):
            world.annotate(item, **{names.ALWAYS_DO_NOT_DISRUPT: "true"})
        else:
            world.delete_claim(item)
        driver.run(15)
        assert driver.ends() == ["failed"]


@pytest.mark.parametrize(
    ("method", "grace", "begun", "looked", "pdbs", "windows"),
    [
        (Method.SINGLE_NODE, None, False, True, True, True),
        (Method.SINGLE_NODE, "5m", False, True, True, True),
        (Method.DRIFTED, None, False, True, True, True),
        (Method.DRIFTED, "5m", False, False, False, False),
        (Method.EXPIRED, "5m", False, False, False, False),
        (Method.UNHEALTHY, None, False, True, True, False),
        (Method.UNHEALTHY, "5m", False, False, False, False),
        (Method.EMPTY, None, False, True, False, False),
        (Method.SINGLE_NODE, None, True, True, False, True),
    ],
)
def test_what_the_last_look_asks(
    method: Method, grace: str | None, begun: bool, looked: bool, pdbs: bool, windows: bool
) -> None:
    """A bounded drain is not asked about, an empty node has no PDBs, and after the first deletion PDBs don't count."""
    made = run("a", "b", phase=Phase.CHECKING, method=method)
    item = its_claim("a")
    item = msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, termination_grace_period=grace))
    other = its_claim("b", leaving=True) if begun else msgspec.structs.replace(its_claim("b"), spec=item.spec)
    order = irreversible.last_look(made, view(item, other))
    assert (order is not None) == looked
    if order is not None:
        assert order.nodes == (("a",) if begun else ("a", "b"))
        assert (order.asks_pdbs, order.asks_windows) == (pdbs, windows)


def test_a_profile_without_a_last_look_asks_nothing() -> None:
    """Under Karpenter's rules nothing is read again."""
    made = run("a", phase=Phase.CHECKING)
    assert irreversible.last_look(made, view(its_claim("a"), looks_last=False)) is None
    assert irreversible.may_begin(made, view(its_claim("a"), looks_last=False))


def test_a_look_that_grew_old_before_the_first_deletion_is_repeated() -> None:
    """Deletions that fail for 15 s begin with another look; one that is out, or refused, does not."""
    made = run("a", "b", phase=Phase.DELETING, cleared_at=0)
    items = (node("a"), node("b"), its_claim("a"), its_claim("b"))
    answered(made, "mine/delete/c-a", Failure.THROTTLED)
    assert signals.signal(made, view(*items, elapsed=irreversible.LOOK_HOLDS - 1)) is None
    old = view(*items, elapsed=irreversible.LOOK_HOLDS)
    assert signals.signal(made, old) is Signal.LOOK_IS_OLD
    assert signals.signal(made, view(*items[:2], its_claim("a", leaving=True), items[3], elapsed=10**12)) is None
    answered(made, "mine/delete/c-b", Failure.OCCUPIED)
    assert signals.signal(made, old) is Signal.INSTRUCTION_REFUSED
    signals.enter(made, Phase.CHECKING, old)
    assert (made.looks, made.refused_at) == (1, None)


def test_every_look_has_an_id_of_its_own() -> None:
    """An answer to an earlier look can't open the next one."""
    made = run("a", phase=Phase.WAITING)
    seen = view(node("a"), its_claim("a"))
    signals.enter(made, Phase.CHECKING, seen)
    first = made.look_id()
    answered(made, first, "")
    assert irreversible.may_begin(made, seen)
    signals.enter(made, Phase.CHECKING, seen)
    assert made.look_id() != first
    assert not irreversible.may_begin(made, seen)


# ---------------------------------------------------------------- after it


def deleting(*answers: Failure | str | None) -> Run:
    """Return a command that has requested the deletion of a, b and c, with these answers; "-": not requested."""
    made = run("a", "b", "c", phase=Phase.DELETING, replacements=("r",), cleared_at=0)
    for name, answer in zip("abc", answers, strict=True):
        if answer != "-":
            answered(made, f"mine/delete/c-{name}", answer)
    return made


THREE = (*(node(name) for name in "abc"), *(its_claim(name) for name in "abc"), claim("r", of="mine", conditions=READY))


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ((Failure.OCCUPIED, None, ""), False),
        ((Failure.OCCUPIED, Failure.UNREACHABLE, ""), False),
        ((Failure.OCCUPIED, "", ""), True),
        ((Failure.OCCUPIED, Failure.THROTTLED, "-"), True),
        ((Failure.OCCUPIED, Failure.CONFLICT, Failure.NOT_FOUND), True),
        ((Failure.OCCUPIED, Failure.REFUSED, Failure.OCCUPIED), True),
        ((None, None, None), False),
    ],
)
def test_the_answers_of_all_deletions_are_awaited(answers: tuple[Failure | str | None, ...], refused: bool) -> None:
    """One refusal undoes nothing while another deletion may be out; then, or once its answer is overdue, it does."""
    made = deleting(*answers)
    assert (signals.signal(made, view(*THREE, elapsed=1)) is Signal.INSTRUCTION_REFUSED) == refused
    late = signals.signal(made, view(*THREE, elapsed=ANSWER_WAIT))
    assert (late is Signal.INSTRUCTION_REFUSED) == (Failure.OCCUPIED in answers)


def test_no_further_deletion_is_requested_once_one_is_refused() -> None:
    """Deletions that failed for the moment are not repeated; the unanswered one is waited for."""
    made = deleting(Failure.OCCUPIED, Failure.THROTTLED, None)
    assert steps.instructions(made, view(*THREE, elapsed=6 * SECOND)) == []
    assert made.retry_at is not None
    assert made.retry_at <= ANSWER_WAIT


def test_a_command_that_began_to_delete_keeps_its_replacement() -> None:
    """The deletion that answers last was executed: the rollback keeps the replacement and frees the refused node."""
    world = World()
    world.add_pool()
    for name in ("a", "b"):
        world.add_node(name)
    put_pod(world, "p", "b")
    made = deleting(Failure.OCCUPIED, "", "")
    rolled = view(*THREE, elapsed=ANSWER_WAIT)
    signals.advance(made, rolled)
    assert made.phase is Phase.ROLLING_BACK
    wanted = [order.id for order in steps.instructions(made, rolled)]
    assert wanted == ["mine/clear/r"], "a was never tainted here; b and c leave; r is an ordinary node"


def test_an_undo_leaves_a_replacement_with_pods_alone() -> None:
    """A ready replacement that holds somebody's pod stays as an ordinary node: its record goes, its hold stays."""
    world = world_of("replace2")
    world.launch_seconds = 10
    driver = until(Driver(world, engine_for()).begin(), Phase.WAITING)
    put_pdb(world, 0)
    until(driver, Phase.CHECKING)
    full, empty = world.created
    put_pod(world, "visitor", f"{full}-node", annotations={names.DO_NOT_DISRUPT: "true"})
    driver.run(150)
    assert driver.ends()[0] == "failed"
    assert world.deleted[:1] == [empty]
    assert full not in world.deleted
    kept = world.get(NodeClaim, full)
    assert kept is not None
    assert names.COMMAND not in kept.metadata.annotations
    assert world.recorded() == []


def test_a_successor_knows_which_pods_were_evicted() -> None:
    """After a restart in the middle of evictions, a rollback keeps the replacement though its pods have not landed."""
    world = world_of("cost-replace")
    put_pod(world, "q", "a")
    world.bind_seconds = None
    driver = Driver(world, engine_for(IN_ORDER)).begin()
    while not world.evicted:
        driver.run(1)
    item = world.get(Node, "a")
    assert item is not None
    record = record_of(item)
    assert record is not None
    assert record.evicted == (f"d/{world.evicted[0]}",)
    world.annotate(item, **{names.ALWAYS_DO_NOT_DISRUPT: "true"})
    successor = Driver(world, engine_for(IN_ORDER, identity="two")).begin().run(60)
    assert successor.ends() == ["failed"]
    assert world.deleted == []
    assert world.tainted() == world.recorded() == []


def test_evicted_pods_are_named_on_the_node_that_they_left() -> None:
    """Each node's record names its own pods; a successor counts all of them."""
    world = world_of("cost-replace")
    put_pod(world, "q", "a")
    driver = Driver(world, engine_for(IN_ORDER)).begin()
    while len(world.evicted) < 2:
        driver.run(0.5)
    item = world.get(Node, "a")
    record = None if item is None else record_of(item)
    assert record is not None
    assert sorted(record.evicted) == ["d/p", "d/q"]
    [first, *_] = driver.told(EvictPod)
    assert isinstance(first, EvictPod)
    assert first.node == "a"
    assert driver.told(TaintNode)


# ---------------------------------------------------------------- launches and drains


def test_the_launch_time_out_begins_when_karpenter_takes_the_claim_up() -> None:
    """A Karpenter that is down for three minutes does not fail a command the moment it is back."""
    world = world_of("replace")
    world.launches = False
    driver = until(Driver(world, engine_for()).begin(), Phase.WAITING).run(180)
    [name] = world.created
    item = world.get(NodeClaim, name)
    assert item is not None
    taken = Condition(
        type=names.CONDITION_LAUNCHED, status="Unknown", reason="Launching", last_transition_time=world.now
    )
    world.put(msgspec.structs.replace(item, status=msgspec.structs.replace(item.status, conditions=(taken,))))
    driver.run(55)
    assert driver.ends() == []
    world.initialize(name)
    driver.run(60)
    assert driver.ends() == ["done"]


def test_the_launch_time_out_still_ends_a_launch_that_hangs() -> None:
    """A claim that Karpenter took up and gave no machine within a minute is rolled back."""
    world = world_of("replace")
    world.launches = False
    driver = until(Driver(world, engine_for()).begin(), Phase.WAITING).run(120)
    item = world.get(NodeClaim, world.created[0])
    assert item is not None
    taken = Condition(type="Ready", status="Unknown", last_transition_time=world.now)
    world.put(msgspec.structs.replace(item, status=msgspec.structs.replace(item.status, conditions=(taken,))))
    driver.run(59)
    assert driver.ends() == []
    driver.run(12)
    assert driver.ends() == ["failed"]


@pytest.mark.parametrize(
    ("holder", "pod", "pdb", "why"),
    [
        ("pdb", "d/p", "d/guard", "PodDisruptionBudget d/guard allows no disruption of d/p"),
        ("two", "d/p", "d/guard, d/other", "pod d/p has 2 PodDisruptionBudgets (d/guard, d/other)"),
        ("do-not-disrupt", "d/p", "", f"pod d/p carries {names.DO_NOT_DISRUPT}"),
        ("stops", "d/p", "", "pod d/p does not stop"),
        ("slow", "d/p", "", "pod d/p is still on it"),
        ("none", "", "", "no pod holds it; Karpenter has not removed it yet"),
    ],
)
def test_a_drain_that_hangs_is_reported_with_what_holds_it(holder: str, pod: str, pdb: str, why: str) -> None:
    """After five minutes, and every quarter of an hour, a report and an event name the pod and the PDB."""
    world = world_of("delete")
    world.drain_seconds = 10**6
    driver = until(Driver(world, engine_for()).begin(), Phase.DRAINING)
    item = world.all(Pod)[0]
    if holder == "pdb":
        put_pdb(world, 0)
    elif holder == "two":
        put_pdb(world, 1, name="other")
    elif holder == "do-not-disrupt":
        world.annotate(item, **{names.DO_NOT_DISRUPT: "true"})
    elif holder == "stops":
        leaving = msgspec.structs.replace(item.metadata, deletion_timestamp=world.now)
        world.put(msgspec.structs.replace(item, metadata=leaving))
    elif holder == "none":
        world.drop("Pod", "p", "d")
    driver.run(295)
    assert driver.reports("drain") == []
    driver.run(10)
    [report] = driver.reports("drain")
    assert isinstance(report, DrainHangs)
    assert (report.node, report.pod, report.pdb) == ("a", pod, pdb)
    assert report.message == f"a has been draining for 5 min: {why}"
    events = [item for item in driver.told(PublishEvent) if isinstance(item, PublishEvent) and item.warning]
    assert [(item.name, item.reason, item.message) for item in events] == [("a", "DrainHangs", report.message)]
    assert 300 <= driver.engine.phase_age(Phase.DRAINING) <= 320
    assert driver.engine.phase_age(Phase.WAITING) == 0
    driver.run(880)
    assert len(driver.reports("drain")) == 1
    driver.run(30)
    assert len(driver.reports("drain")) == 2


def test_a_successor_counts_a_drain_from_the_first_deletion() -> None:
    """A drain that already hung when the leader changed is reported at once, with its whole age."""
    world = world_of("delete")
    world.drain_seconds = 10**6
    until(Driver(world, engine_for()).begin(), Phase.DRAINING).run(240)
    world.now += timedelta(seconds=360)
    successor = Driver(world, engine_for(identity="two")).begin().run(5)
    [report] = successor.reports("drain")
    assert isinstance(report, DrainHangs)
    assert 595 <= report.seconds <= 610
    assert successor.engine.phase_age(Phase.DRAINING) >= 595


def test_a_pod_that_comes_to_an_empty_node_needs_no_back_off() -> None:
    """A deletion of an empty node that a pod was faster than frees the node at once, without a wait."""
    made = run("a", phase=Phase.DELETING, action=Action.DELETE_EMPTY, method=Method.EMPTY)
    order = irreversible.last_look(made, view(its_claim("a")))
    assert order is not None
    assert not order.asks_pdbs
    wanted: list[Instruction] = steps.instructions(made, view(node("a"), its_claim("a")))
    [deletion] = [item for item in wanted if isinstance(item, DeleteNodeClaim)]
    assert deletion.only_empty
