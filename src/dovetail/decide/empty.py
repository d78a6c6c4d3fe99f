"""Delete empty nodes: all that are past consolidateAfter, as many as the budget allows, in one command.

Spec section 5; S4, Consolidation Background (`deleteEmpty`: no simulation, no replacement); S0, Example 3 (a grace
period does not hold it back). Sits in decide, beside the other methods, which it does not know.
"""

from dovetail.decide.facts import NodeFacts
from dovetail.decide.method import MethodRun, take_within
from dovetail.decide.moves import bare_command
from dovetail.decide.scene import Scene, in_cost_order
from dovetail.model.command import Method


def candidates(scene: Scene) -> list[NodeFacts]:
    """Give the empty nodes in the order they are taken."""
    return in_cost_order(scene.passing(Method.EMPTY), scene.settings, scene.now)


def run(scene: Scene) -> MethodRun:
    """Give the one command that deletes every empty node within the budgets, if there is any."""
    method = Method.EMPTY
    found = candidates(scene)
    taken, held = take_within(scene, method, found, scene.left(method))
    commands = (bare_command(scene, method, taken),) if taken else ()
    return MethodRun(method=method, candidates=tuple(found), commands=commands, held=held)
