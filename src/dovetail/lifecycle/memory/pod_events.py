"""The last pod event of each node, as Dovetail itself saw it.

Karpenter writes the last pod event into the NodeClaim, but can miss one; the timers of a node count from the later of
both (docs/rules.md#timers). Only what happens after the first complete view counts: a pod in the initial list is not an
event. Times are of the engine's own clock, so that changing the wall clock neither ends nor extends a wait. Decides
nothing. Sits in lifecycle, below `engine`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from dovetail.model.listing import Table
from dovetail.model.objects import Pod
from dovetail.scheduling.pods.pod import event_nodes


class PodEvents:
    """The last pod event of every node, in nanoseconds of the engine's clock."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._told: tuple[datetime, Table[datetime]] | None = None
        self._news: dict[str, None] = {}

    def note(self, old: Pod | None, new: Pod | None, elapsed: int) -> None:
        """Compare a pod with its last state: arriving, ending, starting to terminate and vanishing count."""
        for node in event_nodes(old, new):
            self._at[node] = elapsed
            self._news[node] = None

    def forget(self, node: str) -> None:
        """Drop a node that is gone."""
        if self._at.pop(node, None) is not None:
            self._news[node] = None

    def times(self, now: datetime, elapsed: int) -> Mapping[str, datetime]:
        """Return the last event of every node, by name, in wall-clock time; the same object while nothing changed."""
        zero = now - timedelta(microseconds=elapsed // 1000)
        if self._told is None or self._told[0] != zero:
            self._told = (zero, Table.of({node: _instant(zero, at) for node, at in self._at.items()}))
        elif self._news:
            news = {node: _instant(zero, self._at[node]) if node in self._at else None for node in self._news}
            self._told = (zero, self._told[1].edited(news))
        self._news = {}
        return self._told[1]


def _instant(zero: datetime, at: int) -> datetime:
    return zero + timedelta(microseconds=at // 1000)
