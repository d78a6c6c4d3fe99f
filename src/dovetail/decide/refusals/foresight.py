"""Foresees that a simulation puts a pod of a node on a machine that is still starting, without running it.

`Unready` allows for other pods that may fill these machines first. But most of them go to the same places in every
simulation that leaves those places alone: pods of leaving nodes are placed before all others, and pods that have waited
for a node fit on no initialized one. So they are placed once, and what is left of the starting machines when the pods
of a node are placed is certain.
Exact: the simulation would refuse the node for the same reason. That reason counts only if none of the node's pods is
left without a place, so each must fit on a new node, too. Sits in decide, above unready.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from dovetail.decide.refusals.planned_room import PlannedRoom
from dovetail.decide.refusals.unready import Unready
from dovetail.model.cached import cached
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.launch.claims import Claim, ClaimRules
from dovetail.scheduling.launch.machines import Amounts
from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.pods.variants import Variant
from dovetail.scheduling.snapshot import Snapshot

_by_key = attrgetter("key")
_NO_NODE: Final = -1


class _FullRoom(PlannedRoom):
    """The room once the pods of leaving nodes without a plan, and larger pods that wait, have their places, too."""

    def __init__(self, snapshot: Snapshot, planned: PlannedRoom, places: "_FirstFit") -> None:
        """Place the pods that wait after those that `places` has placed already."""
        super().__init__(snapshot)
        self.room = _replaced(planned.room, places.rows.items())
        self._waiting = planned.waiting
        self._steps = list(_steps(places, self._waiting, snapshot.initialized))
        self.nodes = planned.nodes.union(places.rows)
        self._rooms: dict[int, Amounts] = {}

    def room_before(self, cls: PodClass) -> Amounts | None:
        """Return the free resources of every node when pods of a class are placed; None if they are not certain."""
        before = bisect_right(self._waiting, (-cls.cpu, -cls.memory), key=lambda entry: entry.key[:2])
        if before > len(self._steps):
            return None
        if before not in self._rooms:
            self._rooms[before] = _replaced(self.room, filter(None, self._steps[:before]))
        return self._rooms[before]

    @property
    def unplanned(self) -> Sequence[Entry]:
        """Return no pods."""
        return ()

    @property
    def waiting(self) -> Sequence[Entry]:
        """Return no pods."""
        return ()


def _replaced(room: Amounts, rows: Iterable[tuple[int, list[int]]]) -> Amounts:
    room = room.copy()
    for node, row in rows:
        room[node] = row
    return room


def _steps(places: "_FirstFit", waiting: Sequence[Entry], initialized: int) -> Iterator[tuple[int, list[int]] | None]:
    """Yield the node that each pod goes to, with what is left there; None: no node. End where it is not certain."""
    for entry in waiting:
        node = places.put(entry)
        if node is None or 0 <= node < initialized:
            return  # moved pods compete with it for that node
        yield None if node == _NO_NODE else (node, places.rows[node].copy())


class Foresight:
    """What is certain about simulations that remove one node of a snapshot; `closed` nodes refuse moved pods."""

    def __init__(self, snapshot: Snapshot, closed: Sequence[int], planned: PlannedRoom) -> None:
        self._snapshot, self._closed, self._planned = snapshot, closed, planned
        self._launchable: dict[int, bool] = {}

    def pods_ending_unready(self, node: int) -> int:
        """Return of how many pods the simulation would be that refuses a node for a pod on a starting one.

        0: it may not be refused for that.
        """
        snapshot, unready = self._snapshot, self._unready
        if unready is None or not 0 <= node < snapshot.initialized or not unready.precedes_launches(node):
            return 0
        movers = snapshot.movers(node)
        if not all(self._can_launch_for(alike[0].cls) for alike in movers.alike):
            return 0
        return len(movers.queue) + len(snapshot.queued) + len(snapshot.leaving_entries)

    @cached
    def _unready(self) -> Unready | None:
        """Return what is certain with all other pods in their places; None if these are not known."""
        snapshot = self._snapshot
        if snapshot.initialized == len(snapshot.states) or not self._planned.is_known:
            return None
        if snapshot.settings.rules.others_pods_count or snapshot.virtual:
            return None  # a new node for other pods may end the simulation before any pod of the node is placed
        places = _FirstFit(snapshot, self._planned)
        if any(places.put(entry) is None for entry in sorted(self._planned.unplanned, key=_by_key)):
            return None
        return Unready(snapshot, self._closed, _FullRoom(snapshot, self._planned, places))

    def _can_launch_for(self, cls: PodClass) -> bool:
        """Return whether a new node takes a pod of the class, whatever else is launched."""
        variant = self._snapshot.frame.first(cls)
        found = self._launchable.get(variant.like)
        if found is None:
            found = self._launchable[variant.like] = variant.simple and self._find_launch(variant)
        return found

    def _find_launch(self, variant: Variant) -> bool:
        frame, limits = self._snapshot.frame, self._snapshot.limits_left(())
        if frame.machines.has_reserved or any(template.reqs.has_min_values for template in frame.templates):
            return False  # reservations run out, and launches are limited in their types
        rules = ClaimRules(frame, {}, strict_reserved=False)
        return any(
            template.index not in limits and rules.fit(Claim(1, template, template.types), variant) is not None
            for template in frame.templates
        )


class _FirstFit:
    """Places pods that need only room on the first node with room, as simulations do; `rows`: what is left there."""

    def __init__(self, snapshot: Snapshot, planned: PlannedRoom) -> None:
        self._frame, self._planned = snapshot.frame, planned
        self._nodes: dict[int, list[int]] = {}
        self.rows: dict[int, list[int]] = {}

    def put(self, entry: Entry) -> int | None:
        """Place a pod that may use every node; return the node, -1 if none has room, None if it is not certain."""
        variant = self._frame.first(entry.cls)
        if variant.lost:
            return _NO_NODE
        if not variant.simple:
            return None
        nodes = self._nodes.get(variant.like)
        if nodes is None:
            nodes = self._nodes[variant.like] = self._open_to(variant)
        while nodes:
            node = nodes[-1]
            row = self.rows[node] if node in self.rows else self._planned.row(node).copy()
            if all(row[column] >= amount for column, amount in variant.need):
                for column, amount in variant.need:
                    row[column] -= amount
                self.rows[node] = row
                return node
            nodes.pop()
        # Whether it gives up a preference depends on the new nodes that are possible then.
        return _NO_NODE if variant.after is None else None

    def _open_to(self, variant: Variant) -> list[int]:
        """Return the nodes with room for a pod before these are placed, the last one first."""
        mask, room = variant.mask, self._planned.room
        for column, amount in variant.need:
            mask = mask & (room[:, column] >= amount)
        nodes: list[int] = mask.nonzero()[0].tolist()
        return nodes[::-1]
