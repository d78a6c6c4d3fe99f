"""What is remembered from one round to the next: the last snapshot, the facts, what pods need and what launches cost.

It saves time and changes no answer. Sits in decide, below the scene; `Decider` owns it.
"""

from dovetail.decide.facts.cache import FactsCache
from dovetail.decide.question import Question
from dovetail.decide.refusals.launches import Launches
from dovetail.decide.refusals.needs import NeedRows
from dovetail.scheduling.frame import Frame
from dovetail.scheduling.snapshot import Snapshot


class Memory:
    """What earlier rounds found; empty at first. `keeps`: false if no other round follows."""

    def __init__(self, *, keeps: bool = True) -> None:
        self.facts = FactsCache(keeps=keeps)
        self._snapshot: Snapshot | None = None
        self._launches: Launches | None = None
        self._needs: NeedRows | None = None

    def snapshot_of(self, question: Question) -> Snapshot:
        """Return the snapshot of a question, which takes over from the last one what is still the same."""
        self._snapshot = question.snapshot(previous=self._snapshot)
        return self._snapshot

    def launches_of(self, frame: Frame) -> Launches:
        """Return what launches cost under a frame's templates."""
        if self._launches is None or not self._launches.serves(frame):
            self._launches = Launches(frame)
        return self._launches

    def needs_of(self, snapshot: Snapshot) -> NeedRows:
        """Return what the pods of each node need."""
        if self._needs is None or not self._needs.serves(snapshot):
            self._needs = NeedRows(snapshot.frame.room.shape[1], snapshot.lineage)
        return self._needs
