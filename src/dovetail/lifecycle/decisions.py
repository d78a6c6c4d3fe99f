"""The interface between the engine and the decisions: what the engine reads of a round's result, and the decider.

The engine knows when to decide; `decide` knows what; `decide.decider.Decider` connects them. Tests pass their own
decider. Sits in lifecycle, below `engine`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from dovetail.decide.outcome import BlockedMove, BudgetRow, ExpiringNode, RollChange, SteeringPlan
from dovetail.decide.question import Question
from dovetail.decide.refusal import Refusal
from dovetail.decide.rollouts.status import RollStatus
from dovetail.model.command import Command
from dovetail.model.money import Money
from dovetail.model.persistence import PoolLoad
from dovetail.model.verdicts import BriefVerdict


class Decision(Protocol):
    """What the engine reads of a round's result (`decide.round.RoundResult` has more)."""

    @property
    def commands(self) -> tuple[Command, ...]:
        """Return what to do now."""
        ...

    @property
    def budgets(self) -> tuple[BudgetRow, ...]:
        """Return what every pool allows, has used and has left."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings."""
        ...

    @property
    def blocked(self) -> tuple[BlockedMove, ...]:
        """Return the moves that the savings threshold refused."""
        ...

    @property
    def next_change(self) -> datetime | None:
        """Return when time alone could change the answer."""
        ...

    @property
    def rolling(self) -> tuple[RollChange, ...]:
        """Return what NodePools should say about their rolls."""
        ...

    @property
    def rollouts(self) -> tuple[RollStatus, ...]:
        """Return the state of every roll, by pool."""
        ...

    @property
    def steering(self) -> SteeringPlan:
        """Return the nodes to close and the pods to mark (docs/rules.md#steering)."""
        ...

    @property
    def could_save(self) -> Mapping[str, Money | None]:
        """Return what removing each node would save per hour (docs/rules.md#waste)."""
        ...

    @property
    def loads(self) -> Mapping[str, PoolLoad]:
        """Return the load of every pool that prices restarts (docs/rules.md#one-price)."""
        ...

    @property
    def expiring(self) -> tuple[ExpiringNode, ...]:
        """Return the nodes that Karpenter ends by force within a week (docs/rules.md#expiry); computed lazily."""
        ...

    @property
    def brief_verdicts(self) -> tuple[BriefVerdict, ...]:
        """Return every node's verdict without its reasons; computed on first access."""
        ...

    def why(self, node: str) -> str:
        """Return the reason of a node's verdict."""
        ...


class RoundDecider(Protocol):
    """What decides for an engine; `decide.decider.Decider` is the real one."""

    def round(self, question: Question) -> Decision:
        """Return what to do now, and why nothing more."""
        ...

    def revalidate(self, command: Command, question: Question) -> Command | Refusal:
        """Check a command again on fresh state: return it or a part of it, or why it is refused."""
        ...
