"""The last pod event of each node, as Dovetail itself saw it.

Karpenter writes the last pod event into the NodeClaim, but can miss one; the timers of a node count from the later of
both (spec section 2). Only what happens after the first complete view counts: a pod in the initial list is not an
event. Times are of the engine's own clock, so that changing the wall clock neither ends nor extends a wait. Decides
nothing. Sits in lifecycle, below `engine`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from dovetail.model.objects import Pod
from dovetail.scheduling.pods.events import event_nodes


class PodEvents:
    """The last pod event of every node, in nanoseconds of the engine's clock."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._changed: dict[str, None] = {}
        self._zero: datetime | None = None
        self._told: dict[str, datetime] = {}

    def note(self, old: Pod | None, new: Pod | None, elapsed: int) -> None:
        """Compare a pod with its last state: arriving, ending, starting to terminate and vanishing count."""
        for node in event_nodes(old, new):
            self._at[node] = elapsed
            self._changed[node] = None

    def forget(self, node: str) -> None:
        """Drop a node that is gone."""
        if self._at.pop(node, None) is not None:
            self._changed[node] = None

    def times(self, now: datetime, elapsed: int) -> Mapping[str, datetime]:
        """Return the last event of every node, by name, in wall-clock time; the same object while nothing changed."""
        zero = now - timedelta(microseconds=elapsed // 1000)
        if zero != self._zero:  # somebody has set the clock
            self._zero, self._told, self._changed = zero, {}, dict.fromkeys(self._at)
        if self._changed:
            told = dict(self._told)
            for node in self._changed:
                at = self._at.get(node)
                if at is None:
                    told.pop(node, None)
                else:
                    told[node] = zero + timedelta(microseconds=at // 1000)
            self._told, self._changed = told, {}
        return self._told
