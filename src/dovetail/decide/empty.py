"""Delete empty nodes: all that are past consolidateAfter, as many as the budget allows, in one command.

Spec section 5; S4, Consolidation Background (`deleteEmpty`: no simulation, no replacement); S0, Example 3 (a grace
period does not hold it back). Sits in decide, beside the other methods, which it does not know.
"""

from dovetail.decide.method import MethodRun, take_within
from dovetail.decide.moves import bare_command
from dovetail.decide.scene import Scene, in_cost_order
from dovetail.model.command import Method


def run(scene: Scene) -> MethodRun:
    """Give the one command that deletes every empty node within the budgets, if there is any."""
    method = Method.EMPTY
    candidates = in_cost_order(scene.passing(method), scene.settings)
    taken, held = take_within(scene, method, candidates, scene.left(method))
    commands = (bare_command(scene, method, taken),) if taken else ()
    return MethodRun(method=method, candidates=tuple(candidates), commands=commands, held=held)
