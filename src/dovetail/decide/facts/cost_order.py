"""Cost candidates in the order in which they are tried, brought up to date by the nodes that changed.

The disruption cost of every node falls as it ages, so each round needs all costs again. What they are computed from is
kept as columns of numbers, in the order of the names, and a few array operations give the costs of all nodes. Exact: a
node whose numbers are too large for that is computed by itself. Sits in decide, above node_facts, below the roster.
"""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.decide.facts.cost import EPOCH, MICROSECOND, Ageing, costs_at
from dovetail.decide.facts.lineup import Lineup, step
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.model.settings import CandidateOrder

_EXACT: Final = 2**53
"""Whole numbers below this are exact as floats, and so the quotient of two is rounded only once."""
_TOO_LARGE: Final[Ageing] = (0, 0, 0, 0, 0)
_Changes = tuple[Sequence[NodeFacts], Sequence[NodeFacts]]
"""The facts that are not valid any more, and the new ones."""
_name: Final = attrgetter("name")
_ageing: Final = attrgetter("ageing")


class _Ages:
    """How the costs of many nodes fall, a row for each: `ageing` of its facts; a divisor of 0: it is too large."""

    def __init__(self, nodes: Sequence[NodeFacts]) -> None:
        self._rows = _rows_of(nodes)

    def follow(self, before: Lineup, after: Lineup, gone: Sequence[NodeFacts], new: Sequence[NodeFacts]) -> None:
        """Take the rows of some nodes out, and put those of others in; no two nodes have the same name."""
        if gone:
            self._rows = np.delete(self._rows, [_place(before, facts) for facts in gone], axis=0)
        if new:
            coming = sorted(new, key=_name)
            places = [_place(after, facts) - count for count, facts in enumerate(coming)]
            self._rows = np.insert(self._rows, places, _rows_of(coming), axis=0)

    def costs_at(self, nodes: Sequence[NodeFacts], now: datetime) -> npt.NDArray[np.float64]:
        """Return the cost of each of these nodes, which the rows are of."""
        factor, whole, falls, divisor, since = self._rows.T
        left = np.clip(whole - ((now - EPOCH) // MICROSECOND - since) * falls, 0, whole)
        costs: npt.NDArray[np.float64] = factor * left / np.maximum(divisor, 1)
        if large := np.flatnonzero(divisor == 0).tolist():
            costs[large] = costs_at([nodes[place].ageing for place in large], now)
        return costs


def _rows_of(nodes: Sequence[NodeFacts]) -> npt.NDArray[np.int64]:
    rows = [row if _is_exact(row) else _TOO_LARGE for row in map(_ageing, nodes)]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(_TOO_LARGE))


def _is_exact(row: Ageing) -> bool:
    factor, whole, falls, divisor, _ = row
    size = abs(factor) * max(whole, 1)
    return falls <= 1 and max(size, whole, divisor) < _EXACT


def _place(nodes: Lineup, facts: NodeFacts) -> int:
    return bisect_left(nodes, facts.name, key=_name)


class CostOrder:
    """Cost candidates in the order in which they are tried."""

    def __init__(self) -> None:
        self._nodes: Sequence[NodeFacts] = ()
        self._at: tuple[CandidateOrder, datetime | None] | None = None
        self._ages: _Ages | None = None
        self._keys: list[tuple[float, str]] = []
        self._order: list[NodeFacts] = []

    def of(self, nodes: Sequence[NodeFacts], order: CandidateOrder, now: datetime) -> tuple[NodeFacts, ...]:
        """Return nodes by lowest disruption cost now, or by highest savings ratio; ties by name."""
        at = (order, None if order is CandidateOrder.SAVINGS_RATIO else now)
        before, self._nodes = self._nodes, nodes
        gone, new = step(before, nodes)
        many = len(gone) + len(new) > len(nodes) // 4
        if order is CandidateOrder.SAVINGS_RATIO:
            self._ages = None  # they don't follow these nodes
            if at != self._at or many:
                self._sort(nodes)
            else:
                self._edit(gone, new)
        elif at != self._at or gone or new:
            self._order = self._by_cost(before, nodes, None if many else (gone, new), now)
        self._at = at
        return tuple(self._order)

    def _by_cost(
        self, before: Sequence[NodeFacts], nodes: Sequence[NodeFacts], changes: _Changes | None, now: datetime
    ) -> list[NodeFacts]:
        """Return nodes by lowest disruption cost; `changes`: None: hardly any were there before."""
        if not isinstance(nodes, Lineup) or nodes.namesakes:
            self._ages = None
            return sorted(nodes, key=lambda facts: (facts.disruption_cost_float(now), facts.name))
        ages = self._ages
        if ages is None or changes is None or not isinstance(before, Lineup):
            ages = self._ages = _Ages(nodes)
        else:
            ages.follow(before, nodes, *changes)
        # A lineup is sorted by name, and a stable sort keeps that for nodes of the same cost.
        return [nodes[place] for place in np.argsort(ages.costs_at(nodes, now), kind="stable").tolist()]

    def _sort(self, nodes: Sequence[NodeFacts]) -> None:
        self._order = sorted(nodes, key=_ratio_key)
        self._keys = list(map(_ratio_key, self._order))

    def _edit(self, gone: Sequence[NodeFacts], new: Sequence[NodeFacts]) -> None:
        for facts in gone:
            place = bisect_left(self._keys, _ratio_key(facts))
            while self._order[place] is not facts:  # a node and a claim of the same name
                place += 1
            del self._keys[place], self._order[place]
        for facts in new:
            key = _ratio_key(facts)
            place = bisect_left(self._keys, key)
            self._keys.insert(place, key)
            self._order.insert(place, facts)


def _ratio_key(facts: NodeFacts) -> tuple[float, str]:
    """Return what Karpenter v1.15 orders cost candidates by."""
    return -facts.savings_ratio, facts.name
