"""How the simulated kube-scheduler scores the nodes that a pod fits on, as the default profile of Kubernetes does.

NodeResourcesFit (LeastAllocated), balanced allocation, node affinity, taints, topology spread (with the built-in
default constraints) and pod affinity, with the default weights. Most pods have the choice between a few nodes only:
these are scored one by one, since arrays of three numbers cost more than the numbers. `tests/sim/test_scores.py`
compares both ways. Doesn't draw among equals; `sim.world.placement.node_choice` does.
"""

import math
from collections.abc import Mapping, Sequence
from math import floor
from operator import add
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.model import names
from dovetail.sim.world.placement.columns import (
    FEW,
    Ints,
    NodeGroup,
    ShapeColumns,
    Standing,
    Topology,
    with_label_keys,
)
from dovetail.sim.world.placement.nodetable import NodeTable
from dovetail.sim.world.placement.shapes import PodShape

_DEFAULT_SPREAD: Final = ((names.HOSTNAME, 3), (names.ZONE, 5))
_FACTORS: Final = tuple(math.log(domains + 2) for domains in range(FEW + 1))
"""How much a pod in a domain counts against it, by the number of domains."""


_NO_DOMAIN: Final = frozenset({-1})


class _Soft(NamedTuple):
    """A constraint that only scores: its label key, where nodes stand under it, and the counted pods."""

    key: str
    max_skew: int
    group: NodeGroup
    topology: Topology


class NodeScores:
    """Scores nodes of a table for pods of a shape."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._soft: dict[PodShape, list[_Soft]] = {}

    def best(self, shape: PodShape, rows: Ints, columns: ShapeColumns) -> list[int]:
        """Return the rows with the highest score, in order."""
        many = self.of_many(shape, rows, columns)
        found: list[int] = rows[many == many.max()].tolist()
        return found

    def best_of_few(self, shape: PodShape, rows: Sequence[int], columns: ShapeColumns) -> list[int]:
        """Return those of a few rows with the highest score, in order."""
        if shape.spec.affinity is not None:
            return self.best(shape, np.array(rows), columns)
        scores = self.of_few(shape, rows, columns)
        high = max(scores)
        if scores.count(high) == 1:
            return [rows[scores.index(high)]]
        return [row for row, score in zip(rows, scores, strict=True) if score == high]

    def _soft_constraints(self, shape: PodShape) -> list[_Soft]:
        """Return the constraints that only score."""
        found = self._soft.get(shape)
        if found is None:
            topology = self.table.topology
            if shape.spread:
                found = [
                    _Soft(key, entry.max_skew, self.table.of_constraint(shape, entry), topology(key))
                    for entry in shape.spread
                    for key in (entry.topology_key,)
                    if entry.when_unsatisfiable != "DoNotSchedule"
                ]
            elif shape.default_selector is None:
                found = []
            else:
                selector = with_label_keys(shape.default_selector, (), shape)
                group = self.table.picked_by((shape.namespace,), selector)
                found = [_Soft(key, skew, group, topology(key)) for key, skew in _DEFAULT_SPREAD]
            self._soft[shape] = found
        return found

    # ------------------------------------------------------------ one by one

    def of_few(self, shape: PodShape, rows: Sequence[int], columns: ShapeColumns) -> list[int]:
        """Return the scores of a few rows for a shape without affinity, as `of_many` does."""
        scored, scores = columns.scored, []
        for row in rows:
            score = scored.get(row)
            if score is None:
                score = scored[row] = self._score_of_resources(row, columns)
            scores.append(score)
        if columns.terms.shuns:
            shunned = [columns.terms.shunned.item(row) for row in rows]
            worst = max(shunned)
            if worst:
                scores = [s + 3 * (100 - taints * 100 // worst) for s, taints in zip(scores, shunned, strict=True)]
        constraints = self._soft.get(shape)
        if constraints is None:
            constraints = self._soft_constraints(shape)
        if not constraints:
            return scores
        spread = self._spread_of_few(shape, constraints, rows, columns)
        return [*map(add, scores, spread)]

    def _score_of_resources(self, row: int, columns: ShapeColumns) -> int:
        table = self.table
        able, taken, room = table.allocatables.cells, table.scorings.cells, table.rooms.cells
        at, (cpu, memory), (scored_cpu, scored_memory) = row * table.rooms.width, columns.requests, columns.scoring
        all_cpu, all_memory = able[at], able[at + 1]
        able_cpu, able_memory = all_cpu or 1, all_memory or 1
        free_cpu = (all_cpu - taken[2 * row] - scored_cpu) * 100 // able_cpu
        free_memory = (all_memory - taken[2 * row + 1] - scored_memory) * 100 // able_memory
        score = (max(free_cpu, 0) + max(free_memory, 0)) // 2
        if cpu or memory:
            used_cpu, used_memory = all_cpu - room[at], all_memory - room[at + 1]
            before = _apart(used_cpu / able_cpu, used_memory / able_memory)
            after = _apart((used_cpu + cpu) / able_cpu, (used_memory + memory) / able_memory)
            score += int(75 + 50 * (before - after))
        return score

    def _spread_of_few(
        self, shape: PodShape, constraints: Sequence[_Soft], rows: Sequence[int], columns: ShapeColumns
    ) -> list[int]:
        """Return what the constraints count for, with their weight."""
        raw, ignored, kept = list[float](), set[int](), columns.standing
        for key, max_skew, group, topology in constraints:
            standing = kept.get(key)
            if standing is None or standing[0] is not rows:
                standing = kept[key] = _standing(rows, key, topology)
            _, here, factor, misses = standing
            counts: Mapping[int, int] = group.active
            places = rows
            if key != names.HOSTNAME:
                counts, places = self.table.active_in_domains(group, key, columns), here
            count, rest = counts.get, max_skew - 1
            more = [count(place, 0) * factor + rest for place in places]
            if misses:
                more = [0.0 if number < 0 else amount for number, amount in zip(here, more, strict=True)]
                if shape.spread:
                    ignored.update(at for at, number in enumerate(here) if number < 0)
            raw = [*map(add, raw, more)] if raw else more
        rounded = [floor(amount + 0.5) for amount in raw]
        if not ignored:
            high, low = max(rounded), min(rounded)
            if high == low or not high:
                return [200] * len(rows)
            both = high + low
            return [100 * (both - amount) // high * 2 for amount in rounded]
        considered = [amount for at, amount in enumerate(rounded) if at not in ignored]
        high, low = max(considered, default=0), min(considered, default=0)
        return [
            0 if at in ignored else 100 * (high + low - amount) // high * 2 if high else 200
            for at, amount in enumerate(rounded)
        ]

    # ------------------------------------------------------------ in columns

    def of_many(self, shape: PodShape, rows: Ints, columns: ShapeColumns) -> Ints:
        """Return the scores of these rows."""
        allocatable = self.table.allocatable[:, :2][rows]
        able = np.maximum(allocatable, 1)
        free = allocatable - self.table.scoring[rows] - columns.scoring
        total: Ints = np.maximum(free * 100 // able, 0).sum(axis=1) // 2
        if any(columns.requests):
            total += self._balance(np.array(columns.requests), allocatable - self.table.room[:, :2][rows], able)
        shunned, liked = columns.terms.shunned[rows], columns.terms.liked[rows]
        if shunned.any():
            total = total + 3 * (100 - shunned * 100 // shunned.max())
        if liked.any():
            total = total + 2 * (liked * 100 // liked.max())
        spread = self._spread_of_many(shape, rows, columns)
        if spread is not None:
            total = total + 2 * spread
        if shape.preferences:
            total = total + 2 * self._near_scores(shape, rows)
        return total

    def _balance(self, asked: Ints, used: Ints, able: Ints) -> Ints:
        """Return how much better balanced a node would be with the pod than it is without.

        As Kubernetes scores it since v1.36 (its change 135573): 75 where nothing changes, 50 from even to wholly
        uneven, 100 the other way round. Until v1.35 only the balance with the pod counted.
        """
        before, after = (_unevenness(amounts, able) for amounts in (used, used + asked))
        scores: Ints = (75 + 50 * (before - after)).astype(np.int64)
        return scores

    def _spread_of_many(self, shape: PodShape, rows: Ints, columns: ShapeColumns) -> Ints | None:
        constraints = self._soft_constraints(shape)
        if not constraints:
            return None
        raw = np.zeros(len(rows), np.float64)
        ignored = np.zeros(len(rows), np.bool_)
        for key, max_skew, group, topology in constraints:
            here = topology.domain[rows]
            known = here >= 0
            counts: npt.NDArray[Any]
            if key == names.HOSTNAME:
                counts, domains = group.active.column(self.table.size)[rows], len(rows)
            else:
                sums = self.table.active_in_domains(group, key, columns)
                there = np.flatnonzero(np.bincount(here[known]))
                of_domain = np.zeros(len(topology.numbers) + 1, np.int64)
                of_domain[there] = [sums.get(number, 0) for number in there.tolist()]
                counts, domains = of_domain[here], len(there)
            if shape.spread:
                ignored |= ~known
            raw += np.where(known, counts * math.log(domains + 2) + (max_skew - 1), 0)
        rounded = np.floor(raw + 0.5).astype(np.int64)
        considered = rounded[~ignored]
        if len(considered) == 0 or considered.max() == 0:
            return np.where(ignored, 0, 100).astype(np.int64)
        high, low = int(considered.max()), int(considered.min())
        scores: Ints = np.where(ignored, 0, 100 * (high + low - rounded) // high).astype(np.int64)
        return scores

    def _near_scores(self, shape: PodShape, rows: Ints) -> Ints:
        raw = np.zeros(len(rows), np.int64)
        for weight, term in shape.preferences:
            group = self.table.of_term(shape, term)
            raw += weight * self.table.per_domain(group.every, term.topology_key)[rows]
        low, high = int(raw.min()), int(raw.max())
        if high == low:
            return np.zeros(len(rows), np.int64)
        scores: Ints = (raw - low) * 100 // (high - low)
        return scores


def _standing(rows: Sequence[int], key: str, topology: Topology) -> Standing:
    """Return the domain of each row under a label key, how much a pod counts, and whether a row has no domain.

    How much a pod counts follows from the number of domains; every host name is one.
    """
    domain = topology.domains.cells
    here = [domain[row] for row in rows]
    domains = len(rows) if key == names.HOSTNAME else len({*here} - _NO_DOMAIN)
    return rows, here, _FACTORS[domains], -1 in here


def _apart(cpu: float, memory: float) -> float:
    """Return how far apart the shares of CPU and memory of one node are: their standard deviation."""
    return abs(min(cpu, 1.0) - min(memory, 1.0)) / 2


def _unevenness(amounts: Ints, able: Ints) -> npt.NDArray[np.float64]:
    """Return how far apart the shares of CPU and memory are, per node: their standard deviation."""
    shares = np.minimum(amounts / able, 1.0)
    apart: npt.NDArray[np.float64] = np.abs(shares[:, 0] - shares[:, 1]) / 2
    return apart
