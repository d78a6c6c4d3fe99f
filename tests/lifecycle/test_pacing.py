"""Pauses of Karpenter's loop after a validation."""

import pytest

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.memory.pacing import BackOff, Pacing, loop_pause
from dovetail.model.command import Action, Method
from tests.support.lifecycle_world import T0


@pytest.mark.parametrize(
    ("verdict", "method", "replacements", "seconds"),
    [
        (Signal.VALIDATED, Method.SINGLE_NODE, (), 0),
        (Signal.VALIDATED, Method.SINGLE_NODE, ("new",), 1),
        (Signal.VALIDATION_REFUSED, Method.SINGLE_NODE, ("new",), 10),
        (Signal.VALIDATION_REFUSED, Method.MULTI_NODE, (), 0),
    ],
)
def test_rest_after_a_validation(verdict: Signal, method: Method, replacements: tuple[str, ...], seconds: int) -> None:
    """The loop continues at once after a deletion, a second after a launch, a poll after the last refusal."""
    run = Run(id="c", action=Action.DELETE_COST, method=method, candidates=(), phase=Phase.VALIDATING, began=T0)
    run.verdict, run.replacements = verdict, replacements
    assert loop_pause(run, 10 * SECOND) == seconds * SECOND


def test_a_memory_ends_at_its_very_time() -> None:
    """A memory is gone exactly at its end, so the engine wakes up for it once."""
    pacing = Pacing()
    pacing.lingering["r"] = 10 * SECOND
    assert not pacing.expire(10 * SECOND - 1)
    assert pacing.times() == [10 * SECOND]
    assert pacing.expire(10 * SECOND)
    assert pacing.times() == []


def test_back_off_doubles_up_to_its_longest() -> None:
    """Each failure after the wait doubles the backoff; a failure during the wait does not."""
    memory = BackOff(first=10, longest=75)
    assert memory.failures("web") == 0
    at, pauses = 0, []
    for _ in range(5):
        pause = memory.failed("web", at)
        assert pause is not None
        pauses.append(pause)
        assert memory.failed("web", at + pause - 1) is None
        assert memory.active(at + pause - 1) == {"web": at + pause}
        assert memory.active(at + pause) == {}
        at += pause
    assert pauses == [10, 20, 40, 75, 75]
    assert memory.failures("web") == 5
    memory.succeeded("web")
    assert (memory.failures("web"), memory.until) == (0, {})
    assert memory.failed("web", 0, 7) == 7
    assert memory.failed("web", 7, 7) == 14
    assert memory.failed("other", 0) == 10


def test_back_off_of_a_pool_that_keeps_failing_stays_at_its_longest() -> None:
    """The backoff never exceeds its maximum."""
    memory = BackOff(first=1, longest=1 << 30)
    at = 0
    for _ in range(40):
        at += memory.failed("web", at) or 0
    assert memory.failed("web", at) == 1 << 16


def test_waits_that_are_over_are_dropped() -> None:
    """A wait is dropped exactly at its end; the number of failures is kept."""
    memory = BackOff(first=10, longest=75)
    memory.failed("web", 0)
    assert not memory.expire(9)
    assert memory.until == {"web": 10}
    assert memory.expire(10)
    assert memory.until == {}
    assert not memory.expire(10)
    assert memory.failed("web", 10) == 20
