"""How long Karpenter's loop rests after a validation."""

import pytest

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.pacing import loop_pause
from dovetail.model.command import Action, Method
from tests.lifecycle.world import T0


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
    """At once after a deletion, a second after a launch, a poll after the last method was refused."""
    run = Run(id="c", action=Action.DELETE_COST, method=method, candidates=(), phase=Phase.VALIDATING, began=T0)
    run.verdict, run.replacements = verdict, replacements
    assert loop_pause(run, 10 * SECOND) == seconds * SECOND
