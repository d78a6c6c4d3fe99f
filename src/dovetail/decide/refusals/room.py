"""The free room of nodes, less what is planned: which nodes take a kind of pod, and how many of them.

Simulations put the pods of leaving nodes where commands under way have planned them, before any other pod
(`scheduling.under_way`), so no other pod can count on that room. Where nothing is known about the plans, all free room
counts. Labels, taints and topology are ignored. Sits in decide, below bounds and starting.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dovetail.decide.refusals.needs import AMOUNT_MAX, Ints, NeedRows
from dovetail.model.cached import cached
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.launch.machines import Amounts, Mask
from dovetail.scheduling.pods.classes import SpecInfo
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.under_way import Settled

ENOUGH: Final = 2**62
COUNTED_MAX: Final = 16
"""If more nodes than this have room for a pod, all pods are assumed to fit; else those that fit are counted."""
_ROOMIEST: Final = 64
"""How many nodes are looked at first; if more than `COUNTED_MAX` of them have room, the others don't matter."""


class PlannedRoom:
    """`room`: the free resources of every node; `nodes`: where pods of leaving nodes are planned."""

    def __init__(self, snapshot: Snapshot, settled: Settled | None = None) -> None:
        frame = snapshot.frame
        self.room: Amounts = frame.room if settled is None else settled.room(frame)
        self.nodes: frozenset[int] = frozenset() if settled is None else settled.nodes
        self._settled, self._snapshot = settled, snapshot
        self._rows: dict[int, list[int]] = {}

    @property
    def unplanned(self) -> Sequence[Entry]:
        """Return the pods of leaving nodes without a planned place: they may go anywhere."""
        return self._snapshot.leaving_entries if self._settled is None else self._settled.unsettled

    def row(self, node: int) -> list[int]:
        """Return a node's free resources as plain numbers; don't modify them."""
        if node not in self.nodes:
            return self._snapshot.frame.row(node)
        found = self._rows.get(node)
        if found is None:
            found = self._rows[node] = self.room[node].tolist()
        return found


class Shelter:
    """The nodes that could take pods. `room`: the free resources of every node; `takes`: which take a pod at all.

    `on_node`: how many pods of a spec fit on a node, by node and number of the spec, where they were counted.
    """

    def __init__(self, room: Amounts, takes: Mask) -> None:
        self._room, self._takes = room, takes
        self._places: Ints = takes.nonzero()[0]
        self._free: Amounts = room[self._places]
        self._most: Amounts = self._free.max(axis=0, initial=-1)
        self._fit: Ints = np.full(1, ENOUGH, dtype=np.int64)
        self.on_node: dict[int, dict[int, int]] = {}
        self._usable: dict[tuple[int, ...], tuple[list[int], Mask]] = {}

    def fit(self, needs: NeedRows, numbers: Ints) -> Ints:
        """Return how many pods of each spec fit on all nodes together; on many nodes, simply enough."""
        known = len(self._fit)
        if known < len(needs.each):
            self._fit = np.append(self._fit, np.full(len(needs.each) - known, -1, dtype=np.int64))
        asked = np.zeros(len(self._fit), dtype=np.bool_)
        asked[numbers] = True
        new = (asked & (self._fit < 0)).nonzero()[0]
        if len(new):
            each = needs.each[new]
            nowhere = (each > self._most).any(axis=1)
            everywhere = (self._roomiest[None] >= each[:, None]).all(axis=2).sum(axis=1) > COUNTED_MAX
            everywhere &= ~nowhere & (each < AMOUNT_MAX).all(axis=1)
            self._fit[new] = np.where(everywhere, ENOUGH, 0)
            for number in new[~(nowhere | everywhere)].tolist():
                self._fit[number] = self._count(number, needs.infos[number - 1])
        return self._fit[numbers]

    @cached
    def _roomiest(self) -> Amounts:
        if len(self._free) <= _ROOMIEST:
            return self._free
        share = (self._free / np.maximum(self._most, 1)).min(axis=1)
        return self._free[np.argpartition(-share, _ROOMIEST)[:_ROOMIEST]]

    def _count(self, number: int, info: SpecInfo) -> int:
        fits = np.ones(len(self._free), dtype=np.bool_)
        for column, amount in info.need:
            fits &= self._free[:, column] >= amount
        near = fits.nonzero()[0]
        if len(near) > COUNTED_MAX:
            return ENOUGH
        total = 0
        for place, row in zip(self._places[near].tolist(), self._free[near].tolist(), strict=True):
            count = min(row[column] // amount for column, amount in info.need)
            self.on_node.setdefault(place, {})[number] = count
            total += count
        return min(total, ENOUGH)

    def usable(self, key: tuple[int, ...]) -> tuple[list[int], Mask]:
        """Return the total room, by resource, of all nodes that have at least so much of each, and those nodes."""
        found = self._usable.get(key)
        if found is None:
            fits = self._takes.copy()
            for column, amount in enumerate(key):
                if amount:
                    fits &= self._room[:, column] >= amount
            found = self._usable[key] = (sum_up(self._room[fits]), fits)
        return found


def sum_up(rows: Ints) -> list[int]:
    """Add rows, with Python's integers if 64 bits might overflow."""
    small = rows.size == 0 or int(rows.max()) <= ENOUGH // len(rows)
    total: list[int] = rows.sum(axis=0, dtype=np.int64 if small else object).tolist()
    return total
