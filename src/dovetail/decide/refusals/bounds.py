"""Refuses moves without a simulation, by sums that rule out every placement.

Exact: a simulation would never disagree. The pods that would move need a new node if they request more of some resource
than is free on all remaining nodes that fit the smallest of them, or if the remaining nodes have room for fewer pods of
a kind than there are. Room that is planned for pods of leaving nodes is not free. Several new nodes may be too many;
for one, even the cheapest machine that holds these pods may be too expensive. Under the profile `karpenter-1.15`, pods
of nodes that are already leaving count too. Labels, taints and topology only make placement harder, so they are
ignored. Sits in decide, beside moves.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.decide.refusals.launches import Launches
from dovetail.decide.refusals.planned_room import PlannedRoom
from dovetail.decide.refusals.shelter import Shelter
from dovetail.model.cached import cached
from dovetail.model.objects import Pod
from dovetail.scheduling.pods.classes import SpecInfo
from dovetail.scheduling.pods.movers import Demand, Movers, Specs
from dovetail.scheduling.result import LaunchPrice
from dovetail.scheduling.snapshot import Snapshot


class _Batch(NamedTuple):
    """The requests of the pods of nodes up to this one: the started ones, and all with those of leaving nodes.

    `homeless`: what those started pods need, by resource, for which other nodes have no room.
    """

    node: int
    settled: Demand
    demand: Demand
    homeless: dict[int, int]


class Bounds:
    """Sums over a snapshot, cached for its lifetime."""

    def __init__(
        self, snapshot: Snapshot, closed: Sequence[int], launches: Launches, planned: PlannedRoom | None = None
    ) -> None:
        self._snapshot = snapshot
        self.planned = planned or PlannedRoom(snapshot)
        self._closed = list(closed)
        self._launches = launches
        self._batch: list[_Batch] = []

    @cached
    def _open(self) -> npt.NDArray[np.bool_]:
        """Return nodes that could take a pod at all: they stay, and no free amount is negative."""
        stay: npt.NDArray[np.bool_] = self._snapshot.frame.open & np.all(self.planned.room >= 0, axis=1)
        return stay

    @cached
    def _for_all(self) -> Shelter:
        """Return the room for pods of leaving nodes and for pods that were never started."""
        return Shelter(self.planned.room, self._open, self._snapshot.states)

    @cached
    def for_moved(self) -> Shelter:
        """Return the room for pods that a cost action moves."""
        if not self._closed:
            return self._for_all
        takes = self._open.copy()
        takes[self._closed] = False
        return Shelter(self.planned.room, takes, self._snapshot.states)

    @property
    def _counted(self) -> Sequence[tuple[int, Sequence[Pod]]]:
        """Return leaving nodes whose pods count.

        They count only if a new node for them counts against the command, as in Karpenter.
        """
        return self._snapshot.leaving if self._snapshot.settings.rules.others_pods_count else ()

    @cached
    def _leaving(self) -> Demand:
        """Return the requests of the pods of leaving nodes."""
        found = Demand({}, frozenset())
        for index, _ in self._counted:
            found = found.plus(self._snapshot.movers(index).demand)
        return found

    def replacements_at_least(self, nodes: Sequence[int]) -> tuple[int, LaunchPrice | None]:
        """Return a lower bound on the new nodes for removing these together, and on the price of one.

        0 nodes: nothing is known. No price: no single machine could hold the pods without a place.
        """
        batch = self._together(nodes)
        need = batch.homeless.copy()
        _raise(need, self._short(batch.settled, self.for_moved, nodes))
        _raise(need, self._short(batch.demand, self._for_all, nodes))
        return self._launches.least_for(need) if need else (0, None)

    def _together(self, chosen: Sequence[int]) -> _Batch:
        """Return the total requests of the pods of nodes.

        Callers ask about batches with common prefixes, so the sums of prefixes are cached.
        """
        batch = self._batch
        same = 0
        while same < min(len(batch), len(chosen)) and batch[same].node == chosen[same]:
            same += 1
        if same < len(chosen):
            del batch[same:]
        nothing = Demand({}, frozenset())
        first = _Batch(-1, nothing, self._leaving if self._counted else nothing, {})
        for index in chosen[same:]:
            movers = self._snapshot.movers(index)
            before = batch[-1] if batch else first
            homeless, few = self._homeless(index, movers, before.homeless)
            settled = demand = before.settled.plus(movers.started_demand)
            if before.demand is not before.settled or movers.demand is not movers.started_demand:
                demand = before.demand.plus(movers.demand)
            batch.append(_Batch(index, settled, demand, _with(few, homeless) if few else homeless))
        return batch[len(chosen) - 1]

    @property
    def counts_leaving(self) -> bool:
        """Return whether pods of leaving nodes count too."""
        return bool(self._counted)

    def replacement_at_least(
        self, node: int, *, several: bool = False
    ) -> Iterator[tuple[int, LaunchPrice | None, bool]]:
        """Yield lower bounds on the new nodes for removing one node, and on the price of one.

        Each bound is tighter and more expensive to compute than the one before; trivial ones are omitted. No price: no
        single machine could hold the pods without a place. The last value says whether the bound rests only on pods
        that fit on no other node. `several`: the minimum price of any number of machines.
        """
        least_for = self._least_of_several if several else self._launches.least_for
        movers = self._snapshot.movers(node)
        leaving = self._leaving_homeless.get(node, self._leaving_homeless[-1])
        homeless, few = self._homeless(node, movers, leaving)
        need = homeless.copy()
        if need:
            yield *least_for(need), True
        short = self._short(movers.started_demand, self.for_moved, (node,))
        if short and _raise(need, short):
            yield *least_for(need), False
        if self._leaving.total or movers.started is not movers.specs:
            every = self._leaving.plus(movers.demand)
            if _raise(need, self._short(every, self._for_all, (node,))):
                yield *least_for(need), False
        if few and _raise(need, _with(few, homeless)):
            yield *least_for(need), False

    def _least_of_several(self, need: dict[int, int]) -> tuple[int, LaunchPrice | None]:
        return max(1, self._launches.count_for(need)), self._launches.share_for(need)

    def _short(self, demand: Demand, shelter: Shelter, gone: Sequence[int]) -> dict[int, int]:
        """Return the part of the demand that doesn't fit in a shelter without these nodes."""
        room, fits = shelter.usable(demand)
        short: dict[int, int] = {}
        if rows := [self.planned.row(index) for index in gone if fits[index]]:
            room = [total - sum(own) for total, *own in zip(room, *rows, strict=True)]
        for column, amount in demand.total.items():
            if amount > room[column]:
                short[column] = amount - room[column]
        return short

    def _homeless(self, index: int, movers: Movers, others: dict[int, int]) -> tuple[dict[int, int], Specs]:
        """Sum the needs of a node's pods that fit on no other node, by resource, added to those of others.

        Return also the kinds of which other nodes take some, not all, with how many they don't take. Pods that are
        bound but not started don't count: they may use closed nodes.
        """
        total, few = others.copy(), []
        shelter = self.for_moved
        if shelter.suffices(index, movers):
            return total, ()
        fit, counted = shelter.fit, shelter.counted
        for info, count in movers.started:
            left = fit[info.id] if info.id in fit else shelter.count(info)
            if index in counted:
                left -= shelter.count_on(index, info)
            if left == 0:
                _add(total, info, count)
            elif left < count:
                few.append((info, count - left))
        return total, tuple(few)

    @cached
    def _leaving_homeless(self) -> dict[int, dict[int, int]]:
        """Return the same for leaving nodes only, by the single node that would have room for some; -1: any other."""
        total: dict[int, int] = {}
        only: dict[int, list[tuple[SpecInfo, int]]] = {}
        movers = (self._snapshot.movers(index) for index, _ in self._counted)
        for info, count in (entry for each in movers for entry in each.specs):
            if self._for_all.count(info) == 0:
                _add(total, info, count)
            elif len(takers := tuple(self._for_all.takers(info))) == 1:
                only.setdefault(takers[0], []).append((info, count))
        found = {-1: total}
        for node, pods in only.items():
            found[node] = total.copy()
            for info, count in pods:
                _add(found[node], info, count)
        return found


def _add(total: dict[int, int], info: SpecInfo, count: int) -> None:
    """Add the pods of a spec."""
    for column, amount in info.need:
        total[column] = total.get(column, 0) + count * amount


def _with(specs: Specs, others: dict[int, int]) -> dict[int, int]:
    """Return the needs of these pods and of others."""
    total = others.copy()
    for info, count in specs:
        _add(total, info, count)
    return total


def _raise(need: dict[int, int], other: dict[int, int]) -> bool:
    """Raise each need to the larger of two; return whether any changed."""
    larger = {column: amount for column, amount in other.items() if amount > need.get(column, 0)}
    need.update(larger)
    return bool(larger)
