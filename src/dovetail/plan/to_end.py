"""`plan --to-end`: the rounds one after the other on a captured cluster, until no round has anything left to do.

Each round's commands are applied with their planned result (`plan.apply`) before the next round starts. The clock is
stopped: timers that end later don't count. Budgets apply within a round. Nodes that are leaving anyway cost what they
cost at the beginning, so the end saves what the commands promise, under commitments too. Decides nothing: every round
is the core's own. Sits in plan; `cli.planning.plan` prints it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dovetail.decide.decider import Decider
from dovetail.decide.document import Json, action, optimal_document
from dovetail.decide.optimal import Optimal, is_for_savings, open_nodes, optimal_of
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult
from dovetail.decide.words import clock
from dovetail.model.command import Command
from dovetail.model.money import HOURS_A_MONTH, Money, format_money
from dovetail.plan.apply import Launched, apply_commands, keep_rolls
from dovetail.plan.pace import Pace, departures_of, pace_of

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
    """All rounds. `first` is the first round's result, `last` that of the round that found nothing (or the limit).

    `pace`: how long they take. `after`: the question that `last` answers. `removable`: the nodes of the first bound.
    """

    first: RoundResult
    last: RoundResult
    steps: tuple[RoundStep, ...]
    nodes: int
    nodes_before: int
    cost: Money
    complete: bool
    pace: Pace
    after: Question
    removable: frozenset[str]

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
        """Return the value of all rounds together and an upper bound for the same actions; None if none is known.

        The bound is for any set of the nodes that could go for their cost in the first round. It says nothing of
        expired or drifted nodes, nor of nodes that could go only later.
        """
        commands = [command for step in self.steps for command in step.commands]
        if any(not is_for_savings(entry) or not self.removable.issuperset(entry.nodes) for entry in commands):
            return None
        return optimal_of(commands, self.first.value_at_most)

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
                "savedPerMonth": format_money(self.saved * HOURS_A_MONTH),
                "seconds": self.pace.seconds,
                "expectedEnd": None if self.pace.end is None else clock(self.pace.end),
                "pacedBy": self.pace.paced_by,
                "optimal": optimal_document(self.optimal),
            },
        }


def plan_to_end(question: Question, rounds_max: int = ROUNDS_MAX) -> ToEnd:
    """Plan round after round until one has nothing to do, at most `rounds_max` of them."""
    decider = Decider()
    scene = decider.scene(question)
    removable = frozenset(facts.name for facts in open_nodes(scene))
    first = result = decider.round(question)
    start = cost = result.cost_per_hour
    nodes = before = len(question.cluster.nodes)
    steps: list[RoundStep] = []
    moved = opened = 0
    hopeful = question.settings.rules.hopeful_savings
    while result.commands and len(steps) < rounds_max:
        kept = keep_rolls(question, result)
        applied = apply_commands(kept, result.commands, question.catalogue, question.now, opened + 1, hopeful=hopeful)
        opened += sum(map(len, applied.launched))
        moved += sum(command.pods for command in result.commands)
        question = replace(question, cluster=applied.cluster)
        commands, staying, result = result.commands, result.staying_cost, decider.round(question)
        cost, nodes = cost - (staying - result.staying_cost), len(question.cluster.nodes)
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
    return ToEnd(
        first=first,
        last=result,
        steps=tuple(steps),
        nodes=nodes,
        nodes_before=before,
        cost=cost,
        complete=not result.commands,
        after=question,
        pace=pace_of(scene, departures_of(scene, _opened(steps))),
        removable=removable,
    )


def _opened(steps: Iterable[RoundStep]) -> Iterator[tuple[Command, list[tuple[str, str]]]]:
    """Yield every command with the nodes that it opens, and their pools."""
    for step in steps:
        for command, opened in zip(step.commands, step.launched, strict=True):
            yield command, [(entry.node, entry.node_pool) for entry in opened]
