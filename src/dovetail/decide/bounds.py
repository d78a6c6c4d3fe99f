"""What needs no simulation to be refused: sums that can't work out, whatever is placed where.

Exact in the sense that a simulation could never say otherwise: the pods that would move ask for more of some resource
than all other nodes have left together with one new node of the largest type. Sits in decide, beside moves.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dovetail.decide.facts import NodeFacts
from dovetail.scheduling.snapshot import Snapshot

Amounts = npt.NDArray[np.int64]


class Bounds:
    """Sums over a snapshot, kept for its life."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._needs: dict[int, Amounts] = {}

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
            for pod in self._snapshot.movable(index):
                for column, amount in self._snapshot.class_of(pod).info.need:
                    found[column] += amount
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
