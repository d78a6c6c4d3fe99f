"""How good commands are compared with the best possible ones: a share of a bound.

Value is what commands save per hour minus what their disruption has to save (spec section 21). `search.dual` computes
an upper bound for any set of the nodes that may go now, ignoring budgets. The true optimum is at most that, so a plan
reaches at least the share that is shown. Sits in decide, beside `outcome`.
"""

import math
from collections.abc import Iterable

import msgspec

from dovetail.decide.context import RoundContext
from dovetail.decide.search.dual import SLACK, ValueBound
from dovetail.model.command import Action, Command, Method
from dovetail.model.money import UNIT, Money

_SAVING = (Action.DELETE_EMPTY, Action.DELETE_COST, Action.REPLACE_COST)


class Optimal(msgspec.Struct, frozen=True, kw_only=True):
    """The value of commands per hour, and an upper bound for any commands."""

    value: Money
    at_most: Money

    @property
    def reached(self) -> float | None:
        """Return the share of the bound that is reached at least, from 0 to 1; None: nothing is worth doing."""
        return None if not self.at_most else min(1.0, self.value / self.at_most)


def required_by(commands: Iterable[Command]) -> Money:
    """Return what the disruption of commands has to save per hour."""
    return sum(command.required_savings for command in commands if command.action in _SAVING)


def optimal_of(commands: Iterable[Command], at_most: Money | None) -> Optimal | None:
    """Compare the commands of one round with a bound; None if no node may go."""
    if at_most is None:
        return None
    saving = [command for command in commands if command.action in _SAVING]
    value = max(0, sum(command.savings for command in saving) - required_by(saving))
    return Optimal(value=value, at_most=max(at_most, value))


def value_at_most(context: RoundContext) -> Money | None:
    """Return an upper bound on the hourly value of any set of the nodes that may go now; None: none may go."""
    open_ones = dict.fromkeys((*context.passing(Method.EMPTY), *context.passing(Method.MULTI_NODE)))
    if not open_ones:
        return None
    bound = ValueBound(context, tuple(open_ones)).at_most()
    return math.ceil(bound * UNIT) if bound > SLACK else 0
