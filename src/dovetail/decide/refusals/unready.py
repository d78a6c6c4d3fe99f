"""Nodes that can't go while a machine is starting, because in every placement one of their pods would go there.

No command may rely on a node that is not initialized (gate 9). Suppose that there are more pods of a kind than the
remaining initialized nodes have room for, and that starting nodes have room for one. The pod that finds no initialized
node then goes to a starting one, or finds its room taken by earlier pods: either way a moved pod is on a node that is
not ready. Only pods that were waiting before, and those of leaving nodes without a planned place, may be there; so the
refusal is certain if the earlier ones of these are too few to fill all starting nodes. Exact: a simulation would never
disagree. Sits in decide, beside bounds.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dovetail.decide.refusals.planned_room import PlannedRoom
from dovetail.model.cached import cached
from dovetail.model.objects import Pod
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.pods.classes import SpecInfo
from dovetail.scheduling.snapshot import Snapshot

_READY_MAX = 100
"""Of a pod that so many initialized nodes could take, nothing is certain anyway: no node has so many pods of a kind."""


@dataclass(frozen=True, slots=True, eq=False)
class _Takers:
    """The initialized nodes with room for a pod, each with how many it takes, and the starting ones."""

    ready: tuple[tuple[int, int], ...]
    late: tuple[int, ...]


class Unready:
    """What is certain about the starting nodes of one snapshot; `closed` nodes refuse moved pods."""

    def __init__(self, snapshot: Snapshot, closed: Sequence[int] = (), planned: PlannedRoom | None = None) -> None:
        self._snapshot = snapshot
        self._planned = planned or PlannedRoom(snapshot)
        self._closed = list(closed)
        self._takers: dict[tuple[int, bool], _Takers | None] = {}
        self._filled: dict[tuple[int, tuple[int, ...], int], int] = {}

    def destination(self, nodes: Collection[int]) -> tuple[Pod, str] | None:
        """Return a pod of these nodes that would go to a node that is not initialized, and that node."""
        if self._snapshot.initialized == len(self._snapshot.states):
            return None
        if not self._planned.nodes.isdisjoint(nodes):
            return None  # pods that were planned for these nodes may go anywhere
        known = self._takers
        for node in nodes:
            for alike in self._snapshot.movers(node).alike:
                mark = alike[0].mark
                takers = known[mark] if mark in known else self._takers_of(alike[0])
                found = None if takers is None else self._lands_on(takers, alike, nodes)
                if found is not None:
                    return found
        return None

    def _lands_on(self, takers: _Takers, alike: Sequence[Entry], gone: Collection[int]) -> tuple[Pod, str] | None:
        taken = sum(count for node, count in takers.ready if node not in gone)
        if taken >= len(alike):
            return None
        late = tuple([node for node in takers.late if node not in gone])
        # One of the first pods finds no initialized node; the pods before the last of them precede it.
        if not late or self._can_fill(late, alike[taken]) == len(late):
            return None
        return alike[taken].pod, self._snapshot.states[late[0]].name

    def _takers_of(self, entry: Entry) -> _Takers | None:
        """Return the nodes that take a pod of the class by room, labels and taints; None if nothing is certain."""
        found = self._takers[entry.mark] = self._find(entry)
        return found

    def _find(self, entry: Entry) -> _Takers | None:
        variant = self._snapshot.frame.first(entry.cls)
        if not variant.simple:
            return None
        first, need = self._snapshot.initialized, entry.cls.info.need
        mask = variant.mask
        if not entry.exempt and self._closed:
            mask = mask.copy()
            mask[self._closed] = False
        for column, amount in need if self._planned.nodes else ():
            mask = mask & (self._planned.room[:, column] >= amount)
        late = mask[first:].nonzero()[0]
        if not len(late):
            return None
        ready = mask[:first].nonzero()[0].tolist()
        if len(ready) > _READY_MAX:
            return None
        row = self._planned.row
        counts = [min(row(node)[column] // amount for column, amount in need) for node in ready]
        return _Takers(tuple(zip(ready, counts, strict=True)), tuple((late + first).tolist()))

    # ------------------------------------------------------------ pods that may land there without harm

    @cached
    def _harmless(self) -> list[Entry]:
        """Return pods that may be placed before others, in that order.

        These are the pods that were waiting before; in the profile karpenter-1.15, also those of leaving nodes.
        """
        leaving = self._planned.unplanned if self._snapshot.settings.rules.others_pods_count else ()
        return sorted((*self._snapshot.queued, *leaving), key=lambda entry: entry.key)

    @cached
    def _taken(self) -> list[dict[int, int]]:
        """Return the total needs of the first of them, by resource, with all that are placed first in any case."""
        sums: list[dict[int, int]] = [{}]
        for entry in () if self._snapshot.settings.rules.others_pods_count else self._planned.unplanned:
            _add(sums[0], entry)
        for entry in self._harmless:
            sums.append(dict(sums[-1]))
            _add(sums[-1], entry)
        return sums

    def _can_fill(self, late: tuple[int, ...], entry: Entry) -> int:
        """Return how many of these nodes at most could be filled by earlier harmless pods, so that the pod doesn't fit.

        A node is full for the pod if one resource is short; for each resource, the smallest gaps are filled first.
        """
        if not self._harmless and not self._planned.unplanned:
            return 0
        before = bisect_left(self._harmless, entry.key, key=lambda other: other.key)
        asked = (entry.cls.info.id, late, before)
        if asked not in self._filled:
            self._filled[asked] = self._filled_by(self._taken[before], late, entry.cls.info)
        return self._filled[asked]

    def _filled_by(self, taken: dict[int, int], late: tuple[int, ...], info: SpecInfo) -> int:
        row, filled = self._planned.row, 0
        for column, amount in info.need:
            left = taken.get(column, 0)
            for gap in sorted(row(node)[column] - amount + 1 for node in late):
                if gap > left:
                    break
                left -= gap
                filled += 1
        return min(filled, len(late))


def _add(total: dict[int, int], entry: Entry) -> None:
    for column, amount in entry.cls.info.need:
        total[column] = total.get(column, 0) + amount
