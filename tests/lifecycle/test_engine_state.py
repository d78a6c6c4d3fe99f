"""The engine's state at its limits, and when holds and conditions are requested."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.decide.outcome import SteeringPlan
from dovetail.decide.question import CostHold
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.conditions import POLICY_READABLE, Conditions
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.engine_state import EngineRole, EngineState
from dovetail.lifecycle.holds import Holds
from dovetail.lifecycle.memory.outcomes import HOUR
from dovetail.lifecycle.memory.stabilization import Footprint
from dovetail.lifecycle.messages import (
    ClockAdvanced,
    CloseNode,
    EvictPod,
    Failure,
    HoldNode,
    InstructionFailed,
    InstructionSucceeded,
    LeadershipGained,
    LeadershipLost,
    ObjectObserved,
    ObjectVanished,
    OpenNode,
    ReleaseNode,
    SurgeDeployment,
    Synced,
    TaintNode,
)
from dovetail.lifecycle.reports import CostActionUndone, RecordIgnored
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.command import Action, Command, Method
from dovetail.model.objects import Node, NodeClaim, NodePool, OwnerReference
from dovetail.model.settings import (
    DOVETAIL,
    KARPENTER_1_15,
    Settings,
    Stabilization,
    StabilizationEnds,
    StabilizationScope,
    SteeringMode,
)
from tests.support.conversation import pod, pool, replica_set
from tests.support.lifecycle_world import EMPTY_CATALOGUE, Found, ScriptedPlanner

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)
OFFERING = Offering(capacity_type="spot", zone="z1", price=10**17, price_float=0.1)
CATALOGUE = Catalogue(
    instance_types=(InstanceType(name="m", requirements=(), capacity={}, overhead={}, offerings=(OFFERING,)),)
)


def state_of(
    settings: Settings = DOVETAIL, role: EngineRole | None = None, catalogue: Catalogue = CATALOGUE
) -> EngineState:
    """Return the state of an engine that leads and has seen everything, at this time."""
    state = EngineState(settings, catalogue, role or EngineRole())
    state.tick(NOW)
    state.is_leader = state.is_synced = True
    return state


def run(ident: str, node: str = "a", **more: Any) -> Run:
    """Return a command."""
    fields: dict[str, Any] = {
        "action": Action.DELETE_COST, "method": Method.SINGLE_NODE, "phase": Phase.TAINTING, "began": NOW, **more
    }  # fmt: skip
    return Run(id=ident, candidates=(Candidate(node=node, claim=node, uid=node, pool="web"),), **fields)


def claim(name: str, **labels: str) -> NodeClaim:
    """Return a NodeClaim."""
    return msgspec.convert({"metadata": {"name": name, "uid": name, "labels": labels}}, NodeClaim, strict=False)


# ---------------------------------------------------------------- time


def test_a_new_engine_knows_nothing() -> None:
    """A new engine does not lead, has seen nothing, and its clock is at zero."""
    state = EngineState(DOVETAIL, EMPTY_CATALOGUE, EngineRole())
    assert (state.is_leader, state.is_synced, state.acts) == (False, False, False)
    assert (state.elapsed, state.round_at) == (0, 0)
    state.tick(NOW)
    assert state.elapsed == 0
    assert state.view().evicts is False
    assert state.question().may_surge


@pytest.mark.parametrize(
    ("leader", "synced", "observe", "acts"),
    [(True, True, False, True), (False, True, False, False), (True, False, False, False), (True, True, True, False)],
)
def test_who_acts(leader: bool, synced: bool, observe: bool, acts: bool) -> None:
    """An engine acts if it leads, has seen everything and is not an observer."""
    state = state_of(role=EngineRole(observe=observe))
    state.is_leader, state.is_synced = leader, synced
    assert state.acts == acts


@pytest.mark.parametrize(
    ("passed", "elapsed"),
    [
        (timedelta(0), 0),
        (timedelta(microseconds=1), 1000),
        (timedelta(seconds=9), 9 * SECOND),
        (timedelta(seconds=70), 70 * SECOND),
        (timedelta(seconds=71), 70 * SECOND),
        (timedelta(hours=5), 70 * SECOND),
        (timedelta(seconds=-5), 0),
    ],
)
def test_the_clock_moves(passed: timedelta, elapsed: int) -> None:
    """The clock follows the wall clock, never backwards and never by more than a poll and a minute."""
    state = state_of()
    state.tick(NOW + passed)
    assert (state.elapsed, state.now) == (elapsed, NOW + passed)
    state.tick(NOW + passed + timedelta(seconds=1))
    assert state.elapsed == elapsed + SECOND


@pytest.mark.parametrize("by", [timedelta(hours=5), timedelta(hours=-5), timedelta(seconds=2), timedelta(days=-400)])
@pytest.mark.parametrize("passed", [timedelta(0), timedelta(seconds=9)])
def test_a_clock_that_is_said_to_be_set_moves_nothing(by: timedelta, passed: timedelta) -> None:
    """Only the time that has passed counts, and times of the wall move with the wall."""
    state = state_of()
    state.set_clock(by // timedelta(microseconds=1))
    state.tick(NOW + by + passed)
    assert (state.elapsed, state.now) == (passed // timedelta(microseconds=1) * 1000, NOW + by + passed)
    assert state.wall(state.elapsed + 60 * SECOND) == NOW + by + passed + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("at", "wall"), [(0, 0), (1, 1), (1000, 1), (1001, 2), (5_000_000, 5000), (-1000, -1), (-1, 0)]
)
def test_times_of_the_wall_are_rounded_up(at: int, wall: int) -> None:
    """Wall times are rounded up to microseconds."""
    state = state_of()
    state.elapsed = 100 * SECOND
    assert state.wall(100 * SECOND + at) == NOW + timedelta(microseconds=wall)


def test_polls_are_a_second_apart_at_least() -> None:
    """Polls are at least a second apart, whatever the setting."""
    assert state_of(replace(DOVETAIL, poll_interval=0)).poll_interval == SECOND
    assert state_of(replace(DOVETAIL, poll_interval=3 * SECOND)).poll_interval == 3 * SECOND


def test_rights_that_were_missing_are_asked_for_again_at_their_time() -> None:
    """A missing permission is tried again exactly at its time."""
    state = state_of(replace(DOVETAIL, evictions_in_order=True))
    state.evictions_from = state.surges_from = state.elapsed = 5
    assert state.view().evicts
    assert state.question().may_surge
    state.elapsed = 4
    assert not state.view().evicts
    assert not state.question().may_surge
    assert not state_of().view().evicts


# ---------------------------------------------------------------- pools


def test_which_pools_are_ours() -> None:
    """Managed pools are labelled or named; an observer covers all pools if there are none."""
    state = state_of()
    watcher = state_of(role=EngineRole(observe=True))
    for each in (state, watcher):
        each.store.observe(pool("one", managed=False))
        each.store.observe(pool("two", managed=False))
    assert state.managed_pools() == ()
    assert not state.has_come_to_hold("one")
    assert watcher.managed_pools() == ("one", "two")
    for each in (state, watcher):
        each.store.observe(pool("one"))
    assert state.has_come_to_hold("one")
    assert not state.has_come_to_hold("one")
    assert not state.has_come_to_hold("two")
    assert state.manages("one")
    assert (state.managed_pools(), watcher.managed_pools()) == (("one",), ("one",))
    state.settings, state.settings_version = replace(DOVETAIL, pools=("two",)), 1
    assert state.manages("two")
    state.pacing.refusals.failed("two", 0)
    assert "two" not in state.question().managed_pools


def test_limits_of_a_pool() -> None:
    """A pool's limits are the longest readable span of its rate budgets, and the time for moved pods."""
    state = state_of()
    view = state.view()
    assert (view.rate_span("web"), state.ready_within("web")) == (0, None)
    budgets: list[dict[str, Any]] = [
        {"nodes": "2", "per": "1h"}, {"nodes": "2", "per": "2h"}, {"nodes": "many", "per": "9h"}, {"nodes": "10%"}
    ]  # fmt: skip
    state.store.observe(pool(disruption={"budgets": budgets, "health": {"movedPodsReadyWithin": "90s"}}))
    assert (view.rate_span("web"), state.ready_within("web")) == (2 * 3600 * SECOND, 90 * SECOND)
    state.store.observe(pool("plain", disruption={"budgets": budgets[3:]}))
    assert (view.rate_span("plain"), state.ready_within("plain")) == (0, None)


# ---------------------------------------------------------------- questions


def test_what_the_validation_of_a_command_sees() -> None:
    """Validation ignores the command itself and commands in validation that were found after it."""
    state = state_of()
    for ident, phase in (("one", Phase.VALIDATING), ("two", Phase.VALIDATING), ("three", Phase.VALIDATING)):
        state.runs[ident] = run(ident, ident, phase=phase)
    state.runs["four"] = run("four", "four", phase=Phase.DRAINING)

    def leaving(without: str) -> list[str]:
        return sorted(state.in_flight(without).leaving_names)

    assert leaving("") == ["four", "one", "three", "two"]
    assert leaving("one") == ["four"]
    assert leaving("two") == ["four", "one"]
    assert leaving("three") == ["four", "one", "two"]
    assert leaving("four") == ["one", "three", "two"]


def test_what_waits_is_told_as_times_of_the_wall() -> None:
    """Backoff, regrowth and pauses are reported as wall times."""
    state = state_of()
    state.elapsed = 10 * SECOND
    state.pacing.launches.failed("web", 0)
    state.regrowth.waits.failed("two", 0)
    state.store.observe(pool("web"))
    windows = Stabilization(drifted=30 * SECOND)
    touched = Footprint(pools=("web",), nodes=("n",))
    state.stabilization.finished(Method.DRIFTED, touched, windows, StabilizationScope.POOL, 0)
    in_flight = state.in_flight()
    assert in_flight.back_off == {"web": NOW + timedelta(seconds=50)}
    assert in_flight.regrown == {"two": NOW + timedelta(seconds=590)}
    hold = CostHold(until=NOW + timedelta(seconds=20), after="an action of method drifted in NodePool web")
    assert (state.question().settling, state.question().settling_nodes) == ({"web": hold}, {})
    assert state_of().question().settling == {}


def test_pod_events_are_told_where_they_count() -> None:
    """Rounds get the observed pod events; Karpenter's profile reads its condition instead."""
    for settings, told in ((DOVETAIL, ["n"]), (KARPENTER_1_15, [])):
        state = state_of(settings)
        state.pod_events.note(None, pod("x", "n"), 0)
        assert list(state.question().pod_events) == told


# ---------------------------------------------------------------- what came of commands


def test_what_a_command_promises() -> None:
    """A command promises its savings and its moving pods by first owner; a successor's promises nothing."""
    state = state_of()
    two = msgspec.structs.replace(
        pod("x", "a").metadata,
        owner_references=(
            OwnerReference(kind="ReplicaSet", name="p", uid="p"), OwnerReference(kind="ReplicaSet", name="q", uid="q")
        ),
    )  # fmt: skip
    for item in (
        msgspec.structs.replace(pod("x", "a"), metadata=two), pod("alone", "a", ""), pod("ended", "a", phase="Failed"),
        pod("daemon", "a", "ds", kind="DaemonSet"),
    ):  # fmt: skip
        state.store.observe(item)
    found = run("found")
    state.promise(found)
    assert state.outcomes._watched == {}
    made = run("c")
    made.command = Command(action=Action.DELETE_COST, method=Method.SINGLE_NODE, nodes=("a",), savings=10**18 // 2)
    state.promise(made)
    watched = state.outcomes._watched["c"]
    assert (watched.promised, watched.pods, watched.owners, watched.pools) == (0.5, 2, {"p": 1, "": 1}, ("web",))


LAUNCHED = {names.INSTANCE_TYPE: "m", names.ZONE: "z1", names.CAPACITY_TYPE: "spot", names.NODEPOOL: "web"}


@pytest.mark.parametrize(
    ("labels", "case", "saved"),
    [
        (LAUNCHED, "", 0.9),
        ({**LAUNCHED, names.NODEPOOL: "two"}, "", 1.0),
        ({names.NODEPOOL: "web"}, "", 1.0),
        ({**LAUNCHED, names.INSTANCE_TYPE: "unknown"}, "", 1.0),
        (LAUNCHED, "ours", 1.0),
        (LAUNCHED, "listed", 1.0),
        (LAUNCHED, "known before", 1.0),
        (LAUNCHED, "gone", 0.9),
    ],
)
def test_nodes_that_are_opened_are_charged(labels: dict[str, str], case: str, saved: float) -> None:
    """Nodes that a provisioner opens after the first view are charged at their price."""
    state = state_of()
    state.outcomes.begin("c", Action.DELETE_COST, ("web",), 1.0, (), NOW)
    state.outcomes.end("c", 0, well=True)
    item = claim("n", **labels)
    if case == "ours":
        marked = msgspec.structs.replace(item.metadata, annotations={names.HOLD: "true"})
        state.note_claim(msgspec.structs.replace(item, metadata=marked))
    elif case == "listed":
        state.is_synced = False
        state.note_claim(item)
    elif case == "known before":
        state.store.observe(claim("n"))
        state.note_claim(item)
    else:
        state.note_claim(item)
        if case == "gone":
            state.lose_claim("n", "n")
            state.note_claim(claim("m"))
            state.lose_claim("m", "m")
            assert not state.outcomes.is_coming("m")
    assert state.outcomes.is_coming("n") == (names.INSTANCE_TYPE not in labels)
    [found] = state.outcomes.due(HOUR)
    assert found.saved == pytest.approx(saved)
    of_web = labels.get(names.NODEPOOL) == "web" and names.INSTANCE_TYPE in labels
    assert found.reopened == (1 if case in ("", "gone") and of_web else 0)


def test_the_end_of_a_replacement_is_noted_unseen() -> None:
    """The end of an unseen replacement is recorded for its command; a known uid stays."""
    state = state_of()
    state.runs["c"], state.runs["d"] = run("c", replacements=("r",)), run("d", replacements=("s",), seen={"s": "old"})
    state.lose_claim("r", "u")
    state.lose_claim("s", "u")
    assert (state.runs["c"].seen, state.runs["d"].seen) == ({"r": "u"}, {"s": "old"})


# ---------------------------------------------------------------- time ends things


def test_what_time_ends_may_change_decisions() -> None:
    """The end of a memory makes the engine look for marks again; a lingering node that is gone is nominated no more."""
    state = state_of()
    state.marks_seen = 5
    state.expire()
    assert state.marks_seen == 5
    state.pacing.ended["c"] = 10
    state.regrowth.waits.failed("web", 0, 20)
    for at, ended in ((9, False), (10, True), (10, False), (19, False), (20, True)):
        state.elapsed, state.marks_seen = at, 5
        state.expire()
        assert (state.marks_seen is None) == ended
    state.pacing.lingering["r"] = 10**18
    state.store.observe(claim("r"))
    state.expire()
    assert state.lingering == ("r",)
    state.store.vanish("NodeClaim", "", "r")
    state.expire()
    assert state.lingering == ()


def test_pods_that_have_landed_end_the_pause_of_cost_commands() -> None:
    """A landing ends the pause of cost commands only, in the pools that it touched."""
    state = state_of(replace(DOVETAIL, stabilization_ends=StabilizationEnds.LANDED))
    windows, scope = Stabilization(), StabilizationScope.POOL
    for name, method in (("a", Method.DRIFTED), ("b", Method.MULTI_NODE), ("c", Method.SINGLE_NODE)):
        state.stabilization.finished(method, Footprint(pools=(name,)), windows, scope, 0)
    state.landing.begin(run("x"), state.store)
    state.landing.end("x", 0, 10**18, ("a", "b"))
    state.elapsed = 30 * SECOND
    state.expire()
    assert list(state.stabilization.pools(("a", "b", "c"), state.elapsed)) == ["a", "c"]


@pytest.mark.parametrize(("ends", "seconds"), [(StabilizationEnds.WINDOW, 600), (StabilizationEnds.LANDED, 300)])
def test_a_cost_action_that_did_not_hold_is_reported(ends: StabilizationEnds, seconds: int) -> None:
    """The report says how long the pool waits; the wait depends on the lost savings."""
    state = state_of(replace(DOVETAIL, stabilization_ends=ends))
    state.store.observe(replica_set("rs", 1))
    state.store.observe(pod("x", "a"))
    made = run("c")
    made.command = Command(action=Action.DELETE_COST, method=Method.SINGLE_NODE, nodes=("a",), savings=2 * 10**17)
    state.regrowth.begin(made, state.store)
    state.store.vanish("Pod", "d", "x")
    tree = msgspec.to_builtins(claim("new", **LAUNCHED))
    tree["status"] = {"nodeName": "b"}
    state.store.observe(msgspec.convert(tree, NodeClaim, strict=False))
    state.store.observe(pod("y", "b"))
    state.regrowth.end(made, 0, well=True)
    state.elapsed, state.out = 60 * SECOND, []
    state.expire()
    assert state.out == [CostActionUndone(pool="web", failures=1, seconds=seconds)]


def test_losing_the_lead_forgets_what_belongs_to_acting() -> None:
    """An engine that loses leadership forgets its commands and keeps the backoff of pools."""
    state = state_of()
    state.store.observe(pool(disruption={"health": {"movedPodsReadyWithin": "90s"}}))
    state.store.observe(msgspec.convert({"metadata": {"name": "a"}}, Node, strict=False))
    made = run("c")
    made.command = Command(action=Action.DELETE_COST, method=Method.SINGLE_NODE, nodes=("a",))
    state.runs["c"], state.marks_seen = made, 3
    state.regrowth.begin(made, state.store)
    state.landing.begin(made, state.store)
    state.aftercare.begin(made, state.store, state.ready_within)
    state.waste.update({"a": 5}, state.store, NOW)
    state.promise(made)
    state.pacing.launches.failed("web", 0)
    books = (
        state.regrowth._watched, state.landing._moved, state.aftercare._moved, state.waste._wasted,
        state.outcomes._watched,
    )  # fmt: skip
    assert [len(book) for book in books] == [1, 1, 1, 1, 1]
    state.forget_commands()
    kept = (
        state.regrowth._watched, state.landing._moved, state.aftercare._moved, state.waste._wasted,
        state.outcomes._watched, state.runs,
    )  # fmt: skip
    assert [len(book) for book in kept] == [0, 0, 0, 0, 0, 0]
    assert (state.marks_seen, state.pacing.launches.failures("web")) == (None, 1)


# ---------------------------------------------------------------- holds


def node(name: str, of: str = "web", *, leaving: bool = False, **annotations: str) -> Node:
    """Return a Node."""
    meta: dict[str, Any] = {"name": name, "labels": {names.NODEPOOL: of} if of else {}, "annotations": annotations}
    if leaving:
        meta["deletionTimestamp"] = "2026-05-11T12:00:00Z"
    return msgspec.convert({"metadata": meta}, Node, strict=False)


def ours(of: str) -> bool:
    """Return whether a pool is managed."""
    return of == "web"


HELD = {names.HOLD: "true", names.DO_NOT_DISRUPT: "true"}


@pytest.mark.parametrize(
    ("item", "asked"),
    [
        (node("a"), HoldNode(id="hold/a", node="a")),
        (node("a", **HELD), None),
        (node("a", **{names.DO_NOT_DISRUPT: "true"}), None),
        (node("a", **{names.HOLD: "true"}), HoldNode(id="hold/a", node="a")),
        (node("a", leaving=True), None),
        (node("a", "other"), None),
        (node("a", "other", **HELD), ReleaseNode(id="release/a", node="a")),
        (node("a", "other", leaving=True, **HELD), None),
        (node("a", "", **HELD), None),
        (node("a", "other", **{names.DO_NOT_DISRUPT: "true"}), None),
    ],
)
def test_what_a_node_needs(item: Node, asked: object) -> None:
    """A managed node needs a hold, an unmanaged one a release; marked and leaving nodes need neither."""
    store, holds = Store(), Holds()
    store.observe(item)
    assert holds.wanted(store, ours, 0) == []
    holds.look_at("a")
    assert holds.wanted(store, ours, 0) == ([] if asked is None else [asked])
    assert holds.is_open == (asked is not None)
    assert holds.next_at() == (None if asked is None else 30 * SECOND)


def test_holds_are_asked_for_again_when_they_are_due() -> None:
    """All open holds are retried when due; a hold that is no longer needed is dropped."""
    store, holds = Store(), Holds()
    for name in ("a", "b"):
        store.observe(node(name))
        holds.look_at(name)
    assert len(holds.wanted(store, ours, 0)) == 2
    assert not holds.answer(InstructionSucceeded(id="hold/z"), 0)
    assert holds.answer(InstructionFailed(id="hold/a", failure=Failure.THROTTLED), SECOND)
    assert holds.next_at() == 6 * SECOND
    assert holds.answer(InstructionFailed(id="hold/b", failure=Failure.FORBIDDEN), SECOND)
    assert holds.next_at() == 6 * SECOND
    assert holds.wanted(store, ours, 6 * SECOND - 1) == []
    assert [order.node for order in holds.wanted(store, ours, 6 * SECOND)] == ["a"]
    assert holds.next_at() == 31 * SECOND
    store.observe(node("a", **HELD))
    holds.look_at("a")
    assert holds.wanted(store, ours, 7 * SECOND) == []
    assert holds.is_open
    store.vanish("Node", "", "b")
    holds.look_at("b")
    assert holds.wanted(store, ours, 8 * SECOND) == []
    assert not holds.is_open
    store.observe(node("b"))
    holds.look_at("b")
    assert [order.id for order in holds.wanted(store, ours, 8 * SECOND)] == ["hold/b"], "as if for the first time"


def test_a_node_that_changes_sides_is_asked_for_the_other() -> None:
    """A node that changes between hold and release is handled at once each time."""
    store, holds = Store(), Holds()
    store.observe(node("a", **{names.HOLD: "true"}))
    asked = []
    for managed in (True, False, True, False):
        holds.look_at("a")
        asked += [order.id for order in holds.wanted(store, lambda of, m=managed: m, 0)]  # type: ignore[misc]
    assert asked == ["hold/a", "release/a", "hold/a", "release/a"]


# ---------------------------------------------------------------- conditions


def unreadable(name: str, told: str = "", budget: str = "many") -> NodePool:
    """Return a pool with a budget, and the condition that it had before."""
    conditions = [{"type": POLICY_READABLE, "status": "False", "message": told}] if told else []
    tree = {
        "metadata": {"name": name},
        "spec": {"disruption": {"budgets": [{"nodes": budget}]}},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(tree, NodePool, strict=False)


def test_conditions_are_asked_for_again_until_they_are_told() -> None:
    """A condition is retried until it is written; a deleted pool needs none."""
    store, conditions = Store(), Conditions()
    for name in ("web", "two"):
        store.observe(unreadable(name))
        conditions.look_at(name)
    assert conditions.next_at() is None
    first, second = conditions.wanted(store, DOVETAIL, lambda of: True, 0)
    assert (first.node_pool, second.node_pool) == ("two", "web")
    assert first.id.startswith("condition/two/False/")
    assert len(first.id.rpartition("/")[2]) == 10
    assert conditions.next_at() == 30 * SECOND
    assert conditions.answer(InstructionFailed(id=first.id, failure=Failure.CONFLICT), 0)
    assert conditions.answer(InstructionSucceeded(id=second.id), 0)
    assert not conditions.answer(InstructionSucceeded(id="other"), 0)
    assert conditions.next_at() == SECOND
    conditions.look_at("two")
    assert conditions.wanted(store, DOVETAIL, lambda of: True, SECOND - 1) == [], "a failure's pause stays"
    assert conditions.wanted(store, DOVETAIL, lambda of: True, SECOND) == [first]
    conditions.look_at("web")
    assert conditions.wanted(store, DOVETAIL, lambda of: True, SECOND) == [second], "told before, and taken off since"
    store.vanish("NodePool", "", "two")
    store.vanish("NodePool", "", "web")
    assert conditions.wanted(store, DOVETAIL, lambda of: True, 10**18) == []
    assert conditions.next_at() is None


def test_long_words_are_cut() -> None:
    """The condition of a pool with many problems is cut after a thousand characters."""
    store, conditions = Store(), Conditions()
    tree = {"metadata": {"name": "web"}, "spec": {"disruption": {"budgets": [{"nodes": "many"}] * 40}}}
    store.observe(msgspec.convert(tree, NodePool, strict=False))
    conditions.look_at("web")
    [order] = conditions.wanted(store, DOVETAIL, lambda of: True, 0)
    assert len(order.message) == 1000


# ---------------------------------------------------------------- the engine


def leading(settings: Settings = DOVETAIL, role: EngineRole | None = None, **plan: Any) -> Engine:
    """Return a leading engine that has seen an empty cluster; `plan` is its steering plan."""
    planner = ScriptedPlanner()
    found = Found(steering=SteeringPlan(**plan))
    planner.round = lambda question: found  # type: ignore[method-assign]
    engine = Engine(settings, EMPTY_CATALOGUE, role or EngineRole(), decider=planner)
    for event in (Synced(), LeadershipGained()):
        engine.handle(event, NOW)
    return engine


@pytest.mark.parametrize("failure", Failure)
@pytest.mark.parametrize("step", ["evict", "surge", "taint"])
def test_a_missing_right_is_remembered(failure: Failure, step: str) -> None:
    """A forbidden eviction or rollout is not tried for a minute; other failures do not count."""
    engine, made = leading(), run("c")
    asks = {"evict": EvictPod, "surge": SurgeDeployment, "taint": TaintNode}[step]
    made.attempts.ask(f"c/{step}/d/x", 0, what=asks)
    engine._state.runs["c"] = made
    engine.handle(InstructionFailed(id=f"c/{step}/d/x", failure=failure), NOW + timedelta(seconds=5))
    state, until = engine._state, 65 * SECOND
    forbidden = failure is Failure.FORBIDDEN
    assert state.evictions_from == (until if forbidden and step == "evict" else 0)
    assert state.surges_from == (until if forbidden and step == "surge" else 0)


@pytest.mark.parametrize("case", ["acts", "observes", "follows", "off", "off, but marked"])
def test_who_steers(case: str) -> None:
    """An acting engine steers; if steering is off, it removes its marks."""
    settings = replace(DOVETAIL, steering=SteeringMode.OFF if case.startswith("off") else SteeringMode.PREFER)
    engine = leading(settings, EngineRole(observe=case == "observes"), closing=("n",))
    if case == "follows":
        engine.handle(LeadershipLost(), NOW)
    if case == "off, but marked":
        tree = {"metadata": {"name": "m"}, "spec": {"taints": [{"key": names.CLOSING_TAINT, "effect": "NoExecute"}]}}
        engine.handle(ObjectObserved(object=msgspec.convert(tree, Node, strict=False)), NOW)
    said = [
        item
        for seconds in (60, 120)
        for item in engine.handle(ClockAdvanced(), NOW + timedelta(seconds=seconds))
        if isinstance(item, CloseNode | OpenNode)
    ]
    expected = {"acts": [CloseNode], "off, but marked": [OpenNode]}.get(case, [])
    assert [type(item) for item in said][:1] == expected


def test_an_ignored_record_is_told_again_where_its_object_was_gone() -> None:
    """A new object with the same name and bad record is reported again."""
    engine = leading()
    item = msgspec.convert({"metadata": {"name": "n"}}, Node, strict=False)
    again = ObjectObserved(object=item, distrusted="it has no id")
    events = (again, again, ObjectVanished(kind="Node", namespace="", name="n"), again)
    told = [any(isinstance(said, RecordIgnored) for said in engine.handle(event, NOW)) for event in events]
    assert told == [True, False, False, True]
