"""`plan --to-end`: the rounds one after the other on a captured cluster, until no round has anything left to do.

Each round's commands are applied with their planned result (`plan.apply`) before the next round starts. The clock is
stopped: timers that end later don't count. Budgets apply within a round. Decides nothing: every round is the core's
own. Sits in plan; `cli.planning.plan` prints it.
"""

from dataclasses import dataclass, replace

from dovetail.decide.decider import Decider
from dovetail.decide.document import Json, action, optimal_document
from dovetail.decide.optimal import Optimal, required_by
from dovetail.decide.outcome import RoundResult
from dovetail.decide.question import Question
from dovetail.model.command import Command
from dovetail.model.money import Money, format_money
from dovetail.plan.apply import Launched, apply_commands

ROUNDS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStep:
    """One round: its commands, what they opened, and the running totals once they have ended."""

    round: int
    commands: tuple[Command, ...]
    launched: tuple[tuple[Launched, ...], ...]
    nodes: int
    cost: Money
    saved: Money
    pods_moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToEnd:
    """All rounds. `first` is the first round's result, `last` that of the round that found nothing (or the limit)."""

    first: RoundResult
    last: RoundResult
    steps: tuple[RoundStep, ...]
    nodes: int
    cost: Money
    complete: bool

    @property
    def saved(self) -> Money:
        """Return what all rounds save per hour."""
        return self.steps[-1].saved if self.steps else 0

    @property
    def pods_moved(self) -> int:
        """Return how many restarts all rounds need."""
        return self.steps[-1].pods_moved if self.steps else 0

    @property
    def optimal(self) -> Optimal | None:
        """Return the value of all rounds together, and an upper bound for the first round's nodes."""
        at_most = self.first.value_at_most
        if at_most is None:
            return None
        required = required_by(command for step in self.steps for command in step.commands)
        value = max(0, self.saved - required)
        return Optimal(value=value, at_most=max(value, at_most))

    @property
    def commands(self) -> int:
        """Return how many commands all rounds have."""
        return sum(len(step.commands) for step in self.steps)

    def to_dict(self) -> Json:
        """Return the JSON of `dovetail plan --to-end`: the first round's, with `steps` and `end`."""
        return {**self.first.to_dict(), **self.steps_document()}

    def steps_document(self) -> Json:
        """Return `steps` and `end` as the contract promises them."""
        return {
            "steps": [
                {
                    "round": step.round,
                    "actions": [action(command) for command in step.commands],
                    "costPerHour": format_money(step.cost),
                    "savedPerHour": format_money(step.saved),
                    "podsMoved": step.pods_moved,
                }
                for step in self.steps
            ],
            "end": {
                "nodes": self.nodes,
                "costPerHour": format_money(self.cost),
                "savedPerHour": format_money(self.saved),
                "podsMoved": self.pods_moved,
                "commands": self.commands,
                "complete": self.complete,
                "optimal": optimal_document(self.optimal),
            },
        }


def plan_to_end(question: Question, rounds_max: int = ROUNDS_MAX) -> ToEnd:
    """Plan round after round until one has nothing to do, at most `rounds_max` of them."""
    decider = Decider()
    first = result = decider.round(question)
    start = cost = sum(result.prices.values())
    nodes = len(result.prices)
    steps: list[RoundStep] = []
    moved = opened = 0
    while result.commands and len(steps) < rounds_max:
        applied = apply_commands(question.cluster, result.commands, question.catalogue, question.now, opened + 1)
        opened += sum(map(len, applied.launched))
        moved += sum(command.pods for command in result.commands)
        question = replace(question, cluster=applied.cluster)
        commands, result = result.commands, decider.round(question)
        cost, nodes = sum(result.prices.values()), len(result.prices)
        steps.append(
            RoundStep(
                round=len(steps) + 1,
                commands=commands,
                launched=applied.launched,
                nodes=nodes,
                cost=cost,
                saved=start - cost,
                pods_moved=moved,
            )
        )
    return ToEnd(first=first, last=result, steps=tuple(steps), nodes=nodes, cost=cost, complete=not result.commands)
