"""The free room of nodes: sizes of machines, less the needs of pods and of expected daemons.

Sums over columns; decides nothing. Sizes and needs are read once and passed from snapshot to snapshot.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dovetail.scheduling.columns import NodeColumns, Places
from dovetail.scheduling.launch.daemons import DaemonTerms
from dovetail.scheduling.launch.machines import Amounts, Mask, Resources
from dovetail.scheduling.pods.bindings import Bindings
from dovetail.scheduling.pods.classes import DAEMON, TERMINAL, PodClass


class Sizes:
    """The total resources of nodes: each distinct size is read once."""

    def __init__(self) -> None:
        self._codes: dict[tuple[tuple[str, int], ...], int] = {}
        self._amounts: Amounts = np.zeros((0, 0), dtype=np.int64)
        self._there: Mask = np.zeros((0, 0), dtype=np.bool_)

    def code(self, allocatable: Mapping[str, int]) -> int:
        """Return the number of a size."""
        return self._codes.setdefault(tuple(allocatable.items()), len(self._codes))

    def of(self, codes: Sequence[int], resources: Resources) -> tuple[Amounts, Mask]:
        """Return the amount of each resource for nodes of these sizes, and whether they have it at all."""
        width = len(resources.names)
        if self._amounts.shape != (len(self._codes), width):
            self._amounts = np.zeros((len(self._codes), width), dtype=np.int64)
            self._there = np.zeros((len(self._codes), width), dtype=np.bool_)
            for key, code in self._codes.items():
                for name, amount in key:
                    place = resources.index[name]
                    self._amounts[code, place], self._there[code, place] = amount, True
        at = np.array(codes, dtype=np.int64)
        return self._amounts[at], self._there[at]


class Needs:
    """The requests of a pod of each class."""

    def __init__(self) -> None:
        self._rows: Amounts = np.zeros((0, 0), dtype=np.int64)

    def of(self, classes: Sequence[PodClass], width: int) -> Amounts:
        """Return a row for each class; classes are only ever added."""
        if self._rows.shape != (len(classes), width):
            known = len(self._rows) if self._rows.shape[1] == width else 0
            rows = np.zeros((len(classes), width), dtype=np.int64)
            rows[:known] = self._rows if known else 0
            for cls in classes[known:]:
                for column, amount in cls.info.need:
                    rows[cls.id, column] = amount
            self._rows = rows
        return self._rows


def room_left(total: Amounts, there: Mask, bindings: Bindings, needs: Amounts, expected: Amounts | None) -> Amounts:
    """Return each node's free resources.

    `expected`: the requests of each node's daemons; those already running don't count twice.
    """
    used = bindings.sums(needs)
    if expected is not None:
        daemons = np.flatnonzero(bindings.running & bindings.daemons)
        used += _still_to_come(expected, bindings.node[daemons], needs[bindings.cls[daemons]])
    return _left(total, used, there)


def room_at(
    places: Places, total: Amounts, there: Mask, bindings: Bindings, needs: Amounts, expected: Amounts | None
) -> Amounts:
    """Return what `room_left` returns for some nodes; `total`, `there` and `expected` are theirs alone."""
    counts, pods = bindings.on_nodes(places)
    rows = np.repeat(np.arange(len(places)), counts)
    running = np.flatnonzero(bindings.flags[pods] & TERMINAL == 0)
    pods, rows = pods[running], rows[running]
    asked = needs[bindings.cls[pods]]
    used = np.zeros_like(total)
    np.add.at(used, rows, asked)
    if expected is not None:
        daemons = np.flatnonzero(bindings.flags[pods] & DAEMON)
        used += _still_to_come(expected, rows[daemons], asked[daemons])
    return _left(total, used, there)


def _still_to_come(expected: Amounts, at: Places, running: Amounts) -> Amounts:
    """Return what daemons will request beyond those that are running; `at`: the nodes of these, by row."""
    there_already = np.zeros_like(expected)
    np.add.at(there_already, at, running)
    to_come: Amounts = np.maximum(expected - there_already, 0)
    return to_come


def _left(total: Amounts, used: Amounts, there: Mask) -> Amounts:
    room: Amounts = total - used
    room[~there] = 0
    return room


def expected_daemons(
    terms: DaemonTerms, columns: NodeColumns, resources: Resources, places: Places | None = None
) -> Amounts | None:
    """Return the requests of each node's daemons, or of these nodes'; None if there are no DaemonSets."""
    if not terms.daemons:
        return None
    count = columns.count if places is None else len(places)
    expected = np.zeros((count, len(resources.names)), dtype=np.int64)
    for place, item in enumerate(terms.daemons):
        tolerations, alternatives = terms.for_nodes(place)
        mask = np.zeros(columns.count, dtype=np.bool_)
        for reqs in alternatives:
            mask |= columns.meets(reqs)
        mask &= columns.tolerated(tolerations)
        expected[mask if places is None else mask[places]] += resources.row(item.requests)
    return expected
