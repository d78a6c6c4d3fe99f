"""The seam between the engine and the decisions: what a round is asked with, and who answers.

The engine knows when to decide; `decide` knows what. `RoundPlanner` joins them and keeps the last snapshot, so that the
next one is built from what changed. Tests put a planner of their own here. Sits in lifecycle, below `engine`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from dovetail.decide.gates.price import Refusal
from dovetail.decide.in_flight import InFlight
from dovetail.decide.outcome import BlockedMove, BudgetRow
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.command import Command
from dovetail.model.settings import Settings
from dovetail.model.verdicts import NodeVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """All that a decision depends on. `pools`: those that may be acted on; `cost_held_until`: stabilization (S4)."""

    cluster: Cluster
    catalogue: Catalogue
    settings: Settings
    now: datetime
    in_flight: InFlight
    pools: tuple[str, ...]
    cost_held_until: datetime | None = None


class Decision(Protocol):
    """What the engine reads of a round's result (`decide.outcome.RoundResult` has more)."""

    @property
    def commands(self) -> tuple[Command, ...]:
        """What to do now."""
        ...

    @property
    def budgets(self) -> tuple[BudgetRow, ...]:
        """What every pool allows, has used and has left."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know although nothing stops."""
        ...

    @property
    def blocked(self) -> tuple[BlockedMove, ...]:
        """Moves that the savings threshold refused."""
        ...

    @property
    def next_change(self) -> datetime | None:
        """When time alone could change the answer."""
        ...

    @property
    def verdicts(self) -> tuple[NodeVerdict, ...]:
        """Every node's verdict; worked out when first looked at."""
        ...


class Planner(Protocol):
    """Whoever decides."""

    def plan(self, ask: Ask) -> Decision:
        """Return what to do now, and why not more."""
        ...

    def validate(self, command: Command, ask: Ask) -> Command | Refusal:
        """Look at a command again on fresh state: the same or less of it, or why not."""
        ...


def round_planner() -> Planner:
    """Return the planner that decides for real."""
    from dovetail.lifecycle.rounds import RoundPlanner

    return RoundPlanner()
