"""The columns of the simulated kube-scheduler's table as values, and what names them.

Each array has one number per row of `sim.world.placement.nodetable`, which keeps them up to date. Decides nothing.
"""

from array import array
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dovetail.model.objects import LabelSelectorSpec, PodAffinityTerm
from dovetail.sim.world.placement.shapes import PodShape

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
GroupKey = tuple[object, ...]
FEW: Final = 12
"""Up to how many nodes are listed and scored one by one."""


def selector_key(namespaces: tuple[str, ...] | None, selector: LabelSelectorSpec) -> GroupKey:
    """Return a value that is the same for selectors that say the same."""
    labels = tuple(sorted(selector.match_labels.items()))
    entries = tuple((entry.key, entry.operator, entry.values) for entry in selector.match_expressions)
    return (namespaces, labels, entries)


class Numbers:
    """Numbers by row and column, cheap to read and write one by one (`cells`, row by row) and as an array (`all`).

    Both share their memory. `width` 0: a single column, whose array has one dimension.
    """

    __slots__ = ("all", "cells", "width")

    def __init__(self, size: int, width: int = 0, fill: int = 0) -> None:
        self.width = width
        self.cells = array("q", (fill,)) * (size * max(width, 1))
        whole = np.frombuffer(self.cells, dtype=np.int64)
        self.all: Ints = whole.reshape(size, width) if width else whole

    def grown(self, size: int, width: int = 0, fill: int = 0) -> "Numbers":
        """Return a larger table with the same numbers."""
        other = Numbers(size, width, fill)
        if width:
            other.all[: len(self.all), : self.width] = self.all
        else:
            other.all[: len(self.all)] = self.all
        return other


class RowCounts(dict[int, int]):
    """How many pods there are in each row that has any; there are as many of these as workloads, each on few nodes.

    `column` has them as an array, which is kept from the first time that it is asked for.
    """

    __slots__ = ("_column",)

    def __init__(self) -> None:
        super().__init__()
        self._column: Numbers | None = None

    def add(self, row: int, by: int) -> None:
        """Count more pods in a row, or fewer."""
        count = self[row] = self.get(row, 0) + by
        if not count:
            del self[row]
        if self._column is not None and row < len(self._column.cells):
            self._column.cells[row] = count

    def column(self, size: int) -> Ints:
        """Return the counts of so many rows."""
        column = self._column
        if column is None or len(column.cells) != size:
            column = self._column = Numbers(size)
            for row, count in self.items():
                column.cells[row] = count
        return column.all


@dataclass(slots=True, eq=False)
class NodeGroup:
    """Pods that a selector picks (or that carry a term), counted per node: all, and those not terminating.

    `sums`: those not terminating per domain, by label key, for the keys that were asked for.
    """

    picks: Callable[[PodShape], bool]
    every: RowCounts = field(default_factory=RowCounts)
    active: RowCounts = field(default_factory=RowCounts)
    sums: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class NodeTerms:
    """What nodes are to pods with the same selectors, node affinity and tolerations, by row; resources don't matter.

    `takes`: whether a node both fits and admits them. `fitting`: how many nodes fit. `shuns`: some node is shunned, or
    was once. `seen`: how far the table's log has been followed.
    """

    fits: Bools
    admitted: Bools
    takes: bytearray
    shunned: Ints
    liked: Ints
    shuns: bool = False
    fitting: int = 0
    seen: int = 0


Standing = tuple[Sequence[int], list[int], float, bool]
"""Rows, their domains, how much a pod in a domain counts against it, and whether a row has no domain."""


@dataclass(slots=True, eq=False)
class ShapeColumns:
    """What nodes are to one kind of pod, by row.

    `open`: the node fits, admits the pod and has room for it; `flags` are the same memory, faster to read one by one.
    `requests` and `scoring`: CPU and memory of one pod. `needs`: what one pod requests, by column of the table. `seen`
    and `seen_room`: how far the table's logs have been followed. `rows` and `few`: the open rows, if they are known;
    the list only if they are few. `scored`: what resources alone count for, by row, as far as asked. `standing`: by
    label key, what is known of the rows in a list (which must be that very list).
    """

    terms: NodeTerms
    flags: bytearray
    requests: tuple[int, int]
    scoring: tuple[int, int]
    needs: tuple[tuple[int, int], ...]
    rows: Ints | None = None
    few: list[int] | None = None
    seen: int = 0
    seen_room: int = 0
    scored: dict[int, int] = field(default_factory=dict)
    standing: dict[str, Standing] = field(default_factory=dict)
    open: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.open = np.frombuffer(self.flags, np.bool_)

    def open_rows(self) -> Ints:
        """Return the rows of the open nodes, in order; `few` lists them from then on, if they are few."""
        found = self.rows
        if found is None:
            found = self.rows = self.open.nonzero()[0]
            self.few = found.tolist() if len(found) <= FEW else None
        return found

    def set_open(self, row: int, *, is_open: bool) -> None:
        """Open a row that was closed, or close one that was open."""
        self.flags[row] = is_open
        self.rows = None
        self.standing.clear()
        few = self.few
        if few is None:
            return
        if not is_open:
            few.remove(row)
        elif len(few) < FEW:
            insort(few, row)
        else:
            self.few = None


class Row(Struct, eq=False):
    """A bound pod: its shape, its row, and whether it is not terminating."""

    shape: PodShape
    row: int
    active: bool


@dataclass(slots=True, eq=False)
class Topology:
    """The domain of each node under one label key, as a number (-1: the node has no such label)."""

    domains: Numbers
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def domain(self) -> Ints:
        """Return the domains as an array."""
        return self.domains.all


def with_label_keys(selector: LabelSelectorSpec | None, keys: tuple[str, ...], shape: PodShape) -> LabelSelectorSpec:
    """Return the selector with the pod's own values of `matchLabelKeys` in it."""
    selector = selector or LabelSelectorSpec()
    own = {key: shape.labels[key] for key in keys if key in shape.labels}
    if not own:
        return selector
    labels = {**selector.match_labels, **own}
    return LabelSelectorSpec(match_labels=labels, match_expressions=selector.match_expressions)


def term_namespaces(shape: PodShape, term: PodAffinityTerm) -> tuple[str, ...] | None:
    """Return the namespaces of an affinity term: an empty namespace selector means all of them."""
    if term.namespace_selector is not None:
        return None
    return tuple(sorted(term.namespaces)) or (shape.namespace,)
