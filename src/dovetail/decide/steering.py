"""Which nodes should become empty, and which pod of a ReplicaSet a scale-down should remove (docs/rules.md#steering).

Nodes are ranked by the value of removing them per pod. The first ones, as many as the others have room for, are
closing: new pods should prefer other nodes. One pod of each ReplicaSet is the next victim (`facts.victims`). The
current choice is kept unless another is clearly better, so that marks don't change every round. Proposes only; the
engine writes, slowly. Sits in decide, beside the round.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.decide.facts.node_facts import NodeFacts, rescheduling_costs
from dovetail.decide.facts.victims import STAYS
from dovetail.decide.outcome import NOTHING, SteeringPlan
from dovetail.decide.scene import Scene
from dovetail.model.karpenter import FeatureGate
from dovetail.model.money import Money
from dovetail.model.settings import SteeringMode

YOUNG: Final = timedelta(minutes=5)
"""Nodes younger than this are neither closing nor have victims."""
MARGIN: Final = 0.8
"""How full the room of the other nodes may get, before another node is closing."""

_FIRST: Final = 128
"""How many nodes are looked at together at first."""

Floats = npt.NDArray[np.float64]


def steer(scene: Scene) -> SteeringPlan:
    """Return the nodes to close and the pods to mark now; nothing if steering is off."""
    if scene.settings.steering is not SteeringMode.PREFER or not scene.settings.rules.steers:
        return NOTHING
    ranked = _ranked(_open_ones(scene), scene.price_scale)
    closing = _closing(scene, ranked)
    names = tuple([facts.name for facts in closing])
    restless = frozenset([facts.name for facts in closing if scene.haste.restless_until(facts) is not None])
    victims = () if _karpenter_marks(scene) else scene.victims.on(ranked, frozenset(names), restless)
    ratios = np.array([facts.price_float for facts in closing]) / rescheduling_costs(closing)
    return SteeringPlan(closing=names, victims=victims, worth=tuple(zip(names, ratios.tolist(), strict=True)))


def _karpenter_marks(scene: Scene) -> bool:
    """Return whether Karpenter manages deletion costs itself: two would fight over the same annotation."""
    return scene.snapshot.surroundings.features.has(FeatureGate.POD_DELETION_COST)


def _open_ones(scene: Scene) -> list[NodeFacts]:
    """Return the nodes that may be steered: managed, in use, and neither leaving, nominated nor young."""
    manages, latest = scene.gate_context.manages, scene.now - YOUNG
    return [
        facts
        for facts in scene.nodes
        if (since := facts.steered_since) is not None and since <= latest and manages(facts.pool_name)
    ]


def _ranked(nodes: Sequence[NodeFacts], scale: Money) -> list[NodeFacts]:
    """Order nodes, given by name: most dollars per pod first, with a bonus for nodes that are already closing."""
    prices = np.array([facts.price for facts in nodes], dtype=object)
    ratios = (prices / scale).astype(np.float64) / rescheduling_costs(nodes)
    keys = -ratios * [STAYS if facts.closing else 1.0 for facts in nodes]
    return [nodes[place] for place in np.argsort(keys, kind="stable").tolist()]


def _closing(scene: Scene, ranked: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the first nodes in rank whose pods fit in the room of all others; one that is closing may be left out."""
    frame, needs, index = scene.snapshot.frame, scene.needs, scene.snapshot.index
    room: Floats = np.where(frame.open[:, None], frame.room, 0).astype(np.float64)
    left: Floats = room.sum(axis=0)
    asked: Floats = np.zeros(frame.room.shape[1])
    chosen: list[NodeFacts] = []
    begin, count = 0, _FIRST
    while begin < len(ranked):
        part = ranked[begin : begin + count]
        demand = needs.demand_of(part, scene.snapshot).astype(np.float64)
        own = room[[index.get(facts.name, -1) for facts in part]]
        sums = np.cumsum(np.concatenate((asked[None], demand)), axis=0)[1:]
        rests = np.subtract.accumulate(np.concatenate((left[None], own)), axis=0)[1:]
        margins = np.array([1.0 if facts.closing else MARGIN for facts in part])
        fits = np.all(sums <= margins[:, None] * rests, axis=1)
        taken = len(part) if fits.all() else int(np.argmin(fits))
        if taken:
            chosen.extend(part[:taken])
            asked, left = sums[taken - 1], rests[taken - 1]
        begin, count = begin + taken, 2 * count
        if taken < len(part):
            if not part[taken].closing:
                break
            begin, count = begin + 1, _FIRST
    return chosen
