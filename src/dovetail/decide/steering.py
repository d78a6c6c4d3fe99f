"""Which nodes should become empty, and which pod of each ReplicaSet a scale-down should remove (section 23).

Nodes are ranked by the value of removing them per pod. The first ones, as many as the others have room for, are
closing: new pods should prefer other nodes. One pod of each ReplicaSet is the next victim: on the node that should go
first, in the fullest zone of that ReplicaSet. In a restless pool the zone of a closing node may have one pod less,
unless the pod's spread over zones is required: the next pod that comes makes up for it. The current choice is kept
unless another is clearly better, so that marks don't change every round. Proposes only; the engine writes, slowly. Sits
in decide, beside the round.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.steering_plan import NOTHING, SteeringPlan, Victim
from dovetail.model import names
from dovetail.model.karpenter import FeatureGate
from dovetail.model.objects import Pod
from dovetail.model.settings import SteeringMode

YOUNG: Final = timedelta(minutes=5)
"""Nodes younger than this are neither closing nor have victims."""
STAYS: Final = 1.5
"""How much better another node or pod must be to take the place of one that is closing or marked."""
MARGIN: Final = 0.8
"""How full the room of the other nodes may get, before another node is closing."""

Floats = npt.NDArray[np.float64]


def steer(context: RoundContext) -> SteeringPlan:
    """Return the nodes to close and the pods to mark now; nothing if steering is off."""
    if context.settings.steering is not SteeringMode.PREFER or not context.settings.rules.steers:
        return NOTHING
    ranked = sorted(filter(lambda facts: _is_open(context, facts), context.nodes), key=_rank)
    closing = _closing(context, ranked)
    victims = () if _karpenter_marks(context) else _victims(context, ranked, frozenset(closing))
    return SteeringPlan(
        closing=tuple(facts.name for facts in closing),
        victims=victims,
        worth=tuple((facts.name, facts.savings_ratio) for facts in closing),
    )


def _karpenter_marks(context: RoundContext) -> bool:
    """Return whether Karpenter manages deletion costs itself: two would fight over the same annotation."""
    return context.snapshot.surroundings.features.has(FeatureGate.POD_DELETION_COST)


def _is_open(context: RoundContext, facts: NodeFacts) -> bool:
    """Return whether a node may be steered: managed, in use, and neither leaving, nominated nor young."""
    managed = context.gate_context.managed_pools
    policy, created = facts.policy, facts.created
    return (
        facts.claim is not None
        and facts.initialized
        and not facts.marked
        and not facts.nominated
        and policy is not None
        and policy.consolidate_after is not None
        and not policy.static
        and (managed is None or facts.pool_name in managed)
        and created is not None
        and context.now - created >= YOUNG
        and not facts.empty
    )


def _rank(facts: NodeFacts) -> tuple[float, str]:
    """Order nodes: most dollars per pod first, with a bonus for nodes that are already closing."""
    return -facts.savings_ratio * (STAYS if facts.closing else 1.0), facts.name


def _closing(context: RoundContext, ranked: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the first nodes in rank whose pods fit in the room of all others."""
    frame = context.snapshot.frame
    count = frame.room.shape[1]
    room: Floats = np.where(frame.open[:, None], np.maximum(frame.room, 0), 0).astype(np.float64)
    left: Floats = room.sum(axis=0)
    asked: Floats = np.zeros(count)
    chosen: list[NodeFacts] = []
    for facts in ranked:
        place = context.index_of(facts)
        demand: Floats = np.zeros(count)
        for column, amount in context.snapshot.movers(place).demand.total.items():
            demand[column] = amount
        margin = 1.0 if facts.closing else MARGIN
        if bool(np.all(asked + demand <= margin * (left - room[place]))):
            asked, left = asked + demand, left - room[place]
            chosen.append(facts)
        elif not facts.closing:
            break
    return chosen


def _victims(context: RoundContext, ranked: Sequence[NodeFacts], closing: frozenset[NodeFacts]) -> tuple[Victim, ...]:
    """Return the next victim of every ReplicaSet of two pods or more without foreign deletion costs."""
    pods: dict[str, list[tuple[Pod, NodeFacts]]] = {}
    for facts in ranked:
        for pod in facts.reschedulable:
            for owner in pod.metadata.owner_references:
                if owner.kind == "ReplicaSet":
                    pods.setdefault(owner.uid, []).append((pod, facts))
    restless = frozenset(facts for facts in closing if context.haste.restless_until(facts) is not None)
    found = []
    for owner_uid, members in pods.items():
        if len(members) > 1 and not any(_is_anothers(pod) for pod, _ in members):
            pod = _victim(members, closing, restless)
            meta = pod.metadata
            found.append(Victim(owner=owner_uid, namespace=meta.namespace, name=meta.name, uid=meta.uid))
    return tuple(sorted(found, key=lambda victim: (victim.namespace, victim.name)))


def _is_anothers(pod: Pod) -> bool:
    """Return whether the pod has a deletion cost that Dovetail did not set."""
    cost = pod.metadata.annotations.get(names.POD_DELETION_COST)
    return cost is not None and cost != pod.metadata.annotations.get(names.STEERING_MARK)


def _victim(
    members: Sequence[tuple[Pod, NodeFacts]], closing: frozenset[NodeFacts], restless: frozenset[NodeFacts]
) -> Pod:
    zones = Counter(facts.zone for _, facts in members)
    fullest = max(zones.values())

    def key(entry: tuple[Pod, NodeFacts]) -> tuple[bool, bool, float, str]:
        pod, facts = entry
        stays = STAYS if names.STEERING_MARK in pod.metadata.annotations else 1.0
        spare = 1 if facts in restless and not _must_spread(pod) else 0
        uneven = zones[facts.zone] + spare < fullest
        return uneven, facts not in closing, -facts.savings_ratio * stays, pod.metadata.name

    return min(members, key=key)[0]


def _must_spread(pod: Pod) -> bool:
    """Return whether the pod's zones may by no means become uneven."""
    spreads = pod.spec.topology_spread_constraints
    return any(one.topology_key == names.ZONE and one.when_unsatisfiable == "DoNotSchedule" for one in spreads)
