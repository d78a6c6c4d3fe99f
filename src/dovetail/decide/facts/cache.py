"""Caches what a round read about each node: the sums over its pods and its facts, and owns the roster of all nodes.

Objects are immutable, so results from the same objects, under PDBs that refuse the same evictions, are the same.
Results that depend on time are kept until they expire, or not at all. The cache never changes an answer. Sits in
decide, above facts and pod_sums, below reading and the context.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dovetail.decide.facts.drainability import Guards
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.pod_sums import PodSums
from dovetail.decide.facts.roster import Roster
from dovetail.decide.in_flight import LeavingNode
from dovetail.model.catalogue import Catalogue
from dovetail.model.objects import NodePool, Pod, PodDisruptionBudget
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import Settings
from dovetail.scheduling.nodes import StateNode
from dovetail.scheduling.pods.evictions import ProtectionSpan, span_of
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
    """The inputs of all facts: nodes in the scheduler's order, their pods, pools, and planned nodes.

    `leaving`: the nodes that commands remove. `nominated`: nodes and claims that pods are expected on. `events`: the
    last pod events that Dovetail saw itself, by node.
    """

    states: tuple[StateNode, ...]
    pods_on: tuple[tuple[Pod, ...], ...]
    pools: Mapping[str, NodePool]
    policies: Mapping[str, DisruptionPolicy]
    leaving: Mapping[str, LeavingNode]
    nominated: frozenset[str]
    events: Mapping[str, datetime]

    def has_the_same_rules(self, other: "Reading") -> bool:
        """Return whether the nodes of both are under the same rules."""
        return _are_the_same(self.pools, other.pools) and _are_the_same(self.policies, other.policies)

    def planned_otherwise(self, other: "Reading") -> set[str]:
        """Return the nodes and claims that commands do something else with, or whose last pod event is another."""
        leaving, events = other.leaving, other.events
        changed = {name for name, entry in self.leaving.items() if leaving.get(name) != entry}
        changed.update(leaving.keys() - self.leaving.keys(), self.nominated ^ other.nominated)
        if self.events is not events:
            changed.update(node for node, at in self.events.items() if events.get(node) != at)
            changed.update(events.keys() - self.events.keys())
        return changed

    def has_the_same_nodes(self, other: "Reading") -> bool:
        """Return whether both have nodes of the same names in the same order."""
        return len(self.states) == len(other.states) and all(
            state is was or state.name == was.name for state, was in zip(self.states, other.states, strict=True)
        )


def _are_the_same(some: Mapping[str, object], others: Mapping[str, object]) -> bool:
    return len(some) == len(others) and all(others.get(name) is value for name, value in some.items())


class FactsCache:
    """The cached results by node, and the indexed PDBs. `Decider` owns it."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}
        self._timed: dict[str, ProtectionSpan] = {}
        self._nodes: dict[str, _Node] = {}
        self._here: list[str] = []
        self._pdbs: dict[str, list[PodDisruptionBudget]] = {}
        self._looked_at: Sequence[PodDisruptionBudget] | None = None
        self._settings: Settings | None = None
        self._catalogue: Catalogue | None = None
        self._last: tuple[Reading, tuple[NodeFacts, ...]] | None = None
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
        here = list(snapshot.index)
        if here != self._here:
            self._here = here
            self._sums = {name: entry for name in here if (entry := self._sums.get(name)) is not None}
            self._nodes = {name: known for name in here if (known := self._nodes.get(name)) is not None}
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

    def last_facts(self, reading: Reading) -> tuple[list[NodeFacts], Sequence[int]] | None:
        """Return the previous facts, by index, and the indexes at which they may be outdated."""
        if self._last is None or not self._last[1] or not reading.has_the_same_rules(self._last[0]):
            return None
        before, found = self._last
        states_before, pods_before = before.states, before.pods_on
        if not reading.has_the_same_nodes(before):
            places = {state.name: place for place, state in enumerate(states_before)}
            # A node that was not there gets the facts of another one first: its state differs, so they are outdated.
            at = [places.get(state.name, 0) for state in reading.states]
            found = tuple([found[place] for place in at])
            states_before = tuple([states_before[place] for place in at])
            pods_before = tuple([pods_before[place] for place in at])
        counted, known = self._sums, self._nodes
        pairs = zip(reading.states, states_before, reading.pods_on, pods_before, strict=True)
        changed = [
            place
            for place, (state, was, pods, had) in enumerate(pairs)
            if state is not was or pods is not had or state.name not in counted or state.name not in known
        ]
        others = reading.planned_otherwise(before)
        if others:
            changed.extend(place for place, state in enumerate(reading.states) if _is_among(others, state))
        return list(found), changed

    def keep_reading(self, reading: Reading, found: Sequence[NodeFacts]) -> None:
        """Cache all facts for the next round."""
        self._last = (reading, tuple(found))

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


def _is_among(planned: Container[str], state: StateNode) -> bool:
    return state.name in planned or (state.claim is not None and state.claim.metadata.name in planned)


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
