"""The planner that decides for real: snapshot and `decide`, with the last snapshot kept for the next.

Sits in lifecycle, below `engine`.
"""

from dovetail.decide.facts.cache import FactsCache
from dovetail.decide.gates.price import Refusal
from dovetail.decide.outcome import RoundResult
from dovetail.decide.revalidate import revalidate
from dovetail.decide.round import plan_round
from dovetail.lifecycle.planner import Ask
from dovetail.model.command import Command
from dovetail.scheduling.snapshot import Snapshot


class RoundPlanner:
    """Builds a snapshot of what it is asked about and decides on it."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._pods = FactsCache()

    def _snapshot(self, ask: Ask) -> Snapshot:
        settings = ask.in_flight.marked_settings(ask.settings)
        self._last = Snapshot.build(ask.cluster, ask.catalogue, settings, ask.now, previous=self._last)
        return self._last

    def plan(self, ask: Ask) -> RoundResult:
        """Return what to do now, and why not more."""
        return plan_round(
            self._snapshot(ask),
            ask.settings,
            ask.now,
            in_flight=ask.in_flight,
            stabilized_until=ask.cost_held_until,
            managed_pools=ask.pools,
            memory=self._pods,
        )

    def validate(self, command: Command, ask: Ask) -> Command | Refusal:
        """Look at a command again on fresh state: the same or less of it, or why not."""
        return revalidate(
            command,
            self._snapshot(ask),
            ask.settings,
            ask.now,
            in_flight=ask.in_flight,
            managed_pools=ask.pools,
            memory=self._pods,
        )
