"""Where the simulated kube-scheduler puts one pod: filters nodes, has what is left scored, draws among equals.

Filters as the default profile of Kubernetes does: room, node affinity, taints, topology spread and pod affinity, with
the adaptive share of nodes to score. `sim.world.placement.scores` scores. Doesn't bind; the scheduler does.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

import numpy as np

from dovetail.model.objects import TopologySpreadConstraint
from dovetail.sim.world.placement.columns import FEW, Bools, Ints, NodeGroup, ShapeColumns
from dovetail.sim.world.placement.nodetable import NodeTable
from dovetail.sim.world.placement.scores import NodeScores
from dovetail.sim.world.placement.shapes import PodShape, Shapes
from dovetail.sim.world.store import WorldStore

_ALL_BELOW: Final = 100


class NodeChoice:
    """Chooses a node for pods of a shape, over the table of nodes that the scheduler keeps."""

    def __init__(self, store: WorldStore, shapes: Shapes, dice: Random) -> None:
        self.store = store
        self.shapes = shapes
        self.table = NodeTable()
        self._dice = dice
        self._next_start = 0
        self._scores = NodeScores(self.table)
        self._refused: dict[PodShape, tuple[int, list[tuple[NodeGroup, str]]]] = {}

    # ------------------------------------------------------------ filter

    def pick(self, shape: PodShape) -> int:
        """Return the row of the node that a pod of this shape would go to now; -1 where there is none."""
        columns = self.table.columns(shape)
        plain = self.is_plain(shape) and not shape.ports
        few = columns.few if plain else None
        if few is None:
            rows = columns.open_rows() if plain else self._filtered(shape, columns).nonzero()[0]
            if len(rows) > FEW:
                return self._draw(self._scores.best(shape, self._sample(rows), columns))
            few = rows.tolist()
        if len(few) <= 1:
            return few[0] if few else -1
        return self._draw(self._scores.best_of_few(shape, few, columns))

    def _draw(self, best: Sequence[int]) -> int:
        return best[0] if len(best) == 1 else best[self._dice.randrange(len(best))]

    def _filtered(self, shape: PodShape, columns: ShapeColumns) -> Bools:
        """Return the open nodes that the pods already there leave to this one."""
        good = columns.open.copy()
        for constraint in shape.spread:
            if constraint.when_unsatisfiable == "DoNotSchedule":
                good &= self._spread_allows(shape, constraint, columns.terms.fits, columns.terms.admitted)
        if shape.required_near or shape.required_apart:
            good &= self._near_and_apart(shape)
        self._keep_away_from_loners(shape, good)
        self._keep_ports(shape, good)
        return good

    def is_plain(self, shape: PodShape) -> bool:
        """Return whether only room, labels and taints decide where it may go."""
        return not (shape.looks_at_pods or self._refusals(shape))

    def _refusals(self, shape: PodShape) -> list[tuple[NodeGroup, str]]:
        """Return the pods whose own anti-affinity refuses this shape, each with the label key of the domains."""
        loners = self.shapes.with_apart
        if not loners:
            return []
        seen, found = self._refused.get(shape, (0, []))
        if seen < len(loners):
            found = found + [
                (self.table.carriers(other), term.topology_key)
                for other in loners[seen:]
                for term in other.required_apart
                if self.table.of_term(other, term).picks(shape)
            ]
            self._refused[shape] = (len(loners), found)
        return found

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
        per_domain = np.bincount(domain[counted], weights=group.active.column(self.table.size)[counted], minlength=size)
        present = np.bincount(domain[counted], minlength=size) > 0
        least = per_domain[present].min()
        if entry.min_domains is not None and int(present.sum()) < entry.min_domains:
            least = 0
        own = int(group.picks(shape))
        allowed = per_domain + own - least <= entry.max_skew
        result: Bools = (domain >= 0) & allowed[np.maximum(domain, 0)]
        return result

    def _near_and_apart(self, shape: PodShape) -> Bools:
        good = np.ones(self.table.size, np.bool_)
        for term in shape.required_near:
            group = self.table.of_term(shape, term)
            has_label = self.table.topology(term.topology_key).domain >= 0
            if not group.every and group.picks(shape):
                good &= has_label  # the first of a group that wants to be together may start anywhere
            else:
                good &= has_label & (self.table.per_domain(group.every, term.topology_key) > 0)
        for term in shape.required_apart:
            group = self.table.of_term(shape, term)
            good &= self.table.per_domain(group.every, term.topology_key) == 0
        return good

    def _keep_away_from_loners(self, shape: PodShape, good: Bools) -> None:
        """Exclude nodes whose pods refuse this one by their own anti-affinity."""
        for carriers, key in self._refusals(shape):
            good &= self.table.per_domain(carriers.every, key) == 0

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
