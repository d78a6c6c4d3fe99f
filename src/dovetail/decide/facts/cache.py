"""Caches what a round read about each node: the sums over its pods and its facts, and owns the roster of all nodes.

Objects are immutable, so results from the same objects, under PDBs that refuse the same evictions, are the same.
Results that depend on time are kept until they expire, or not at all. The cache never changes an answer. Sits in
decide, above facts and pod_sums, below reading and the context.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dovetail.decide.facts.drainability import Guards
from dovetail.decide.facts.lineup import Lineup
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.pod_sums import PodSums
from dovetail.decide.facts.roster import Roster
from dovetail.decide.in_flight import LeavingNode
from dovetail.model.catalogue import Catalogue
from dovetail.model.listing import keys_changed
from dovetail.model.objects import NodePool, Pod, PodDisruptionBudget
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import Settings
from dovetail.scheduling.nodes import StateNode
from dovetail.scheduling.pods.evictions import ProtectionSpan, span_of
from dovetail.scheduling.reading.rows import Edits
from dovetail.scheduling.snapshot import Snapshot

Inputs = tuple[StateNode, PodSums, NodePool | None, DisruptionPolicy | None, LeavingNode | None, bool, datetime | None]
"""All that the facts of a node are read off, but for settings, catalogue and the time.

The last two: is it nominated, and the last pod event that Dovetail saw itself.
"""


def _same(one: Inputs, other: Inputs) -> bool:
    """Return whether both are the same object."""
    return (
        one[0] is other[0]
        and one[1] is other[1]
        and one[2] is other[2]
        and one[3] is other[3]
        and (one[4] is other[4] or one[4] == other[4])
        and one[5] == other[5]
        and one[6] == other[6]
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """The sums of a node: its pods, the result, and the PDBs (and their namespaces) that were consulted."""

    pods: tuple[Pod, ...]
    sums: PodSums
    namespaces: frozenset[str]
    pdbs: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """The facts of a node, and what they were read off."""

    inputs: Inputs
    facts: NodeFacts


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The inputs of all facts: the snapshot, pools, and planned nodes.

    `leaving`: the nodes that commands remove. `nominated`: nodes and claims that pods are expected on. `events`: the
    last pod events that Dovetail saw itself, by node.
    """

    snapshot: Snapshot
    policies: Mapping[str, DisruptionPolicy]
    leaving: Mapping[str, LeavingNode]
    nominated: frozenset[str]
    events: Mapping[str, datetime]


@dataclass(frozen=True, slots=True, eq=False)
class LastReading:
    """What was read last: the facts in the order of the snapshot, and all nodes by name, if the scheduler sees all.

    `snapshot`: its mark; the snapshot itself may be large.
    """

    snapshot: object
    pools: Mapping[str, NodePool]
    policies: Mapping[str, DisruptionPolicy]
    leaving: Mapping[str, LeavingNode]
    nominated: frozenset[str]
    events: Mapping[str, datetime]
    facts: list[NodeFacts]
    lineup: Lineup | None

    @classmethod
    def of(cls, reading: Reading, facts: list[NodeFacts], lineup: Lineup | None) -> "LastReading":
        """Keep what the next reading is compared with."""
        snapshot = reading.snapshot
        return cls(
            snapshot.mark,
            snapshot.pools,
            reading.policies,
            reading.leaving,
            reading.nominated,
            reading.events,
            facts,
            lineup,
        )

    def has_the_rules_of(self, reading: Reading) -> bool:
        """Return whether the nodes of both are under the same rules."""
        return _are_the_same(self.pools, reading.snapshot.pools) and _are_the_same(self.policies, reading.policies)

    def planned_otherwise(self, reading: Reading) -> set[str]:
        """Return the nodes and claims that commands do something else with, or whose last pod event is another."""
        leaving = self.leaving
        changed = {name for name, entry in reading.leaving.items() if leaving.get(name) != entry}
        changed.update(leaving.keys() - reading.leaving.keys(), reading.nominated ^ self.nominated)
        changed.update(keys_changed(self.events, reading.events))
        return changed


def _are_the_same(some: Mapping[str, object], others: Mapping[str, object]) -> bool:
    return len(some) == len(others) and all(others.get(name) is value for name, value in some.items())


class FactsCache:
    """The cached results by node, and the indexed PDBs. `Decider` owns it."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}
        self._timed: dict[str, ProtectionSpan] = {}
        self._nodes: dict[str, _Node] = {}
        self._here: Mapping[str, int] = {}
        self._pdbs: dict[str, list[PodDisruptionBudget]] = {}
        self._looked_at: Sequence[PodDisruptionBudget] | None = None
        self._settings: Settings | None = None
        self._catalogue: Catalogue | None = None
        self._last: LastReading | None = None
        self.guards = Guards(())
        self.roster = Roster()

    def look_at(self, snapshot: Snapshot, settings: Settings) -> None:
        """Forget nodes that are gone, and nodes with pods whose PDBs changed or now refuse other evictions.

        Also nodes on which a do-not-disrupt has expired since.
        """
        catalogue, pdbs = snapshot.catalogue, snapshot.cluster.pdbs
        settings = replace(settings, ties=0)  # random ties in simulations don't change facts
        if settings != self._settings or catalogue is not self._catalogue:
            self._nodes, self._last, self.roster = {}, None, Roster()
            if self._settings is None or settings.karpenter != self._settings.karpenter:
                self._sums = {}
        self._settings, self._catalogue = settings, catalogue
        others, turned = self._look_at_pdbs(pdbs)
        if snapshot.index is not self._here:
            self._here = snapshot.index
            for name in self._sums.keys() - self._here.keys():
                del self._sums[name]
            for name in self._nodes.keys() - self._here.keys():
                del self._nodes[name]
        if others or turned:
            self._sums = {
                name: entry
                for name, entry in self._sums.items()
                if entry.namespaces.isdisjoint(others) and entry.pdbs.isdisjoint(turned)
            }
        for name in [name for name, span in self._timed.items() if not span.covers(snapshot.now)]:
            del self._timed[name]
            self._sums.pop(name, None)

    def _look_at_pdbs(self, pdbs: Sequence[PodDisruptionBudget]) -> tuple[set[str], set[str]]:
        """Return the namespaces whose set of PDBs changed, and the PDBs that now refuse other evictions."""
        others: set[str] = set()
        turned: set[str] = set()
        if pdbs is self._looked_at:
            return others, turned
        by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for pdb in pdbs:
            by_namespace.setdefault(pdb.metadata.namespace, []).append(pdb)
        old = self._pdbs
        for namespace in {**old, **by_namespace}:
            found = _turned(old.get(namespace, ()), by_namespace.get(namespace, ()))
            if found is None:
                others.add(namespace)
            else:
                turned.update(found)
        self._pdbs, self._looked_at, self.guards = by_namespace, pdbs, self.guards.renewed(pdbs)
        return others, turned

    def sums_of(self, node: str, pods: tuple[Pod, ...]) -> PodSums | None:
        """Return the cached sums for exactly these pod objects, or None."""
        entry = self._sums.get(node)
        return entry.sums if entry is not None and entry.pods is pods else None

    def keep_sums(self, node: str, pods: tuple[Pod, ...], sums: PodSums, pdbs: frozenset[str], now: datetime) -> None:
        """Cache the sums until a do-not-disrupt expires."""
        self._timed.pop(node, None)
        if sums.surges:  # the cache key does not cover Deployments that roll
            self._sums.pop(node, None)
            return
        asked = frozenset(pod.metadata.namespace for pod in pods)
        span = span_of(pods, now)
        if span != ProtectionSpan():
            self._timed[node] = span
        self._sums[node] = _Sums(pods, sums, asked, pdbs)

    def last_facts(self, reading: Reading) -> tuple[LastReading, Edits, set[int]] | None:
        """Return what was read last, how nodes came and went since, and the places at which facts may be outdated.

        None if that is not known.
        """
        last, snapshot = self._last, reading.snapshot
        changes = None if last is None else snapshot.changes_since(last.snapshot)
        if last is None or changes is None or snapshot.rows.has_namesakes or not last.has_the_rules_of(reading):
            return None
        edits, changed = changes
        index, name_of_claim = snapshot.index, snapshot.rows.name_of_claim
        others = last.planned_otherwise(reading)
        others.update([name_of_claim[name] for name in others if name in name_of_claim])
        for kept in (self._sums, self._nodes):
            if len(kept) != len(index):
                others.update(index.keys() - kept.keys())
        return last, edits, changed.union([index[name] for name in others if name in index])

    def keep_reading(self, reading: Reading, facts: list[NodeFacts], lineup: Lineup | None) -> None:
        """Cache all facts for the next round; `lineup`: all nodes by name, if the scheduler sees all of them."""
        self._last = LastReading.of(reading, facts, lineup)

    def facts_of(self, inputs: Inputs) -> NodeFacts | None:
        """Return the facts cached for the same inputs, or None."""
        known = self._nodes.get(inputs[0].name)
        return known.facts if known is not None and _same(known.inputs, inputs) else None

    def keep_facts(self, inputs: Inputs, facts: NodeFacts, now: datetime) -> None:
        """Cache the facts of a node unless they depend on time."""
        if facts.drifted_since == now:
            self._nodes.pop(facts.name, None)
        else:
            self._nodes[facts.name] = _Node(inputs, facts)


def _turned(old: Sequence[PodDisruptionBudget], new: Sequence[PodDisruptionBudget]) -> list[str] | None:
    """Return the PDBs of a namespace that started or stopped refusing evictions; None if the set of PDBs changed.

    The number they allow matters only when it is 0.
    """
    if len(old) != len(new):
        return None
    found = []
    for one, other in zip(old, new, strict=True):
        if one is other:
            continue
        if one.metadata.name != other.metadata.name or one.spec != other.spec:
            return None
        if (one.status.disruptions_allowed == 0) != (other.status.disruptions_allowed == 0):
            found.append(f"{one.metadata.namespace}/{one.metadata.name}")
    return found
