"""Retries: the delay after each failure, and how answers change it."""

import pytest

from dovetail.lifecycle.commands.attempts import SECOND, Attempt, Attempts
from dovetail.lifecycle.messages import Failure, InstructionFailed, InstructionSucceeded

PAUSES = {
    Failure.CONFLICT: [1, 2, 4, 8, 16, 32, 64, 120, 120, 120],
    Failure.THROTTLED: [5, 10, 20, 40, 80, 120, 120],
    Failure.UNREACHABLE: [5, 10, 20, 40, 80, 120, 120],
    Failure.NOT_FOUND: [5, 10, 20, 40, 80, 120, 120],
    Failure.FORBIDDEN: [30, 60, 120, 120],
    Failure.REFUSED: [30, 60, 120, 120],
    Failure.TAKEN: [30, 60, 120, 120],
    Failure.OCCUPIED: [5, 10, 20, 40],
}


def asked(times: int = 1, patience: int = 0) -> Attempts:
    """Return the attempts at one instruction that was sent this many times at 100 s."""
    attempts = Attempts()
    for _ in range(times):
        attempts.ask("a", 100 * SECOND, patience)
    return attempts


def failed(attempts: Attempts, failure: Failure, at: int = 100) -> Attempt:
    """Record a failure and return the new state."""
    assert attempts.answer(InstructionFailed(id="a", failure=failure, detail="why"), at * SECOND)
    attempt = attempts.get("a")
    assert attempt is not None
    return attempt


@pytest.mark.parametrize("failure", Failure)
def test_pause_after_each_failure(failure: Failure) -> None:
    """The delay doubles after each failure, up to two minutes."""
    pauses = []
    for times in range(1, len(PAUSES[failure]) + 1):
        attempt = failed(asked(times), failure, at=200)
        pauses.append(attempt.again_at // SECOND - 200)
        assert (attempt.failure, attempt.detail, attempt.succeeded) == (failure, "why", False)
    assert pauses == PAUSES[failure]


def test_pause_while_nobody_answers() -> None:
    """Without an answer the delay is half a minute and doubles each time, up to eight minutes."""
    waits = []
    for times in range(1, 9):
        attempt = asked(times).get("a")
        assert attempt is not None
        assert attempt.count == times
        waits.append(attempt.again_at // SECOND - 100)
    assert waits == [30, 60, 120, 240, 480, 480, 480, 480]


@pytest.mark.parametrize(
    ("patience", "failure", "again"),
    [
        (0, None, 130),
        (60, None, 160),
        (20, None, 130),
        (60, Failure.UNREACHABLE, 160),
        (3, Failure.UNREACHABLE, 105),
        (60, Failure.THROTTLED, 105),
    ],
)
def test_patience_holds_while_the_outcome_is_unknown(patience: int, failure: Failure | None, again: int) -> None:
    """An instruction with an unknown outcome is not repeated early; a clear failure ends the wait."""
    attempts = asked(patience=patience * SECOND)
    if failure is not None:
        failed(attempts, failure)
    attempt = attempts.get("a")
    assert attempt is not None
    assert attempt.again_at == again * SECOND
    assert attempts.next_at() == again * SECOND
    assert not attempts.due("a", again * SECOND - 1)
    assert attempts.due("a", again * SECOND)


def test_what_answers_change() -> None:
    """A success is final; an answer to an unknown instruction is ignored."""
    attempts = asked()
    assert not attempts.answer(InstructionSucceeded(id="b"), 0)
    assert not attempts.answer(InstructionFailed(id="b", failure=Failure.TAKEN), 0)
    assert "b" not in attempts
    assert attempts.get("b") is None
    assert not attempts.succeeded("b")
    assert attempts.failed("b") is None
    assert attempts.due("b", 0)
    failed(attempts, Failure.TAKEN)
    assert attempts.failed("a") is Failure.TAKEN
    assert attempts.any_failed(Failure.TAKEN)
    assert not attempts.any_failed(Failure.OCCUPIED)
    assert attempts.answer(InstructionSucceeded(id="a", uid="u"), 0)
    attempt = failed(attempts, Failure.REFUSED)
    assert (attempt.succeeded, attempt.failure, attempt.uid) == (True, None, "u")
    assert attempts.succeeded("a")
    assert attempts.failed("a") is None
    assert not attempts.any_failed(Failure.TAKEN)
    assert attempts.next_at() is None, "what is done is not asked for again"


def test_what_is_known_is_forgotten_by_id() -> None:
    """Attempts are kept in the order of the first request and removed by id; each change is visible."""
    attempts = Attempts()
    versions = [attempts.version]
    for ident, at in (("b", 5), ("a", 1), ("b", 9)):
        attempts.ask(ident, at * SECOND)
        versions.append(attempts.version)
    assert attempts.ids() == ("b", "a")
    assert attempts.next_at() == 31 * SECOND
    attempts.answer(InstructionSucceeded(id="a"), 0)
    versions.append(attempts.version)
    assert attempts.next_at() == 69 * SECOND
    assert attempts.next_at(done=True) == 31 * SECOND
    attempts.forget("a")
    attempts.forget("unknown")
    versions.append(attempts.version)
    assert attempts.ids() == ("b",)
    assert versions == sorted(set(versions))
