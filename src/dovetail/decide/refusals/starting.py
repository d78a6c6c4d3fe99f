"""Nodes that can't go while a machine is starting, because in every placement one of their pods would go there.

No command may rely on a node that is not initialized (gate 9). Suppose that there are more pods of a kind than the
remaining initialized nodes have room for, and that starting nodes have room for one. The pod that finds no initialized
node then goes to a starting one, or finds its room taken by earlier pods: either way a moved pod is on a node that is
not ready. Only pods that were waiting before, and those of leaving nodes without a planned place, may be there; so the
refusal is certain if the earlier ones of these are too few to fill all starting nodes. Exact: a simulation would never
disagree. Sits in decide, beside bounds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import Final

import msgspec
import numpy as np

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.refusal import Refusal
from dovetail.decide.refusals.needs import Flags, Ints, NeedRows
from dovetail.decide.refusals.room import ENOUGH, PlannedRoom
from dovetail.model.cached import cached
from dovetail.model.objects import Pod
from dovetail.model.verdicts import Gate
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.pods.classes import PodClass, SpecInfo
from dovetail.scheduling.snapshot import Snapshot

STARTING: Final = Refusal(
    gate=Gate.UNINITIALIZED_DESTINATION,
    why="One of its pods would go to a node that is not initialized yet.",
    simulated=False,
)
"""In every placement a pod goes to a starting node; which one is computed for the sentence (`Starting.destination`)."""
_READY_MAX = 100
"""If so many initialized nodes could take a pod, nothing is certain: no node has so many pods of a kind."""


class _Takers(msgspec.Struct, frozen=True, eq=False):
    """The initialized nodes with room for a pod, each with how many it takes, and the starting ones.

    `filled`: whether earlier harmless pods could fill all of these; None: it depends on the pod.
    """

    ready: tuple[tuple[int, int], ...]
    late: tuple[int, ...]
    filled: bool | None
    fit: int
    nodes: frozenset[int]


class Starting:
    """What is certain about the starting nodes of one snapshot; `closed` nodes refuse moved pods."""

    def __init__(self, snapshot: Snapshot, closed: Collection[int], planned: PlannedRoom) -> None:
        self._snapshot, self._planned, self._closed = snapshot, planned, list(closed)
        self._takers: dict[tuple[int, bool, tuple[str, str] | None], _Takers | None] = {}
        self._filled: dict[tuple[int, tuple[int, ...], int], int] = {}

    def destination(self, nodes: Collection[int]) -> tuple[Pod, str] | None:
        """Return a pod of these nodes that would go to a node that is not initialized, and that node."""
        if not self.any:
            return None
        if not self._planned.nodes.isdisjoint(nodes):
            return None  # pods that were planned for these nodes may go anywhere
        for node in nodes:
            for alike in self._snapshot.movers(node).alike:
                takers = self.takers_of(alike[0].cls, exempt=alike[0].exempt)
                found = None if takers is None else self._lands_on(takers, alike, nodes)
                if found is not None:
                    return found
        return None

    def lands(self, nodes: Sequence[NodeFacts], needs: NeedRows) -> list[bool]:
        """Return for each node alone whether `destination` finds a pod of it."""
        if not self.any or not nodes:
            return [False] * len(nodes)
        slots = needs.of(nodes, self._snapshot)
        index = self._snapshot.index
        places = np.fromiter((index[facts.name] for facts in nodes), dtype=np.int64, count=len(nodes))
        kinds, counts = needs.kinds(slots)
        limit, sure = self._limits(needs, kinds)
        over = counts > limit[kinds]
        lands: Flags = np.asarray((over & sure[kinds]).any(axis=1))
        unsure: Flags = (over & ~sure[kinds]).any(axis=1) & ~lands
        unsure |= (needs.counts[slots] != needs.started[slots]).any(axis=1)
        takers = {node for found in self._takers.values() if found is not None for node in found.nodes}
        unsure |= np.isin(places, list(takers))
        lands[np.isin(places, list(self._planned.nodes))] = False
        for at in np.flatnonzero(unsure).tolist():
            lands[at] = self.destination((int(places[at]),)) is not None
        found: list[bool] = lands.tolist()
        return found

    def _limits(self, needs: NeedRows, kinds: Ints) -> tuple[Ints, Flags]:
        """Return how many pods of each class initialized nodes take before one has to go to a starting node.

        Also whether that is so for all pods of the class. Both by the number of the class.
        """
        size = int(kinds.max(initial=0)) + 1
        limit, sure = np.full(size, ENOUGH, dtype=np.int64), np.ones(size, dtype=np.bool_)
        for number in np.flatnonzero(np.bincount(kinds.ravel())).tolist():
            takers = self.takers_of(needs.classes[number - 1], exempt=False) if number else None
            if takers is not None and not takers.filled:
                limit[number], sure[number] = min(takers.fit, ENOUGH), takers.filled is not None
        return limit, sure

    def _lands_on(self, takers: _Takers, alike: Sequence[Entry], gone: Collection[int]) -> tuple[Pod, str] | None:
        taken, late, filled = takers.fit, takers.late, takers.filled
        if not takers.nodes.isdisjoint(gone):
            taken = sum(count for node, count in takers.ready if node not in gone)
            late, filled = tuple([node for node in takers.late if node not in gone]), None
        if taken >= len(alike):
            return None
        # One of the first pods finds no initialized node; the pods before the last of them precede it.
        if filled is None:
            filled = self._can_fill(late, alike[taken]) == len(late)
        return None if filled else (alike[taken].pod, self._snapshot.states[late[0]].name)

    def takers_of(self, cls: PodClass, *, exempt: bool) -> _Takers | None:
        """Return the nodes that take a pod of the class by room, labels and taints; None if nothing is certain."""
        info, frame = cls.info, self._snapshot.frame
        # Pods with the same spec have the same takers, but for claims: these are their namespace's or their own.
        key = (info.id, exempt, (cls.namespace, cls.pod_name) if info.volumes else None)
        if key not in self._takers and not self._has_late_room(info):
            self._takers[key] = None
        known = key in self._takers
        if (known and self._takers[key] is None) or not frame.may_need_room_only(cls):
            return None
        if not known:
            self._takers[key] = self._count(cls, exempt=exempt)
        return self._takers[key]

    def _count(self, cls: PodClass, *, exempt: bool) -> _Takers | None:
        variant, room = self._snapshot.frame.first(cls), self._planned.room
        if not variant.simple:
            return None
        first, need = self._snapshot.initialized, cls.info.need
        mask = variant.mask
        if not exempt and self._closed:
            mask = mask.copy()
            mask[self._closed] = False
        for column, amount in need if self._planned.nodes else ():
            mask = mask & (room[:, column] >= amount)
        late = mask[first:].nonzero()[0]
        if not len(late):
            return None
        at = mask[:first].nonzero()[0]
        if len(at) > _READY_MAX:
            return None
        ready = at.tolist()
        counts = np.min([room[at, column] // amount for column, amount in need], axis=0).tolist()
        starting = tuple((late + first).tolist())
        nodes = frozenset((*ready, *starting))
        filled = self._are_filled(cls, starting)
        return _Takers(tuple(zip(ready, counts, strict=True)), starting, filled, sum(counts), nodes)

    def _has_late_room(self, info: SpecInfo) -> bool:
        """Return whether a starting node has room for a pod, by its requests alone."""
        return any(all(row[column] >= amount for column, amount in info.need) for row in self._late_rows)

    @cached
    def _late_rows(self) -> list[list[int]]:
        """Return the free resources of the starting nodes that take pods at all."""
        first, row = self._snapshot.initialized, self._planned.row
        return [row(first + at) for at in np.flatnonzero(self._snapshot.frame.open[first:]).tolist()]

    @cached
    def any(self) -> bool:
        """Return whether a node is still starting; if not, there are no results."""
        return self._snapshot.initialized < len(self._snapshot.states)

    def _are_filled(self, cls: PodClass, late: tuple[int, ...]) -> bool | None:
        """Return whether earlier harmless pods could fill all these nodes; None: for some pods of the class only."""
        if not self._harmless and not self._planned.unplanned:
            return False
        size, found = (-cls.cpu, -cls.memory), []
        for cut in (bisect_left, bisect_right):
            before = cut(self._harmless, size, key=lambda entry: entry.key[:2])
            found.append(self._filled_by(self._taken[before], late, cls.info) == len(late))
        return found[0] if found[0] == found[1] else None

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
