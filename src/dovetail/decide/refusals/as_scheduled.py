"""Would a new node stay empty? Where the scheduler would put its pods, by its own scores (setting asksTheScheduler).

Karpenter's rules open a node for a preference; for the scheduler a preference is only a score. So the pods that the
plan has for each new node are placed once more, one after the other, on the room that the plan leaves: each goes to the
existing node with the highest score, or to the new one. Scores are those of the default profile that usually decide:
least allocated, balanced allocation and soft topology spread, with their weights. A pod whose rules need more than
labels, taints and room (affinities, for example) is assumed to go to the new node. Sits in decide, below the methods.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.scene import Scene
from dovetail.model import names
from dovetail.model.labels.selectors import LabelSelector
from dovetail.model.objects import Pod, TopologySpreadConstraint
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.pods.variants import Variant
from dovetail.scheduling.result import NewNode, SimulationResult

_SOFT = "ScheduleAnyway"
Pair = tuple[float, float]


def stays_empty(
    scene: Scene, nodes: Sequence[NodeFacts], simulation: SimulationResult, new_nodes: Sequence[NewNode]
) -> NewNode | None:
    """Return a new node of a command that the scheduler would put no pod on; None: each gets one."""
    if not scene.settings.asks_the_scheduler or not new_nodes:
        return None
    asking = _Scheduler(scene, nodes, simulation)
    return next((node for node in new_nodes if not asking.uses(node)), None)


class _Scheduler:
    """Places the pods of one command; `left` is the room that the plan leaves."""

    def __init__(self, scene: Scene, nodes: Sequence[NodeFacts], simulation: SimulationResult) -> None:
        self._scene, self._frame = scene, scene.snapshot.frame
        gone = [scene.index_of(facts) for facts in nodes]
        self._entries: dict[int, Entry] = {
            id(entry.pod): entry for place in gone for entry in scene.snapshot.movers(place).queue
        }
        self._gone = frozenset(facts.name for facts in nodes)
        self._left: npt.NDArray[np.int64] = self._frame.room.copy()
        for placed in simulation.placements:
            for pod in placed.pods:
                entry = self._entries.get(id(pod))
                for column, amount in () if entry is None else entry.cls.info.need:
                    self._left[placed.index, column] -= amount
        self._open = self._frame.open.copy()
        self._open[[*gone, *scene.closed, *(at for at, _ in scene.snapshot.leaving)]] = False
        self._columns = [self._frame.resources.index.get(name, -1) for name in ("cpu", "memory")]

    def uses(self, node: NewNode) -> bool:
        """Return whether one of the pods that are planned for a new node would go there."""
        size = node.instance_types[0].allocatable()
        whole = float(size.get("cpu", 0)), float(size.get("memory", 0))
        for pod in node.pods:
            entry = self._entries.get(id(pod))
            place = None if entry is None else self._elsewhere(entry, whole, node.zones)
            if entry is None or place is None:
                return True
            for column, amount in entry.cls.info.need:
                self._left[place, column] -= amount
        return False

    def _elsewhere(self, entry: Entry, whole: Pair, zones: Sequence[str]) -> int | None:
        """Return the existing node that a pod prefers to the new one; None: it prefers the new one."""
        variant: Variant = self._frame.first(entry.cls)
        while variant.after is not None:
            variant = variant.after
        if variant.rules or variant.ports or variant.attached or entry.pod.spec.affinity is not None:
            return None
        fits = self._open & variant.mask
        for column, amount in variant.need:
            fits &= self._left[:, column] >= amount
        places = np.flatnonzero(fits).tolist()
        if not places:
            return None
        asks: Pair = float(entry.cls.cpu), float(entry.cls.memory)
        spread = self._spread(entry.pod, places, zones)
        best = max(places, key=lambda at: (self._resources(at, asks) + spread[at], -at))
        new = _room_score(whole, (0.0, 0.0), asks) + spread[-1]
        return best if self._resources(best, asks) + spread[best] > new else None

    def _resources(self, place: int, asks: Pair) -> float:
        size = self._scene.snapshot.states[place].allocatable
        whole = float(size.get("cpu", 0)), float(size.get("memory", 0))
        left = [float(self._left[place, column]) if column >= 0 else 0.0 for column in self._columns]
        return _room_score(whole, (whole[0] - left[0], whole[1] - left[1]), asks)

    def _spread(self, pod: Pod, places: Sequence[int], zones: Sequence[str]) -> Mapping[int, float]:
        """Return what soft spreads count for on each node, and under -1 on the new one."""
        raw: dict[int, float] = dict.fromkeys((*places, -1), 0.0)
        soft = [entry for entry in pod.spec.topology_spread_constraints if entry.when_unsatisfiable == _SOFT]
        for entry in soft:
            counts = self._counts(pod, entry)
            for at in places:
                raw[at] += counts.get(self._scene.snapshot.states[at].labels.get(entry.topology_key, ""), 0)
            if entry.topology_key == names.ZONE:
                raw[-1] += min((counts.get(zone, 0) for zone in zones), default=0)
        high, low = max(raw.values()), min(raw.values())
        return {at: 200.0 if not high else 200 * (high + low - amount) / high for at, amount in raw.items()}

    def _counts(self, pod: Pod, entry: TopologySpreadConstraint) -> Mapping[str, int]:
        """Return how many of the pods that a spread counts stay in each domain."""
        selector, counts = LabelSelector.compile(entry.label_selector), dict[str, int]()
        for facts in self._scene.nodes:
            domain = facts.labels.get(entry.topology_key, "")
            if domain and facts.name not in self._gone:
                counts[domain] = counts.get(domain, 0) + sum(
                    1
                    for other in facts.reschedulable
                    if other.metadata.namespace == pod.metadata.namespace and selector.matches(other.metadata.labels)
                )
        return counts


def _room_score(whole: Pair, used: Pair, asks: Pair) -> float:
    """Return the scores for room: least allocated, and how much better balanced the node gets."""
    cpu, memory = max(whole[0], 1.0), max(whole[1], 1.0)
    free = [max(0.0, 1 - (used[0] + asks[0]) / cpu), max(0.0, 1 - (used[1] + asks[1]) / memory)]
    before = abs(used[0] / cpu - used[1] / memory) / 2
    after = abs((used[0] + asks[0]) / cpu - (used[1] + asks[1]) / memory) / 2
    return 100 * sum(free) / 2 + 75 + 50 * (before - after)
