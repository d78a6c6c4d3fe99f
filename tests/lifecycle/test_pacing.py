"""Pauses of Karpenter's loop after a validation."""

import pytest

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.memory.pacing import Pacing, loop_pause
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
