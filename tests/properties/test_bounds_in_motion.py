"""Bounds in a cluster that changes a little from question to question, with and without memory.

Every change is one that could overturn a refusal, or leave it as it is: pods that come, go, wait or are protected for
a while, nodes that come, start, leave, go or hide, prices, thresholds, budgets, PDBs and time, forwards and back.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import numpy as np
import pytest
from msgspec.structs import replace as change

from dovetail.decide.decider import Decider
from dovetail.decide.gates.price import Refusal
from dovetail.decide.in_flight import LeavingNode
from dovetail.decide.memory import Memory
from dovetail.decide.methods import single_node
from dovetail.decide.methods.moves import refuse_unplaced
from dovetail.decide.question import Question
from dovetail.decide.refusals.bounds import Bounds
from dovetail.decide.refusals.launches import Launches, _amounts
from dovetail.decide.refusals.plenty import Plenty
from dovetail.decide.refusals.starting import Starting
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, RECOMMENDED, Settings
from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.simulate import simulate
from dovetail.scheduling.snapshot import Snapshot
from tests.properties.test_decider import compare
from tests.reference.bounds import PlainBounds
from tests.support.crowd import Crowd
from tests.support.design_world import Town, kind
from tests.support.sizes import size
from tests.support.towns import KINDS

SEEDS = size(test=24, ci=60, long=600)
_READY_TO_GO = {"type": names.CONDITION_CONSOLIDATABLE, "status": "True"}
Change = Callable[[Town, random.Random], None]


def _crowded(dice: random.Random, settings: Settings) -> Town:
    town = Town(*KINDS, settings=settings)
    town.pool(disruption={"consolidateAfter": "0s", "consolidationGracePeriod": "20m"})
    for number in range(dice.randint(3, 8)):
        town.node(f"n{number}", "m" if number % 2 else "s", conditions=[_READY_TO_GO])
        room = town.kinds["m"].capacity["cpu"] if number % 2 else 2000
        while room > 500:
            cpu = dice.choice([500, 900, 1500])
            if cpu <= room:
                room -= cpu
                town.pod(f"n{number}-{room}", f"n{number}", cpu=f"{cpu}m")
    return town


def _some(town: Town, dice: random.Random) -> str:
    return dice.choice(sorted(town.nodes))


def _pod_comes(town: Town, dice: random.Random) -> None:
    town.pod(f"new-{dice.random()}", _some(town, dice), cpu=f"{dice.choice([100, 900])}m")


def _pod_goes(town: Town, dice: random.Random) -> None:
    if town.pods:
        del town.pods[dice.choice(sorted(town.pods))]


def _pod_has_not_started(town: Town, dice: random.Random) -> None:
    """Bind a pod that has not started; closed nodes may take it too."""
    name = f"unstarted-{dice.random()}"
    town.pod(name, _some(town, dice), cpu=f"{dice.choice([500, 1500])}m")
    pod = town.pods[name]
    town.pods[name] = change(pod, status=change(pod.status, phase="Pending"))


def _pods_start(town: Town, _dice: random.Random) -> None:
    for name, pod in town.pods.items():
        if pod.spec.node_name:
            town.pods[name] = change(pod, status=change(pod.status, phase="Running"))


def _hidden_node_comes(town: Town, dice: random.Random) -> None:
    """Add a node within its grace period."""
    young, idle = timedelta(minutes=30), timedelta(minutes=1)
    town.node(f"hidden-{dice.random()}", dice.choice(["s", "m"]), idle=idle, age=young, conditions=[_READY_TO_GO])


def _pod_asks_for_more(town: Town, dice: random.Random) -> None:
    """Add a pod that requests a resource that no other pod requests."""
    requests = {"cpu": "100m", f"example.com/r{dice.randrange(3)}": "1"}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    town.pod(f"special-{dice.random()}", _some(town, dice), spec=spec)


def _pod_is_protected(town: Town, dice: random.Random) -> None:
    for_so_long = {names.DO_NOT_DISRUPT: dice.choice(["true", "50m", "65m", "90m"])}
    town.pod(f"kept-{dice.random()}", _some(town, dice), cpu="300m", annotations=for_so_long)


def _node_comes(town: Town, dice: random.Random) -> None:
    idle = timedelta(minutes=dice.choice([5, 60]))
    town.node(f"more-{dice.random()}", dice.choice(["s", "m", "l"]), idle=idle, conditions=[_READY_TO_GO])


def _node_goes(town: Town, dice: random.Random) -> None:
    name = _some(town, dice)
    if len(town.nodes) > 2:
        del town.nodes[name], town.claims[name]
        town.pods = {key: pod for key, pod in town.pods.items() if pod.spec.node_name != name}


def _price_changes(town: Town, dice: random.Random) -> None:
    name = dice.choice(["s", "m"])
    old = town.kinds[name]
    cpu, memory = old.capacity["cpu"] // 1000, old.capacity["memory"] >> 30
    town.kinds[name] = kind(name, str(dice.choice([0.05, 0.1, 0.4])), cpu=cpu, memory=memory)


def _time_passes(town: Town, dice: random.Random) -> None:
    town.now += timedelta(minutes=dice.choice([1, 6, 30]))


def _time_goes_back(town: Town, dice: random.Random) -> None:
    town.now -= timedelta(minutes=dice.choice([1, 6, 30]))


def _threshold_changes(town: Town, dice: random.Random) -> None:
    town.pool(disruption={"consolidateAfter": "0s", "consolidationSavingsThreshold": dice.choice([0.001, 0.1])})


def _other_pool_comes_or_goes(town: Town, dice: random.Random) -> None:
    """Add or remove a pool of cheap spot machines that pods of the first pool could move to."""
    if town.pools.pop("other", None) is None:
        town.pool("other", capacity=(names.SPOT,), disruption={"consolidateAfter": "0s"})


def _settings_change(town: Town, dice: random.Random) -> None:
    town.settings = replace(town.settings, batch_maximum=dice.choice([2, 100]))


def _node_starts(town: Town, dice: random.Random) -> None:
    """Add a node that is still starting."""
    without = (names.INITIALIZED_LABEL,)
    town.node(f"late-{dice.random()}", dice.choice(["s", "m", "l"]), idle=None, without=without, ready=False)


def _nodes_have_started(town: Town, _dice: random.Random) -> None:
    for name in [name for name in town.nodes if name.startswith("late-")]:
        kind_name = town.nodes[name].metadata.labels[names.INSTANCE_TYPE]
        town.node(name, kind_name, idle=timedelta(minutes=1), conditions=[_READY_TO_GO])


def _pod_waits(town: Town, dice: random.Random) -> None:
    town.pod(f"waiting-{dice.random()}", cpu=f"{dice.choice([100, 500, 900, 1500])}m")


def _waiting_pods_go(town: Town, _dice: random.Random) -> None:
    town.pods = {key: pod for key, pod in town.pods.items() if pod.spec.node_name}


def _node_leaves(town: Town, dice: random.Random) -> None:
    name = _some(town, dice)
    town.leaving[name] = LeavingNode(node=name, method=Method.SINGLE_NODE, since=town.now)


def _nodes_stay(town: Town, _dice: random.Random) -> None:
    town.leaving = {}


def _node_is_kept(town: Town, dice: random.Random) -> None:
    """Annotate a node so that it is not disrupted, or remove the annotation."""
    node = town.nodes[name := _some(town, dice)]
    kept = {} if node.metadata.annotations else {names.DO_NOT_DISRUPT: "true"}
    town.nodes[name] = change(node, metadata=change(node.metadata, annotations=kept))


def _pdb_comes_or_goes(town: Town, dice: random.Random) -> None:
    if town.others:
        town.others = []
        return
    town.pdb("guard", {"app": "guarded"}, allowed=dice.choice([0, 1]))
    town.pod(f"guarded-{dice.random()}", _some(town, dice), cpu="500m", labels={"app": "guarded"})


def _budget_changes(town: Town, dice: random.Random) -> None:
    town.pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": dice.choice(["0", "1", "100%"])}]})


def _nothing(_town: Town, _dice: random.Random) -> None:
    pass


CHANGES: tuple[Change, ...] = (
    _pod_comes,
    _pod_goes,
    _pod_has_not_started,
    _pods_start,
    _hidden_node_comes,
    _pod_asks_for_more,
    _pod_is_protected,
    _node_comes,
    _node_goes,
    _price_changes,
    _other_pool_comes_or_goes,
    _time_passes,
    _time_goes_back,
    _threshold_changes,
    _settings_change,
    _node_starts,
    _nodes_have_started,
    _pod_waits,
    _waiting_pods_go,
    _node_leaves,
    _nodes_stay,
    _node_is_kept,
    _pdb_comes_or_goes,
    _budget_changes,
    _nothing,
)


UNSTARTED: tuple[Change, ...] = (
    _pod_has_not_started,
    _pods_start,
    _hidden_node_comes,
    _pod_comes,
    _pod_goes,
    _nothing,
)


STARTING: tuple[Change, ...] = (
    _node_starts,
    _nodes_have_started,
    _pod_waits,
    _waiting_pods_go,
    _pod_comes,
    _pod_goes,
    _time_passes,
    _nothing,
)


def _course(seed: int, settings: Settings, changes: tuple[Change, ...]) -> Iterator[Question]:
    """Yield the question after each of some random changes."""
    dice = random.Random(seed)
    town = _crowded(dice, settings)
    catalogue = town.catalogue
    for _ in range(14):
        made = dice.choice(changes)
        made(town, dice)
        catalogue = town.catalogue if made is _price_changes else catalogue
        yield town.question(catalogue=catalogue)


EACH = pytest.mark.parametrize("changes", [CHANGES, STARTING, UNSTARTED], ids=["all", "starting", "unstarted"])
BOTH = pytest.mark.parametrize("profile", [DOVETAIL, KARPENTER_1_15], ids=["dovetail", "karpenter-1.15"])


@EACH
@pytest.mark.parametrize(
    "profile", [DOVETAIL, KARPENTER_1_15, RECOMMENDED], ids=["dovetail", "karpenter-1.15", "recommended"]
)
def test_one_change_after_the_other(profile: Settings, changes: tuple[Change, ...]) -> None:
    """After each change the deciders with and without memory agree."""
    oracle = Decider(memory=False)
    for seed in range(SEEDS):
        decider = Decider()
        for question in _course(seed, profile, changes):
            compare(decider.round(question), oracle.round(question))


@EACH
@BOTH
def test_all_nodes_at_once(profile: Settings, changes: tuple[Change, ...]) -> None:
    """After each change, the bounds of all nodes at once are those of each node in plain numbers, and so are batches'.

    Rows that were read for earlier questions are used as long as nothing changed.
    """
    told = Counter[str]()
    for seed in range(2 * SEEDS):
        decider = Decider()
        for question in _course(seed, profile, changes):
            scene = decider.scene(question)
            nodes = [facts for facts in scene.nodes if scene.index_of(facts) >= 0]
            plain = PlainBounds(scene.snapshot, scene.closed, scene._planned)
            for facts, needs in zip(nodes, scene.bounds.needs_alone(nodes), strict=True):
                assert list(map(_amounts, needs)) == plain.alone(scene.index_of(facts)), (seed, facts.name)
                told["bounds"] += len(needs)
            for count in range(2, len(nodes)):
                needs, chosen = plain.together([scene.index_of(facts) for facts in nodes[:count]]), nodes[:count]
                expected = scene.bounds._launches.least_for(_as_bytes(needs, scene.needs.width)) if needs else (0, None)
                assert scene.bounds.together(chosen) == expected, (seed, count)
            for facts, lands in zip(nodes, scene.starting.lands(nodes, scene.needs), strict=True):
                assert lands == (scene.starting.destination((scene.index_of(facts),)) is not None)
                told["starting"] += lands
    assert told["bounds"] > 20 * SEEDS
    assert changes is not STARTING or told["starting"] > SEEDS


@BOTH
def test_what_is_certain_about_starting_nodes(profile: Settings) -> None:
    """In a crowd, the rows of all nodes say what each node alone says, and a simulation agrees about starting nodes."""
    told = Counter[str]()
    for seed in range(4 * SEEDS):
        crowd = Crowd(seed, profile)
        seen, planned, nodes = crowd.seen, crowd.planned(), crowd.nodes()
        needs = Memory().needs_of(seen)
        starting = Starting(seen, crowd.closed, planned)
        bounds = Bounds(seen, crowd.closed, Launches(seen.frame), planned, needs)
        plain = PlainBounds(seen, crowd.closed, planned)
        for facts, found in zip(nodes, bounds.needs_alone(nodes), strict=True):
            assert list(map(_amounts, found)) == plain.alone(seen.index[facts.name]), (seed, facts.name)
        for facts, lands in zip(nodes, starting.lands(nodes, needs), strict=True):
            place = seen.index[facts.name]
            assert lands == (starting.destination((place,)) is not None), (seed, facts.name)
            if lands and place < seen.initialized:
                # No limit on new nodes: a simulation that stops at the second one does not place the remaining pods.
                options = SimulationOptions(closed=frozenset(crowd.closed))
                assert refuse_unplaced(simulate(seen, [place], options, crowd.plan), seen.settings) is not None
                told["refused"] += 1
    assert told["refused"] > SEEDS // 4


@pytest.mark.parametrize("spare", [0, 6, 14])
def test_pods_that_find_room_for_certain(spare: int) -> None:
    """If there are more nodes with room than pods, a simulation puts all pods of a node on initialized nodes.

    `spare`: how many nodes with room there are besides those with little.
    """
    told = Counter[str]()
    for seed in range(4 * SEEDS):
        crowd = Crowd(seed, spare=spare)
        seen = crowd.seen
        plenty, options = Plenty(seen, crowd.closed), SimulationOptions(closed=frozenset(crowd.closed))
        for facts in crowd.nodes():
            place = seen.index[facts.name]
            if not plenty.for_pods_of(place):
                told["unknown"] += 1
                continue
            result = simulate(seen, [place], options, crowd.plan)
            assert not result.own_new_nodes(count_all=False), (seed, facts.name)
            assert refuse_unplaced(result, seen.settings) is None, (seed, facts.name)
            told["empty" if _has_no_pods(seen, place) else "moved"] += 1
    assert told["unknown"]
    assert not spare or told["moved"] > SEEDS


def _has_no_pods(seen: Snapshot, place: int) -> bool:
    return not seen.movers(place).queue


def test_what_many_nodes_must_save() -> None:
    """What all nodes must save, at once or after enough waste, is what each must alone; so is who goes by waste."""
    told = Counter[str]()
    for seed in range(SEEDS):
        priced = {"consolidationSavingsThreshold": 0.02, **({"disruptionPrice": 0.01} if seed % 2 else {})}
        asked = {**priced, **({"restartPrice": "5m"} if seed % 3 == 0 else {})}
        settings = replace(RECOMMENDED, pool_defaults=tuple(asked.items()))
        for question in _course(seed, settings, CHANGES):
            later = question.now + timedelta(minutes=5)
            restless = {"default": later} if seed % 5 == 0 else {}
            scene = Decider().scene(replace(question, restless=restless))
            nodes, haste, table = scene.nodes, scene.haste, scene.table
            for one, many in ((haste.bar, haste.bars), (haste.floor, haste.floors)):
                found = many(nodes, table)
                for facts, amount, unit in zip(nodes, *found, strict=True):
                    assert Fraction(amount, unit) == Fraction(*one(facts)), (seed, facts.name)
                    told[one.__name__] += amount > 0
            by_waste = [haste.asked_waste(facts) is not None for facts in nodes]
            assert haste.go_by_waste(nodes) == by_waste
            told["waste"] += any(by_waste)
            told["not"] += not all(by_waste)
    assert min(told[what] for what in ("bar", "floor", "waste", "not")) > SEEDS, told


def _as_bytes(need: dict[int, int], width: int) -> bytes:
    return np.array([need.get(column, 0) for column in range(width)], dtype=np.int64).tobytes()


def test_an_old_result_read_late_knows_nothing_of_what_came_later() -> None:
    """Verdicts that are read after a later round are those of their own round."""
    oracle = Decider(memory=False)
    for seed in range(2 * SEEDS // 3):
        dice = random.Random(seed)
        town, decider = _crowded(dice, DOVETAIL), Decider()
        catalogue = town.catalogue
        decider.round(town.question(catalogue=catalogue))
        before = town.question(catalogue=catalogue)
        first = decider.round(before)
        for _ in range(3):
            dice.choice([_pod_comes, _pod_goes, _node_comes, _time_passes])(town, dice)
        decider.round(town.question(catalogue=catalogue))
        compare(first, oracle.round(before))


def test_a_resource_that_an_old_result_does_not_know() -> None:
    """Verdicts that are read late are those of their round, also if a pod has brought a new resource since."""
    town, decider = Town(*KINDS), Decider()
    none = [{"key": names.INSTANCE_TYPE, "operator": "In", "values": ["none"]}]
    town.pool(disruption={"consolidateAfter": "0s"}, requirements=none)
    for name in ("a", "b", "c", "empty"):
        town.node(name, "s", conditions=[_READY_TO_GO])
    for name in ("a", "b", "c"):
        town.pod(f"of-{name}", name, cpu="1500m")
    small = town.nodes["empty"].status
    small = change(small, allocatable={**small.allocatable, "cpu": "1"})
    town.nodes["empty"] = change(town.nodes["empty"], status=small)
    town.pod("waits", cpu="100")
    catalogue = town.catalogue
    assert decider.round(town.question(catalogue=catalogue)).verdicts  # answers about a, b and c are kept
    before = town.question(catalogue=catalogue)
    first = decider.round(before)
    del town.nodes["empty"], town.claims["empty"]
    _pod_asks_for_more(town, random.Random(0))
    assert decider.round(town.question(catalogue=catalogue)).verdicts
    compare(first, Decider(memory=False).round(before))


def _scenes_of_one_node(*, crowded_first: bool) -> tuple[Scene, Scene]:
    """Return two scenes of one decider: in one the pods of `asked` have room on `rest`, in the other they have none."""
    town, decider = Town(*KINDS), Decider()
    town.pool(disruption={"consolidateAfter": "0s"})
    catalogue, scenes = town.catalogue, []
    for name in ("asked", "rest"):
        town.node(name, "s", conditions=[_READY_TO_GO])
    town.pod("moves", "asked", cpu="1500m")
    for crowded in (crowded_first, not crowded_first):
        town.pods = {key: pod for key, pod in town.pods.items() if pod.metadata.name != "more"}
        if crowded:
            town.pod("more", "rest", cpu="1500m")
        scenes.append(decider.scene(town.question(catalogue=catalogue)))
        assert scenes[-1].needs is not None  # they are looked at in this order
    return scenes[0], scenes[1]


@pytest.mark.parametrize("crowded_first", [True, False])
@pytest.mark.parametrize("late_first", [True, False])
def test_a_scene_that_is_over_neither_asks_nor_tells(crowded_first: bool, late_first: bool) -> None:
    """Late results of an earlier round do not enter the memory of the later one, nor the reverse."""
    earlier, later = _scenes_of_one_node(crowded_first=crowded_first)
    assert earlier.by_name["asked"] is later.by_name["asked"]  # so it is the scene alone that tells them apart
    for scene in (earlier, later) if late_first else (later, earlier):
        outcome = single_node.unscored(Work(scene), scene.by_name["asked"])
        assert isinstance(outcome, Refusal) == (crowded_first == (scene is earlier))
