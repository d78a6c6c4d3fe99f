"""Bounds on the new nodes that removing nodes takes, node by node and kind by kind, in plain numbers.

As `decide.refusals.bounds`, which computes all nodes at once: what a sum over dicts says, its arrays must say.
"""

from collections.abc import Sequence

from dovetail.decide.refusals.room import COUNTED_MAX, PlannedRoom
from dovetail.scheduling.pods.classes import SpecInfo
from dovetail.scheduling.snapshot import Snapshot

Need = dict[int, int]
Pods = Sequence[tuple[SpecInfo, int]]


class PlainBounds:
    """The needs that no other node can meet, by each bound."""

    def __init__(self, snapshot: Snapshot, closed: Sequence[int], planned: PlannedRoom) -> None:
        self._snapshot, self._planned = snapshot, planned
        places = range(len(snapshot.states))
        sound = [at for at in places if snapshot.frame.open[at] and min(planned.row(at)) >= 0]
        self._for_all, self._for_moved = sound, [at for at in sound if at not in closed]
        counted = snapshot.leaving if snapshot.settings.rules.others_pods_count else ()
        self._leaving: list[tuple[SpecInfo, int]] = [pair for at, _ in counted for pair in snapshot.movers(at).specs]

    def alone(self, node: int) -> list[Need]:
        """Return what new nodes must hold if one node goes, by each bound that says more than the one before."""
        movers = self._snapshot.movers(node)
        nowhere, lacking = self._without_room(node, movers.started)
        base = self._leaving_homeless(node)
        need, found = _sum(nowhere, base), list[Need]()
        if need:
            found.append(dict(need))
        short = [self._short(movers.started, self._for_moved, (node,))]
        if self._leaving or movers.started != movers.specs:
            short.append(self._short([*self._leaving, *movers.specs], self._for_all, (node,)))
        for other in (*short, _sum(lacking, base)):
            if any(amount > need.get(column, 0) for column, amount in other.items()):
                need = _larger(need, other)
                found.append(dict(need))
        return found

    def together(self, nodes: Sequence[int]) -> Need:
        """Return what new nodes must hold at least if some nodes go."""
        started = [pair for node in nodes for pair in self._snapshot.movers(node).started]
        every = [pair for node in nodes for pair in self._snapshot.movers(node).specs]
        need: Need = {}
        for node in nodes:
            need = _sum(self._without_room(node, self._snapshot.movers(node).started)[1], need)
        need = _larger(need, self._short(started, self._for_moved, nodes))
        return _larger(need, self._short([*self._leaving, *every], self._for_all, nodes))

    def _fit(self, info: SpecInfo, places: Sequence[int]) -> dict[int, int]:
        rows = {at: self._planned.row(at) for at in places}
        counts = {at: min(row[column] // amount for column, amount in info.need) for at, row in rows.items()}
        return {at: count for at, count in counts.items() if count}

    def _without_room(self, node: int, pods: Pods) -> tuple[Need, Need]:
        nowhere, lacking = dict[int, int](), dict[int, int]()
        for info, count in pods:
            there = self._fit(info, self._for_moved)
            left = sum(there.values()) - there.get(node, 0)
            if len(there) <= COUNTED_MAX and left < count:
                lacking = _sum(_times(info, count - left), lacking)
                nowhere = _sum(_times(info, count), nowhere) if not left else nowhere
        return nowhere, lacking

    def _leaving_homeless(self, node: int) -> Need:
        found: Need = {}
        for info, count in self._leaving:
            there = self._fit(info, self._for_all)
            if not there or list(there) == [node]:
                found = _sum(_times(info, count), found)
        return found

    def _short(self, pods: Pods, places: Sequence[int], gone: Sequence[int]) -> Need:
        asked = [dict(info.need) for info, _ in pods]
        least = {column: min(need.get(column, 0) for need in asked) for need in asked[:1] for column in need}
        total: Need = {}
        for info, count in pods:
            total = _sum(_times(info, count), total)
        rows = [self._planned.row(at) for at in places if at not in gone]
        fitting = [row for row in rows if all(row[column] >= amount for column, amount in least.items())]
        free = {column: sum(row[column] for row in fitting) for column in total}
        return {column: amount - free[column] for column, amount in total.items() if amount > free[column]}


def _times(info: SpecInfo, count: int) -> Need:
    return {column: count * amount for column, amount in info.need}


def _sum(one: Need, other: Need) -> Need:
    return {column: one.get(column, 0) + other.get(column, 0) for column in {**one, **other}}


def _larger(one: Need, other: Need) -> Need:
    return {column: max(one.get(column, 0), other.get(column, 0)) for column in {**one, **other}}
