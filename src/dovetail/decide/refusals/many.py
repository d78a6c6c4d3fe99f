"""The bounds of many nodes, each removed alone, computed in columns: one pass over arrays instead of one per node.

The numbers are those of `Bounds.replacement_at_least`, which computes them for one node: first the pods that fit on no
other node, then what is missing in total, then the pods of which too many are left. Covers nodes whose pods have all
started, while no pods of leaving nodes count. Sits in decide, below bounds.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from dovetail.decide.refusals.launches import Least, Numbers
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

    def usable(self, demand: Demand) -> tuple[list[int], list[bool]]:
        """Return the total room of all nodes that fit the smallest pod of a demand, and those nodes."""
        ...


class Prices(Protocol):
    """What launches cost."""

    def least_for_all(self, needs: Numbers) -> list[Least]:
        """Return how many machines each row needs, and the price of the cheapest for all of it."""
        ...


class _Pods:
    """The pods of all nodes by spec: one entry for each spec on each node."""

    def __init__(self, places: Sequence[int], movers: Sequence[Movers], width: int) -> None:
        entries = np.concatenate([each.table for each in movers], axis=1)
        sizes = [len(each.started) for each in movers]
        self.starts = np.array([0, *accumulate(sizes[:-1])], dtype=np.int64)
        self.counts: Numbers = entries[1]
        owners = np.repeat(np.arange(len(movers)), sizes)
        self.nodes: Numbers = np.array(places, dtype=np.int64)[owners]
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

    def of_each(self, counts: Numbers) -> Numbers:
        """Return the total needs of each node, by resource, of so many pods of each entry."""
        needs = np.zeros((len(self.infos), self._width), dtype=np.int64)
        for row, info in zip(needs, self.infos, strict=True):
            for column, amount in info.need:
                row[column] = amount
        total: Numbers = np.add.reduceat(needs[self.kinds] * counts[:, np.newaxis], self.starts, axis=0)
        return total


def bounds_of_many(
    places: Sequence[int],
    movers: Sequence[Movers],
    shelter: Shelter,
    room: Numbers,
    launches: Prices,
    counted_max: int,
) -> dict[int, tuple[Least, ...]]:
    """Return the bounds of each node, by its place; nothing if 64 bits might overflow.

    `movers`: the pods of each node, at least one. `counted_max`: on so many nodes the pods that fit are counted.
    """
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
    stages = [_stage(need, need > 0, launches)]
    larger = short > need
    raised = np.where(larger, short, need)
    stages.append(_stage(raised, larger, launches))
    if few.any():
        left = _left_over(pods, few, shelter)
        too_many = need + pods.of_each(left)
        larger = (too_many > raised) & np.logical_or.reduceat(few, pods.starts)[:, np.newaxis]
        stages.append(_stage(np.maximum(too_many, raised), larger, launches))
    return {place: tuple([bound for bound in bounds if bound]) for place, *bounds in zip(places, *stages, strict=True)}


def _stage(needs: Numbers, larger: npt.NDArray[np.bool_], launches: Prices) -> list[Least | None]:
    """Return the bound of each row in which a need is larger than before."""
    found: list[Least | None] = [None] * len(needs)
    rows: list[int] = np.flatnonzero(larger.any(axis=1)).tolist()
    for row, least in zip(rows, launches.least_for_all(needs[rows]), strict=True) if rows else ():
        found[row] = least
    return found


def _short(
    demand: Numbers, places: Sequence[int], movers: Sequence[Movers], shelter: Shelter, room: Numbers
) -> Numbers | None:
    """Return the part of each node's demand that doesn't fit on the other nodes; None if 64 bits might overflow."""
    marks: dict[object, list[int]] = {}
    for row, each in enumerate(movers):
        marks.setdefault(each.started_demand.mark, []).append(row)
    at = np.array(places, dtype=np.int64)
    left = np.zeros_like(demand)
    for rows in marks.values():
        total, fits = shelter.usable(movers[rows[0]].started_demand)
        if max(total) > _SAFE:
            return None
        own = at[rows]
        left[rows] = np.array(total, dtype=np.int64) - room[own] * np.array(fits)[own][:, np.newaxis]
    found: Numbers = np.where(demand > 0, np.maximum(demand - left, 0), 0)
    return found


def _left_over(pods: _Pods, few: npt.NDArray[np.bool_], shelter: Shelter) -> Numbers:
    """Return how many pods of these entries find no room on other nodes."""
    left = np.zeros_like(pods.counts)
    for kind in np.unique(pods.kinds[few]).tolist():
        counted = shelter.counted(pods.infos[kind])
        here = np.flatnonzero(few & (pods.kinds == kind))
        own = [counted.by_node.get(node, 0) for node in pods.nodes[here].tolist()]
        left[here] = np.maximum(pods.counts[here] - counted.total + np.array(own, dtype=np.int64), 0)
    return left
