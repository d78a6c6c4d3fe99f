"""Simulations that are foreseen to end at a starting node: each is run, on generated clusters in motion."""

import random
from collections import Counter
from typing import Any

import pytest

from dovetail.decide import verdict
from dovetail.decide.context import RoundContext
from dovetail.decide.decider import Decider
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.methods import single_node
from dovetail.decide.methods.moves import FORESEEN, refuse_unplaced
from dovetail.decide.refusals.foresight import Foresight
from dovetail.decide.refusals.planned_room import PlannedRoom
from dovetail.model import names
from dovetail.model.command import Placement, Replacement
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.model.verdicts import Gate
from dovetail.scheduling import simulate as simulate_module
from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.simulate import planned_places, simulate
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.under_way import NOTHING_UNDER_WAY, UnderWay
from tests.support.design_world import Town
from tests.support.scheduling_build import kind, near, node, pod, pool, snapshot, spread, wants
from tests.support.sizes import size
from tests.support.towns import KINDS

SEEDS = size(test=250, ci=800, long=5000)
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
    """Build nodes with little room, some of them starting; pods wait, and others leave their node, most with a plan."""

    def __init__(self, seed: int, settings: Settings = DOVETAIL) -> None:
        self._dice = dice = random.Random(seed)
        self._picky = dice.choice([0, 0.1, 0.4])
        names = [f"n{at}" for at in range(dice.randint(3, 8))]
        objects: list[Any] = [pool(**dice.choice(_POOLS))]
        for name in names:
            started, cpu = dice.random() < 0.6, dice.choice([2, 4, 8])
            objects += node(name, cpu, zone=dice.choice("ab"), started=started, type=f"c.{cpu}")
            objects += self._pods(name, cpu if started else cpu * dice.random() / 2)
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

    def foresight(self) -> Foresight:
        certain = self.seen.leaving and not self.seen.settings.rules.others_pods_count
        settled = planned_places(self.seen, self.plan) if certain else None
        return Foresight(self.seen, self.closed, PlannedRoom(self.seen, settled))

    def simulated(self, chosen: int) -> tuple[Gate | None, int]:
        options = SimulationOptions(closed=frozenset(self.closed), new_nodes_max=1)
        result = simulate(self.seen, [chosen], options, self.plan)
        refusal = refuse_unplaced(result, self.seen.settings)
        return None if refusal is None else refusal.gate, result.pods_simulated


def _nodes(seen: Snapshot) -> list[int]:
    gone = {index for index, _ in seen.leaving}
    return [index for index in range(-1, len(seen.states)) if index not in gone]


@pytest.mark.parametrize("settings", [DOVETAIL, KARPENTER_1_15], ids=["dovetail", "karpenter"])
def test_what_is_foreseen_is_what_a_simulation_finds(settings: Settings) -> None:
    """A simulation that is foreseen to end at a starting node ends there, and is of as many pods."""
    counts: Counter[bool] = Counter()
    for seed in range(SEEDS):
        crowd = Crowd(seed, settings)
        foresight = crowd.foresight()
        for chosen in _nodes(crowd.seen):
            pods = foresight.pods_ending_unready(chosen)
            if pods:
                assert crowd.simulated(chosen) == (Gate.UNINITIALIZED_DESTINATION, pods), (seed, chosen)
            if 0 <= chosen < crowd.seen.initialized:
                counts[pods > 0] += crowd.simulated(chosen)[0] is Gate.UNINITIALIZED_DESTINATION
    if settings is DOVETAIL:
        assert counts[True] > SEEDS // 4, counts
    else:
        assert not counts[True]


_SMALL = {"requirements": [wants("node.kubernetes.io/instance-type", "In", "c.2")]}
_IN_A, _IN_B = ({"nodeSelector": {"topology.kubernetes.io/zone": zone}} for zone in "ab")
_FILLED: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "nothing": ({}, [pod("a-1", "1.5", on="asked")]),
    "a waiting pod that a moved one drives away": (
        {},
        [*node("spare", 2), pod("a-1", "2", on="asked"), pod("a-2", "1", on="asked"), pod("w", "1.9")],
    ),
    "a waiting pod without its preference": ({}, [pod("a-1", "1.5", on="asked"), pod("w", "1.9", **_WISHES[2])]),
    "a waiting pod that keeps away from others": (
        {},
        [
            *node("first", 4, started=False),
            pod("n1-1", "1", on="first"),
            pod("a-1", "1.5", on="asked", **_IN_B),
            pod("w", "1.9", affinity=near("podAntiAffinity", "topology.kubernetes.io/zone", app="n1")),
        ],
    ),
    "a planned pod": (
        {},
        [
            *node("first", 4, started=False),
            *node("old", meta=LEAVING),
            pod("a-1", "1.5", on="asked", **_IN_B),
            pod("old-1", "1.9", on="old"),
        ],
    ),
    "too many new nodes before": (
        _SMALL,
        [
            *node("spare", 1.5),
            pod("a-1", "1.5", on="asked", created="2026-05-01T10:00:01Z", **_IN_A),
            pod("a-2", "1.5", on="asked", created="2026-05-01T10:00:02Z", **_IN_B),
            pod("a-3", "1.5", on="asked", created="2026-05-01T10:00:03Z", **_IN_B),
            pod("a-4", "1.5", on="asked", created="2026-05-01T10:00:04Z", **_IN_A),
        ],
    ),
    "no new node for the next": (
        {"limits": {"cpu": "1"}},
        [pod("a-1", "1.5", on="asked"), pod("a-2", "1.5", on="asked")],
    ),
}


_FILLED["too few types for the next"] = (_POOLS[-1], _FILLED["no new node for the next"][1])


@pytest.mark.parametrize("by", _FILLED)
def test_what_may_fill_a_starting_node_first(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is foreseen if the simulation ends otherwise, because of other pods or because a pod has no place."""
    monkeypatch.setattr(simulate_module, "TYPES_MAX", 2)
    spec, objects = _FILLED[by]
    late = node("late", 2, zone="a" if by == "too many new nodes before" else "b", started=False)
    seen = snapshot(pool(**spec), *node("asked", 3), *late, *objects)
    plan = UnderWay(placements=(Placement(node="late", pods=("default/old-1",)),))
    options, asked = SimulationOptions(new_nodes_max=1), seen.index["asked"]
    result = simulate(seen, [asked], options, plan)
    refusal = refuse_unplaced(result, seen.settings)
    ends_there = refusal is not None and refusal.gate is Gate.UNINITIALIZED_DESTINATION
    foreseen = Foresight(seen, (), PlannedRoom(seen)).pods_ending_unready(asked)
    assert (foreseen > 0, ends_there) == (by == "nothing", by == "nothing")


def _waiting_town() -> Town:
    """Build a node beside one that starts, and a pod that waits: too large for both, but enough to fill one."""
    town = Town(*KINDS)
    town.pool(disruption={"consolidateAfter": "0s"})
    town.node("late", "m", idle=None, without=(names.INITIALIZED_LABEL,))
    town.node("asked", "m", conditions=[{"type": names.CONDITION_CONSOLIDATABLE, "status": "True"}])
    town.pod("moves", "asked", cpu="1500m")
    town.pod("waits", cpu="5000m")
    return town


def test_a_foreseen_simulation_counts_once_and_follows_for_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreseen refusal costs as many pods as its simulation, which is run once it is asked for its words."""
    monkeypatch.setattr(verdict, "FIRST_GATE_PODS_MAX", 0)
    question = _waiting_town().question()
    plain = RoundContext(question)
    simulation = plain.simulate((plain.by_name["asked"],), for_cost=True)
    assert simulation.pods_simulated == plain.pods_simulated == 2
    context = RoundContext(question)
    facts = context.by_name["asked"]
    assert context.unready.destination((context.index_of(facts),)) is None
    assert single_node.judge(context, facts) is FORESEEN
    fork = context.fork()
    assert single_node.judge(fork, facts) is FORESEEN
    words = refuse_unplaced(simulation, context.settings)
    assert words is not None
    for asked in (context, fork):
        assert asked.pods_simulated == 2
        assert single_node.in_words(asked, facts, FORESEEN) == words
        assert asked.simulate((facts,), for_cost=True) is asked.simulate((facts,), for_cost=True)
        assert asked.pods_simulated == 2
    assert not context.foresees_unready(facts), "its simulation has been made"
    result = Decider().round(question)
    assert result.why("asked") == words.why
    assert {entry.node: entry.verdict for entry in result.brief_verdicts}["asked"] == words.gate.value
    assert words.why in str(result.to_dict())


@pytest.mark.parametrize("memory", [True, False])
def test_a_validation_that_is_foreseen_to_fail_names_the_pod_and_the_node(memory: bool) -> None:
    """A command that is refused because of a starting node says which pod would go where, as a simulation does."""
    town = Town(*KINDS)
    town.pool(disruption={"consolidateAfter": "0s"})
    for name, kept in (("asked", {}), ("other", {names.DO_NOT_DISRUPT: "true"})):
        ready = {"type": names.CONDITION_CONSOLIDATABLE, "status": "True"}
        town.node(name, "m", conditions=[ready], annotations=kept)
    town.pod("moves", "asked", cpu="1500m")
    command = town.act()
    assert command is not None
    town.pod("fills", "other", cpu="3900m")
    town.node("late", "m", idle=None, without=(names.INITIALIZED_LABEL,))
    town.pod("waits", cpu="5000m")
    context = RoundContext(town.question())
    assert context.foresees_unready(context.by_name["asked"])
    refusal = Decider(memory=memory).revalidate(command, town.question())
    assert refusal == refuse_unplaced(context.simulate((context.by_name["asked"],), for_cost=True), context.settings)
    assert isinstance(refusal, Refusal)
    assert refusal.why == "Pod default/moves would land on late, which is not initialized yet."
