"""What needs no simulation to be refused: sums that can't work out, whatever is placed where.

Exact in the sense that a simulation could never say otherwise. Several nodes: the pods that would move ask for more of
some resource than all other nodes have left together with one new node of the largest type. One node: the pods for
which no other node has room, each taken by itself, need a new node, and the cheapest machine that holds these alone is
not cheap enough. Labels, taints and topology only ever make it harder, so they are not looked at. Sits in decide,
beside moves.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dovetail.decide.facts import NodeFacts
from dovetail.model.quantity import AMOUNT_MAX
from dovetail.scheduling.classes import SpecInfo
from dovetail.scheduling.result import LaunchPrice
from dovetail.scheduling.snapshot import Snapshot

Amounts = npt.NDArray[np.int64]


class Bounds:
    """Sums over a snapshot, kept for its life."""

    def __init__(self, snapshot: Snapshot, closed: Sequence[int] = ()) -> None:
        self._snapshot = snapshot
        self._closed = closed
        self._needs: dict[int, Amounts] = {}
        self._takers: dict[int, tuple[int, int]] = {}
        self._cheapest: dict[tuple[tuple[int, int], ...], LaunchPrice | None] = {}

    @cached_property
    def _room(self) -> Amounts:
        """What each node that stays has left; nothing where it is closed or overdrawn."""
        frame = self._snapshot.frame
        return np.where(frame.open[:, None], np.maximum(frame.room, 0), 0)

    @cached_property
    def _all_room(self) -> Amounts:
        total: Amounts = self._room.sum(axis=0)
        return total

    @cached_property
    def _largest(self) -> Amounts:
        """The most of each resource that any instance type has."""
        machines = self._snapshot.frame.machines
        most: Amounts = machines.allocatable.max(axis=0, initial=0)
        return most

    def _need(self, index: int) -> Amounts:
        found = self._needs.get(index)
        if found is None:
            found = np.zeros(self._room.shape[1], dtype=np.int64)
            for column, amount in self._snapshot.movers(index).need:
                found[column] = min(amount, AMOUNT_MAX)  # each pod fits, but their sum need not
            self._needs[index] = found
        return found

    def new_nodes_at_least(self, nodes: Sequence[NodeFacts]) -> int:
        """Give a number of new nodes that taking these away needs for certain; 0 or 1 says nothing."""
        chosen = [facts.index for facts in nodes]
        width = min(self._room.shape[1], self._largest.shape[0])
        need = np.sum([self._need(index) for index in chosen], axis=0)[:width]
        room = (self._all_room - self._room[chosen].sum(axis=0))[:width]
        missing, largest = np.maximum(need - room, 0), self._largest[:width]
        possible = largest > 0
        counts = -(-missing[possible] // largest[possible])
        return int(counts.max(initial=0))

    # ------------------------------------------------------------ one node

    @cached_property
    def _takes(self) -> npt.NDArray[np.bool_]:
        """Nodes that could take a moved pod at all: they stay, are not closed to such pods, and overdraw nothing."""
        frame = self._snapshot.frame
        takes: npt.NDArray[np.bool_] = frame.open & np.all(frame.room >= 0, axis=1)
        takes[list(self._closed)] = False
        return takes

    def _takers_of(self, info: SpecInfo) -> tuple[int, int]:
        """Give how many nodes have room for one pod of the spec, and the first of them."""
        found = self._takers.get(info.id)
        if found is None:
            room, fits = self._snapshot.frame.room, self._takes
            for column, amount in info.need:
                fits = fits & (room[:, column] >= amount)
            found = self._takers[info.id] = (int(np.count_nonzero(fits)), int(fits.argmax()))
        return found

    def _homeless(self, index: int) -> tuple[tuple[int, int], ...]:
        """Sum up what the pods of a node need for which no other node has room, by resource.

        Pods that are bound but not started don't count: they may go where others are closed out.
        """
        total: dict[int, int] = {}
        for info, count in self._snapshot.movers(index).settled:
            number, first = self._takers_of(info)
            if number == 0 or (number == 1 and first == index):
                for column, amount in info.need:
                    total[column] = total.get(column, 0) + count * amount
        return tuple(sorted(total.items()))

    def replacement_at_least(self, facts: NodeFacts) -> tuple[bool, LaunchPrice | None]:
        """Say whether one node's going needs a new node for certain, and the least that could cost.

        (False, None): nothing is certain. (True, None): no machine at all could hold the pods without a place.
        """
        homeless = self._homeless(facts.index) if facts.index >= 0 else ()
        if not homeless:
            return False, None
        if homeless not in self._cheapest:
            self._cheapest[homeless] = self._cheapest_for(homeless)
        return True, self._cheapest[homeless]

    def _cheapest_for(self, need: tuple[tuple[int, int], ...]) -> LaunchPrice | None:
        best: LaunchPrice | None = None
        for template in self._snapshot.frame.templates:
            types = template.types
            for column, amount in need:
                if column < len(template.room):
                    types &= template.room[column].at_least(amount)
            kinds = template.reqs.table.kinds
            for place in template.reqs.order:
                if types >> place & 1:
                    price = template.reqs.prices(kinds[place])[1]
                    if price is not None and (best is None or price.amount < best.amount):
                        best = price
                    break
        return best
