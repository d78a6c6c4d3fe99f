"""The only owner of state between rounds: the last snapshot, the facts and the launch prices.

The memory never changes an answer, it only saves time: `Decider(memory=False)` is the oracle that the one with memory
is tested against. Not thread-safe. Sits on top of decide; the engine, the planner and the simulated Karpenter use it.
"""

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.cache import FactsCache
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.outcome import RoundResult
from dovetail.decide.question import Question
from dovetail.decide.refusals.launches import Launches
from dovetail.decide.refusals.standing import StandingRefusals
from dovetail.decide.revalidate import revalidate
from dovetail.decide.round import decide
from dovetail.model.command import Command
from dovetail.scheduling.frame import Frame
from dovetail.scheduling.snapshot import Snapshot


class Decider:
    """Answers questions, one after the other. `memory=False`: read everything again for every question."""

    def __init__(self, *, memory: bool = True) -> None:
        self._facts = FactsCache() if memory else None
        self._snapshot: Snapshot | None = None
        self._launches: Launches | None = None
        self._standing = StandingRefusals()

    def scene(self, question: Question) -> RoundContext:
        """Return the view of the cluster that the methods of a round decide on."""
        return self._context(question, self._standing)

    def _context(self, question: Question, standing: StandingRefusals | None) -> RoundContext:
        if self._facts is None:
            return RoundContext(question)
        self._snapshot = question.snapshot(previous=self._snapshot)
        return RoundContext(
            question,
            self._snapshot,
            facts_cache=self._facts,
            launches_of=self._launches_of,
            standing=standing,
        )

    def round(self, question: Question, *, every_method: bool = False, every_candidate: bool = False) -> RoundResult:
        """Return what to do now and why nothing more; the options are those of `plan_round`."""
        return decide(self.scene(question), every_method=every_method, every_candidate=every_candidate)

    def revalidate(self, command: Command, question: Question) -> Command | Refusal:
        """Check a command again on fresh state: return it, a part of it, or the gate that it fails.

        `question.in_flight` must not contain the command itself. Refusals of a few nodes are sooner found than compared
        with those that stand.
        """
        return revalidate(command, self._context(question, None))

    def _launches_of(self, frame: Frame) -> Launches:
        if self._launches is None or not self._launches.serves(frame):
            self._launches = Launches(frame)
        return self._launches
