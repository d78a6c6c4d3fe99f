"""Caches what a round read about each node: the sums over its pods and its facts.

Objects are immutable, so results from the same objects are the same. What PDBs refuse is kept apart (`vetoes`).
Results that depend on time are kept until they expire, or not at all. The cache never changes an answer. Sits in
decide, above facts and pod_sums, below reading and the scene.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

import msgspec

from dovetail.decide.billing import MarginalFacts
from dovetail.decide.facts.drainability import Guards
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.pod_sums import PodSums
from dovetail.decide.facts.vetoes import KeptVetoes
from dovetail.decide.facts.victims import Victims
from dovetail.decide.gates.table import GateTable
from dovetail.decide.in_flight import LeavingNode, Resting
from dovetail.model.catalogue import Catalogue
from dovetail.model.listing import keys_changed
from dovetail.model.objects import NodePool, Pod
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import Settings
from dovetail.scheduling.nodes import StateNode
from dovetail.scheduling.pods.evictions import ProtectionSpan, span_of
from dovetail.scheduling.pods.surge import NO_SURGES, Owner
from dovetail.scheduling.rows import Edits
from dovetail.scheduling.snapshot import Snapshot


class Inputs(NamedTuple):
    """Everything that a node's facts depend on, except settings, catalogue and time.

    `leaving`: the command that takes it; `resting`: it backs off; `nominated`: pods are expected on it; `seen`: the
    last pod event that Dovetail saw itself.
    """

    state: StateNode
    sums: PodSums
    pool: NodePool | None
    policy: DisruptionPolicy | None
    leaving: LeavingNode | None
    resting: Resting | None
    nominated: bool
    seen: datetime | None

    def same_as(self, other: "Inputs") -> bool:
        """Return whether the facts are the same; objects are compared by identity."""
        return (
            self.state is other.state
            and self.sums is other.sums
            and self.pool is other.pool
            and self.policy is other.policy
            and self[4:] == other[4:]
        )


class _Sums(msgspec.Struct, frozen=True, eq=False):
    """The sums of a node: its pods, the result, and the PDBs (and their namespaces) that were consulted."""

    pods: tuple[Pod, ...]
    sums: PodSums
    namespaces: frozenset[str]
    pdbs: frozenset[str]


class _Node(msgspec.Struct, frozen=True, eq=False):
    """The facts of a node, and what they were read off."""

    inputs: Inputs
    facts: NodeFacts


class Reading(msgspec.Struct, frozen=True, eq=False):
    """The inputs of all facts: the token of the snapshot, pools, and planned nodes.

    `leaving`: the nodes that commands remove. `resting`: those that back off. `nominated`: nodes and claims that pods
    are expected on. `events`: the last pod events that Dovetail saw itself, by node.
    """

    token: object
    pools: Mapping[str, NodePool]
    policies: Mapping[str, DisruptionPolicy]
    leaving: Mapping[str, LeavingNode]
    resting: Mapping[str, Resting]
    nominated: frozenset[str]
    events: Mapping[str, datetime]

    def has_the_same_rules(self, before: "Reading") -> bool:
        """Return whether the nodes of both are under the same rules."""
        return _are_the_same(self.pools, before.pools) and _are_the_same(self.policies, before.policies)

    def planned_otherwise(self, before: "Reading") -> set[str]:
        """Return the nodes and claims whose part in commands, or whose last pod event, has changed."""
        leaving = before.leaving
        changed = {name for name, entry in self.leaving.items() if leaving.get(name) != entry}
        changed.update(leaving.keys() - self.leaving.keys(), self.nominated ^ before.nominated)
        changed.update(keys_changed(before.events, self.events), keys_changed(before.resting, self.resting))
        return changed


class LastReading(msgspec.Struct, frozen=True, eq=False):
    """What was read last: the facts in the order of the snapshot; `has_unseen`: there were more nodes."""

    reading: Reading
    facts: list[NodeFacts]
    has_unseen: bool


def _are_the_same(some: Mapping[str, object], others: Mapping[str, object]) -> bool:
    return len(some) == len(others) and all(others.get(name) is value for name, value in some.items())


class FactsCache:
    """The cached results by node, and the indexed PDBs. `Memory` owns it. `keeps`: false if no other round follows."""

    def __init__(self, *, keeps: bool = True) -> None:
        self.keeps = keeps
        self._sums: dict[str, _Sums] = {}
        self._timed: dict[str, ProtectionSpan] = {}
        self._nodes: dict[str, _Node] = {}
        self._surging: Mapping[Owner, bool] = {}
        self._under: dict[str, dict[str, None]] = {}
        self._settings: Settings | None = None
        self._catalogue: Catalogue | None = None
        self._last: LastReading | None = None
        self.guards = Guards(())
        self.vetoes = KeptVetoes()
        self.marginal = MarginalFacts()
        self.victims = Victims()
        self.table = GateTable()

    def look_at(self, snapshot: Snapshot, settings: Settings) -> None:
        """Forget nodes that are gone, and nodes with pods whose PDBs changed.

        Also nodes on which a do-not-disrupt has expired since, and all if other Deployments surge. Where PDBs only
        started or stopped refusing evictions, note that for the vetoes.
        """
        catalogue = snapshot.catalogue
        if settings.ties or settings.nominated_nodes:
            # Random ties in simulations don't change facts; nominated nodes are compared node by node (`Reading`).
            settings = replace(settings, ties=0, nominated_nodes=())
        same = settings is self._settings or settings == self._settings
        if not same or catalogue is not self._catalogue:
            self._nodes, self._last, self.victims, self.table = {}, None, Victims(), GateTable()
            if self._settings is None or _counts_otherwise(settings, self._settings):
                self._drop_all_sums()
                self.guards = Guards((), durations=settings.rules.protection_durations)
        self._settings, self._catalogue = settings, catalogue
        self.guards, found = self.guards.renewed(snapshot.cluster.pdbs)
        for name in self._gone(snapshot):
            self._drop_sums(name)
            self._nodes.pop(name, None)
            self.vetoes.forget(name)
        self.vetoes.begin()
        turned = dict.fromkeys(name for pdb in found.turned for name in self._under.get(pdb.metadata.key, ()))
        self.vetoes.look_again(turned)
        if snapshot.surges is not NO_SURGES:  # which Deployments roll also depends on refused evictions
            for name in turned:
                self._drop_sums(name)
        surging, self._surging = self._surging, snapshot.surges.single
        if surging != self._surging:
            self._drop_all_sums()
        if found.namespaces:
            for name in [name for name, kept in self._sums.items() if not kept.namespaces.isdisjoint(found.namespaces)]:
                self._drop_sums(name)
        for name in [name for name, span in self._timed.items() if not span.covers(snapshot.now)]:
            self._drop_sums(name)

    def _gone(self, snapshot: Snapshot) -> set[str]:
        """Return the nodes of the last snapshot that are not there any more."""
        last, index = self._last, snapshot.index
        since = None if last is None else snapshot.changes_since(last.reading.token)
        if last is None or since is None:
            return {*self._sums, *self._nodes} - index.keys()
        return {name for place in since[0].gone if (name := last.facts[place].name) not in index}

    def _drop_sums(self, node: str) -> None:
        kept = self._sums.pop(node, None)
        self._timed.pop(node, None)
        for key in () if kept is None else kept.pdbs:
            nodes = self._under[key]
            del nodes[node]
            if not nodes:
                del self._under[key]

    def _drop_all_sums(self) -> None:
        self._sums, self._under, self._timed = {}, {}, {}

    def sums_of(self, node: str, pods: tuple[Pod, ...]) -> PodSums | None:
        """Return the cached sums for exactly these pod objects, or None."""
        entry = self._sums.get(node)
        return entry.sums if entry is not None and entry.pods is pods else None

    def keep_sums(self, node: str, pods: tuple[Pod, ...], sums: PodSums, pdbs: frozenset[str], now: datetime) -> None:
        """Cache the sums until a do-not-disrupt expires."""
        self._drop_sums(node)
        if sums.surges:  # the cache key does not cover Deployments that roll
            return
        asked = frozenset(pod.metadata.namespace for pod in pods)
        span = span_of(pods, now)
        if span != ProtectionSpan():
            self._timed[node] = span
        self._sums[node] = _Sums(pods, sums, asked, pdbs)
        for key in pdbs:
            self._under.setdefault(key, {})[node] = None

    def last_facts(self, reading: Reading, snapshot: Snapshot) -> tuple[LastReading, Edits, set[int]] | None:
        """Return what was read last, how nodes came and went since, and the places at which facts may be outdated.

        None if that is not known.
        """
        last = self._last
        if last is None or snapshot.rows.has_namesakes or not reading.has_the_same_rules(last.reading):
            return None
        since = snapshot.changes_since(last.reading.token)
        if since is None:
            return None
        edits, changed = since
        index, name_of_claim = snapshot.index, snapshot.rows.name_of_claim
        others = reading.planned_otherwise(last.reading)
        others.update([name_of_claim[name] for name in others if name in name_of_claim])
        coming = [snapshot.rows.names[place] for place in edits.new]  # these are read anyway
        for kept in (self._sums, self._nodes):
            if len(kept) + sum(name not in kept for name in coming) != len(index):
                others.update(index.keys() - kept.keys())
        return last, edits, changed.union([index[name] for name in others if name in index])

    @property
    def has_unseen(self) -> bool:
        """Return whether the last reading had nodes that the scheduler does not see."""
        return self._last is not None and self._last.has_unseen

    def keep_reading(self, reading: Reading, facts: list[NodeFacts], *, has_unseen: bool) -> None:
        """Cache all facts for the next round."""
        self._last = LastReading(reading, facts, has_unseen)

    def facts_of(self, inputs: Inputs) -> NodeFacts | None:
        """Return the facts cached for the same inputs, or None."""
        known = self._nodes.get(inputs.state.name)
        return known.facts if known is not None and known.inputs.same_as(inputs) else None

    def facts_but_for_pods(self, inputs: Inputs) -> NodeFacts | None:
        """Return the facts cached for the same inputs, whatever pods the node has; None: something else changed too."""
        known = self._nodes.get(inputs.state.name)
        if known is None:
            return None
        before = known.inputs
        return known.facts if before.same_as(inputs._replace(sums=before.sums, seen=before.seen)) else None

    def keep_facts(self, inputs: Inputs, facts: NodeFacts, now: datetime) -> None:
        """Cache the new facts of a node unless they depend on time."""
        self.vetoes.look_again((facts.name,))
        if facts.drifted_since == now:
            self._nodes.pop(facts.name, None)
        else:
            self._nodes[facts.name] = _Node(inputs, facts)


def _counts_otherwise(settings: Settings, before: Settings) -> bool:
    """Return whether pods count differently than under earlier settings."""
    return settings.karpenter != before.karpenter or settings.rules != before.rules
