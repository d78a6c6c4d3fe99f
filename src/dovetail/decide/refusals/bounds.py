"""Refuses moves without a simulation, by sums that rule out every placement.

Exact: a simulation would never disagree. The pods that would move need a new node if they request more of some resource
than is free on all remaining nodes that fit the smallest of them, or if the remaining nodes have room for fewer pods of
a kind than there are. Room that is planned for pods of leaving nodes is not free. Several new nodes may be too many;
for one, even the cheapest machine that holds these pods may be too expensive. Under the profile `karpenter-1.15`, pods
of nodes that are already leaving count too. Labels, taints and topology only make placement harder, so they are
ignored.
Nothing is remembered from round to round but what the pods of each node need (`NeedRows`): a few array operations
compare it with the room of all other nodes. Sits in decide, beside moves.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.refusals.launches import Launches, Least
from dovetail.decide.refusals.needs import AMOUNT_MAX, Floor, Ints, NeedRows
from dovetail.decide.refusals.room import ENOUGH, PlannedRoom, Shelter, sum_up
from dovetail.model.cached import cached
from dovetail.model.objects import Pod
from dovetail.scheduling.launch.machines import Mask
from dovetail.scheduling.snapshot import Snapshot

Demand = tuple[list[int], Floor]
"""The total requests of pods, by resource, and the minimum that all of them request."""
Needs = tuple[bytes, ...]
"""What new nodes must hold at least, by one bound after the other, as `Launches` reads it."""


class Bounds:
    """Bounds for one snapshot. `closed`: nodes that refuse moved pods; `several`: whether many new nodes may open."""

    def __init__(
        self,
        snapshot: Snapshot,
        closed: Collection[int],
        launches: Launches,
        planned: PlannedRoom,
        needs: NeedRows,
        *,
        several: bool = False,
    ) -> None:
        self._snapshot, self._closed, self._planned = snapshot, list(closed), planned
        self._launches, self._needs = launches, needs
        self._least_for = launches.least_of_several if several else launches.least_for

    @cached
    def _open(self) -> Mask:
        """Return nodes that could take a pod at all: they stay, and no free amount is negative."""
        stay: Mask = self._snapshot.frame.open & np.all(self._planned.room >= 0, axis=1)
        return stay

    @cached
    def _for_all(self) -> Shelter:
        """Return the room for pods of leaving nodes and for pods that were never started."""
        return Shelter(self._planned.room, self._open)

    @cached
    def _for_moved(self) -> Shelter:
        """Return the room for pods that a cost action moves."""
        if not self._closed:
            return self._for_all
        takes = self._open.copy()
        takes[self._closed] = False
        return Shelter(self._planned.room, takes)

    # ------------------------------------------------------------ nodes, each alone

    def alone(self, nodes: Sequence[NodeFacts]) -> Iterator[Iterator[Least]]:
        """Yield, for each node, lower bounds on the new nodes for removing it alone, and on their price.

        Each bound of a node is tighter than the one before; trivial ones are omitted. No price: no machine could hold
        the pods without a place.
        """
        for needs in self.needs_alone(nodes):
            yield self.least_for_each(needs)

    def least_for_each(self, needs: Needs) -> Iterator[Least]:
        """Yield the bounds that follow from what new nodes must hold."""
        return map(self._least_for, needs)

    def needs_alone(self, nodes: Sequence[NodeFacts]) -> list[Needs]:
        """Return what new nodes must hold for each node, by each bound; nodes that need the same share the object."""
        slots, places = self._needs.of(nodes, self._snapshot), self._places_of(nodes)
        homeless, lacking = self._without_room(slots, places)
        if self._leaving is not None:
            base = self._leaving_homeless(places)
            homeless, lacking = homeless + base, lacking + base
        stages = [homeless, np.maximum(homeless, self._short(slots, places))]
        every = self._short_of_all(slots, places)
        if every is not None:
            stages.append(np.maximum(stages[-1], every))
        stages.append(np.maximum(stages[-1], lacking))
        size = 8 * self._needs.width
        rows_of_all = np.stack(stages, axis=1).reshape(len(nodes), len(stages) * self._needs.width)
        known: dict[bytes, Needs] = {bytes(size * len(stages)): ()}
        found = []
        for row in rows_of_all.view(f"V{size * len(stages)}")[:, 0].tolist():
            needs = known.get(row)
            if needs is None:
                each = [row[at : at + size] for at in range(0, len(row), size)]
                needs = known[row] = tuple([need for before, need in pairwise((bytes(size), *each)) if need != before])
            found.append(needs)
        return found

    def _places_of(self, nodes: Sequence[NodeFacts]) -> Ints:
        index = self._snapshot.index
        return np.fromiter((index[facts.name] for facts in nodes), dtype=np.int64, count=len(nodes))

    def _without_room(self, slots: Ints, places: Ints) -> tuple[Ints, Ints]:
        """Return the requests of each node's started pods that fit on no other node, and of all that lack room there.

        Of some kinds other nodes take some pods, not all. Pods that are bound but not started don't count: they may use
        closed nodes.
        """
        needs, shelter = self._needs, self._for_moved
        specs, started = needs.specs[slots], needs.started[slots]
        left = shelter.fit(needs, specs)
        for at in np.flatnonzero(np.isin(places, list(shelter.on_node))).tolist() if shelter.on_node else ():
            own = shelter.on_node[int(places[at])]
            left[at] -= [own.get(number, 0) for number in specs[at].tolist()]
        few = np.flatnonzero((left < started).any(axis=1))
        homeless = np.zeros((len(slots), needs.width), dtype=np.int64)
        lacking = homeless.copy()
        if len(few):
            each, left, started = needs.each[specs[few]], left[few], started[few]
            homeless[few] = np.einsum("rk,rkw->rw", np.where(left == 0, started, 0), each)
            lacking[few] = np.einsum("rk,rkw->rw", np.maximum(started - left, 0), each)
        return homeless, lacking

    def _short(self, slots: Ints, places: Ints) -> Ints:
        """Return what each node's started pods request beyond the room of all others that fit the smallest of them."""
        needs = self._needs
        return self._beyond(needs.started_demand[slots], needs.started_floor[slots], self._for_moved, places)

    def _short_of_all(self, slots: Ints, places: Ints) -> Ints | None:
        """Return the same for all pods that would move, with those of leaving nodes; None: there are no others."""
        needs = self._needs
        if self._leaving is not None:
            total, floor = self._leaving
            demand, own = needs.demand[slots], needs.floor[slots]
            both = {number: needs.number_of(_least((floor, needs.floors[number]))) for number in _distinct(own)}
            numbers = np.array([both[number] for number in own.tolist()], dtype=np.int64)
            numbers[~demand.any(axis=1)] = needs.number_of(floor)
            more = np.array([min(amount, ENOUGH) for amount in total])
            return self._beyond(demand + more, numbers, self._for_all, places)
        at = np.flatnonzero((needs.counts[slots] != needs.started[slots]).any(axis=1))
        if not len(at):
            return None
        found = np.zeros((len(slots), needs.width), dtype=np.int64)
        found[at] = self._beyond(needs.demand[slots[at]], needs.floor[slots[at]], self._for_all, places[at])
        return found

    def _beyond(self, demand: Ints, floors: Ints, shelter: Shelter, places: Ints) -> Ints:
        """Return what each demand lacks if one of the nodes in a shelter goes; `floors`: numbers of floors."""
        own, room = self._planned.room[places], np.empty_like(demand)
        for number in _distinct(floors):
            total, fits = shelter.usable(self._needs.floors[number])
            at = np.flatnonzero(floors == number)
            here = np.array(total, dtype=np.int64 if max(total, default=0) <= ENOUGH else object)
            room[at] = np.minimum(here - np.where(fits[places[at]][:, None], own[at], 0), ENOUGH)
        return np.where(demand > 0, np.maximum(demand - room, 0), 0)

    # ------------------------------------------------------------ nodes together

    def together(self, nodes: Sequence[NodeFacts]) -> Least:
        """Return a lower bound on the new nodes for removing these together, and on the price of one.

        0 nodes: nothing is known. No price: no single machine could hold the pods without a place.
        """
        needs, places = self._needs, self._places_of(nodes)
        slots = needs.of(nodes, self._snapshot)
        lacking = sum_up(self._without_room(slots, places)[1])
        started = self._sum(needs.started_demand[slots], needs.started_floor[slots])
        every = self._sum(needs.demand[slots], needs.floor[slots])
        if self._leaving is not None:
            every = _plus(every, self._leaving)
        short = self._lack(started, self._for_moved, places), self._lack(every, self._for_all, places)
        need = [min(max(amounts), ENOUGH) for amounts in zip(lacking, *short, strict=True)]
        return self._launches.least_for(np.array(need).tobytes()) if any(need) else (0, None)

    def _sum(self, demand: Ints, floors: Ints) -> Demand:
        """Return the sum of demands; those of nothing don't change its floor."""
        numbers = _distinct(floors[demand.any(axis=1)])
        return sum_up(demand), _least([self._needs.floors[number] for number in numbers])

    def _lack(self, demand: Demand, shelter: Shelter, gone: Ints) -> list[int]:
        """Return the part of a demand that doesn't fit in a shelter without some nodes."""
        total, fits = shelter.usable(demand[1])
        own = sum_up(self._planned.room[gone[fits[gone]]])
        pairs = zip(demand[0], total, own, strict=True)
        return [max(0, amount - room + mine) if amount else 0 for amount, room, mine in pairs]

    # ------------------------------------------------------------ pods of leaving nodes, as in Karpenter

    @property
    def _counted(self) -> Sequence[tuple[int, Sequence[Pod]]]:
        """Return leaving nodes whose pods count.

        They count only if a new node for them counts against the command, as in Karpenter.
        """
        return self._snapshot.leaving if self._snapshot.settings.rules.others_pods_count else ()

    @cached
    def _leaving(self) -> Demand | None:
        """Return the requests of the pods of leaving nodes; None if there are none."""
        found: Demand | None = None
        for index, _ in self._counted:
            for info, count in self._snapshot.movers(index).specs:
                each = np.zeros(self._needs.width, dtype=np.int64)
                for column, amount in info.need:
                    each[column] = min(amount, AMOUNT_MAX)
                more: Demand = ((each * count).tolist(), tuple(each.tolist()))
                found = more if found is None else _plus(found, more)
        return found

    def _leaving_homeless(self, places: Ints) -> Ints:
        """Return, for each node, the requests of such pods that have room nowhere else."""
        found = np.zeros((len(places), self._needs.width), dtype=np.int64)
        total, only = self._leaving_without_room
        found += total
        for at in np.flatnonzero(np.isin(places, list(only))).tolist() if only else ():
            found[at] += only[int(places[at])]
        return found

    @cached
    def _leaving_without_room(self) -> tuple[Ints, dict[int, Ints]]:
        """Return the requests of these pods that fit nowhere, and of those that only one node has room for, by node."""
        needs, total, only = self._needs, np.zeros(self._needs.width, dtype=np.int64), dict[int, Ints]()
        for index, _ in self._counted:
            for info, count in self._snapshot.movers(index).specs:
                number = needs.learn(info)
                fit = int(self._for_all.fit(needs, np.array([number]))[0])
                takers = [node for node, counts in self._for_all.on_node.items() if number in counts]
                if fit == 0:
                    total += count * needs.each[number]
                elif len(takers) == 1:
                    only.setdefault(takers[0], np.zeros_like(total))
                    only[takers[0]] += count * needs.each[number]
        return total, only


def _distinct(numbers: Ints) -> list[int]:
    return np.flatnonzero(np.bincount(numbers)).tolist() if len(numbers) else []


def _least(floors: Sequence[Floor]) -> Floor:
    """Return the minimum of each resource that all of these have."""
    return tuple(map(min, zip(*floors, strict=True)))


def _plus(one: Demand, other: Demand) -> Demand:
    if not any(one[0]) or not any(other[0]):
        return one if any(one[0]) else other
    return [some + more for some, more in zip(one[0], other[0], strict=True)], _least((one[1], other[1]))
