"""Reads each node's facts from the cluster's objects: walks the pods once, looks up prices and times.

Decides only what counts as marked, initialized or the last pod event (docs/rules.md#timers and #gates). Sits in decide,
above facts, below the scene.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from dovetail.api.roll_request import RollRequest, read_request
from dovetail.decide.facts.cache import FactsCache, Inputs, LastReading, Reading
from dovetail.decide.facts.node_facts import NodeFacts, last_pod_event, read_expiry, retirement_age
from dovetail.decide.facts.pod_sums import PodSums, reading_of, sum_up
from dovetail.decide.facts.vetoes import Vetoes
from dovetail.decide.question import Question
from dovetail.model import names
from dovetail.model.money import Money
from dovetail.model.objects import Node, NodeClaim, NodePool, condition, is_true
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.scheduling.nodes import StateNode, state_node, why_leaving
from dovetail.scheduling.rows import Edits
from dovetail.scheduling.snapshot import Snapshot

_TAINTS: Final = (names.DISRUPTION_TAINT, names.DISRUPTED_TAINT)


class _Offer(NamedTuple):
    """What nodes of a type, a zone and a capacity type cost: the first offering, and the lowest price of all."""

    type_known: bool
    price: Money
    price_float: float
    lowest: float | None


Changes = tuple[list[NodeFacts], list[NodeFacts]]
"""The facts that are not valid any more, and the new ones."""


class AllFacts(NamedTuple):
    """The facts of all nodes, in any order; `changes`: since the last reading, None: not known."""

    nodes: list[NodeFacts]
    changes: Changes | None


class Reader:
    """Reads all nodes of a cluster."""

    def __init__(
        self,
        snapshot: Snapshot,
        policies: Mapping[str, DisruptionPolicy],
        question: Question,
        memory: FactsCache,
    ) -> None:
        settings, in_flight = question.settings, question.in_flight
        self.snapshot, self.policies, self.settings, self.now = snapshot, policies, settings, question.now
        self.pod_events = question.pod_events
        self.pools = snapshot.pools
        self.leaving = {entry.node: entry for entry in in_flight.leaving}
        self.resting = in_flight.resting
        expected = _expected_by_scheduler(snapshot) if settings.rules.pods_nominate else ()
        self.nominated = frozenset((*settings.nominated_nodes, *in_flight.nominated, *expected))
        self.memory = memory
        self._costs = reading_of(snapshot)
        self._offers: dict[tuple[str, str, str, str], _Offer] = {}
        memory.look_at(snapshot, settings)
        self.guards = memory.guards
        self.vetoes = Vetoes(snapshot, self.guards, self.now, memory.vetoes)

    def read(self) -> AllFacts:
        """Return the facts of every node and of every claim without one.

        Nodes that the scheduler does not see yet (their labels are not set) are included: they get a verdict.
        """
        reading = Reading(
            token=self.snapshot.token,
            pools=self.pools,
            policies=self.policies,
            leaving=self.leaving,
            resting=self.resting,
            nominated=self.nominated,
            events=self.pod_events,
        )
        known = self.memory.last_facts(reading, self.snapshot)
        changes = None
        if known is None:
            found = [self._facts(place) for place in range(len(self.snapshot.states))]
        else:
            found, changes = self._renewed(*known)
        unseen = [self._read(self._inputs(state_node(node, None), PodSums())) for node in self._unseen()]
        if unseen or self.memory.has_unseen:
            changes = None
        self.memory.keep_reading(reading, found, has_unseen=bool(unseen))
        return AllFacts([*found, *unseen], changes)

    def _renewed(self, last: LastReading, edits: Edits, places: set[int]) -> tuple[list[NodeFacts], Changes]:
        """Return the last facts with those at some places read again, in the scheduler's order, and what changed."""
        found = list(last.facts)
        gone = [found[place] for place in edits.gone]
        new = [self._facts(place) for place in edits.new]
        edits.apply(found, new)
        for place in sorted(places.difference(edits.new)):
            facts = self._facts(place)
            if facts is not found[place]:
                gone.append(found[place])
                new.append(facts)
                found[place] = facts
        return found, (gone, new)

    def _unseen(self) -> list[Node]:
        """Return the Nodes that the scheduler does not see."""
        states = self.snapshot.states
        if self.snapshot.joined == len(self.snapshot.cluster.nodes):
            return []
        seen = {state.name for state in states}
        seen.update(state.node.metadata.name for state in states if state.node is not None)
        return [node for node in self.snapshot.cluster.nodes if node.metadata.name not in seen]

    def _sum_up(self, index: int, name: str) -> PodSums:
        pods = self.snapshot.pods_on[index]
        known = self.memory.sums_of(name, pods)
        if known is None:
            known = sum_up(self.snapshot, index, self.guards, self.now, self._costs)
            if self.memory.keeps:
                self.memory.keep_sums(name, pods, known, self.guards.over(pods), self.now)
        return known

    def _facts(self, index: int) -> NodeFacts:
        state = self.snapshot.states[index]
        inputs = self._inputs(state, self._sum_up(index, state.name))
        known = self.memory.facts_of(inputs)
        if known is None:
            before = self.memory.facts_but_for_pods(inputs)
            known = self._read(inputs) if before is None else _with_pods(before, inputs)
            self.memory.keep_facts(inputs, known, self.now)
        return known

    def _inputs(self, state: StateNode, sums: PodSums) -> Inputs:
        claim, name = state.claim, state.name
        pool = state.labels.get(names.NODEPOOL, "")
        return Inputs(
            state=state,
            sums=sums,
            pool=self.pools.get(pool),
            policy=self.policies.get(pool),
            leaving=self.leaving.get(name),
            resting=self.resting.get(name),
            nominated=name in self.nominated or (claim is not None and claim.metadata.name in self.nominated),
            seen=self.pod_events.get(name),
        )

    def _read(self, inputs: Inputs) -> NodeFacts:
        state, sums, pool, policy, _, resting, nominated, seen = inputs
        node, claim, labels = state.node, state.claim, state.labels
        conditions = claim.status.conditions if claim is not None else ()
        drift = condition(conditions, names.CONDITION_DRIFTED)
        pool_name, kind = labels.get(names.NODEPOOL, ""), labels.get(names.INSTANCE_TYPE, "")
        zone, capacity = labels.get(names.ZONE, ""), labels.get(names.CAPACITY_TYPE, "")
        offer = self._offer(kind, pool_name, zone, capacity)
        marked, since = self._marked(state)
        roll = self._request(claim, pool)
        drifted = (drift.last_transition_time or self.now) if drift and drift.status == "True" else None
        return NodeFacts(
            name=state.name,
            node=node,
            claim=claim,
            labels=labels,
            annotations=state.annotations,
            pool_name=pool_name,
            pool=pool,
            policy=policy,
            initialized=state.initialized,
            ready=node is not None and is_true(node.status.conditions, "Ready"),
            instance_terminating=is_true(conditions, names.CONDITION_INSTANCE_TERMINATING),
            marked=marked,
            marked_since=since,
            nominated=nominated,
            resting=resting,
            drifted_since=drifted if roll is None else min(roll.requested, drifted or roll.requested),
            roll=roll,
            last_event=last_pod_event(claim, seen),
            expire_after=self._expiry(claim, policy),
            retires_after=self._retires_after(claim, policy),
            instance_type=kind,
            zone=zone,
            capacity_type=capacity,
            type_known=offer.type_known,
            price=offer.price,
            price_float=offer.price_float,
            offering_price=offer.lowest,
            rebooting=is_true(conditions, names.CONDITION_REBOOTING),
            **_of_pods(sums),
        )

    def _request(self, claim: NodeClaim | None, pool: NodePool | None) -> RollRequest | None:
        """Return the earliest request to replace the node, on its NodeClaim or its NodePool; None: there is none."""
        if claim is None or not self.settings.rules.roll_requests:
            return None
        asked = (read_request(item) for item in (claim, pool) if item is not None)
        found = [one for one in asked if one is not None and one.covers(claim.metadata.creation_timestamp)]
        return min(found, key=lambda one: one.requested, default=None)

    def _offer(self, kind: str, pool: str, zone: str, capacity: str) -> "_Offer":
        """Return what such a node costs; thousands are alike."""
        found = self._offers.get((kind, pool, zone, capacity))
        if found is None:
            known = self.snapshot.kind_of(kind, pool)
            there = known.offerings if known is not None else ()
            fits = [offer for offer in there if offer.zone == zone and offer.capacity_type == capacity]
            price, price_float = (fits[0].price, fits[0].price_float) if fits else (0, 0.0)
            lowest = min([offer.price_float for offer in fits], default=None)
            found = self._offers[kind, pool, zone, capacity] = _Offer(known is not None, price, price_float, lowest)
        return found

    def _marked(self, state: StateNode) -> tuple[str, datetime | None]:
        """Return why a node counts as marked for deletion (docs/rules.md#gates, gate 2), and since when."""
        entry = self.leaving.get(state.name)
        if entry is not None:
            return f"a command in flight takes it ({entry.method.value})", entry.since
        why = why_leaving(state, self.settings)
        if not why:
            return "", None
        times = [item.metadata.deletion_timestamp for item in (state.claim, state.node) if item is not None]
        if state.node is not None:
            times.extend(taint.time_added for taint in state.node.spec.taints if taint.key in _TAINTS)
        return why, min((when for when in times if when is not None), default=None)

    def _expiry(self, claim: NodeClaim | None, policy: DisruptionPolicy | None) -> int | None:
        """Return expireAfter: the pool's if it is set, else the claim's own (docs/rules.md#cost)."""
        if policy is not None and policy.expire_after_set and self.settings.rules.retires_expired:
            return policy.expire_after
        return read_expiry(claim.spec.expire_after) if claim is not None else None

    def _retires_after(self, claim: NodeClaim | None, policy: DisruptionPolicy | None) -> int | None:
        """Return the age at which a node counts as expired."""
        pools = policy.expire_after if policy is not None and policy.expire_after_set else None
        own = read_expiry(claim.spec.expire_after) if claim is not None else None
        return retirement_age(pools, own, self.settings.expiry_lead)


def _of_pods(sums: PodSums) -> dict[str, Any]:
    """Return the facts of a node that follow from its pods."""
    return {
        "pods": sums.pods,
        "reschedulable": tuple(sums.reschedulable),
        "pod_costs": sums.moving,
        "positive_costs": sums.positive,
        "all_costs": sums.all,
        "tracked_costs": sums.tracked,
        "protection": sums.protection,
        "unreadable": tuple(sums.unreadable),
        "claiming": sums.claiming,
        "pod_windows": tuple(sums.windows),
        "surges": tuple(sums.surges.values()),
    }


def _with_pods(before: NodeFacts, inputs: Inputs) -> NodeFacts:
    """Return the facts of a node of which only the pods and their last event have changed."""
    return replace(before, last_event=last_pod_event(inputs.state.claim, inputs.seen), **_of_pods(inputs.sums))


def _expected_by_scheduler(snapshot: Snapshot) -> Iterator[str]:
    """Return the nodes on which the scheduler preempts pods for a waiting pod."""
    for pod in snapshot.bindings.unbound:
        if pod.status.nominated_node_name:
            yield pod.status.nominated_node_name
