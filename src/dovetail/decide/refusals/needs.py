"""What the pods of each node need, as rows of numbers: how many of each kind would move, and their total requests.

A row is computed from a node's movers on first access, and again when the node's facts change: its pods, the PDBs that
block them for good, or protections that expire. So a bound over thousands of nodes is a few array operations, and
nothing is remembered but the rows. Decides nothing. Sits in decide, below bounds; `Decider` owns it.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.scheduling.pods.classes import PodClass, SpecInfo
from dovetail.scheduling.pods.movers import Movers
from dovetail.scheduling.snapshot import Snapshot

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floor = tuple[int, ...]
"""The minimum of each resource that some pods all request; 0: not all of them do."""

AMOUNT_MAX: Final = 2**53
"""What one pod counts with at most, of any resource: sums of a node's pods then fit into 64 bits."""
_GONE_MAX: Final = 64
_FLOORS_MAX: Final = 10_000
"""Once there are so many different sets of smallest requests, all rows are read again."""


class NeedRows:
    """The rows of nodes: each node has a slot in all columns for as long as it is there.

    `width`: of how many resources; `lineage`: under which they hold (`Snapshot.lineage`). Numbers of specs and classes
    begin with 1 here, 0 is no pod.

    `specs`, `counts`, `started`: the kinds of pods of each node, how many would move, and how many of these started.
    `demand`, `started_demand`: their total requests. `floor`, `started_floor`: which of `floors` is the minimum of each
    resource that all of them request. `each`: the requests of one pod, by spec.
    """

    def __init__(self, width: int, lineage: object = None) -> None:
        self.width, self._lineage = width, lineage
        self._slots: dict[str, int] = {}
        self._facts: list[NodeFacts | None] = []
        self._movers: list[Movers | None] = []
        self.infos: dict[int, SpecInfo] = {}
        self.each: Ints = np.zeros((1, width), dtype=np.int64)
        self.specs: Ints = np.zeros((0, 1), dtype=np.int64)
        self.counts: Ints = self.specs.copy()
        self.started: Ints = self.specs.copy()
        self.demand: Ints = np.zeros((0, width), dtype=np.int64)
        self.started_demand: Ints = self.demand.copy()
        self.floor: Ints = np.zeros(0, dtype=np.int64)
        self.started_floor: Ints = self.floor.copy()
        self.floors: list[Floor] = []
        self._numbers: dict[Floor, int] = {}
        self.classes: dict[int, PodClass] = {}
        self._kinds: Ints = self.specs.copy()
        self._kind_counts: Ints = self.specs.copy()
        self._has_kinds: Flags = np.zeros(0, dtype=np.bool_)

    def serves(self, snapshot: Snapshot) -> bool:
        """Return whether the slots hold for a snapshot: the same resources, and the same pods of a node would move.

        Not if most slots are of nodes that are gone, or there are too many floors.
        """
        return (
            self._lineage is snapshot.lineage
            and self.width == snapshot.frame.room.shape[1]
            and len(self._slots) <= 2 * len(snapshot.states) + _GONE_MAX
            and len(self.floors) <= _FLOORS_MAX
        )

    def of(self, nodes: Sequence[NodeFacts], snapshot: Snapshot) -> Ints:
        """Return the slots of nodes that the scheduler sees."""
        slots, known, facts_at = [], self._slots, self._facts
        stale: dict[int, NodeFacts] = {}
        for facts in nodes:
            slot = known.get(facts.name)
            if slot is None:
                slot = known[facts.name] = len(known)
                facts_at.append(None)
            if facts_at[slot] is not facts:
                stale[slot] = facts
                facts_at[slot] = facts
            slots.append(slot)
        if stale:
            index = snapshot.index
            self._read(list(stale), [snapshot.movers(index[facts.name]) for facts in stale.values()])
        return np.array(slots, dtype=np.int64)

    def demand_of(self, nodes: Sequence[NodeFacts], snapshot: Snapshot) -> Ints:
        """Return the total requests of the pods of each of these nodes."""
        slots = self.of(nodes, snapshot)  # first, because it may make the columns larger
        return self.demand[slots]

    def _read(self, slots: list[int], movers: list[Movers]) -> None:
        for info in {info.id: info for own in movers for info, _ in own.specs}.values():
            self.learn(info)
        self._cover(len(self._facts), max(len(own.specs) for own in movers))
        self._has_kinds[slots] = False
        for slot, own in zip(slots, movers, strict=True):
            self._movers[slot] = own
        _fill(self.specs, slots, [[info.id + 1 for info, _ in own.specs] for own in movers])
        _fill(self.counts, slots, [[count for _, count in own.specs] for own in movers])
        _fill(self.started, slots, [_started(own) for own in movers])
        each = self.each[self.specs[slots]]
        for counts, demand, floor in (
            (self.counts[slots], self.demand, self.floor),
            (self.started[slots], self.started_demand, self.started_floor),
        ):
            demand[slots] = np.einsum("rk,rkw->rw", counts, each)
            least = np.where((counts > 0)[:, :, None], each, AMOUNT_MAX).min(axis=1)
            least[~counts.any(axis=1)] = 0
            floor[slots] = [self.number_of(tuple(row)) for row in least.tolist()]

    def number_of(self, floor: Floor) -> int:
        """Return the number of a floor."""
        number = self._numbers.setdefault(floor, len(self.floors))
        if number == len(self.floors):
            self.floors.append(floor)
        return number

    def learn(self, info: SpecInfo) -> int:
        """Return the number of a spec; its requests can be read off `each` from then on."""
        if info.id not in self.infos:
            self.infos[info.id] = info
            if info.id + 1 >= len(self.each):
                self.each = _larger(self.each, 2 * (info.id + 1))
            for column, amount in info.need:
                self.each[info.id + 1, column] = min(amount, AMOUNT_MAX)
        return info.id + 1

    def _cover(self, slots: int, kinds: int) -> None:
        """Make room for so many slots, and for so many kinds of pods in each."""
        self._movers.extend([None] * (slots - len(self._movers)))
        for name in ("specs", "counts", "started"):
            setattr(self, name, _wider(getattr(self, name), kinds))
        if slots > len(self.floor):
            names = ("specs", "counts", "started", "demand", "started_demand", "floor", "started_floor")
            for name in (*names, "_kinds", "_kind_counts", "_has_kinds"):
                setattr(self, name, _larger(getattr(self, name), 2 * slots))

    def kinds(self, slots: Ints) -> tuple[Ints, Ints]:
        """Return the classes of the started pods of slots, and how many pods each has; `classes` has them by number."""
        fresh = slots[~self._has_kinds[slots]].tolist()
        if fresh:
            found = [Counter(_started_classes(self._movers[slot])) for slot in fresh]
            self.classes.update({cls.id: cls for each in found for cls in each})
            most = max(map(len, found))
            self._kinds, self._kind_counts = _wider(self._kinds, most), _wider(self._kind_counts, most)
            _fill(self._kinds, fresh, [[cls.id + 1 for cls in each] for each in found])
            _fill(self._kind_counts, fresh, [list(each.values()) for each in found])
            self._has_kinds[fresh] = True
        return self._kinds[slots], self._kind_counts[slots]


def _started(movers: Movers) -> list[int]:
    if movers.started is movers.specs:
        return [count for _, count in movers.specs]
    started = {info.id: count for info, count in movers.started}
    return [started.get(info.id, 0) for info, _ in movers.specs]


def _started_classes(movers: Movers | None) -> list[PodClass]:
    assert movers is not None, "a slot is read before it is asked for"
    return [alike[0].cls for alike in movers.alike if not alike[0].exempt for _ in alike]


def _fill(values: Ints, slots: Sequence[int], lists: Sequence[Sequence[int]]) -> None:
    """Write a list of numbers into each row, from its first column on; the rest of the row becomes 0."""
    lengths = list(map(len, lists))
    values[slots] = 0
    at = np.repeat(np.fromiter(slots, dtype=np.int64, count=len(slots)), lengths)
    columns = np.arange(len(at)) - np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    values[at, columns] = np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=len(at))


def _larger(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    found = np.zeros((size, *values.shape[1:]), dtype=values.dtype)
    found[: len(values)] = values
    return found


def _wider(values: Ints, columns: int) -> Ints:
    missing = columns - values.shape[1]
    return values if missing <= 0 else np.pad(values, ((0, 0), (0, missing)))
