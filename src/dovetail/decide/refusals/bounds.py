"""What needs no simulation to be refused: sums that can't work out, whatever is placed where.

Exact in the sense that a simulation could never say otherwise. The pods that would move need a new node where they ask
for more of some resource than all nodes have left that stay and could take the least of them; and so do those for which
no node has room, each taken by itself. Several such new nodes are too many; for one node, the cheapest machine that
holds these alone may not be cheap enough. Under the profile `karpenter-1.15` pods of nodes that are leaving already
count too. Labels, taints and topology only make it harder, so they are not looked at. Sits in decide, beside moves.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.decide.refusals.launches import Launches
from dovetail.model.cached import cached
from dovetail.model.objects import Pod
from dovetail.scheduling.pods.classes import SpecInfo
from dovetail.scheduling.pods.movers import Demand, Mark, Specs
from dovetail.scheduling.result import LaunchPrice
from dovetail.scheduling.snapshot import Snapshot

_SAFE = 2**62


class _Shelter:
    """The nodes that could take some of the pods: who has room for one, how much they have together."""

    def __init__(self, room: npt.NDArray[np.int64], takes: npt.NDArray[np.bool_]) -> None:
        self._room, self._takes = room, takes
        self._takers: dict[int, tuple[int, int]] = {}
        self._usable: dict[Mark, tuple[list[int], list[bool]]] = {}

    def _fits(self, need: Sequence[tuple[int, int]] | Mark) -> npt.NDArray[np.bool_]:
        fits = self._takes
        for column, amount in need:
            fits = fits & (self._room[:, column] >= amount)
        return fits

    def takers(self, info: SpecInfo) -> tuple[int, int]:
        """Return how many nodes have room for one pod of the spec, and the first of them."""
        found = self._takers.get(info.id)
        if found is None:
            fits = self._fits(info.need)
            found = self._takers[info.id] = (int(np.count_nonzero(fits)), int(fits.argmax()))
        return found

    def usable(self, demand: Demand) -> tuple[list[int], list[bool]]:
        """Return the room, by resource, of all nodes that could take the least pod of a demand, and which they are."""
        found = self._usable.get(demand.mark)
        if found is None:
            fits = self._fits(demand.mark)
            found = self._usable[demand.mark] = (_sum_up(self._room[fits]), fits.tolist())
        return found


class _Batch(NamedTuple):
    """What the pods of nodes up to this one ask for: the started ones, all with those of leaving nodes.

    `homeless`: what started pods need, by resource, for which each by itself no other node has room.
    """

    node: int
    settled: Demand
    demand: Demand
    homeless: dict[int, int]


class Bounds:
    """Sums over a snapshot, kept for its life."""

    def __init__(self, snapshot: Snapshot, closed: Sequence[int], launches: Launches) -> None:
        self._snapshot = snapshot
        self._closed = list(closed)
        self._launches = launches
        self._batch: list[_Batch] = []

    @cached
    def _open(self) -> npt.NDArray[np.bool_]:
        """Return nodes that could take a pod at all: they stay and overdraw nothing."""
        frame = self._snapshot.frame
        stay: npt.NDArray[np.bool_] = frame.open & np.all(frame.room >= 0, axis=1)
        return stay

    @cached
    def _for_all(self) -> _Shelter:
        """Return what is open to pods of leaving nodes and to those that were never started."""
        return _Shelter(self._snapshot.frame.room, self._open)

    @cached
    def _for_moved(self) -> _Shelter:
        """Return what is open to pods that a cost action moves."""
        if not self._closed:
            return self._for_all
        takes = self._open.copy()
        takes[self._closed] = False
        return _Shelter(self._snapshot.frame.room, takes)

    @property
    def _counted(self) -> Sequence[tuple[int, Sequence[Pod]]]:
        """Return leaving nodes whose pods count.

        They count only if a new node for them is the command's own, as in Karpenter.
        """
        return self._snapshot.leaving if self._snapshot.settings.rules.others_pods_count else ()

    @cached
    def _leaving(self) -> Demand:
        """Return what the pods of nodes that are leaving already ask for."""
        found = Demand({}, frozenset())
        for index, _ in self._counted:
            found = found.plus(self._snapshot.movers(index).demand)
        return found

    def replacements_at_least(self, nodes: Sequence[int]) -> tuple[int, LaunchPrice | None]:
        """Return a number of new nodes that taking these away together needs for certain, and the least for one.

        None of them: it says nothing. No price: no single machine could hold the pods without a place.
        """
        batch = self._together(nodes)
        need = batch.homeless.copy()
        _raise(need, self._short(batch.settled, self._for_moved, nodes))
        _raise(need, self._short(batch.demand, self._for_all, nodes))
        return self._launches.least_for(need) if need else (0, None)

    def _together(self, chosen: Sequence[int]) -> _Batch:
        """Return what the pods of nodes ask for together.

        Batches are asked about that begin alike, so the sums of their beginnings are kept.
        """
        batch = self._batch
        same = 0
        while same < min(len(batch), len(chosen)) and batch[same].node == chosen[same]:
            same += 1
        if same < len(chosen):
            del batch[same:]
        for index in chosen[same:]:
            movers = self._snapshot.movers(index)
            before = batch[-1] if batch else _Batch(-1, Demand({}, frozenset()), self._leaving, {})
            batch.append(
                _Batch(
                    index,
                    before.settled.plus(movers.started_demand),
                    before.demand.plus(movers.demand),
                    self._homeless(index, movers.started, before.homeless),
                )
            )
        return batch[len(chosen) - 1]

    @property
    def counts_leaving(self) -> bool:
        """Return whether pods of nodes that are leaving already count too."""
        return bool(self._counted)

    def room_for(self, info: SpecInfo) -> str | None:
        """Return which node alone has room for a moved pod of the spec; empty: none has, None: several have."""
        number, first = self._for_moved.takers(info)
        return None if number > 1 else self._snapshot.states[first].name if number else ""

    def replacement_at_least(
        self, node: int, *, several: bool = False
    ) -> Iterator[tuple[int, LaunchPrice | None, bool]]:
        """Return the number of new nodes that one node's going needs for certain, and the least that one could cost.

        Several answers, each surer than the one before and harder to come by; one that says nothing is left out. No
        price: no single machine could hold the pods without a place. The last: whether it rests only on pods for which,
        each taken by itself, no other node has room. `several`: the least that any number of machines could cost.
        """
        least_for = self._least_of_several if several else self._launches.least_for
        chosen, movers = (node,), self._snapshot.movers(node)
        need = self._homeless(node, movers.started, self._leaving_homeless.get(node, self._leaving_homeless[-1]))
        if need:
            yield *least_for(need), True
        if _raise(need, self._short(movers.started_demand, self._for_moved, chosen)):
            yield *least_for(need), False
        if self._leaving.total or movers.started is not movers.specs:
            every = self._leaving.plus(movers.demand)
            if _raise(need, self._short(every, self._for_all, chosen)):
                yield *least_for(need), False

    def _least_of_several(self, need: dict[int, int]) -> tuple[int, LaunchPrice | None]:
        return max(1, self._launches.count_for(need)), self._launches.share_for(need)

    def _short(self, demand: Demand, shelter: _Shelter, gone: Sequence[int]) -> dict[int, int]:
        """Return what of the demand finds no room in a shelter without these nodes."""
        room, fits = shelter.usable(demand)
        rows = [self._snapshot.frame.row(index) for index in gone if fits[index]]
        short: dict[int, int] = {}
        for column, amount in demand.total.items():
            left = room[column]
            for row in rows:
                left -= row[column]
            if amount > left:
                short[column] = amount - left
        return short

    def _homeless(self, index: int, started: Specs, others: dict[int, int]) -> dict[int, int]:
        """Sum up what pods of a node need for which no other node has room, by resource, with what others need.

        Pods that are bound but not started don't count: they may go where others are closed out.
        """
        total = others.copy()
        takers = self._for_moved.takers
        for info, count in started:
            number, first = takers(info)
            if number == 0 or (number == 1 and first == index):
                _add(total, info, count)
        return total

    @cached
    def _leaving_homeless(self) -> dict[int, dict[int, int]]:
        """Return the same for leaving nodes alone, by the node that would have to stay for some; -1: any other."""
        total: dict[int, int] = {}
        only: dict[int, list[tuple[SpecInfo, int]]] = {}
        movers = (self._snapshot.movers(index) for index, _ in self._counted)
        for info, count in (entry for each in movers for entry in each.specs):
            number, first = self._for_all.takers(info)
            if number == 0:
                _add(total, info, count)
            elif number == 1:
                only.setdefault(first, []).append((info, count))
        found = {-1: total}
        for node, pods in only.items():
            found[node] = total.copy()
            for info, count in pods:
                _add(found[node], info, count)
        return found


def _sum_up(rows: npt.NDArray[np.int64]) -> list[int]:
    """Add rows up; where 64 bits might not hold it, with Python's own integers."""
    small = rows.size == 0 or int(rows.max()) <= _SAFE // len(rows)
    total: list[int] = rows.sum(axis=0, dtype=np.int64 if small else object).tolist()
    return total


def _add(total: dict[int, int], info: SpecInfo, count: int) -> None:
    """Count pods of a spec in."""
    for column, amount in info.need:
        total[column] = total.get(column, 0) + count * amount


def _raise(need: dict[int, int], other: dict[int, int]) -> bool:
    """Raise a need to another where that is larger; whether it was anywhere."""
    larger = {column: amount for column, amount in other.items() if amount > need.get(column, 0)}
    need.update(larger)
    return bool(larger)
