"""The simulated kube-scheduler's table: free room and domains per node, number of pods per selector.

Every column has one row per node and is kept up to date by what changed: a pod bound or gone, a node new, tainted or
gone. Decides nothing; `node_choice` filters and `scores` scores on these columns.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from dovetail.model.objects import LabelSelectorSpec, Node, PodAffinityTerm, TopologySpreadConstraint
from dovetail.model.quantity import resource_amount
from dovetail.sim.world.placement.columns import (
    Bools,
    GroupKey,
    Ints,
    NodeGroup,
    NodeTerms,
    Numbers,
    Row,
    RowCounts,
    ShapeColumns,
    Topology,
    selector_key,
    term_namespaces,
    with_label_keys,
)
from dovetail.sim.world.placement.matching import (
    admitted_by_taints,
    node_fits_selectors,
    selects,
    term_matches,
    tolerates,
)
from dovetail.sim.world.placement.shapes import PodShape

_MANY_ROWS: Final = 32
"""From how many changed rows on a column is computed as a whole."""
_Label = tuple[str, str] | None
"""What groups and shapes are found by, so that few have to be compared: a label and its value; None: all are there."""


class NodeTable:
    """All columns. Rows of nodes that went away are used again."""

    def __init__(self) -> None:
        self.size = 16
        self.rows: dict[str, int] = {}
        self.nodes: list[Node | None] = [None] * self.size
        self._free = list(range(self.size - 1, -1, -1))
        self.resources: dict[str, int] = {"cpu": 0, "memory": 1, "pods": 2, "ephemeral-storage": 3}
        self.rooms = Numbers(self.size, 4)
        self.allocatables = Numbers(self.size, 4)
        self.scorings = Numbers(self.size, 2)
        self.log: list[int] = []  # rows whose labels or taints changed, in the order it happened
        self.room_log: list[int] = []  # rows whose free room changed
        self.pods: dict[str, Row] = {}
        self._topologies: dict[str, Topology] = {}
        self._groups: dict[GroupKey, NodeGroup] = {}
        self._groups_of: dict[PodShape, list[NodeGroup]] = {}
        self._pods_of: dict[PodShape, dict[str, Row]] = {}
        self._groups_at: dict[_Label, list[NodeGroup]] = {}
        self._shapes_at: dict[_Label, dict[PodShape, None]] = {}
        self._terms: dict[bytes, NodeTerms] = {}
        self._columns: dict[bytes, ShapeColumns] = {}
        self._needs: dict[PodShape, tuple[tuple[int, int], ...]] = {}

    @property
    def room(self) -> Ints:
        """Return what is free on each node, by resource."""
        return self.rooms.all

    @property
    def allocatable(self) -> Ints:
        """Return what each node has, by resource."""
        return self.allocatables.all

    @property
    def scoring(self) -> Ints:
        """Return the CPU and memory of the pods on each node, as scores count them."""
        return self.scorings.all

    # ------------------------------------------------------------ nodes

    def set_node(self, node: Node) -> None:
        """Add a node, or take over what changed of it."""
        name = node.metadata.name
        row = self.rows.get(name)
        if row is None:
            row = self.rows[name] = self._new_row()
            self.room[row] = 0
            self.scoring[row] = 0
            self.allocatable[row] = 0
        known = self.nodes[row]
        self.nodes[row] = node
        if known is None or known.status.allocatable != node.status.allocatable:
            amounts = {
                self._resource(name): resource_amount(name, text) for name, text in node.status.allocatable.items()
            }
            room, able, at = self.rooms.cells, self.allocatables.cells, row * self.rooms.width
            for column in range(self.rooms.width):
                amount = amounts.get(column, 0)
                room[at + column] += amount - able[at + column]
                able[at + column] = amount
            self.room_log.append(row)
        if known is None or known.metadata.labels != node.metadata.labels:
            for key, topology in self._topologies.items():
                if self._place_in(topology, key, row) and known is not None:
                    for group in self._groups.values():
                        group.sums.pop(key, None)
        if known is None or known.metadata.labels != node.metadata.labels or known.spec != node.spec:
            self.log.append(row)

    def drop_node(self, name: str) -> None:
        """Forget a node; its pods must be gone."""
        row = self.rows.pop(name, None)
        if row is None:
            return
        self.nodes[row] = None
        self.allocatable[row] = 0
        self.room[row] = -1
        for key, topology in self._topologies.items():
            self._place_in(topology, key, row)
        self.log.append(row)
        self._free.append(row)

    def _new_row(self) -> int:
        if not self._free:
            old = self.size
            self.size *= 2
            self.nodes.extend([None] * old)
            self._free = list(range(self.size - 1, old - 1, -1))
            width = len(self.resources)
            self.rooms = self.rooms.grown(self.size, width)
            self.allocatables = self.allocatables.grown(self.size, width)
            self.scorings = self.scorings.grown(self.size, 2)
            for topology in self._topologies.values():
                topology.domains = topology.domains.grown(self.size, fill=-1)
            self._terms.clear()
            self._columns.clear()
        return self._free.pop()

    def _resource(self, name: str) -> int:
        column = self.resources.get(name)
        if column is None:
            column = self.resources[name] = len(self.resources)
            self.rooms = self.rooms.grown(self.size, column + 1)
            self.allocatables = self.allocatables.grown(self.size, column + 1)
        return column

    def topology(self, key: str) -> Topology:
        """Return where each node stands under a label key."""
        found = self._topologies.get(key)
        if found is None:
            found = self._topologies[key] = Topology(Numbers(self.size, fill=-1))
            for row in self.rows.values():
                self._place_in(found, key, row)
        return found

    def _place_in(self, topology: Topology, key: str, row: int) -> bool:
        """Update the domain of a row; return whether it is another one."""
        node = self.nodes[row]
        value = node.metadata.labels.get(key) if node is not None else None
        before = topology.domains.cells[row]
        number = -1 if value is None else topology.numbers.setdefault(value, len(topology.numbers))
        topology.domains.cells[row] = number
        return number != before

    def per_domain(self, counts: RowCounts, key: str) -> Ints:
        """Return for each node how many counted pods are in its domain; 0 if it has no domain."""
        topology = self.topology(key)
        sums = np.zeros(len(topology.numbers) + 1, np.int64)
        for number, count in _sums(counts, topology).items():
            sums[number + 1] = count
        result: Ints = sums[topology.domain + 1]
        return result

    def active_in_domains(self, group: NodeGroup, key: str, columns: ShapeColumns) -> Mapping[int, int]:
        """Return how many pods of a group that are not terminating each domain has on nodes that fit a kind."""
        if columns.terms.fitting < len(self.rows):
            fits = columns.terms.fits
            return _sums({row: n for row, n in group.active.items() if fits.item(row)}, self.topology(key))
        found = group.sums.get(key)
        if found is None:
            found = group.sums[key] = _sums(group.active, self.topology(key))
        return found

    # ------------------------------------------------------------ pods

    def bind(self, key: str, shape: PodShape, row: int) -> None:
        """Add a pod to the node in a row."""
        groups = self.groups_of(shape)
        self.pods[key] = self._pods_of[shape][key] = Row(shape, row, active=True)
        self._take(shape, row, 1)
        for group in groups:
            group.every.add(row, 1)
            self._count_active(group, row, 1)

    def terminating(self, key: str) -> None:
        """Mark a pod as terminating: it still takes its room, but spread no longer counts it."""
        entry = self.pods.get(key)
        if entry is not None and entry.active:
            entry.active = False
            for group in self.groups_of(entry.shape):
                self._count_active(group, entry.row, -1)

    def _count_active(self, group: NodeGroup, row: int, by: int) -> None:
        group.active.add(row, by)
        for key, sums in group.sums.items():
            number = self._topologies[key].domains.cells[row]
            if number >= 0:
                sums[number] = sums.get(number, 0) + by

    def release(self, key: str) -> None:
        """Remove a pod that is gone or terminal: its room is free."""
        entry = self.pods.get(key)
        if entry is None:
            return
        self.terminating(key)
        del self.pods[key], self._pods_of[entry.shape][key]
        self._take(entry.shape, entry.row, -1)
        for group in self.groups_of(entry.shape):
            group.every.add(entry.row, -1)

    def _take(self, shape: PodShape, row: int, sign: int) -> None:
        self.room_log.append(row)
        needs = self._needs.get(shape) or self._needs_of(shape)  # may make the table wider: before `rooms` is looked up
        room, at, scoring = self.rooms.cells, row * self.rooms.width, self.scorings.cells
        for column, amount in needs:
            room[at + column] -= sign * amount
        scoring[2 * row] += sign * shape.scoring_cpu
        scoring[2 * row + 1] += sign * shape.scoring_memory

    def _needs_of(self, shape: PodShape) -> tuple[tuple[int, int], ...]:
        """Return what a pod requests, by column; a resource that no node has gets a column, too."""
        found = self._needs.get(shape)
        if found is None:
            found = tuple((self._resource(resource), amount) for resource, amount in shape.requests.items())
            self._needs[shape] = found
        return found

    # ------------------------------------------------------------ groups

    def groups_of(self, shape: PodShape) -> Sequence[NodeGroup]:
        """Return all groups that count pods of this shape."""
        found = self._groups_of.get(shape)
        if found is None:
            labels = (None, *shape.labels.items())
            near = (group for label in labels for group in self._groups_at.get(label, ()))
            found = self._groups_of[shape] = [group for group in near if group.picks(shape)]
            self._pods_of[shape] = {}
            for label in labels:
                self._shapes_at.setdefault(label, {})[shape] = None
        return found

    def group(self, key: GroupKey, picks: Callable[[PodShape], bool], label: _Label = None) -> NodeGroup:
        """Return the group under that key; a new one counts all bound pods first.

        `label`: one that all shapes have that it picks; None: it may pick any.
        """
        found = self._groups.get(key)
        if found is None:
            found = NodeGroup(picks)
            for shape in self._shapes_at.get(label, ()):
                if picks(shape):
                    self._groups_of[shape].append(found)
                    for entry in self._pods_of[shape].values():
                        found.every.add(entry.row, 1)
                        if entry.active:
                            found.active.add(entry.row, 1)
            self._groups[key] = found
            self._groups_at.setdefault(label, []).append(found)
        return found

    def picked_by(self, namespaces: tuple[str, ...] | None, selector: LabelSelectorSpec) -> NodeGroup:
        """Return the pods that a selector picks in some namespaces (None: all)."""

        def picks(shape: PodShape) -> bool:
            return (namespaces is None or shape.namespace in namespaces) and selects(selector, shape.labels)

        label = next(iter(selector.match_labels.items()), None)
        return self.group(selector_key(namespaces, selector), picks, label)

    def of_term(self, shape: PodShape, term: PodAffinityTerm) -> NodeGroup:
        """Return the pods that an affinity term of a shape speaks of."""
        selector = with_label_keys(term.label_selector, term.match_label_keys, shape)
        return self.picked_by(term_namespaces(shape, term), selector)

    def of_constraint(self, shape: PodShape, constraint: TopologySpreadConstraint) -> NodeGroup:
        """Return the pods that a spread constraint of a shape counts."""
        selector = with_label_keys(constraint.label_selector, constraint.match_label_keys, shape)
        return self.picked_by((shape.namespace,), selector)

    def carriers(self, shape: PodShape) -> NodeGroup:
        """Return the pods of exactly this shape: those that carry its terms."""
        return self.group(("shape", id(shape)), lambda other: other is shape)

    def mark(self) -> tuple[int, int]:
        """Return how much has changed so far, for `may_have_opened`."""
        return len(self.log), len(self.room_log)

    def may_have_opened(self, mark: tuple[int, int], shapes: Iterable[PodShape]) -> bool:
        """Return whether a node that changed since then fits and admits pods of one of these shapes."""
        changed = {*self.log[mark[0] :], *self.room_log[mark[1] :]}
        for shape in {shape.terms: shape for shape in shapes}.values():
            terms = self._terms_of(shape)
            self._look_again(terms, shape)
            if any(terms.takes[row] for row in changed):
                return True
        return False

    # ------------------------------------------------------------ shape columns

    def name_of(self, row: int) -> str:
        """Return the name of the node in a row that is taken."""
        node = self.nodes[row]
        assert node is not None
        return node.metadata.name

    def columns(self, shape: PodShape) -> ShapeColumns:
        """Return what each node is to a shape, brought up to date by the nodes that changed since the last look."""
        found = self._columns.get(shape.kind)
        if found is None:
            found = self._columns[shape.kind] = ShapeColumns(
                self._terms_of(shape),
                bytearray(self.size),
                (shape.requests.get("cpu", 0), shape.requests.get("memory", 0)),
                (shape.scoring_cpu, shape.scoring_memory),
                self._needs_of(shape),
            )
            stale = list(self.rows.values())
        elif found.seen == len(self.log) and len(self.room_log) - found.seen_room <= 1:
            if found.seen_room < len(self.room_log):  # as usual: the last pod of its kind was bound
                found.seen_room = len(self.room_log)
                self._open_row(found, self.room_log[-1])
            return found
        else:
            stale = self.log[found.seen :] + self.room_log[found.seen_room :]
            if len(stale) > _MANY_ROWS:  # most of them are the same few: a node that many pods were bound to
                stale = list(dict.fromkeys(stale))
        found.seen, found.seen_room = len(self.log), len(self.room_log)
        found.standing.clear()
        self._look_again(found.terms, shape)
        if len(stale) > _MANY_ROWS:
            found.open[:] = self.open_to(shape, found)
            found.rows = found.few = None
            found.scored.clear()
        else:
            for row in dict.fromkeys(stale):
                self._open_row(found, row)
        return found

    def _terms_of(self, shape: PodShape) -> NodeTerms:
        """Return what each node is to the selectors and tolerations of a shape."""
        found = self._terms.get(shape.terms)
        if found is None:
            found = self._terms[shape.terms] = NodeTerms(
                np.zeros(self.size, np.bool_),
                np.zeros(self.size, np.bool_),
                bytearray(self.size),
                np.zeros(self.size, np.int64),
                np.zeros(self.size, np.int64),
                seen=len(self.log),
            )
            for row in self.rows.values():
                self._look(found, shape, row)
        return found

    def _look_again(self, terms: NodeTerms, shape: PodShape) -> None:
        """Look at the nodes that changed since the last time."""
        if terms.seen < len(self.log):
            for row in dict.fromkeys(self.log[terms.seen :]):
                self._look(terms, shape, row)
            terms.seen = len(self.log)

    def _open_row(self, columns: ShapeColumns, row: int) -> None:
        """Update whether a row is open; what was scored for it no longer holds."""
        columns.scored.pop(row, None)
        is_open = columns.terms.takes[row]
        if is_open:
            room, at = self.rooms.cells, row * self.rooms.width
            for column, amount in columns.needs:
                if room[at + column] < amount:
                    is_open = 0
                    break
        if is_open != columns.flags[row]:
            columns.set_open(row, is_open=bool(is_open))

    def open_to(self, shape: PodShape, columns: ShapeColumns) -> Bools:
        """Return for each row whether the node fits, admits a pod of this shape and has room for it."""
        found: Bools = columns.terms.fits & columns.terms.admitted
        for column, amount in self._needs_of(shape):
            found &= self.room[:, column] >= amount
        return found

    def _look(self, terms: NodeTerms, shape: PodShape, row: int) -> None:
        node = self.nodes[row]
        terms.fitting -= terms.fits.item(row)
        if node is None:
            terms.fits[row] = terms.admitted[row] = terms.takes[row] = False
            return
        labels, name = node.metadata.labels, node.metadata.name
        spec, taints = shape.spec, node.spec.taints
        terms.fits[row] = fits = node_fits_selectors(spec, labels, name)
        terms.fitting += fits
        admitted = not node.spec.unschedulable or shape.daemon
        terms.admitted[row] = admitted = admitted and (not taints or admitted_by_taints(spec.tolerations, taints))
        terms.takes[row] = fits and admitted
        if taints or terms.shuns:
            soft = [taint for taint in taints if taint.effect == "PreferNoSchedule"]
            terms.shunned[row] = shunned = sum(not tolerates(spec.tolerations, taint) for taint in soft)
            terms.shuns = terms.shuns or shunned > 0
        near = shape.spec.affinity.node_affinity if shape.spec.affinity else None
        if near is not None:
            terms.liked[row] = sum(
                entry.weight
                for entry in near.preferred_during_scheduling_ignored_during_execution
                if term_matches(entry.preference, labels, name)
            )


def _sums(counts: Mapping[int, int], topology: Topology) -> dict[int, int]:
    """Return how many counted pods are in each domain that has any."""
    domain, sums = topology.domains.cells, dict[int, int]()
    for row, count in counts.items():
        number = domain[row]
        if number >= 0:
            sums[number] = sums.get(number, 0) + count
    return sums
