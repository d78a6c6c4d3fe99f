"""Nodes that can't go while a machine is on its way: a pod would land there, whatever a simulation places where.

No command may count on a node that is not initialized yet (gate 9). Take a pod that no initialized node has room for
once the nodes in question are gone, and a node on its way that has room for it. When the pod's turn comes it lands
there, or finds the room taken by pods that landed there before it: either way some pod is on a node that is not ready.
Only pods of leaving nodes may be there without harm, so what those that come before it need is taken off the room
first. Exact in the sense that a simulation could never say otherwise. Sits in decide, beside bounds.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
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
        """Give a pod that would land on a node that is not initialized once these nodes are gone, and that node."""
        if self._snapshot.initialized == len(self._snapshot.states):
            return None
        gone = {facts.index for facts in nodes}
        found = self._anyway
        if found is None or found[1] in gone:
            groups = (self._waiting, *(self._snapshot.movers(facts.index).first_of_each for facts in nodes))
            found = next((hit for group in groups if (hit := self._first(group, gone)) is not None), None)
        return None if found is None else (found[0], self._snapshot.states[found[1]].name)

    @cached_property
    def _anyway(self) -> tuple[Pod, int] | None:
        """A pending pod that lands on a node on its way, whichever others go."""
        return self._first(self._waiting, frozenset())

    @cached_property
    def _waiting(self) -> list[Entry]:
        """The pending pods that may be of use: the first of each class."""
        first: dict[int, Entry] = {}
        for entry in sorted(self._snapshot.queued, key=lambda entry: entry.key):
            first.setdefault(entry.cls.id, entry)
        return [entry for entry in first.values() if self._takers_of(entry) is not None]

    def _first(self, entries: Iterable[Entry], gone: Collection[int]) -> tuple[Pod, int] | None:
        for entry in entries:
            takers = self._takers_of(entry)
            if takers is not None and all(node in gone for node in takers.ready):
                for node in takers.late:
                    if node not in gone and self._keeps_room(node, entry):
                        return entry.pod, node
        return None

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

    # ------------------------------------------------------------ pods of leaving nodes

    @cached_property
    def _leaving(self) -> list[Entry]:
        """The pods of leaving nodes, in the order in which they are placed."""
        movers = (self._snapshot.movers(index) for index, _ in self._snapshot.leaving)
        return sorted((entry for each in movers for entry in each.waiting), key=lambda entry: entry.key)

    @cached_property
    def _taken(self) -> list[dict[int, int]]:
        """What the first so many of them need together, by resource."""
        sums: list[dict[int, int]] = [{}]
        for entry in self._leaving:
            total = dict(sums[-1])
            for column, amount in entry.cls.info.need:
                total[column] = total.get(column, 0) + amount
            sums.append(total)
        return sums

    def _keeps_room(self, node: int, entry: Entry) -> bool:
        """Whether pods of leaving nodes leave room for the pod on the node, if all that come before it go there."""
        if not self._leaving:
            return True
        before = bisect_left(self._leaving, entry.key, key=lambda other: other.key)
        taken, row = self._taken[before], self._snapshot.frame.rows[node]
        return all(row[column] - taken.get(column, 0) >= amount for column, amount in entry.cls.info.need)
