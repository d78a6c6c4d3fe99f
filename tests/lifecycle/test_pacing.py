"""Pauses of Karpenter's loop after a validation."""

import pytest

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.memory.pacing import Pacing, loop_pause
from dovetail.model.command import Action, Method
from dovetail.model.settings import Stabilization
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


def test_the_action_that_cost_actions_wait_for_longest_is_named() -> None:
    """The finished action whose window ends last is named, until all windows are over."""
    windows = Stabilization(empty=10 * SECOND, expired=0, drifted=60 * SECOND, cost=20 * SECOND)
    pacing = Pacing()
    assert pacing.settles_by(0) == ""
    pacing.finished(Method.DRIFTED, windows, 0, ("web",))
    pacing.finished(Method.EMPTY, windows, 5 * SECOND, ("batch", "web"))
    pacing.finished(Method.EXPIRED, windows, 6 * SECOND, ("other",))
    assert (pacing.settles_at(0), pacing.settles_by(0)) == (60 * SECOND, "an action of method drifted in NodePool web")
    pacing.finished(Method.EMPTY, windows, 55 * SECOND, ("batch", "web"))
    assert pacing.settles_by(56 * SECOND) == "an action of method empty in NodePools batch, web"
    assert (pacing.settles_at(65 * SECOND), pacing.settles_by(65 * SECOND)) == (None, "")


def test_a_memory_ends_at_its_very_time() -> None:
    """A memory is gone exactly at its end, so the engine wakes up for it once."""
    windows = Stabilization(empty=10 * SECOND, expired=0, drifted=0, cost=20 * SECOND)
    pacing = Pacing()
    pacing.finished(Method.EMPTY, windows, 0, ("web",))
    assert not pacing.expire(10 * SECOND - 1)
    assert pacing.times() == [10 * SECOND]
    assert pacing.expire(10 * SECOND)
    assert pacing.times() == []
