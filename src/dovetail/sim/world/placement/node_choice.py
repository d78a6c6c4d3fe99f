"""Where the simulated kube-scheduler puts one pod: filters nodes, scores what is left, draws among equals.

Filters and scores as the default profile of Kubernetes does: NodeResourcesFit (LeastAllocated), balanced allocation,
node affinity, taints, topology spread (with the built-in default constraints) and pod affinity, with the default
weights and the adaptive share of nodes to score. Doesn't bind; `sim.world.placement.scheduler` does.
"""

import math
from random import Random
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.model import names
from dovetail.model.objects import TopologySpreadConstraint
from dovetail.sim.world.placement.nodetable import Bools, Ints, NodeGroup, NodeTable, ShapeColumns, with_label_keys
from dovetail.sim.world.placement.shapes import PodShape, Shapes
from dovetail.sim.world.store import WorldStore

_ALL_BELOW: Final = 100
_DEFAULT_SPREAD: Final = ((names.HOSTNAME, 3), (names.ZONE, 5))


class NodeChoice:
    """Chooses a node for pods of a shape, over the table of nodes that the scheduler keeps."""

    def __init__(self, store: WorldStore, shapes: Shapes, dice: Random) -> None:
        self.store = store
        self.shapes = shapes
        self.table = NodeTable()
        self._dice = dice
        self._next_start = 0
        self._soft: dict[PodShape, list[tuple[str, int, NodeGroup]]] = {}

    # ------------------------------------------------------------ filter

    def pick(self, shape: PodShape) -> int:
        """Return the row of the node that a pod of this shape would go to now; -1 where there is none."""
        columns = self.table.columns(shape)
        good = columns.open if self.is_plain(shape) and not shape.ports else self._filtered(shape, columns)
        rows = good.nonzero()[0]
        if len(rows) == 0:
            return -1
        rows = self._sample(rows)
        if len(rows) == 1:
            return int(rows[0])
        scores = self._scores(shape, rows, columns)
        best = rows[scores == scores.max()]
        return int(best[0] if len(best) == 1 else best[self._dice.randrange(len(best))])

    def _filtered(self, shape: PodShape, columns: ShapeColumns) -> Bools:
        """Return the open nodes that the pods already there leave to this one."""
        good = columns.open.copy()
        for constraint in shape.spread:
            if constraint.when_unsatisfiable == "DoNotSchedule":
                good &= self._spread_allows(shape, constraint, columns.fits, columns.admitted)
        if shape.required_near or shape.required_apart:
            good &= self._near_and_apart(shape)
        self._keep_away_from_loners(shape, good)
        self._keep_ports(shape, good)
        return good

    def is_plain(self, shape: PodShape) -> bool:
        """Return whether only room, labels and taints decide where it may go."""
        return not (self.shapes.with_apart or shape.looks_at_pods)

    def _sample(self, rows: Ints) -> Ints:
        """Return the adaptive share of nodes that the scheduler looks at in large clusters, going round."""
        total = len(self.table.rows)
        if total < _ALL_BELOW:
            return rows
        wanted = max(_ALL_BELOW, total * max(5, 50 - total // 125) // 100)
        if len(rows) <= wanted:
            return rows
        first = int(np.searchsorted(rows, self._next_start))
        turned = np.concatenate([rows[first:], rows[:first]])[:wanted]
        self._next_start = (int(turned[-1]) + 1) % self.table.size
        return turned

    def _spread_allows(self, shape: PodShape, entry: TopologySpreadConstraint, fits: Bools, admitted: Bools) -> Bools:
        topology = self.table.topology(entry.topology_key)
        domain = topology.domain
        counted = domain >= 0
        if entry.node_affinity_policy != "Ignore":
            counted = counted & fits
        if entry.node_taints_policy == "Honor":
            counted = counted & admitted
        if not counted.any():
            return counted
        group = self.table.of_constraint(shape, entry)
        size = len(topology.numbers)
        per_domain = np.bincount(domain[counted], weights=group.active[counted], minlength=size)
        present = np.bincount(domain[counted], minlength=size) > 0
        least = per_domain[present].min()
        if entry.min_domains is not None and int(present.sum()) < entry.min_domains:
            least = 0
        own = int(group.picks(shape))
        allowed = per_domain + own - least <= entry.max_skew
        result: Bools = (domain >= 0) & allowed[np.maximum(domain, 0)]
        return result

    def _per_domain(self, group_counts: Ints, key: str) -> Ints:
        """Return for each node how many counted pods are in its domain; 0 if it has no domain."""
        domain = self.table.topology(key).domain
        sums = self._domain_sums(group_counts, key)
        result: Ints = np.where(domain >= 0, sums[np.maximum(domain, 0)], 0).astype(np.int64)
        return result

    def _domain_sums(self, group_counts: Ints, key: str) -> npt.NDArray[Any]:
        """Return how many counted pods are in each domain."""
        topology = self.table.topology(key)
        rows = group_counts.nonzero()[0]
        domain = topology.domain[rows]
        known = domain >= 0
        return np.bincount(domain[known], weights=group_counts[rows[known]], minlength=max(1, len(topology.numbers)))

    def _near_and_apart(self, shape: PodShape) -> Bools:
        good = np.ones(self.table.size, np.bool_)
        for term in shape.required_near:
            group = self.table.of_term(shape, term)
            has_label = self.table.topology(term.topology_key).domain >= 0
            if not group.every.any() and group.picks(shape):
                good &= has_label  # the first of a group that wants to be together may start anywhere
            else:
                good &= has_label & (self._per_domain(group.every, term.topology_key) > 0)
        for term in shape.required_apart:
            group = self.table.of_term(shape, term)
            good &= self._per_domain(group.every, term.topology_key) == 0
        return good

    def _keep_away_from_loners(self, shape: PodShape, good: Bools) -> None:
        """Exclude nodes whose pods refuse this one by their own anti-affinity."""
        for other in self.shapes.with_apart:
            for term in other.required_apart:
                group = self.table.of_term(other, term)
                if group.picks(shape):
                    carriers: NodeGroup = self.table.carriers(other)
                    good &= self._per_domain(carriers.every, term.topology_key) == 0

    def _keep_ports(self, shape: PodShape, good: Bools) -> None:
        if not shape.ports:
            return
        for row in np.flatnonzero(good):
            node = self.table.nodes[int(row)]
            assert node is not None
            for key, pod in self.store.pods_on.get(node.metadata.name, {}).items():
                if set(self.shapes.of(key, pod).ports) & set(shape.ports):
                    good[row] = False
                    break

    # ------------------------------------------------------------ score

    def _scores(self, shape: PodShape, rows: Ints, columns: ShapeColumns) -> Ints:
        allocatable = self.table.allocatable[:, :2][rows]
        able = np.maximum(allocatable, 1)
        free = allocatable - self.table.scoring[rows] - columns.scoring
        total: Ints = np.maximum(free * 100 // able, 0).sum(axis=1) // 2
        if columns.requests.any():
            total += self._balance(columns.requests, allocatable - self.table.room[:, :2][rows], able)
        shunned, liked = columns.shunned[rows], columns.liked[rows]
        if shunned.any():
            total = total + 3 * (100 - shunned * 100 // shunned.max())
        if liked.any():
            total = total + 2 * (liked * 100 // liked.max())
        spread = self._spread_scores(shape, rows, columns.fits)
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

    def _soft_constraints(self, shape: PodShape) -> list[tuple[str, int, NodeGroup]]:
        if shape.spread:
            return [
                (entry.topology_key, entry.max_skew, self.table.of_constraint(shape, entry))
                for entry in shape.spread
                if entry.when_unsatisfiable != "DoNotSchedule"
            ]
        if shape.default_selector is None:
            return []
        selector = with_label_keys(shape.default_selector, (), shape)
        group = self.table.picked_by((shape.namespace,), selector)
        return [(key, skew, group) for key, skew in _DEFAULT_SPREAD]

    def _spread_scores(self, shape: PodShape, rows: Ints, fits: Bools) -> Ints | None:
        constraints = self._soft.get(shape)
        if constraints is None:
            constraints = self._soft[shape] = self._soft_constraints(shape)
        if not constraints:
            return None
        raw = np.zeros(len(rows), np.float64)
        ignored = np.zeros(len(rows), np.bool_)
        for key, max_skew, group in constraints:
            domain = self.table.topology(key).domain
            here = domain[rows]
            known = here >= 0
            counts: npt.NDArray[Any]
            if key == names.HOSTNAME:
                counts, domains = group.active[rows], len(rows)
            else:
                counts = self._domain_sums(np.where(fits, group.active, 0), key)[np.maximum(here, 0)]
                domains = int(np.count_nonzero(np.bincount(here[known])))
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
            raw += weight * self._per_domain(group.every, term.topology_key)[rows]
        low, high = int(raw.min()), int(raw.max())
        if high == low:
            return np.zeros(len(rows), np.int64)
        scores: Ints = (raw - low) * 100 // (high - low)
        return scores


def _unevenness(amounts: Ints, able: Ints) -> npt.NDArray[np.float64]:
    """Return how far apart the shares of CPU and memory are, per node: their standard deviation."""
    shares = np.minimum(amounts / able, 1.0)
    apart: npt.NDArray[np.float64] = np.abs(shares[:, 0] - shares[:, 1]) / 2
    return apart
