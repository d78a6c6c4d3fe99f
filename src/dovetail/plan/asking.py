"""Ask the core again and again about changed copies of one question; what did not change is not read again.

Sits in plan, below `to_end`, `comparison` and `blockers`.
"""

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.cache import FactsCache
from dovetail.decide.outcome import RoundResult
from dovetail.decide.round import decide
from dovetail.plan.counterfactual import World as Question
from dovetail.scheduling.snapshot import Snapshot

__all__ = ["Decider", "Question"]


class Decider:
    """Answers questions one after the other."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._facts = FactsCache()

    def scene(self, question: Question) -> RoundContext:
        """Return the view of the cluster that the methods of a round decide on."""
        settings = question.in_flight.marked_settings(question.settings)
        self._snapshot = Snapshot.build(
            question.cluster, question.catalogue, settings, question.now, previous=self._snapshot
        )
        return RoundContext(
            self._snapshot,
            question.settings,
            question.now,
            in_flight=question.in_flight,
            managed_pools=question.managed_pools,
            memory=self._facts,
        )

    def round(self, question: Question, *, every_method: bool = False, every_candidate: bool = False) -> RoundResult:
        """Return what to do now, and why not more."""
        return decide(self.scene(question), every_method=every_method, every_candidate=every_candidate)
