"""Random clusters with little room, in which nodes start and leave, and pods wait."""

import random
from typing import Any

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.refusals.room import PlannedRoom
from dovetail.model.command import Placement, Replacement
from dovetail.model.settings import DOVETAIL, Settings
from dovetail.scheduling.simulate import planned_places
from dovetail.scheduling.under_way import NOTHING_UNDER_WAY, UnderWay
from tests.support.nodes import facts_of
from tests.support.scheduling_build import kind, near, node, pod, pool, snapshot, spread, wants

LEAVING = {"deletionTimestamp": "2026-05-01T11:00:00Z"}
_SSD = {"weight": 1, "preference": {"matchExpressions": [wants("disk", "In", "ssd")]}}
_WISHES: tuple[dict[str, Any], ...] = (
    {"nodeSelector": {"topology.kubernetes.io/zone": "a"}},
    {"nodeSelector": {"disk": "none"}},
    {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_SSD]}}},
    {"topologySpreadConstraints": [spread(app="n0")]},
    {"affinity": near("podAntiAffinity", app="n1")},
    {"resourceClaims": [{"name": "gpu"}]},
)
_POOLS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"limits": {"cpu": "10"}},
    {"requirements": [wants("node.kubernetes.io/instance-type", "In", "c.2")]},
    {"requirements": [wants("node.kubernetes.io/instance-type", "Exists", minValues=3)]},
)


class Crowd:
    """Build nodes with little room, some of them starting; pods wait, and others leave their node, most with a plan.

    `spare`: how many nodes there are besides these, with a few pods.
    """

    def __init__(self, seed: int, settings: Settings = DOVETAIL, spare: int = 0) -> None:
        self._dice = dice = random.Random(seed)
        self._picky = dice.choice([0, 0.1, 0.4])
        names = [f"n{at}" for at in range(dice.randint(3, 8))]
        objects: list[Any] = [pool(**dice.choice(_POOLS))]
        for name in names:
            started, cpu = dice.random() < 0.6, dice.choice([2, 4, 8])
            objects += node(name, cpu, zone=dice.choice("ab"), started=started, type=f"c.{cpu}")
            objects += self._pods(name, cpu if started else cpu * dice.random() / 2)
        for number in range(spare):
            objects += node(f"spare-{number}", 4, zone=dice.choice("ab"), started=dice.random() < 0.9, type="c.4")
            objects += self._pods(f"spare-{number}", dice.random() * 3)
        if dice.random() < 0.6:
            objects += node("old", meta=LEAVING)
            objects += self._pods("old", dice.choice([1, 4, 8]))
        objects += [self._pod(f"w-{i}", dice.choice([0.5, 1, 1.5, 3])) for i in range(dice.choice([0, 1, 3, 6]))]
        kinds = tuple(kind(f"c.{cpu}", cpu, str(cpu / 20)) for cpu in (2, 4, 8))
        self.seen = snapshot(*objects, kinds=kinds, settings=settings)
        self.plan = self._plan(names) if dice.random() < 0.7 else NOTHING_UNDER_WAY
        self.closed = tuple(dice.sample(range(len(names)), dice.choice([0, 0, 1, 2])))

    def _pods(self, name: str, cpu: float) -> list[Any]:
        """Return pods of a few kinds that nearly fill a node."""
        sizes, found = self._dice.sample([0.3, 0.5, 1, 1.5], 2), list[Any]()
        while cpu >= min(sizes) and self._dice.random() < 0.95:
            each = self._dice.choice([entry for entry in sizes if entry <= cpu])
            cpu -= each
            found.append(self._pod(f"{name}-{len(found)}", each, on=name))
        return found

    def _pod(self, name: str, cpu: float, **more: Any) -> Any:
        wish = self._dice.choice(_WISHES) if self._dice.random() < self._picky else {}
        return pod(name, str(cpu), created=f"2026-05-01T10:00:{self._dice.randrange(60):02}Z", **more, **wish)

    def _plan(self, names: list[str]) -> UnderWay:
        mine = [f"default/old-{i}" for i in range(9)]
        self._dice.shuffle(mine)
        launch = Replacement(node_pool="p", instance_types=("c.4",), requirements=(), requests={}, pods=tuple(mine[:2]))
        places = [Placement(node=self._dice.choice(names), pods=(name,)) for name in mine[2:7]]
        return UnderWay(launches=(launch,) if self._dice.random() < 0.5 else (), placements=tuple(places))

    def planned(self) -> PlannedRoom:
        """Return the room that is left once planned pods are in their places."""
        certain = self.seen.leaving and not self.seen.settings.rules.others_pods_count
        return PlannedRoom(self.seen, planned_places(self.seen, self.plan) if certain else None)

    def nodes(self) -> list[NodeFacts]:
        """Return all nodes that don't leave, in the order of the snapshot."""
        gone = {index for index, _ in self.seen.leaving}
        return [facts_of(name=state.name) for at, state in enumerate(self.seen.states) if at not in gone]
