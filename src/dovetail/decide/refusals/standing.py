"""Standing refusals: nodes that could not go last time, until something changes that could overturn it.

A node is refused without a simulation if some of its pods fit nowhere else and the cheapest machine for these is no
cheaper (`bounds`). Such a refusal is valid while its node's facts and movers are the same objects, launches cost the
same and, for each kind of pod on it, the number of other nodes with room stays the same: none, one, or more. No other
change in the cluster can overturn it or change its wording. The cache never changes an answer. Sits in decide, beside
bounds; `Decider` owns it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.refusals.bounds import Bounds
from dovetail.decide.refusals.launches import Launches
from dovetail.model.settings import Settings
from dovetail.scheduling.pods.classes import SpecInfo
from dovetail.scheduling.pods.movers import Movers
from dovetail.scheduling.snapshot import Snapshot

_SWEPT_MIN = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A refusal with its inputs; `specs`: the kinds of pods on the node, by number."""

    facts: NodeFacts
    movers: Movers
    refusal: Refusal
    specs: frozenset[int]


class StandingRefusals:
    """The refusals of the last context that are still valid in this one."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._rooms: dict[int, tuple[SpecInfo, str | None]] = {}
        self._under: tuple[object, Launches, Settings] | None = None
        self._swept = _SWEPT_MIN
        self.scene: object = None

    def look_at(self, snapshot: Snapshot, bounds: Bounds, launches: Launches, settings: Settings) -> "StandingView":
        """Forget what may be invalid in another context; return what is valid in this one."""
        settings = replace(settings, ties=0)
        if not self._is_under(snapshot, launches, settings) or bounds.counts_leaving:
            self._entries, self._rooms = {}, {}
        self._under = (snapshot.lineage, launches, settings)
        turned = set()
        for number, (info, before) in self._rooms.items():
            room = bounds.room_for(info)
            if room != before:
                self._rooms[number] = (info, room)
                turned.add(number)
        if turned:
            self._entries = {n: entry for n, entry in self._entries.items() if entry.specs.isdisjoint(turned)}
        if len(self._rooms) > 2 * self._swept or len(self._entries) > 2 * len(snapshot.states) + _SWEPT_MIN:
            self._sweep(snapshot)
        self.scene = object()
        return StandingView(self, snapshot, bounds)

    def _is_under(self, snapshot: Snapshot, launches: Launches, settings: Settings) -> bool:
        under = self._under
        return under is not None and under[0] is snapshot.lineage and under[1] is launches and under[2] == settings

    def _sweep(self, snapshot: Snapshot) -> None:
        """Forget nodes that are gone, and kinds of pods that no refusal depends on."""
        self._entries = {name: entry for name, entry in self._entries.items() if name in snapshot.index}
        used = {number for entry in self._entries.values() for number in entry.specs}
        self._rooms = {number: room for number, room in self._rooms.items() if number in used}
        self._swept = max(_SWEPT_MIN, len(self._rooms))

    @property
    def entries(self) -> Mapping[str, _Entry]:
        """Return the cached refusals, by node."""
        return self._entries

    def keep(self, facts: NodeFacts, movers: Movers, refusal: Refusal, bounds: Bounds) -> None:
        """Remember a refusal that rests on pods without room."""
        for info, _ in movers.started:
            if info.id not in self._rooms:
                self._rooms[info.id] = (info, bounds.room_for(info))
        self._entries[facts.name] = _Entry(facts, movers, refusal, frozenset(info.id for info, _ in movers.started))


class StandingView:
    """The refusals that are valid in one context; empty once another context is used."""

    def __init__(self, standing: StandingRefusals, snapshot: Snapshot, bounds: Bounds) -> None:
        self._standing, self._snapshot, self._bounds = standing, snapshot, bounds
        self._scene, self._entries = standing.scene, standing.entries

    def refusal_of(self, facts: NodeFacts) -> Refusal | None:
        """Return the standing refusal of a node; None: it has to be computed."""
        entry = self._entries.get(facts.name)
        if entry is None or entry.facts is not facts or self._standing.scene is not self._scene:
            return None
        snapshot, movers = self._snapshot, entry.movers
        place = snapshot.index.get(facts.name, -1)
        if place < 0 or movers.of is not snapshot.pods_on[place] or not movers.span.covers(snapshot.now):
            return None
        return entry.refusal

    def keep(self, facts: NodeFacts, refusal: Refusal) -> None:
        """Remember a refusal that rests on pods without room."""
        place = self._snapshot.node_index(facts.name)
        if self._standing.scene is self._scene and place is not None and not self._bounds.counts_leaving:
            self._standing.keep(facts, self._snapshot.movers(place), refusal, self._bounds)
