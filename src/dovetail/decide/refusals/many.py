"""The bounds of many nodes, each removed alone, computed in columns: one pass over arrays instead of one per node.

The numbers are those of `Bounds.replacement_at_least`, which computes them for one node: first the pods that fit on no
other node, then what is missing in total, then the pods of which too many are left. Covers nodes whose pods have all
started, while no pods of leaving nodes count. Sits in decide, below bounds.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from dovetail.decide.refusals.launches import Least, Numbers
from dovetail.model.cached import cached
from dovetail.scheduling.pods.classes import SpecInfo
from dovetail.scheduling.pods.movers import Demand, Movers

_SAFE: Final = 2**62


class Counted(Protocol):
    """How many pods of a spec fit on all nodes together, and on each that takes one."""

    @property
    def total(self) -> int:
        """Return the sum."""
        ...

    @property
    def by_node(self) -> dict[int, int]:
        """Return the number of each node."""
        ...


class Shelter(Protocol):
    """The nodes that could take the pods."""

    def takers(self, info: SpecInfo) -> tuple[int, int]:
        """Return how many nodes have room for one pod of the spec, and the first of them."""
        ...

    def counted(self, info: SpecInfo) -> Counted:
        """Return how many pods of the spec fit, and where."""
        ...

    def usable(self, demand: Demand) -> tuple[list[int], npt.NDArray[np.bool_]]:
        """Return the total room of all nodes that fit the smallest pod of a demand, and those nodes."""
        ...


class Prices(Protocol):
    """What launches cost."""

    def least_for_all(self, needs: Numbers) -> list[Least]:
        """Return how many machines each row needs, and the price of the cheapest for all of it."""
        ...


class _Pods:
    """The pods of all nodes by spec: one entry for each spec on each node."""

    def __init__(self, places: Numbers, movers: Sequence[Movers], width: int) -> None:
        entries = np.concatenate([each.table for each in movers], axis=1)
        sizes = [each.table.shape[1] for each in movers]
        self.starts = np.array([0, *accumulate(sizes[:-1])], dtype=np.int64)
        self.counts: Numbers = entries[1]
        owners = np.repeat(np.arange(len(movers)), sizes)
        self.nodes: Numbers = places[owners]
        numbers = entries[0]
        first = np.zeros(int(numbers.max()) + 1, dtype=np.int64)
        first[numbers[::-1]] = np.arange(len(numbers))[::-1] + 1
        there = np.flatnonzero(first)
        at = (first[there] - 1).tolist()
        pairs = zip(at, owners[at].tolist(), strict=True)
        self.infos: list[SpecInfo] = [movers[own].started[place - int(self.starts[own])][0] for place, own in pairs]
        first[there] = np.arange(len(there))
        self.kinds: Numbers = first[numbers]
        self._width = width

    @property
    def largest(self) -> int:
        """Return a sum that no sum of needs exceeds."""
        each = max([amount for info in self.infos for _, amount in info.need], default=0)
        return each * int(np.add.reduceat(self.counts, self.starts).max())

    @cached
    def _needs(self) -> Numbers:
        needs = np.zeros((len(self.infos), self._width), dtype=np.int64)
        for row, info in zip(needs, self.infos, strict=True):
            for column, amount in info.need:
                row[column] = amount
        found: Numbers = needs[self.kinds]
        return found

    def of_each(self, counts: Numbers) -> Numbers:
        """Return the total needs of each node, by resource, of so many pods of each entry."""
        total: Numbers = np.add.reduceat(self._needs * counts[:, np.newaxis], self.starts, axis=0)
        return total


def bounds_of_many(
    nodes: Mapping[int, Movers], shelter: Shelter, room: Numbers, launches: Prices, counted_max: int
) -> dict[int, tuple[Least, ...]]:
    """Return the bounds of each node, by its place; nothing if 64 bits might overflow.

    `nodes`: the pods of each, at least one. `counted_max`: on so many nodes the pods that fit are counted.
    """
    movers, places = list(nodes.values()), np.array(list(nodes), dtype=np.int64)
    pods = _Pods(places, movers, room.shape[1])
    if pods.largest > _SAFE:
        return {}
    short = _short(pods.of_each(pods.counts), places, movers, shelter, room)
    if short is None:
        return {}
    takers = np.array([shelter.takers(info) for info in pods.infos], dtype=np.int64)[pods.kinds]
    homeless = (takers[:, 0] == 0) | ((takers[:, 0] == 1) & (takers[:, 1] == pods.nodes))
    need = pods.of_each(pods.counts * homeless)
    few = ~homeless & (takers[:, 0] <= np.minimum(pods.counts, counted_max))
    found: dict[int, tuple[Least, ...]] = dict.fromkeys(nodes, ())
    _ask(found, places, need, need > 0, launches)
    larger = short > need
    raised = np.maximum(short, need)
    _ask(found, places, raised, larger, launches)
    if few.any():
        too_many = need + pods.of_each(_left_over(pods, few, shelter))
        _ask(found, places, np.maximum(too_many, raised), too_many > raised, launches)
    return found


def _ask(
    found: dict[int, tuple[Least, ...]],
    places: Numbers,
    needs: Numbers,
    larger: npt.NDArray[np.bool_],
    launches: Prices,
) -> None:
    """Add the bound of each node of which a need is larger than before."""
    rows = np.flatnonzero(larger.any(axis=1))
    for place, least in zip(places[rows].tolist(), launches.least_for_all(needs[rows]), strict=True):
        found[place] += (least,)


def _short(
    demand: Numbers, places: Numbers, movers: Sequence[Movers], shelter: Shelter, room: Numbers
) -> Numbers | None:
    """Return the part of each node's demand that doesn't fit on the other nodes; None if 64 bits might overflow."""
    marks: dict[object, list[int]] = {}
    for row, each in enumerate(movers):
        marks.setdefault(each.started_demand.mark, []).append(row)
    left = np.zeros_like(demand)
    for rows in marks.values():
        total, fits = shelter.usable(movers[rows[0]].started_demand)
        if max(total) > _SAFE:
            return None
        own = places[rows]
        left[rows] = np.array(total, dtype=np.int64) - room[own] * fits[own][:, np.newaxis]
    found: Numbers = np.where(demand > 0, np.maximum(demand - left, 0), 0)
    return found


def _left_over(pods: _Pods, few: npt.NDArray[np.bool_], shelter: Shelter) -> Numbers:
    """Return how many pods of these entries find no room on other nodes."""
    left = np.zeros_like(pods.counts)
    for kind in np.unique(pods.kinds[few]).tolist():
        counted = shelter.counted(pods.infos[kind])
        here = np.flatnonzero(few & (pods.kinds == kind))
        entries = zip(pods.counts[here].tolist(), pods.nodes[here].tolist(), strict=True)
        left[here] = [max(0, count - counted.total + counted.by_node.get(node, 0)) for count, node in entries]
    return left
