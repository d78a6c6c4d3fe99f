"""Delete empty nodes: all whose consolidateAfter has passed, as many as the budget allows, in one command.

See docs/rules.md#methods; lifecycle-controller, Consolidation Background (`deleteEmpty`: no simulation, no
replacement); grace-period, Example 3 (a grace period does not hold it back). Sits in decide, beside the other methods,
which it does not know.
"""

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.table import in_cost_order
from dovetail.decide.methods.method import MethodRun, out_of_budget, take_within
from dovetail.decide.methods.moves import bare_command
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.command import Method


def candidates(scene: Scene) -> tuple[NodeFacts, ...]:
    """Return the empty nodes in the order in which they are deleted."""
    return in_cost_order(scene.passing(Method.EMPTY), scene.settings, scene.now)


def run(work: Work) -> MethodRun:
    """Return the command that deletes every empty node within the budgets, if there are any."""
    scene = work.scene
    method = Method.EMPTY
    found = candidates(scene)
    taken, waiting = take_within(found, scene.left(method))
    commands = (bare_command(scene, method, taken),) if taken else ()
    return MethodRun(method=method, commands=commands, held=out_of_budget(scene, method, waiting))
