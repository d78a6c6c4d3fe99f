"""Delete empty nodes: all whose consolidateAfter has passed, as many as the budget allows, in one command.

Spec section 5; lifecycle-controller, Consolidation Background (`deleteEmpty`: no simulation, no replacement);
grace-period, Example 3 (a grace period does not hold it back). Sits in decide, beside the other methods, which it does
not know.
"""

from dovetail.decide.context import RoundContext, in_cost_order
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.methods.method import MethodRun, held_back, take_within
from dovetail.decide.methods.moves import bare_command
from dovetail.model.command import Method


def candidates(context: RoundContext) -> tuple[NodeFacts, ...]:
    """Return the empty nodes in the order in which they are deleted."""
    return in_cost_order(context.passing(Method.EMPTY), context.settings, context.now)


def run(context: RoundContext) -> MethodRun:
    """Return the command that deletes every empty node within the budgets, if there are any."""
    method = Method.EMPTY
    found = candidates(context)
    taken, waiting = take_within(found, context.left(method))
    commands = (bare_command(context, method, taken),) if taken else ()
    return MethodRun(method=method, commands=commands, held=held_back(context, method, waiting))
