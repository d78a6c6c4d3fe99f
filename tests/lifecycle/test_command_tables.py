"""What is read off the store of one command, case by case: objects, signals, steps, evictions, plans, left-overs."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.commands import evictions, flight, resume, signals, steps, surging
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import (
    LINGER,
    Run,
    View,
    carries_or_made,
    hands_off,
    has_vanished,
    is_anothers,
    is_gone,
    is_initialized,
    is_leaving,
    launch_failure,
    look,
    replacement,
    waits_for_drains,
)
from dovetail.lifecycle.commands.last_look import objection
from dovetail.lifecycle.commands.machine import Phase, Signal, Step, diagram, page
from dovetail.lifecycle.commands.records import (
    Candidate,
    Record,
    carries,
    command_id,
    decode_record,
    encode_record,
    is_tainted,
    read_record,
    replacement_names,
)
from dovetail.lifecycle.commands.seal import Seal, admit
from dovetail.lifecycle.messages import (
    ClearRecord,
    DeleteNodeClaim,
    EvictPod,
    Failure,
    InstructionFailed,
    InstructionSucceeded,
    ObjectObserved,
    UntaintNode,
)
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Command, Method, Placement, Replacement
from dovetail.model.objects import AnyObject, Node, NodeClaim, Pod
from dovetail.scheduling.pods.surge import SURGE
from tests.support.conversation import deployment, pod, pool, replica_set

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)
STAMP = "2026-05-11T12:00:00Z"
DISRUPTED = {"key": names.DISRUPTION_TAINT, "value": names.DISRUPTION_TAINT_VALUE, "effect": "NoSchedule"}
OTHER = {"key": "team", "value": "blue", "effect": "NoSchedule"}


def candidate(name: str, of: str = "web") -> Candidate:
    """Return a candidate whose claim is `c-NAME` with the uid `u-NAME`."""
    return Candidate(node=name, claim=f"c-{name}", uid=f"u-{name}", pool=of)


def run(*nodes: str, phase: Phase = Phase.TAINTING, method: Method = Method.SINGLE_NODE, **more: Any) -> Run:
    """Return a command on these nodes."""
    return Run(
        id=more.pop("id", "mine"),
        action=more.pop("action", Action.DELETE_COST),
        method=method,
        candidates=tuple(map(candidate, nodes)),
        phase=phase,
        began=NOW,
        **more,
    )


def record(ident: str = "mine", *nodes: str, since: datetime = NOW, replacements: tuple[str, ...] = ()) -> str:
    """Return a command's record."""
    return encode_record(
        Record(
            id=ident,
            action=Action.DELETE_COST,
            method=Method.SINGLE_NODE,
            phase="tainting",
            since=since,
            nodes=tuple(map(candidate, nodes)),
            replacements=replacements,
            pools=("web",) * len(replacements),
        )
    )


def node(name: str, *taints: dict[str, str], of: str = "", leaving: bool = False, **annotations: str) -> Node:
    """Return a Node; `of`: the command whose record it carries."""
    notes = {**annotations, **({names.COMMAND: record(of, name)} if of else {})}
    meta: dict[str, Any] = {"name": name, "annotations": notes, "labels": {names.NODEPOOL: "web"}}
    if leaving:
        meta["deletionTimestamp"] = STAMP
    return msgspec.convert({"metadata": meta, "spec": {"taints": taints}}, Node, strict=False)


def claim(name: str, uid: str = "", on: str = "", **parts: Any) -> NodeClaim:
    """Return a NodeClaim; `of`: the command whose record it carries."""
    notes = dict(parts.get("annotations", {}))
    if parts.get("of"):
        notes[names.COMMAND] = record(parts["of"])
    meta: dict[str, Any] = {"name": name, "uid": uid or f"uid-{name}", "annotations": notes}
    if parts.get("leaving"):
        meta["deletionTimestamp"] = STAMP
    conditions = [
        {"type": kind, "status": status, "reason": reason} for kind, status, reason in parts.get("conditions", ())
    ]
    status = {"nodeName": on, "providerID": parts.get("provider", ""), "conditions": conditions}
    return msgspec.convert({"metadata": meta, "status": status}, NodeClaim, strict=False)


def its_claim(name: str, **parts: Any) -> NodeClaim:
    """Return the claim of a candidate."""
    return claim(f"c-{name}", parts.pop("uid", f"u-{name}"), name, **parts)


def view(*items: AnyObject, elapsed: int = 0, **more: Any) -> View:
    """Return a view of these objects."""
    store = Store()
    for item in items:
        store.observe(item)
    fields: dict[str, Any] = {"replacement_timeout": 60 * SECOND, "launch_timeout": 30 * SECOND, **more}
    fields.setdefault("manages", lambda of: of == "web")
    return View(store=store, elapsed=elapsed, now=NOW, **fields)


def answered(made: Run, ident: str, answer: Failure | str | None, at: int = 0) -> Run:
    """Ask for something; `answer`: how it failed, or the uid of a success; None: nobody answers."""
    made.attempts.ask(ident, at)
    if isinstance(answer, Failure):
        made.attempts.answer(InstructionFailed(id=ident, failure=answer), at)
    elif answer is not None:
        made.attempts.answer(InstructionSucceeded(id=ident, uid=answer), at)
    return made


# ---------------------------------------------------------------- records


def test_what_is_a_record() -> None:
    """Of a known version, with an id, and not longer than annotations may be."""
    good = record("mine", "a")
    assert decode_record(good) == read_record(good)
    assert read_record(good.replace('"v":1', '"v":2')) == "its version 2 is not known"
    assert read_record(good.replace('"v":1', '"v":0')) == "its version 0 is not known"
    assert read_record(record("")) == "it has no id"
    assert decode_record(record("")) is None
    longest = good[:-1] + " " * ((256 << 10) - len(good)) + "}"
    assert len(longest) == 256 << 10
    assert isinstance(read_record(longest), Record)
    assert read_record(longest + " ") == "it is longer than 262144 characters"
    assert decode_record("junk") is None


def test_who_carries_which_record() -> None:
    """By the id of the record."""
    assert carries(node("a", of="mine"), "mine")
    assert not carries(node("a", of="theirs"), "mine")
    assert not carries(node("a"), "mine")
    assert not carries(node("a", **{names.COMMAND: "junk"}), "mine")
    assert is_tainted(node("a", OTHER, DISRUPTED))
    assert not is_tainted(node("a", OTHER))
    assert not is_tainted(node("a"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web", "web-0123456789ab-0"),
        ("x" * 70, "x" * 48 + "-0123456789ab-0"),
        ("x" * 47 + "-" + "y" * 9, "x" * 47 + "-0123456789ab-0"),
    ],
)
def test_names_of_replacements(name: str, expected: str) -> None:
    """Of the pool, the command and a number; at most 63 characters."""
    command = Command(
        action=Action.REPLACE_COST,
        method=Method.SINGLE_NODE,
        nodes=("a",),
        replacements=(Replacement(node_pool=name, instance_types=()),),
    )
    assert replacement_names(command, "0123456789ab") == (expected,)
    assert len(command_id(command, ("u",), "one", NOW, 1)) == 12
    assert command_id(command, ("u",), "one", NOW, 1) != command_id(command, ("u",), "one", NOW, 2)


def test_the_machine_is_drawn() -> None:
    """Every transition is an arrow and a row."""
    assert '    state "validating" as VALIDATING' in diagram()
    assert "    FINISHING --> DONE: all records cleared\n" in diagram()
    assert "    DELETING --> DRAINING: all deletions begun / delete candidates, say why candidates leave\n" in diagram()
    assert "| finishing | all records cleared | done |  |\n" in page()


SEAL = Seal((b"the first key of all", b"the second key of all"))


def test_seal() -> None:
    """The first key seals, any opens; a key has sixteen bytes; a text that is no record stays as it is."""
    sealed = SEAL.sealed(record())
    assert isinstance(Seal((b"the first key of all",)).opened(sealed), Record)
    assert Seal((b"the second key of all",)).opened(sealed) == "its seal is not ours"
    assert isinstance(Seal((b"the second key of all", b"the first key of all")).opened(sealed), Record)
    assert SEAL.opened(record()) == "it is not sealed"
    assert SEAL.sealed("junk") == "junk"
    Seal((b"0123456789abcdef",))
    bad: tuple[tuple[bytes, ...], ...] = ((), (b"0123456789abcde",), (b"0123456789abcdef", b"short"))
    for keys in bad:
        with pytest.raises(ValueError, match="16 bytes"):
            Seal(keys)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (node("a", **{names.COMMAND: SEAL.sealed(record("mine", "a"))}), ""),
        (node("b", **{names.COMMAND: SEAL.sealed(record("mine", "a", "b"))}), ""),
        (node("b", **{names.COMMAND: SEAL.sealed(record("mine", "a"))}), "it does not name this Node"),
        (node("b", **{names.COMMAND: SEAL.sealed(record("mine", "a", replacements=("r",)))}), ""),
        (claim("r", annotations={names.COMMAND: SEAL.sealed(record(replacements=("r", "s")))}), ""),
        (claim("a", annotations={names.COMMAND: SEAL.sealed(record("mine", "a"))}), "it does not name this NodeClaim"),
        (node("a", **{names.COMMAND: record("mine", "a")}), "it is not sealed"),
        (node("a", x="y"), ""),
        (pod("a", annotations={names.COMMAND: "junk"}), ""),
    ],
)
def test_which_records_are_admitted(item: AnyObject, why: str) -> None:
    """Sealed ones on objects that they name; else the object comes without it, and with the reason."""
    event = admit(ObjectObserved(object=item), SEAL)
    assert event.distrusted == why
    if why:
        assert event.object.metadata.annotations == {}
    else:
        assert event.object is item


# ---------------------------------------------------------------- objects of a command


@pytest.mark.parametrize(
    ("items", "tainted", "gone"),
    [
        ((), False, True),
        ((its_claim("a"),), False, False),
        ((its_claim("a", uid="other"),), False, True),
        ((node("a", DISRUPTED, of="mine"), its_claim("a")), True, False),
        ((node("a"),), False, True),
        ((node("a"),), True, True),
        ((node("a", DISRUPTED, of="mine"),), False, False),
        ((node("a", of="mine"),), False, False),
        ((node("a", DISRUPTED),), True, False),
        ((node("a", DISRUPTED),), False, True),
        ((node("a", of="theirs"),), True, False),
        ((node("a", DISRUPTED, of="theirs"),), True, False),
    ],
)
def test_what_is_left_of_a_candidate(items: tuple[AnyObject, ...], tainted: bool, gone: bool) -> None:
    """Its claim, and its node with our mark, for a minute; another node under its name is not it."""
    made = run("a", tainted={"a": None} if tainted else {}, claim_gone_at={"a": 10 * SECOND})
    assert is_gone(made, candidate("a"), view(*items, elapsed=10 * SECOND + LINGER - 1)) == gone
    late = is_gone(made, candidate("a"), view(*items, elapsed=10 * SECOND + LINGER))
    assert late == (gone or not any(isinstance(item, NodeClaim) for item in items))
    assert is_gone(run("a", tainted=dict(made.tainted)), candidate("a"), view(*items, elapsed=LINGER)) == gone


@pytest.mark.parametrize(
    ("item", "answer", "leaving"),
    [
        (None, None, True),
        (its_claim("a"), None, False),
        (its_claim("a", uid="other"), None, True),
        (its_claim("a", leaving=True), None, True),
        (its_claim("a"), "u-a", True),
        (its_claim("a"), Failure.NOT_FOUND, True),
        (its_claim("a"), Failure.REFUSED, False),
    ],
)
def test_whether_a_deletion_has_begun(item: NodeClaim | None, answer: Failure | str | None, leaving: bool) -> None:
    """Seen, or told."""
    made = run("a")
    if answer is not None:
        answered(made, made.delete_id("c-a"), answer)
    assert is_leaving(made, candidate("a"), view(*([] if item is None else [item]))) == leaving


@pytest.mark.parametrize(
    ("item", "seen", "answer", "ours"),
    [
        (claim("r", of="mine"), "", None, True),
        (claim("r", of="theirs"), "", None, False),
        (claim("r"), "", None, False),
        (claim("r"), "uid-r", None, True),
        (claim("r"), "other", None, False),
        (claim("r"), "", "uid-r", True),
        (claim("r"), "", Failure.UNREACHABLE, False),
    ],
)
def test_which_replacement_is_ours(item: NodeClaim, seen: str, answer: Failure | str | None, ours: bool) -> None:
    """By its record, by its uid, or by the answer to its creation."""
    made = run("a", replacements=("r",), seen={"r": seen} if seen else {})
    if answer is not None:
        answered(made, made.create_id("r"), answer)
    assert carries_or_made(made, item) == ours
    seen_by = view(item)
    assert (replacement(made, "r", seen_by) is item) == ours
    assert has_vanished(made, "r", seen_by) == (bool(seen) and not ours)
    look(made, view(item, elapsed=7))
    assert made.seen_at == ({"r": 7} if ours else {})
    assert made.looked_at == 7


def test_a_replacement_that_goes_has_vanished() -> None:
    """Where it was seen before, or is being deleted."""
    made = run("a", replacements=("r",))
    assert not has_vanished(made, "r", view())
    assert has_vanished(made, "r", view(claim("r", of="mine", leaving=True)))
    assert not has_vanished(made, "r", view(claim("r", of="mine")))
    made.seen["r"] = "uid-r"
    assert has_vanished(made, "r", view())
    assert not is_initialized(made, "r", view())
    done = (names.CONDITION_INITIALIZED, "True", "")
    assert is_initialized(made, "r", view(claim("r", conditions=[done])))
    assert not is_initialized(made, "r", view(claim("r")))
    assert not is_initialized(run("a"), "r", view(claim("r", conditions=[done])))


LAUNCHED = names.CONDITION_LAUNCHED


@pytest.mark.parametrize(
    ("parts", "waited", "why"),
    [
        ({}, 99, ""),
        ({"conditions": [(LAUNCHED, "False", "NoCapacity")]}, 0, "r can't be launched (NoCapacity)"),
        ({"conditions": [(LAUNCHED, "Unknown", "NoCapacity")]}, 0, "r can't be launched (NoCapacity)"),
        ({"conditions": [(LAUNCHED, "False", "NoCapacity")], "provider": "p"}, 99, ""),
        ({"conditions": [(LAUNCHED, "False", "NoCapacity")], "leaving": True}, 99, ""),
        ({"conditions": [(LAUNCHED, "Unknown", "Launching")]}, 29, ""),
        ({"conditions": [(LAUNCHED, "Unknown", "Launching")]}, 30, "r has had no machine for 30s"),
        ({"conditions": [(LAUNCHED, "Unknown", "AwaitingReconciliation")]}, 29, ""),
        ({"conditions": [(LAUNCHED, "Unknown", "")]}, 29, ""),
        ({"conditions": [(LAUNCHED, "True", "NoCapacity")]}, 29, ""),
        ({"conditions": [(LAUNCHED, "True", "NoCapacity")]}, 31, "r has had no machine for 30s"),
    ],
)
def test_launches_that_fail(parts: dict[str, Any], waited: int, why: str) -> None:
    """By the condition Launched, or by the time since it was first seen."""
    made = run("a", replacements=("r",), seen_at={"r": 10 * SECOND})
    seen = view(claim("r", of="mine", **parts), elapsed=(10 + waited) * SECOND)
    assert launch_failure(made, "r", seen) == why
    assert launch_failure(made, "r", view()) == ""
    fresh = launch_failure(run("a"), "r", view(claim("r", of="mine", **parts), elapsed=10**15))
    assert fresh == (why if "can't" in why else "")


def test_what_is_noted_at_a_look() -> None:
    """Times of the first sight; until when a launch may take; which nodes were tainted; when claims went."""
    made = run("a", "b", replacements=("r", "s"))
    launching = [(LAUNCHED, "Unknown", "Launching")]
    look(made, view(claim("r", of="mine", conditions=launching), claim("s", of="mine"), node("a", of="mine"),
                    node("b", of="theirs"), its_claim("b"), elapsed=5))  # fmt: skip
    assert (made.seen, made.seen_at) == ({"r": "uid-r", "s": "uid-s"}, {"r": 5, "s": 5})
    assert made.launch_by == {"r": 5 + 30 * SECOND}
    assert (made.tainted, made.claim_gone_at) == ({"a": None}, {"a": 5})
    look(made, view(claim("r", of="mine", conditions=launching, provider="p"), elapsed=9))
    assert (made.seen_at, made.launch_by) == ({"r": 5, "s": 5}, {})
    assert made.claim_gone_at == {"a": 5, "b": 9}


@pytest.mark.parametrize(
    ("phase", "at"),
    [
        (Phase.VALIDATING, 3), (Phase.NOTING, 5), (Phase.TAINTING, 5), (Phase.LAUNCHING, 5), (Phase.WAITING, 5),
        (Phase.SURGING, 5), (Phase.EVICTING, 2 + SECOND // 2), (Phase.DELETING, None), (Phase.DRAINING, 1 + LINGER),
        (Phase.FINISHING, None), (Phase.ROLLING_BACK, None), (Phase.FOUND, None),
    ],
)  # fmt: skip
def test_when_a_command_is_looked_at_again(phase: Phase, at: int | None) -> None:
    """By its phase; a retry comes first where it is sooner."""
    fields: dict[str, Any] = {
        "validate_at": 3, "deadline": 8, "launch_by": {"r": 5}, "looked_at": 2, "claim_gone_at": {"a": 1, "b": 2}
    }  # fmt: skip
    assert run("a", phase=phase, **fields).next_at() == at
    assert run("a", phase=phase, **fields, retry_at=1).next_at() == 1
    assert run("a", phase=phase, **fields, retry_at=10**18).next_at() == (10**18 if at is None else at)


def test_a_draining_command_waits_until_something_is_new() -> None:
    """Its objects, its answers, or a time that has come since the last look."""
    made = run("a", phase=Phase.DRAINING, replacements=("r",))
    items = [node("a", of="mine"), its_claim("a"), claim("r", of="mine")]
    seen = view(*items, elapsed=10)
    made.looked_at = 10
    assert not waits_for_drains(made, seen)
    assert waits_for_drains(made, seen)
    made.attempts.ask("x", 0)
    assert not waits_for_drains(made, seen)
    assert waits_for_drains(made, seen)
    for change in (node("a"), its_claim("a", leaving=True), claim("r", of="mine", leaving=True)):
        seen.store.observe(change)
        assert not waits_for_drains(made, seen)
        assert waits_for_drains(made, seen)
    for at, waits in ((9, True), (10, True), (11, False), (12, False), (13, True)):
        made.retry_at = at
        assert waits_for_drains(made, replace(seen, elapsed=12)) == waits
        made.retry_at = None
        made.claim_gone_at = {"b": -(10**15), "a": at - LINGER}
        assert waits_for_drains(made, replace(seen, elapsed=12)) == waits
        made.claim_gone_at = {}
    made.phase = Phase.DELETING
    assert not waits_for_drains(made, seen)


def test_hands_off() -> None:
    """A pool that is no longer ours, another command, or a person's mark on the node or its claim."""
    made = run("a", "b")
    keep = {names.ALWAYS_DO_NOT_DISRUPT: "true"}
    assert hands_off(made, view(node("a"), its_claim("a"))) == ""
    assert hands_off(made, view(manages=lambda of: False)) == "pool web is no longer managed"
    other = view(node("b", DISRUPTED, of="theirs"))
    assert hands_off(made, other) == "another command has taken b"
    assert is_anothers(made, candidate("b"), other)
    for free in (node("b", of="theirs"), node("b", DISRUPTED), node("b", DISRUPTED, of="mine")):
        assert hands_off(made, view(free)) == ""
    marked = f"b now carries {names.ALWAYS_DO_NOT_DISRUPT}"
    assert hands_off(made, view(node("b", **keep))) == marked
    assert hands_off(made, view(its_claim("b", annotations=keep))) == marked
    assert hands_off(made, view(its_claim("b", annotations=keep, uid="other"))) == ""
    assert hands_off(made, view(node("b", **{names.ALWAYS_DO_NOT_DISRUPT: "false"}))) == ""


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize(
    ("replacements", "items", "complete"),
    [
        ((), (node("a", DISRUPTED, of="mine"), its_claim("a")), False),
        (("r",), (node("a", DISRUPTED, of="mine"), its_claim("a"), claim("r", of="mine")), True),
        (("r",), (node("a", DISRUPTED, of="mine"), its_claim("a")), False),
        (("r",), (node("a", DISRUPTED, of="mine"), its_claim("a"), claim("r", of="mine", leaving=True)), False),
        (("r", "s"), (node("a", DISRUPTED, of="mine"), its_claim("a"), claim("r", of="mine")), False),
        (("r",), (node("a", of="mine"), its_claim("a"), claim("r", of="mine")), False),
        (("r",), (node("a", DISRUPTED), its_claim("a"), claim("r", of="mine")), False),
        (("r",), (node("a"), its_claim("a"), claim("r", of="mine")), False),
        (("r",), (node("a"), its_claim("a", leaving=True), claim("r", of="mine")), True),
        (("r",), (its_claim("a"), claim("r", of="mine")), True),
    ],
)
def test_what_can_be_finished(replacements: tuple[str, ...], items: tuple[AnyObject, ...], complete: bool) -> None:
    """A found command with all its replacements, whose candidates are tainted for it, gone, or going."""
    made = run("a", phase=Phase.FOUND, replacements=replacements)
    expected = Signal.FOUND_COMPLETE if complete else Signal.FOUND_BROKEN
    if not any(isinstance(item, NodeClaim) and item.metadata.name == "c-a" for item in items) or any(
        isinstance(item, NodeClaim) and item.metadata.name == "c-a" and item.metadata.deletion_timestamp
        for item in items
    ):
        expected = Signal.FOUND_LEAVING
    assert signals.signal(made, view(*items)) is expected
    two = replace(made, candidates=(candidate("a"), candidate("z")))
    with_z = view(*items, node("z", DISRUPTED, of="mine"), its_claim("z"))
    assert (signals.signal(two, with_z) is Signal.FOUND_COMPLETE) == complete


@pytest.mark.parametrize("failure", Failure)
def test_what_is_refused_for_good(failure: Failure) -> None:
    """In its own phase only; a creation also where its pool is gone."""
    fatal = failure in (Failure.FORBIDDEN, Failure.REFUSED, Failure.TAKEN, Failure.OCCUPIED)
    items = (node("a"), its_claim("a"))
    idents: dict[Phase, Callable[[Run], str]] = {
        Phase.NOTING: lambda made: made.note_id("web"),
        Phase.TAINTING: lambda made: made.taint_id(candidate("a")),
        Phase.LAUNCHING: lambda made: made.create_id("r"),
        Phase.DELETING: lambda made: made.delete_id("c-a"),
    }
    for phase, ident in idents.items():
        for asked in idents.values():
            made = run("b", "a", phase=phase, replacements=("q", "r"), deadline=10**18)
            answered(made, asked(made), failure)
            refused = signals.signal(made, view(*items, its_claim("b"), node("b"), rate_span=lambda of: 1))
            own = asked is ident
            wanted = own and (fatal or (phase is Phase.LAUNCHING and failure is Failure.NOT_FOUND))
            assert (refused is Signal.INSTRUCTION_REFUSED) == wanted
    gone = answered(run("a", phase=Phase.DELETING, deadline=10**18), "mine/delete/c-a", failure)
    assert signals.signal(gone, view()) is Signal.DELETED
    there = answered(run("a", phase=Phase.LAUNCHING, replacements=("r",), deadline=10**18), "mine/create/r", failure)
    assert signals.signal(there, view(*items, claim("r", of="mine"))) is Signal.LAUNCHED


def test_why_an_instruction_was_refused() -> None:
    """In the words of the first that failed for good; else it was the pool."""
    made = run("a", phase=Phase.TAINTING, deadline=10**18)
    answered(made, "mine/note/web", Failure.CONFLICT)
    made.attempts.ask("mine/taint/a", 0)
    made.attempts.answer(InstructionFailed(id="mine/taint/a", failure=Failure.TAKEN, detail="by x"), 0)
    answered(made, "mine/taint/b", Failure.REFUSED)
    signals.advance(made, view(node("a"), its_claim("a")))
    assert made.why == "taint/a: taken by x"
    launch = answered(run("a", phase=Phase.LAUNCHING, replacements=("r",)), "mine/create/r", Failure.NOT_FOUND)
    launch.deadline = 10**18
    signals.advance(launch, view(node("a"), its_claim("a")))
    assert launch.why == "pool not found"


@pytest.mark.parametrize(
    ("phase", "deadline"),
    [
        (Phase.NOTING, 65),
        (Phase.TAINTING, 65),
        (Phase.LAUNCHING, 65),
        (Phase.SURGING, 65),
        (Phase.WAITING, 8),
        (Phase.DELETING, 8),
    ],
)
def test_a_phase_begins(phase: Phase, deadline: int) -> None:
    """Those that can hang have a deadline of their own; waiting keeps that of launching."""
    made = run("a", deadline=8 * SECOND)
    signals.enter(made, phase, view(elapsed=5 * SECOND))
    assert (made.phase, made.phase_since, made.deadline) == (phase, 5 * SECOND, deadline * SECOND)


def test_time_out_comes_at_its_time() -> None:
    """And says what is missing."""
    made = run("a", phase=Phase.WAITING, replacements=("r", "s"), deadline=5)
    done = [(names.CONDITION_INITIALIZED, "True", "")]
    items = (node("a"), its_claim("a"), claim("r", of="mine", conditions=done), claim("s", of="mine"))
    assert signals.advance(made, view(*items, elapsed=4)) == []
    assert signals.advance(made, view(*items, elapsed=5)) == [(Phase.WAITING, Signal.TIMED_OUT, Phase.ROLLING_BACK)]
    assert made.why == "not ready in time: s"
    assert made.history == [(Phase.WAITING, Signal.TIMED_OUT)]


def test_all_candidates_and_all_replacements_count() -> None:
    """One that is tainted, ready, or gone is not enough where there are two."""
    marked = (node("a", DISRUPTED, of="mine"), its_claim("a"), node("b"), its_claim("b"))
    tainting = run("a", "b", phase=Phase.TAINTING, deadline=10**18)
    assert signals.signal(tainting, view(*marked)) is None
    both = view(*marked[:2], node("b", DISRUPTED, of="mine"), its_claim("b"))
    assert signals.signal(tainting, both) is Signal.TAINTED_NOTHING_TO_LAUNCH
    assert signals.signal(tainting, view(*marked[:2])) is Signal.TAINTED_NOTHING_TO_LAUNCH
    assert signals.signal(tainting, view()) is Signal.CANDIDATES_GONE
    waiting = run("a", phase=Phase.WAITING, replacements=("r", "s"), deadline=10**18)
    ready = [(names.CONDITION_INITIALIZED, "True", "")]
    one = (*marked[:2], claim("r", of="mine", conditions=ready))
    assert signals.signal(waiting, view(*one, claim("s", of="mine"))) is None
    assert signals.signal(waiting, view(*one, claim("s", of="mine", conditions=ready))) is Signal.INITIALIZED
    deleting = run("a", "b", phase=Phase.DELETING)
    assert signals.signal(deleting, view(*marked[2:])) is None
    assert signals.signal(deleting, view(its_claim("b", leaving=True))) is Signal.DELETED
    draining = run("a", "b", phase=Phase.DRAINING)
    assert signals.signal(draining, view(its_claim("b", leaving=True))) is None
    assert signals.signal(draining, view()) is Signal.DRAINED


# ---------------------------------------------------------------- steps


def done(step: Step, target: str, made: Run, *items: AnyObject, elapsed: int = 0, **more: Any) -> bool:
    """Return whether a step is done."""
    return steps.is_done(made, step, target, view(*items, elapsed=elapsed, **more))


HISTORY = json.dumps([{"at": STAMP, "nodes": 1, "reason": "Drifted", "command": "mine"}])


def test_note_and_forget_are_done() -> None:
    """Seen on the pool, or told; a pool that is gone or has no rate budget wants none."""
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
    """Both marks are seen, or it is told; a node that is gone needs none."""
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
    """A node that leaves keeps its taint, another command's is left; a taint that may still land is waited for."""
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
        (its_claim("a"), Failure.NOT_FOUND, Phase.DRAINING, True),
        (its_claim("a"), Failure.CONFLICT, Phase.DELETING, False),
    ],
)
def test_delete_is_done(item: NodeClaim | None, answer: Failure | str | None, phase: Phase, over: bool) -> None:
    """While draining only what is seen counts."""
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
    """Once with the deletion, then best effort while the claim leaves."""
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
    """On the claim and on its node."""
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
    """It is off, or on its way off; one whose creation is unanswered is waited for, for as long as it may land."""
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
    [([], "evicted", False), (READY, "", False), (READY, "evicted", True), (READY, "surged", True),
     (READY, "surge failed", False), (READY, "leaving", True)],
)  # fmt: skip
def test_which_replacement_a_roll_back_keeps(conditions: list[Any], moved: str, kept: bool) -> None:
    """One that is ready, where pods may be on it already; it is cleared instead of deleted."""
    made = run("a", phase=Phase.ROLLING_BACK, replacements=("r",))
    if moved == "evicted":
        made.evicted_last = ("x", 0, ())
    if moved.startswith("surge"):
        answered(made, "mine/surge/d/app", "" if moved == "surged" else Failure.REFUSED)
    items = [node("a"), claim("r", of="mine", conditions=conditions)]
    seen = view(*items, *([] if moved == "leaving" else [its_claim("a")]))
    assert steps.keeps(made, "r", seen) == kept
    wanted = [step for step, target in steps.open_steps(made, seen) if target == "r"]
    assert wanted == [Step.CLEAR if kept else Step.DELETE_REPLACEMENTS]


def test_one_node_that_leaves_is_enough() -> None:
    """Its pods may be on the replacements; its pool's history stays."""
    made = run("a", "b", phase=Phase.ROLLING_BACK, replacements=("r",))
    answered(made, "mine/note/web", None)
    items = (node("a"), node("b"), its_claim("b"), claim("r", of="mine", conditions=READY))
    assert steps.keeps(made, "r", view(*items))
    assert done(Step.FORGET, "web", made, *items, pool())
    assert not steps.keeps(made, "r", view(*items, its_claim("a")))
    assert not done(Step.FORGET, "web", made, *items, its_claim("a"), pool())


def test_one_pool_that_refuses_its_note_is_enough() -> None:
    """Of a command of two pools."""
    made = run("a", phase=Phase.NOTING, deadline=10**18)
    made.candidates = (candidate("a"), candidate("b", "two"))
    answered(made, "mine/note/two", Failure.REFUSED)
    seen = view(node("a"), its_claim("a"), pool(), pool("two"), rate_span=lambda of: 1, manages=lambda of: True)
    assert signals.signal(made, seen) is Signal.INSTRUCTION_REFUSED


def test_evictions_are_no_open_steps() -> None:
    """They go one by one."""
    made = run("a", phase=Phase.EVICTING, replacements=("r",))
    assert list(steps.open_steps(made, view(pod("y", "a"), evicts=True))) == []


def test_what_a_deletion_says() -> None:
    """What the pods of the node may object to: as the gates that the command passed."""

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
    """All that are open; a command comes back for the first of them."""
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
    assert order == DeleteNodeClaim(id="mine/delete/r", command_id="mine", name="r", uid="uid-r")


# ---------------------------------------------------------------- evictions and surges


def bare(name: str, **requests: str) -> Pod:
    """Return a pod on node a that asks for these alone."""
    tree = msgspec.to_builtins(pod(name, "a"))
    tree["spec"]["containers"][0]["resources"]["requests"] = requests
    return msgspec.convert(tree, Pod, strict=False)


def test_who_is_evicted_in_which_order() -> None:
    """Picky pods first, then by processors and memory, then by name; not who leaves, stays or was asked for."""
    zone = [{"matchExpressions": [{"key": "z", "operator": "Exists"}]}]
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zone}}}
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    leaving = msgspec.to_builtins(pod("leaving", "a", "rs", cpu="9"))
    leaving["metadata"]["deletionTimestamp"] = STAMP
    items = [
        pod("small", "a", cpu="1", memory="1Mi"), pod("much", "a", cpu="1", memory="2Mi"), pod("big", "a", cpu="2"),
        pod("also", "a", cpu="1", memory="1Mi"), pod("selects", "a", cpu="1m", nodeSelector={"disk": "ssd"}),
        pod("affine", "a", cpu="2m", affinity=required), pod("prefers", "a", cpu="3", affinity=preferred),
        pod("daemon", "a", "ds", kind="DaemonSet", cpu="9"), pod("elsewhere", "b", cpu="9"),
        pod("kept", "a", cpu="9", annotations={names.DO_NOT_DISRUPT: "true"}),
        msgspec.convert(leaving, Pod, strict=False), pod("nothing", "a", cpu="0", memory="0"),
        pod("least", "a", cpu="1m", memory="0"), bare("bare"), bare("amount", cpu="1n"), bare("mem", memory="1"),
    ]  # fmt: skip
    made = run("a", phase=Phase.EVICTING)
    seen = view(*items, evicts=True)
    order = []
    while (found := evictions.next_pod(made, seen)) is not None:
        order.append(found.metadata.name)
        made.attempts.ask(evictions.evict_id(made, found), 0)
    assert order == [
        "affine", "selects", "prefers", "big", "much", "also", "small", "amount", "least", "mem", "bare", "nothing"
    ]  # fmt: skip
    assert evictions.evict_id(made, items[0]) == "mine/evict/d/small/small"
    assert made.to_evict is not None
    assert len(made.to_evict) == 12
    seen.store.observe(pod("late", "a", cpu="5"))
    assert evictions.next_pod(made, seen) is None, "who came since is the drain's"


@pytest.mark.parametrize(
    ("method", "evicts", "pods", "wanted"),
    [
        (Method.SINGLE_NODE, True, True, True),
        (Method.MULTI_NODE, True, True, True),
        (Method.DRIFTED, True, True, False),
        (Method.SINGLE_NODE, False, True, False),
        (Method.SINGLE_NODE, True, False, False),
    ],
)
def test_when_evictions_come_first(method: Method, evicts: bool, pods: bool, wanted: bool) -> None:
    """For cost commands with pods to move, where it is switched on."""
    seen = view(*([pod("x", "a")] if pods else []), evicts=evicts)
    assert evictions.is_wanted(run("a", method=method), seen) == wanted


@pytest.mark.parametrize(
    ("waited", "answer", "pending", "landed"),
    [
        (0, None, "", False),
        (5999, None, "", False),
        (6000, None, "", True),
        (999, "", "", False),
        (1000, "", "", True),
        (1000, "", "rs", False),
        (1000, "", "other", True),
        (5999, "", "rs", False),
        (6000, "", "rs", True),
        (0, Failure.THROTTLED, "rs", True),
    ],
)
def test_when_the_next_pod_goes(waited: int, answer: Failure | str | None, pending: str, landed: bool) -> None:
    """A second at least, six at most, when nothing of the last one's owner waits; at once where it was refused."""
    made = run("a", phase=Phase.EVICTING, phase_since=10 * SECOND)
    first = pod("x", "a")
    answered(made, evictions.evict_id(made, first), answer)
    evictions.note(made, first, 10 * SECOND)
    items = [pod("y", "a"), *([pod("w", "", pending)] if pending else []), pod("v", "", "third")]
    seen = view(*items, elapsed=10 * SECOND + waited * SECOND // 1000, evicts=True)
    found = evictions.next_pod(made, seen)
    assert (found is not None) == landed
    asked = steps.instructions(made, seen)
    assert [type(order) for order in asked] == ([EvictPod] if landed else [])
    if landed:
        assert made.evicted_last == ("mine/evict/d/y/y", seen.elapsed, ("rs",))
    assert evictions.is_over(made, seen) is False
    alone = view(*items[1:], elapsed=seen.elapsed, evicts=True)
    last = replace(made, evicted_last=(evictions.evict_id(made, first), 10 * SECOND, ("rs",)))
    assert evictions.is_over(last, alone) == landed


def test_evictions_end_with_the_patience_or_the_right() -> None:
    """After three minutes, at that very time; or where one was forbidden."""
    made = run("a", phase=Phase.EVICTING, phase_since=10 * SECOND)
    assert not evictions.is_over(made, view(pod("y", "a"), elapsed=190 * SECOND - 1))
    assert evictions.is_over(made, view(pod("y", "a"), elapsed=190 * SECOND))
    answered(made, "mine/evict/d/y/y", Failure.FORBIDDEN)
    assert evictions.is_over(made, view(pod("x", "a"), elapsed=10 * SECOND))
    unasked = run("a", phase=Phase.EVICTING, evicted_last=("unknown", 0, ()))
    assert evictions.next_pod(unasked, view(pod("y", "a"))) is not None


def test_surges_come_first_where_they_are_wanted() -> None:
    """For pods of Deployments that ask for it; by the ReplicaSet between."""
    rolls = (deployment("app", **{SURGE: "true"}), replica_set("app-1", of="app"), pod("x", "a", "app-1"))
    made = run("a")
    assert surging.is_wanted(made, view(*rolls))
    assert not surging.is_wanted(made, view(*rolls, surges=False))
    assert not surging.is_wanted(run("b"), view(*rolls))
    assert not surging.is_over(made, view(*rolls))
    for lone in (pod("x", "a", ""), pod("x", "a", "app-1"), pod("x", "a", "other")):
        assert not surging.waiting(made, view(deployment("app", **{SURGE: "true"}), replica_set("other"), lone))
    assert surging.mark(made) == "2026-05-11T12:00:00Z mine"
    assert list(surging.waiting(run("a"), view(*rolls))) == ["d/app"]


ROLLS = "pod d/x on node a must leave by its Deployment's rolling update"
PROTECTED = {names.DO_NOT_DISRUPT: "true"}


@pytest.mark.parametrize(
    ("order", "item", "why"),
    [
        ({}, pod("x", "a"), ""),
        ({}, pod("x", "a", annotations=PROTECTED), "pod d/x on node a must not be disrupted"),
        ({"spares_protected": False}, pod("x", "a", annotations=PROTECTED), ""),
        ({"roll_first": (("d", "rs"),)}, pod("x", "a"), ROLLS),
        ({"roll_first": (("d", "rs"),), "spares_protected": False}, pod("x", "a"), ""),
        ({"roll_first": (("d", "other"),)}, pod("x", "a"), ""),
        ({"roll_first": (("d", "rs"),)}, pod("x", "a", phase="Succeeded"), ""),
        ({"only_empty": True}, pod("x", "a"), "node a is no longer empty: pod d/x is on it"),
        ({"only_empty": True}, pod("x", "a", "ds", kind="DaemonSet"), ""),
        ({"only_empty": True}, pod("x", "a", phase="Failed"), ""),
    ],
)  # fmt: skip
def test_last_look(order: dict[str, Any], item: Pod, why: str) -> None:
    """What the pods of a node object to, in the order they are told."""
    asked = DeleteNodeClaim(id="1", command_id="mine", name="c", uid="u", node="a", **order)
    assert objection(asked, [pod("first", "a", "ds", kind="DaemonSet"), item], NOW) == why


# ---------------------------------------------------------------- plans and left-overs


def test_what_commands_hold_on_to() -> None:
    """Their nodes; their replacements and destinations, by claim and node; what pending pods are nominated for."""
    command = Command(
        action=Action.REPLACE_COST,
        method=Method.SINGLE_NODE,
        nodes=("a",),
        placements=(Placement(node="dest", pods=()),),
    )
    made = run("b", "a", replacements=("r", "s"), command=command)
    other = run("a", id="other")
    assert [(entry.node, entry.command_id) for entry in flight.leaving([other, made])] == [
        ("a", "mine"), ("a", "other"), ("b", "mine"),
    ]  # fmt: skip
    waiting = msgspec.to_builtins(pod("w"))
    waiting["status"]["nominatedNodeName"] = "goal"
    seen = view(claim("r", on="r-node"), claim("s"), pod("v"), msgspec.convert(waiting, Pod, strict=False))
    found = flight.nominated([made, other], ["old"], seen.store)
    assert found == ("dest", "goal", "old", "r", "r-node", "s")


@pytest.mark.parametrize(
    ("item", "phase", "launches", "places"),
    [
        (None, Phase.VALIDATING, True, []),
        (None, Phase.TAINTING, True, []),
        (None, Phase.LAUNCHING, True, []),
        (None, Phase.WAITING, False, []),
        (None, Phase.DELETING, False, []),
        (claim("r"), Phase.WAITING, True, []),
        (claim("r", provider="p"), Phase.WAITING, False, ["r"]),
        (claim("r", provider="p", on="rn"), Phase.DRAINING, False, ["r", "rn"]),
        (claim("r"), Phase.ROLLING_BACK, None, []),
        (claim("r"), Phase.FINISHING, None, []),
    ],
)
def test_what_is_under_way(item: NodeClaim | None, phase: Phase, launches: bool | None, places: list[str]) -> None:
    """Pods that are still on the nodes: for a launch whose machine is unknown, or for the machine that is."""
    spec = Replacement(node_pool="web", instance_types=("m",), pods=("d/x", "d/gone"))
    command = Command(
        action=Action.REPLACE_COST,
        method=Method.SINGLE_NODE,
        nodes=("a",),
        replacements=(spec,),
        placements=(Placement(node="dest", pods=("d/y", "d/gone")), Placement(node="none", pods=("d/gone",))),
    )
    made = run("a", phase=phase, replacements=("r",), command=command)
    seen = view(pod("x", "a"), pod("y", "a"), *([] if item is None else [item]))
    found = flight.under_way([run("b"), made], seen.store)
    assert found.launches == ((replace(spec, pods=("d/x",)),) if launches else ())
    kept = [] if launches is None else [Placement(node="dest", pods=("d/y",))]
    assert list(found.placements) == [*(Placement(node=place, pods=("d/x",)) for place in places), *kept]


def test_a_plan_has_a_name_for_every_replacement() -> None:
    """One more or less would be a mistake of ours."""
    spec = Replacement(node_pool="web", instance_types=("m",))
    command = Command(
        action=Action.REPLACE_COST, method=Method.SINGLE_NODE, nodes=("a",), replacements=(spec, spec)
    )  # fmt: skip
    with pytest.raises(ValueError, match="zip"):
        flight.under_way([run("a", replacements=("r",), command=command)], Store())


def test_whether_pods_have_come() -> None:
    """Others than those of the node itself; a replacement that is gone waits for none."""
    assert flight.has_pods("r", Store())
    assert not flight.has_pods("r", view(claim("r", on="n")).store)
    daemons = (pod("d", "n", "ds", kind="DaemonSet"), pod("m", "n", "n", kind="Node"))
    assert not flight.has_pods("r", view(claim("r", on="n"), *daemons).store)
    assert flight.has_pods("r", view(claim("r", on="n"), *daemons, pod("x", "n")).store)
    assert flight.has_pods("r", view(claim("r", on="n"), pod("x", "n", "")).store)


@pytest.mark.parametrize(
    ("item", "unlaunched"),
    [
        (claim("c"), True),
        (claim("c", provider="p"), False),
        (claim("c", on="n"), False),
        (claim("c", leaving=True), False),
    ],
)
def test_whether_a_machine_is_unknown(item: NodeClaim, unlaunched: bool) -> None:
    """Of a claim that stays."""
    assert flight.has_unlaunched(view(claim("other", provider="q"), item).store) == unlaunched


@pytest.mark.parametrize(
    ("items", "taken", "bound"),
    [
        ((node("a"), its_claim("a")), "", True),
        ((node("a"),), "", False),
        ((its_claim("a"),), "", False),
        ((node("a"), its_claim("a")), "a", False),
        ((node("a"), its_claim("a")), "b", True),
    ],
)
def test_which_nodes_can_be_bound(items: tuple[AnyObject, ...], taken: str, bound: bool) -> None:
    """With a claim, of a pool that is ours, in no other command."""
    command = Command(action=Action.DELETE_COST, method=Method.SINGLE_NODE, nodes=("a",))
    seen = view(*items)
    found = flight.bind_to_claims(command, seen.store, lambda name: name == taken, lambda of: of == "web")
    assert found == ((candidate("a"),) if bound else None)
    assert flight.bind_to_claims(command, seen.store, lambda name: False, lambda of: False) is None
    unnamed = msgspec.to_builtins(its_claim("a"))
    unnamed["metadata"]["uid"] = ""
    blank = view(node("a"), msgspec.convert(unnamed, NodeClaim, strict=False))
    assert flight.bind_to_claims(command, blank.store, lambda name: False, lambda of: True) is None


def leftovers(*items: AnyObject, known: str = "") -> resume.Leftovers:
    """Return what is found of these objects; `known` is a command that is carried on."""
    return resume.find(view(*items).store, lambda found: found.id == known, lambda of: of == "web")


def test_left_over_commands_are_found_once() -> None:
    """By the latest of their records, on claims and candidates; those that are known are left out."""
    early, late = record("one", "a", since=NOW), record("one", "a", since=NOW + timedelta(seconds=1))
    found = leftovers(
        node("a", DISRUPTED, **{names.COMMAND: early}),
        claim("r", annotations={names.COMMAND: late}),
        node("b", DISRUPTED, of="two"),
        claim("z", annotations={names.COMMAND: "junk"}),
    )
    assert [(entry.id, entry.since) for entry in found.records] == [("one", NOW + timedelta(seconds=1)), ("two", NOW)]
    assert found.sweeps == (ClearRecord(id="sweep/clear/z", command_id="", node_claim="z"),)
    assert [entry.id for entry in leftovers(node("b", DISRUPTED, of="two"), known="two").records] == []
    assert leftovers(claim("r", of="two"), known="two").records == ()
    assert leftovers(node("b", DISRUPTED, of="two", leaving=True)).records == ()
    same = record("one", "a", since=NOW, replacements=("later",))
    pair = leftovers(claim("a", annotations={names.COMMAND: early}), claim("b", annotations={names.COMMAND: same}))
    assert pair.records[0].replacements == (), "of two of one time the first"


@pytest.mark.parametrize(
    ("items", "sweep"),
    [
        ((node("a", DISRUPTED),), UntaintNode(id="sweep/untaint/a", command_id="", node="a")),
        ((node("a", DISRUPTED, leaving=True),), None),
        (
            (node("a", **{names.COMMAND: record("one", "b")}),),
            UntaintNode(id="sweep/untaint/a", command_id="one", node="a"),
        ),
        (
            (node("a", DISRUPTED, **{names.COMMAND: record("one", "b")}), its_claim("a")),
            UntaintNode(id="sweep/untaint/a", command_id="one", node="a"),
        ),
        (
            (node("a", **{names.COMMAND: record("one", "b")}), its_claim("a")),
            ClearRecord(id="sweep/clear/c-a", command_id="one", node_claim="c-a"),
        ),
        ((node("a", **{names.COMMAND: record("one", "b")}), its_claim("a", of="one")), None),
    ],
)  # fmt: skip
def test_marks_that_are_swept(items: tuple[AnyObject, ...], sweep: object) -> None:
    """A taint that nobody signed, and the copy of a record that counts for another node."""
    found = leftovers(*items)
    assert list(found.sweeps) == ([] if sweep is None else [sweep])


def test_marks_of_other_pools_stay() -> None:
    """Others may use the same key there."""
    tree = msgspec.to_builtins(node("a", DISRUPTED))
    tree["metadata"]["labels"] = {names.NODEPOOL: "other"}
    assert leftovers(msgspec.convert(tree, Node, strict=False)).sweeps == ()


@pytest.mark.parametrize(
    ("ago", "left"), [(timedelta(seconds=10), 50 * SECOND), (timedelta(seconds=60), 0), (timedelta(seconds=90), 0),
                      (timedelta(microseconds=3), 60 * SECOND - 3000), (timedelta(seconds=-5), 60 * SECOND)],
)  # fmt: skip
def test_a_command_is_taken_over_with_the_rest_of_its_time(ago: timedelta, left: int) -> None:
    """Nodes that another command has are left to that one."""
    found = read_record(record("one", "a", "b", since=NOW - ago, replacements=("r",)))
    assert isinstance(found, Record)
    made = resume.take_over(found, taken=lambda name: name == "a", now=NOW, elapsed=7 * SECOND, timeout=60 * SECOND)
    assert (made.deadline, made.nodes, made.replacements) == (7 * SECOND + left, ("b",), ("r",))
    assert (made.phase, made.began_at, made.phase_since) == (Phase.FOUND, 7 * SECOND, 7 * SECOND)
