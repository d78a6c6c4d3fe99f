"""The nodes that could take pods: which have room for one of a kind, how many they take, and their total room.

Each answer is computed once per kind of pod. Labels, taints and topology are ignored. Sits in decide, below bounds and
standing.
"""

from collections.abc import Collection, Hashable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.scheduling.nodes import StateNode
from dovetail.scheduling.pods.classes import SpecInfo
from dovetail.scheduling.pods.movers import Demand, Mark, Movers

_SAFE: Final = 2**62
COUNTED_MAX: Final = 16
"""On so many nodes with room for a pod, the pods that fit are counted; on more, all are taken to fit."""
_ALL: Final = 2**62


class Shelter:
    """`room`: the free resources of every node; `takes`: the nodes that could take a pod at all."""

    def __init__(self, room: npt.NDArray[np.int64], takes: npt.NDArray[np.bool_], states: Sequence[StateNode]) -> None:
        self._room, self._takes, self._states = room, takes, states
        self.answers: dict[SpecInfo | Mark, Hashable] = {}
        """What was asked, and the nodes that the result rests on, with their room.

        Equal answers of shelters of the same width mean equal results.
        """
        self.fit: dict[int, int] = {}
        """How many pods of each spec fit, by number, on all nodes together."""
        self.counted: set[int] = set()
        """The nodes on which these were counted."""
        self._by_node: dict[int, dict[int, int]] = {}
        self._most: list[int] | None = None
        self._known = self._nowhere = 0
        self._scarce: dict[int, int] = {}
        self._usable: dict[Mark, tuple[list[int], npt.NDArray[np.bool_]]] = {}

    @property
    def width(self) -> int:
        """Return how many resources the room is known of."""
        return int(self._room.shape[1])

    def _fits(self, need: Sequence[tuple[int, int]] | Mark) -> npt.NDArray[np.bool_]:
        fits = self._takes
        for column, amount in need:
            fits = fits & (self._room[:, column] >= amount)
        return fits

    def answer(self, subject: SpecInfo | Mark) -> Hashable:
        """Return what the results about a spec, or about a demand with a mark, depend on."""
        if subject not in self.answers:
            if isinstance(subject, SpecInfo):
                self.count(subject)
            else:
                self.usable(Demand({}, subject))
        return self.answers[subject]

    def count(self, info: SpecInfo) -> int:
        """Return how many pods of the spec fit on all nodes together; read `fit` once that is known."""
        found = self.fit.get(info.id)
        if found is None:
            nodes = self._takers_of(info)
            few = len(nodes) <= COUNTED_MAX
            by_node = self._by_node[info.id] = self._count(info, nodes) if few else {}
            found = self.fit[info.id] = sum(by_node.values()) if few else _ALL
            self.counted.update(by_node)
            self._known |= info.bit
            self._scarce.clear()
            if not found:
                self._nowhere |= info.bit
            self.answers[info] = (
                tuple([(self._states[node].name, each) for node, each in by_node.items()]) if few else None
            )
        return found

    def _takers_of(self, info: SpecInfo) -> list[int]:
        """Return the nodes with room for a pod; in a packed cluster, none has so much of some resource."""
        if self._most is None:
            self._most = self._room[self._takes].max(axis=0, initial=-1).tolist()
        most = self._most
        for column, amount in info.need:
            if amount > most[column]:
                return []
        found: list[int] = self._fits(info.need).nonzero()[0].tolist()
        return found

    def _count(self, info: SpecInfo, nodes: list[int]) -> dict[int, int]:
        rows = [self._room[node].tolist() for node in nodes]
        return {
            node: min(row[column] // amount for column, amount in info.need)
            for node, row in zip(nodes, rows, strict=True)
        }

    def count_on(self, node: int, info: SpecInfo) -> int:
        """Return how many of the pods of the spec that were counted fit on a node."""
        return self._by_node[info.id].get(node, 0)

    def takers(self, info: SpecInfo) -> Collection[int]:
        """Return the nodes on which the pods of the spec were counted."""
        self.count(info)
        return self._by_node[info.id]

    def suffices(self, node: int, movers: Movers) -> bool:
        """Return whether other nodes surely have room for each kind of a node's started pods by itself."""
        kinds, most = movers.kinds, movers.most
        if kinds & ~self._known:
            for info, _ in movers.started:
                self.count(info)
        if kinds & self._nowhere:
            return False
        scarce = self._scarce.get(most)
        if scarce is None:
            scarce = self._scarce[most] = sum([1 << number for number, fit in self.fit.items() if fit < most])
        return not kinds & scarce and node not in self.counted

    def homeless(self, movers: Movers) -> int:
        """Return which kinds of a node's started pods fit nowhere, as bits."""
        kinds = movers.kinds
        if kinds & ~self._known:
            for info, _ in movers.started:
                self.count(info)
        return kinds & self._nowhere

    def usable(self, demand: Demand) -> tuple[list[int], npt.NDArray[np.bool_]]:
        """Return the total room, by resource, of all nodes that fit the smallest pod of a demand, and those nodes."""
        found = self._usable.get(demand.mark)
        if found is None:
            fits = self._fits(demand.mark)
            rows, nodes = self._room[fits], fits.nonzero()[0].tolist()
            found = self._usable[demand.mark] = (_sum_up(rows), fits)
            self.answers[demand.mark] = (tuple([self._states[node].name for node in nodes]), rows.tobytes())
        return found


def _sum_up(rows: npt.NDArray[np.int64]) -> list[int]:
    """Add rows, with Python's integers if 64 bits might overflow."""
    small = rows.size == 0 or int(rows.max()) <= _SAFE // len(rows)
    total: list[int] = rows.sum(axis=0, dtype=np.int64 if small else object).tolist()
    return total
