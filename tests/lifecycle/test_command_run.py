"""Facts that are read from the store for one command, case by case: records, objects, signals."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dovetail.lifecycle.commands import signals
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import (
    LINGER,
    Run,
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
)
from dovetail.lifecycle.commands.machine import Phase, Signal, page
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
    Failure,
    InstructionFailed,
    ObjectObserved,
)
from dovetail.model import names
from dovetail.model.command import Action, Command, Method, Replacement
from dovetail.model.objects import AnyObject, NodeClaim
from tests.support.command_cases import (
    DISRUPTED,
    NOW,
    OTHER,
    answered,
    candidate,
    claim,
    its_claim,
    node,
    record,
    run,
    view,
)
from tests.support.conversation import pod

# ---------------------------------------------------------------- records


def test_what_is_a_record() -> None:
    """A record has a known version and an id, and fits into an annotation."""
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


def test_the_record_of_a_large_command_is_read_once() -> None:
    """A hundred nodes carry the record of their command; the text is read for the first of them only."""
    names_of = [f"{'n' * 60}{number:03d}" for number in range(100)]
    candidates = tuple(Candidate(node=name, claim=name, uid="u" * 36, pool="p" * 63) for name in names_of)
    text = encode_record(
        Record(
            id="mine",
            action=Action.DELETE_COST,
            method=Method.MULTI_NODE,
            phase=Phase.TAINTING,
            since=NOW,
            nodes=candidates,
        )
    )
    assert decode_record(text) is not None
    assert decode_record(text) is decode_record(text)


def test_who_carries_which_record() -> None:
    """The id of a record selects the objects of its command."""
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
    """A replacement's name has the pool, the command and a number, in at most 63 characters."""
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
    """The page shows every transition as a row with its signals, and what each phase asks for."""
    assert "| finishing | all records cleared | done |\n" in page()
    assert "| deleting | all deletions begun | draining |\n" in page()
    assert "| deleting | delete candidates, say why candidates leave |\n" in page()


SEAL = Seal((b"the first key of all", b"the second key of all"))


def test_seal() -> None:
    """The first key seals and any key opens; a key has 16 bytes; text that is no record is unchanged."""
    sealed = SEAL.sealed(record())
    assert isinstance(Seal((b"the first key of all",)).opened(sealed), Record)
    assert Seal((b"the second key of all",)).opened(sealed) == "its seal is not Dovetail's"
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
    """A sealed record on an object that it names is accepted; otherwise the object loses it with a reason."""
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
    """A candidate is its claim, or its marked node for a minute; a new node with its name does not count."""
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
    """A deletion has begun if it was seen or answered."""
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
    """A replacement is known by its record, its uid or the answer to its creation."""
    made = run("a", replacements=("r",), seen={"r": seen} if seen else {})
    if answer is not None:
        answered(made, made.create_id("r"), answer)
    assert carries_or_made(made, item) == ours
    seen_by = view(item)
    assert (replacement(made, "r", seen_by) is item) == ours
    assert has_vanished(made, "r", seen_by) == (bool(seen) and not ours)
    look(made, view(item, elapsed=7))
    assert made.seen == ({"r": item.metadata.uid} if ours else {"r": seen} if seen else {})
    assert made.looked_at == 7


def test_a_replacement_that_goes_has_vanished() -> None:
    """A replacement has vanished if it was seen before and is gone, or is being deleted."""
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
        ({"conditions": [("Ready", "Unknown", "")]}, 29, ""),
        ({"conditions": [("Ready", "Unknown", "")]}, 30, "r has had no machine for 30s"),
        ({"conditions": [(LAUNCHED, "True", "")], "on": "n"}, 99, ""),
    ],
)
def test_launches_that_fail(parts: dict[str, Any], waited: int, why: str) -> None:
    """A launch fails by the condition Launched, or by the time since Karpenter took the claim up."""
    made = run("a", replacements=("r",), taken_up_at={"r": 10 * SECOND})
    seen = view(claim("r", of="mine", **parts), elapsed=(10 + waited) * SECOND)
    assert launch_failure(made, "r", seen) == why
    assert launch_failure(made, "r", view()) == ""
    fresh = launch_failure(run("a"), "r", view(claim("r", of="mine", **parts), elapsed=10**15))
    assert fresh == (why if "can't" in why else "")


def test_what_is_noted_at_a_look() -> None:
    """Each check records replacements, launch deadlines, tainted nodes and removed claims."""
    made = run("a", "b", replacements=("r", "s"))
    look(made, view(claim("r", of="mine"), node("a", of="mine"), its_claim("a"), node("b"), its_claim("b"), elapsed=1))
    assert (made.taken_up_at, made.launch_by) == ({}, {}), "nobody has taken it up yet"
    launching = [(LAUNCHED, "Unknown", "Launching")]
    look(made, view(claim("r", of="mine", conditions=launching), claim("s", of="mine"), node("a", of="mine"),
                    node("b", of="theirs"), its_claim("b"), elapsed=5))  # fmt: skip
    assert (made.seen, made.taken_up_at) == ({"r": "uid-r", "s": "uid-s"}, {"r": 5})
    assert made.launch_by == {"r": 5 + 30 * SECOND}
    assert (made.tainted, made.claim_gone_at) == ({"a": None}, {"a": 5})
    look(made, view(claim("r", of="mine", conditions=launching, provider="p"), elapsed=9))
    assert (made.taken_up_at, made.launch_by) == ({"r": 5}, {})
    assert made.claim_gone_at == {"a": 5, "b": 9}


@pytest.mark.parametrize(
    ("phase", "at"),
    [
        (Phase.VALIDATING, 3), (Phase.NOTING, 5), (Phase.TAINTING, 5), (Phase.LAUNCHING, 5), (Phase.WAITING, 5),
        (Phase.SURGING, 5), (Phase.CHECKING, 8), (Phase.EVICTING, 2 + SECOND // 2), (Phase.DELETING, None),
        (Phase.DRAINING, 1 + LINGER), (Phase.FINISHING, None), (Phase.ROLLING_BACK, None), (Phase.FOUND, None),
    ],
)  # fmt: skip
def test_when_a_command_is_looked_at_again(phase: Phase, at: int | None) -> None:
    """The phase sets the time of the next check; an earlier retry comes first."""
    fields: dict[str, Any] = {
        "validate_at": 3, "deadline": 8, "launch_by": {"r": 5}, "looked_at": 2, "claim_gone_at": {"a": 1, "b": 2}
    }  # fmt: skip
    assert run("a", phase=phase, **fields).next_at() == at
    assert run("a", phase=phase, **fields, retry_at=1).next_at() == 1
    assert run("a", phase=phase, **fields, retry_at=10**18).next_at() == (10**18 if at is None else at)


def test_hands_off() -> None:
    """A command ends if its pool is released, another command owns the node, or a person marks the node."""
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
    """A found command can finish if its replacements exist and its candidates are tainted, gone or leaving."""
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
    """A permanent refusal counts in its own phase only; a creation also fails if its pool is gone."""
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
    """The reason is that of the first permanent failure, else the pool."""
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
    """Phases that can hang have their own deadline; waiting keeps the deadline of launching."""
    made = run("a", deadline=8 * SECOND)
    signals.enter(made, phase, view(elapsed=5 * SECOND))
    assert (made.phase, made.phase_since, made.deadline) == (phase, 5 * SECOND, deadline * SECOND)


def test_time_out_comes_at_its_time() -> None:
    """A timeout comes exactly at its deadline and names what is missing."""
    made = run("a", phase=Phase.WAITING, replacements=("r", "s"), deadline=5)
    done = [(names.CONDITION_INITIALIZED, "True", "")]
    items = (node("a"), its_claim("a"), claim("r", of="mine", conditions=done), claim("s", of="mine"))
    assert signals.advance(made, view(*items, elapsed=4)) == []
    assert signals.advance(made, view(*items, elapsed=5)) == [(Phase.WAITING, Signal.TIMED_OUT, Phase.ROLLING_BACK)]
    assert made.why == "not ready in time: s"
    assert made.history == [(Phase.WAITING, Signal.TIMED_OUT)]


def test_all_candidates_and_all_replacements_count() -> None:
    """All candidates and replacements must be tainted, ready or gone, not just one."""
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
