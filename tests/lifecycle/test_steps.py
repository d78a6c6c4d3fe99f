"""When each step of a command is done, and what it requests until then."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.commands import irreversible, signals, steps
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import (
    Run,
)
from dovetail.lifecycle.commands.machine import Phase, Signal, Step
from dovetail.lifecycle.messages import (
    DeleteNodeClaim,
    EvictPod,
    Failure,
    InstructionFailed,
    SurgeDeployment,
)
from dovetail.model import names
from dovetail.model.command import Action, Command, Method
from dovetail.model.objects import AnyObject, Node, NodeClaim
from dovetail.scheduling.pods.surge import SURGE
from tests.support.command_cases import (
    DISRUPTED,
    STAMP,
    answered,
    candidate,
    claim,
    its_claim,
    node,
    run,
    view,
)
from tests.support.conversation import deployment, pod, pool, replica_set

# ---------------------------------------------------------------- steps


def done(step: Step, target: str, made: Run, *items: AnyObject, elapsed: int = 0, **more: Any) -> bool:
    """Return whether a step is done."""
    return steps.is_done(made, step, target, view(*items, elapsed=elapsed, **more))


HISTORY = json.dumps([{"at": STAMP, "nodes": 1, "reason": "Drifted", "command": "mine"}])


def test_note_and_forget_are_done() -> None:
    """The steps are done if seen on the pool or answered; a deleted pool or one without a rate needs none."""
    noted = pool(annotations={names.RECENT_DISRUPTIONS: HISTORY})
    wants = {"rate_span": lambda of: 5}
    made = run("a")
    assert done(Step.NOTE, "web", made, pool())
    assert not done(Step.NOTE, "web", made, pool(), **wants)
    assert done(Step.NOTE, "web", made, noted, **wants)
    assert done(Step.NOTE, "web", made, **wants)
    assert done(Step.NOTE, "web", answered(run("a"), "mine/note/web", ""), pool(), **wants)
    assert not done(Step.NOTE, "web", answered(run("a"), "mine/note/web", Failure.REFUSED), pool(), **wants)
    stays = (node("a"), its_claim("a"))
    assert done(Step.FORGET, "web", made, pool(), *stays)
    assert not done(Step.FORGET, "web", made, noted, *stays)
    assert done(Step.FORGET, "web", made, noted), "its node leaves: that counts"
    asked = answered(run("a"), "mine/note/web", None)
    assert not done(Step.FORGET, "web", asked, pool(), *stays), "the note may still land"
    for answer, over in (("", True), (Failure.FORBIDDEN, True), (Failure.REFUSED, True), (Failure.CONFLICT, False)):
        forgot = answered(answered(run("a"), "mine/note/web", None), "mine/forget/web", answer)
        assert done(Step.FORGET, "web", forgot, pool(), *stays) == over
    other = run("a", "b")
    other.candidates = (candidate("a"), candidate("b", "two"))
    assert not done(Step.FORGET, "web", other, noted, *stays), "another pool's node leaves"
    unreadable = pool(annotations={names.RECENT_DISRUPTIONS: "junk"})
    assert not done(Step.NOTE, "web", made, unreadable, **wants)


@pytest.mark.parametrize(
    ("item", "answer", "over"),
    [
        (None, None, True),
        (node("a"), None, False),
        (node("a", DISRUPTED, of="mine"), None, True),
        (node("a", DISRUPTED), None, False),
        (node("a", of="mine"), None, False),
        (node("a", DISRUPTED, of="theirs"), None, False),
        (node("a"), "", True),
        (node("a"), Failure.NOT_FOUND, True),
        (node("a"), Failure.CONFLICT, False),
    ],
)
def test_taint_is_done(item: Node | None, answer: Failure | str | None, over: bool) -> None:
    """A taint is done if both marks are seen or it was answered; a deleted node needs none."""
    made = run("a")
    if answer is not None:
        answered(made, "mine/taint/a", answer)
    assert done(Step.TAINT, "a", made, *([] if item is None else [item])) == over


@pytest.mark.parametrize(
    ("items", "asked", "answer", "seen", "over"),
    [
        ((), False, None, False, True),
        ((node("a", leaving=True, of="mine"),), True, None, False, True),
        ((node("a", DISRUPTED, of="mine"), its_claim("a")), True, None, True, False),
        ((node("a", DISRUPTED, of="mine"), its_claim("a", leaving=True)), True, None, True, True),
        ((node("a", DISRUPTED, of="mine"),), True, None, True, False),
        ((node("a", DISRUPTED, of="theirs"), its_claim("a")), True, None, False, True),
        ((node("a", DISRUPTED, of="theirs"),), True, None, False, False),
        ((node("a"), its_claim("a")), False, None, False, True),
        ((node("a"), its_claim("a")), True, None, False, False),
        ((node("a"), its_claim("a")), True, None, True, True),
        ((node("a", DISRUPTED, of="mine"), its_claim("a")), True, "", True, True),
        ((node("a", DISRUPTED, of="mine"), its_claim("a")), True, Failure.NOT_FOUND, True, True),
        ((node("a", DISRUPTED, of="mine"), its_claim("a")), True, Failure.REFUSED, True, False),
    ],
)
def test_untaint_is_done(
    items: tuple[AnyObject, ...], asked: bool, answer: Failure | str | None, seen: bool, over: bool
) -> None:
    """Leaving nodes keep their taint, another command's taint stays, and a late taint is waited for."""
    made = run("a", tainted={"a": None} if seen else {})
    if asked:
        answered(made, "mine/taint/a", None)
    if answer is not None:
        answered(made, "mine/untaint/a", answer)
    assert done(Step.UNTAINT, "a", made, *items) == over


@pytest.mark.parametrize(
    ("item", "answer", "phase", "over"),
    [
        (None, None, Phase.DELETING, True),
        (its_claim("a"), None, Phase.DELETING, False),
        (its_claim("a", leaving=True), None, Phase.DRAINING, True),
        (its_claim("a"), "u-a", Phase.DELETING, True),
        (its_claim("a"), "u-a", Phase.DRAINING, False),
        (its_claim("a"), Failure.NOT_FOUND, Phase.DELETING, True),
        (its_claim("a"), Failure.NOT_FOUND, Phase.DRAINING, False),
        (its_claim("a"), Failure.CONFLICT, Phase.DELETING, False),
    ],
)
def test_delete_is_done(item: NodeClaim | None, answer: Failure | str | None, phase: Phase, over: bool) -> None:
    """While draining, a deletion counts only if it was seen."""
    made = run("a", phase=phase)
    if answer is not None:
        answered(made, "mine/delete/c-a", answer)
    assert done(Step.DELETE, "a", made, *([] if item is None else [item])) == over


REASON = [(names.CONDITION_DISRUPTION_REASON, "True", "Drifted")]


@pytest.mark.parametrize(
    ("item", "asked", "answer", "phase", "over"),
    [
        (None, "", None, Phase.DELETING, True),
        (its_claim("a"), "", None, Phase.DELETING, False),
        (its_claim("a"), "attribute-at-once", None, Phase.DELETING, True),
        (its_claim("a"), "attribute", "", Phase.DELETING, False),
        (None, "", None, Phase.DRAINING, True),
        (its_claim("a"), "", None, Phase.DRAINING, True),
        (its_claim("a", leaving=True), "", None, Phase.DRAINING, False),
        (its_claim("a", leaving=True, conditions=REASON), "", None, Phase.DRAINING, True),
        (its_claim("a", leaving=True), "attribute", "", Phase.DRAINING, True),
        (its_claim("a", leaving=True), "attribute-at-once", "", Phase.DRAINING, False),
        (its_claim("a", leaving=True), "attribute", Failure.NOT_FOUND, Phase.DRAINING, True),
        (its_claim("a", leaving=True), "attribute", Failure.REFUSED, Phase.DRAINING, True),
        (its_claim("a", leaving=True), "attribute", Failure.CONFLICT, Phase.DRAINING, False),
    ],
)
def test_attribute_is_done(
    item: NodeClaim | None, asked: str, answer: Failure | str | None, phase: Phase, over: bool
) -> None:
    """The attribution is required once with the deletion, then best effort while the claim leaves."""
    made = run("a", phase=phase)
    if asked:
        answered(made, f"mine/{asked}/c-a", answer)
    assert done(Step.ATTRIBUTE, "a", made, *([] if item is None else [item])) == over


@pytest.mark.parametrize(
    ("items", "answer", "over"),
    [
        ((), None, True),
        ((claim("r", of="mine"),), None, False),
        ((claim("r"),), None, True),
        ((claim("r", of="theirs"),), None, True),
        ((claim("r", on="n"), node("n", of="mine")), None, False),
        ((claim("r", on="n"), node("n", of="theirs")), None, True),
        ((claim("r", on="n"), node("n")), None, True),
        ((claim("r", on="n"),), None, True),
        ((claim("r", on="n", of="mine"), node("n")), None, False),
        ((claim("r", of="mine"),), "", True),
        ((claim("r", of="mine"),), Failure.NOT_FOUND, True),
        ((claim("r", of="mine"),), Failure.REFUSED, False),
    ],
)
def test_clear_is_done(items: tuple[AnyObject, ...], answer: Failure | str | None, over: bool) -> None:
    """The record must be cleared from the claim and from its node."""
    made = run("a", replacements=("r",))
    if answer is not None:
        answered(made, "mine/clear/r", answer)
    assert done(Step.CLEAR, "r", made, *items) == over


@pytest.mark.parametrize(
    ("items", "created", "deleted", "seen", "over"),
    [
        ((), None, None, False, True),
        ((claim("r", of="mine"),), None, None, True, False),
        ((claim("r", of="mine", leaving=True),), None, None, True, True),
        ((claim("r", of="mine"),), "uid-r", "uid-r", True, True),
        ((claim("r", of="mine"),), "uid-r", Failure.NOT_FOUND, True, True),
        ((claim("r", of="mine"),), "uid-r", Failure.CONFLICT, True, False),
        ((), "uid-r", None, True, True),
        ((), "uid-r", None, False, False),
        ((), Failure.REFUSED, None, False, True),
        ((), Failure.NOT_FOUND, None, False, True),
        ((), Failure.UNREACHABLE, None, False, False),
        ((), "", None, False, False),
        ((claim("r", of="theirs"),), Failure.UNREACHABLE, None, False, False),
    ],
)
def test_undoing_a_replacement_is_done(
    items: tuple[AnyObject, ...], created: Failure | str | None, deleted: Failure | str | None, seen: bool, over: bool
) -> None:
    """A replacement must be deleted or leaving; one with an unanswered creation is waited for."""
    made = run("a", replacements=("r",), seen={"r": "uid-r"} if seen else {})
    if created is not None:
        answered(made, "mine/create/r", created)
    if deleted is not None:
        answered(made, "mine/delete/r", deleted)
    assert done(Step.DELETE_REPLACEMENTS, "r", made, *items) == over
    if created in (Failure.UNREACHABLE, ""):
        again = made.attempts.get("mine/create/r")
        assert again is not None
        assert not done(Step.DELETE_REPLACEMENTS, "r", made, *items, elapsed=again.again_at - 1)
        assert done(Step.DELETE_REPLACEMENTS, "r", made, *items, elapsed=again.again_at)


READY = [(names.CONDITION_INITIALIZED, "True", "")]


@pytest.mark.parametrize(
    ("conditions", "moved", "kept"),
    [([], "evict", False), (READY, "", False), (READY, "evict", True), (READY, "evict unknown", True),
     (READY, "evict failed", False), (READY, "surge", True), (READY, "surge unknown", True),
     (READY, "surge failed", False), (READY, "delete unknown", True), (READY, "delete failed", False),
     (READY, "leaving", True), (READY, "evicted before", True), (READY, "occupied", True), ([], "occupied", True)],
)  # fmt: skip
def test_which_replacement_a_roll_back_keeps(conditions: list[Any], moved: str, kept: bool) -> None:
    """A rollback keeps a ready replacement that may have pods, or that the last look found in use."""
    made = run("a", phase=Phase.ROLLING_BACK, replacements=("r",))
    idents = {"evict": "mine/evict/d/p/u", "surge": "mine/surge/d/app", "delete": "mine/delete/c-a"}
    what, _, how = moved.partition(" ")
    if what in idents:
        answer: Failure | str = {"": "", "unknown": Failure.UNREACHABLE, "failed": Failure.REFUSED}[how]
        answered(made, idents[what], answer, what={"evict": EvictPod, "surge": SurgeDeployment}.get(what))
    if what == "evicted":
        made.evicted_before = ("d/p",)
    if what == "occupied":
        answered(made, "mine/delete/r", Failure.OCCUPIED)
    items = [node("a"), claim("r", of="mine", conditions=conditions)]
    seen = view(*items, *([] if moved == "leaving" else [its_claim("a")]))
    assert irreversible.keeps(made, "r", seen) == kept
    wanted = [step for step, target in steps.open_steps(made, seen) if target == "r"]
    assert wanted == [Step.CLEAR if kept else Step.DELETE_REPLACEMENTS]


def test_one_node_that_leaves_is_enough() -> None:
    """If one node is leaving, the rollback keeps the replacements and the pool's history."""
    made = run("a", "b", phase=Phase.ROLLING_BACK, replacements=("r",))
    answered(made, "mine/note/web", None)
    items = (node("a"), node("b"), its_claim("b"), claim("r", of="mine", conditions=READY))
    assert irreversible.keeps(made, "r", view(*items))
    assert done(Step.FORGET, "web", made, *items, pool())
    assert not irreversible.keeps(made, "r", view(*items, its_claim("a")))
    assert not done(Step.FORGET, "web", made, *items, its_claim("a"), pool())


def test_one_pool_that_refuses_its_note_is_enough() -> None:
    """One of two pools that refuses its history entry stops the command."""
    made = run("a", phase=Phase.NOTING, deadline=10**18)
    made.candidates = (candidate("a"), candidate("b", "two"))
    answered(made, "mine/note/two", Failure.REFUSED)
    seen = view(node("a"), its_claim("a"), pool(), pool("two"), rate_span=lambda of: 1, manages=lambda of: True)
    assert signals.signal(made, seen) is Signal.INSTRUCTION_REFUSED


def test_evictions_are_no_open_steps() -> None:
    """Evictions run one by one and are not open steps."""
    made = run("a", phase=Phase.EVICTING, replacements=("r",))
    assert list(steps.open_steps(made, view(pod("y", "a"), evicts=True))) == []


def test_what_a_deletion_says() -> None:
    """A deletion carries the objections of pods that its command's gates respect."""

    def asked(made: Run, *items: AnyObject, **more: Any) -> DeleteNodeClaim:
        found = [
            order for order in steps.instructions(made, view(*items, **more)) if isinstance(order, DeleteNodeClaim)
        ]
        return found[0]

    items = (node("a"), its_claim("a"), pool())
    bounded = msgspec.to_builtins(its_claim("a"))
    bounded["spec"] = {"terminationGracePeriod": "1h"}
    bound = msgspec.convert(bounded, NodeClaim, strict=False)
    plain = asked(run("a", phase=Phase.DELETING), *items)
    assert plain == DeleteNodeClaim(id="mine/delete/c-a", command_id="mine", name="c-a", uid="u-a", node="a")
    empty = {"phase": Phase.DELETING, "action": Action.DELETE_EMPTY, "method": Method.EMPTY}
    assert asked(run("a", **empty), *items).only_empty
    moved = Command(action=Action.DELETE_EMPTY, method=Method.EMPTY, nodes=("a",), pods=1)
    assert not asked(run("a", **empty, command=moved), *items).only_empty
    assert asked(run("a", **empty, command=replace(moved, pods=0)), *items).only_empty
    for method, spares in ((Method.DRIFTED, False), (Method.UNHEALTHY, False), (Method.SINGLE_NODE, True)):
        assert asked(run("a", phase=Phase.DELETING, method=method), node("a"), bound).spares_protected == spares
        assert asked(run("a", phase=Phase.DELETING, method=method), *items).spares_protected
    for method, drain in ((Method.UNHEALTHY, 7), (Method.DRIFTED, None)):
        order = asked(run("a", phase=Phase.DELETING, method=method), *items, drain_for=lambda of, item: 7)
        assert (order.drain_for, order.spares_protected) == (drain, drain is None)
    sick = run("a", phase=Phase.DELETING, method=Method.UNHEALTHY)
    assert asked(sick, its_claim("a"), pool(), drain_for=lambda of, item: 7).drain_for is None
    sick = run("a", phase=Phase.DELETING, method=Method.UNHEALTHY)
    assert asked(sick, node("a"), its_claim("a"), drain_for=lambda of, item: 7).drain_for is None
    rolls = (deployment("app", **{SURGE: "true"}), replica_set("app-1", of="app"))
    assert asked(run("a", phase=Phase.DELETING), *items, *rolls).roll_first == (("d", "app-1"),)
    assert asked(run("a", phase=Phase.DELETING), *items, *rolls, surges=False).roll_first == ()


def test_instructions_are_asked_for_when_they_are_due() -> None:
    """All open instructions are sent when due; the earliest sets the next check."""
    made = run("a", "b", phase=Phase.TAINTING)
    items = (node("a"), node("b"), its_claim("a"), its_claim("b"))
    assert [order.id for order in steps.instructions(made, view(*items))] == ["mine/taint/a", "mine/taint/b"]
    assert made.retry_at == 30 * SECOND
    made.attempts.answer(InstructionFailed(id="mine/taint/b", failure=Failure.CONFLICT), SECOND)
    assert steps.instructions(made, view(*items, elapsed=SECOND)) == []
    assert made.retry_at == 2 * SECOND
    assert [order.id for order in steps.instructions(made, view(*items, elapsed=2 * SECOND))] == ["mine/taint/b"]
    assert made.retry_at == 30 * SECOND
    assert steps.instructions(run("a", phase=Phase.DONE), view(*items)) == []
    undone = run("a", phase=Phase.ROLLING_BACK, replacements=("r",))
    answered(undone, "mine/create/r", None)
    assert steps.instructions(undone, view(*items[:1], its_claim("a"))) == [], "it may still land; its uid is unknown"
    assert undone.retry_at == 30 * SECOND
    told = run("a", phase=Phase.ROLLING_BACK, replacements=("r",))
    answered(told, "mine/create/r", "uid-r")
    [order] = steps.instructions(told, view(node("a"), its_claim("a")))
    replaced = (("c-a", "u-a"),)
    undo = DeleteNodeClaim(id="mine/delete/r", command_id="mine", name="r", uid="uid-r", undo=True, candidates=replaced)
    assert order == undo
