"""How good commands are compared with the best possible ones: a share of a bound.

Value is what commands save per hour minus what their disruption has to save (docs/rules.md#value). `search.dual`
computes an upper bound for any set of the nodes that may go now, ignoring budgets. The true optimum is at most that, so
a plan reaches at least the share that is shown. Sits in decide, beside `outcome`.
"""

import math
from collections.abc import Iterable

import msgspec

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.scene import Scene
from dovetail.decide.search.dual import SLACK, ValueBound
from dovetail.model.command import Action, Command, Method
from dovetail.model.money import UNIT, Money

_ROUNDING = round(SLACK * UNIT)
_SAVING = (Action.DELETE_EMPTY, Action.DELETE_COST, Action.REPLACE_COST)


class Optimal(msgspec.Struct, frozen=True, kw_only=True):
    """The value of commands per hour, and an upper bound for any commands."""

    value: Money
    at_most: Money

    @property
    def reached(self) -> float | None:
        """Return the share of the bound that is reached at least, from 0 to 1; None: nothing is worth doing."""
        return None if not self.at_most else min(1.0, self.value / self.at_most)


def is_for_savings(command: Command) -> bool:
    """Return whether the bound speaks of this kind of command: it removes nodes to save money."""
    return command.action in _SAVING


def optimal_of(commands: Iterable[Command], at_most: Money | None) -> Optimal | None:
    """Compare commands with a bound for the same nodes; None if no bound is known.

    The bound is never raised to fit: if commands are worth more, beyond rounding, it is wrong and not shown.
    """
    saving = [command for command in commands if is_for_savings(command)]
    value = max(0, sum(command.savings - command.required_savings for command in saving))
    if at_most is None or value > at_most + _ROUNDING:
        return None
    return Optimal(value=value, at_most=max(at_most, value))


def open_nodes(scene: Scene) -> tuple[NodeFacts, ...]:
    """Return the nodes that may go now to save money."""
    return tuple(dict.fromkeys((*scene.passing(Method.EMPTY), *scene.passing(Method.MULTI_NODE))))


def value_at_most(scene: Scene) -> Money | None:
    """Return an upper bound on the hourly value of any set of the nodes that may go now; None: none may go."""
    open_ones = open_nodes(scene)
    if not open_ones:
        return None
    bound = ValueBound(scene, open_ones).at_most()
    return math.ceil(bound * scene.price_scale) if bound > SLACK else 0
