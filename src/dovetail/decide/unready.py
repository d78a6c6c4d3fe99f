"""Nodes that can't go while a machine is on its way: a pod of theirs would land there, whatever is placed where.

No command may count on a node that is not initialized yet (gate 9). Take a pod that no initialized node has room for
once the nodes in question are gone, and a node on its way that has room for it. When the pod's turn comes it lands
there, or finds the room taken by pods that landed there before it: either way some pod that is moved is on a node that
is not ready. Only pods that waited before, and those of leaving nodes, may be there without harm, so what those that
come before it need is taken off the room first. Exact in the sense that a simulation could never say otherwise. Sits in
decide, beside bounds.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from dovetail.decide.facts import NodeFacts
from dovetail.model.objects import Pod
from dovetail.scheduling.engine import Entry
from dovetail.scheduling.snapshot import Snapshot

_READY_MAX = 100
"""Of a pod that so many initialized nodes could take, nothing is certain anyway: a batch is no larger."""


@dataclass(frozen=True, slots=True, eq=False)
class _Takers:
    """The initialized nodes that have room for a pod, and those on their way."""

    ready: tuple[int, ...]
    late: tuple[int, ...]


class Unready:
    """What is certain about the nodes on their way of one snapshot; `closed` nodes refuse pods that are moved."""

    def __init__(self, snapshot: Snapshot, closed: Sequence[int] = ()) -> None:
        self._snapshot = snapshot
        self._closed = list(closed)
        self._takers: dict[tuple[int, bool], _Takers | None] = {}

    def destination(self, nodes: Sequence[NodeFacts]) -> tuple[Pod, str] | None:
        """Give a pod of these nodes that would land on a node that is not initialized, and that node."""
        if self._snapshot.initialized == len(self._snapshot.states):
            return None
        gone = {facts.index for facts in nodes}
        for facts in nodes:
            for entry in self._snapshot.movers(facts.index).first_of_each:
                node = self._lands_on(entry, gone)
                if node is not None:
                    return entry.pod, self._snapshot.states[node].name
        return None

    def _lands_on(self, entry: Entry, gone: Collection[int]) -> int | None:
        takers = self._takers_of(entry)
        if takers is None or not all(node in gone for node in takers.ready):
            return None
        return next((node for node in takers.late if node not in gone and self._keeps_room(node, entry)), None)

    def _takers_of(self, entry: Entry) -> _Takers | None:
        """Give who takes a pod of the class, as far as room, labels and taints go; None where nothing is certain."""
        mark = (entry.cls.id, entry.exempt)
        if mark not in self._takers:
            self._takers[mark] = self._find(entry)
        return self._takers[mark]

    def _find(self, entry: Entry) -> _Takers | None:
        variant = self._snapshot.frame.first(entry.cls)
        if not variant.simple:
            return None
        first = self._snapshot.initialized
        mask = variant.mask
        if not entry.exempt and self._closed:
            mask = mask.copy()
            mask[self._closed] = False
        late = mask[first:].nonzero()[0]
        if not len(late):
            return None
        ready = mask[:first].nonzero()[0]
        if len(ready) > _READY_MAX:
            return None
        return _Takers(tuple(ready.tolist()), tuple((late + first).tolist()))

    # ------------------------------------------------------------ pods that may land there without harm

    @cached_property
    def _harmless(self) -> list[Entry]:
        """Pods that waited before and those of leaving nodes, in the order in which they are placed."""
        movers = (self._snapshot.movers(index) for index, _ in self._snapshot.leaving)
        leaving = (entry for each in movers for entry in each.waiting)
        return sorted((*self._snapshot.queued, *leaving), key=lambda entry: entry.key)

    @cached_property
    def _taken(self) -> list[dict[int, int]]:
        """What the first so many of them need together, by resource."""
        sums: list[dict[int, int]] = [{}]
        for entry in self._harmless:
            total = dict(sums[-1])
            for column, amount in entry.cls.info.need:
                total[column] = total.get(column, 0) + amount
            sums.append(total)
        return sums

    def _keeps_room(self, node: int, entry: Entry) -> bool:
        """Whether harmless pods leave room for the pod on the node, if all that come before it go there."""
        if not self._harmless:
            return True
        before = bisect_left(self._harmless, entry.key, key=lambda other: other.key)
        taken, row = self._taken[before], self._snapshot.frame.rows[node]
        return all(row[column] - taken.get(column, 0) >= amount for column, amount in entry.cls.info.need)
