"""What listeners of the simulated API server hear, and the statuses of budgets that follow from it."""

from random import Random
from typing import cast

import pytest
from msgspec.structs import replace

from dovetail.model.objects import (
    LabelSelectorSpec,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    ReplicaSet,
    is_true,
)
from dovetail.sim.world.steps import BOUND, CAME, ENDED, EVERY, LEAVING, MOVES, OTHER, READY, REPLACED, WENT
from dovetail.sim.world.store import Change, WorldStore, key_of
from dovetail.sim.world.world import World
from tests.support.rogue import settle, small_world, work


def standing(pod: Pod | None) -> object:
    """Return all that a move can change."""
    if pod is None:
        return None
    meta = pod.metadata
    ended = pod.status.phase in ("Succeeded", "Failed")
    return meta.uid, meta.owner_references, meta.deletion_timestamp, pod.spec.node_name, ended


def changed_by_chance(world: World, dice: Random) -> None:
    """Do one thing that changes pods."""
    pods = sorted(world.store.pods)
    match dice.randrange(6):
        case 0:
            world.scale("ReplicaSet", "default/web", dice.randrange(1, 14))
        case 1:
            world.scale("ReplicaSet", "default/api", dice.randrange(1, 6))
        case 2:
            world.evictions.evict(dice.choice(pods))
        case 3:
            world.kubelets.kill(dice.choice(pods))
        case 4:
            world.kubelets.finish(dice.choice(pods), "Failed")
        case _:
            settle(world, dice.randrange(1, 4))


def world_with_pods(seed: int) -> World:
    """Return a world with two workloads, one of them with two budgets."""
    world = small_world(nodes=4, seed=seed)
    for name, labels in (("web", {"app": "web"}), ("all", {}), ("api", {"app": "api"})):
        world.put(
            PodDisruptionBudget(
                metadata=ObjectMeta(name=name, namespace="default"),
                spec=PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels=labels), max_unavailable="30%"),
            )
        )
    world.workloads.add(work("web", replicas=6))
    world.workloads.add(work("api", replicas=3))
    settle(world, 5)
    return world


@pytest.mark.parametrize("seed", range(4))
def test_moves_are_all_changes_of_where_pods_stand(seed: int) -> None:
    """A listener of moves hears every change of a pod's node, owner, deletion or end, in order, and no other."""
    dice, world = Random(seed), world_with_pods(seed)
    changes: list[Change] = []
    moves: list[Change] = []
    world.store.listen(changes.append, "Pod")
    world.store.listen_to_pods(moves.append, MOVES)
    for _ in range(60):
        changed_by_chance(world, dice)
    wanted = [
        change
        for change in changes
        if standing(cast("Pod | None", change.old)) != standing(cast("Pod | None", change.new))
    ]
    assert [id(change) for change in moves] == [id(change) for change in wanted]
    assert len(wanted) < len(changes)


def steps_by_hand(old: Pod | None, new: Pod | None) -> set[int]:
    """Return the steps between two versions of a pod, each by what it says of itself."""
    if new is None:
        return {WENT}

    def facts(pod: Pod) -> dict[int, object]:
        ended = pod.status.phase in ("Succeeded", "Failed")
        ready = pod.status.phase or "Pending", is_true(pod.status.conditions, "Ready")
        return {LEAVING: pod.metadata.deletion_timestamp, ENDED: ended, READY: ready}

    before = facts(old) if old is not None else facts(Pod())
    found = {step for step, fact in facts(new).items() if before[step] != fact}
    if not (old and old.spec.node_name) and new.spec.node_name:
        found.add(BOUND)
    if old is None:
        return found | {CAME}
    if (old.metadata.uid, old.metadata.owner_references) != (new.metadata.uid, new.metadata.owner_references) or (
        old.spec.node_name and old.spec.node_name != new.spec.node_name
    ):
        found.add(REPLACED)
    return found or {OTHER}


@pytest.mark.parametrize("seed", range(4))
def test_listeners_hear_of_the_steps_that_they_follow_and_no_others(seed: int) -> None:
    """Whatever happens to pods, each step is heard by those who follow it, in order, and by nobody else."""
    dice, world = Random(seed), world_with_pods(seed)
    every = (CAME, WENT, BOUND, LEAVING, ENDED, REPLACED, READY, OTHER)
    changes: list[Change] = []
    heard: dict[int, list[Change]] = {step: [] for step in every}
    world.store.listen_to_pods(changes.append, EVERY)
    for step in every:
        world.store.listen_to_pods(heard[step].append, step)
    for turn in range(60):
        changed_by_chance(world, dice)
        if turn % 10 == 0:
            pod = world.store.pods[dice.choice(sorted(world.store.pods))]
            world.store.touch_meta(pod, **dice.choice(({"uid": f"other-{turn}"}, {"annotations": {"a": str(turn)}})))
            world.store.put(Pod(metadata=ObjectMeta(name=f"ended-{turn}", namespace="default", labels={"app": "api"})))
            world.kubelets.finish(f"default/ended-{turn}", "Succeeded")
    for step in every:
        wanted = [
            change
            for change in changes
            if step in steps_by_hand(cast("Pod | None", change.old), cast("Pod | None", change.new))
        ]
        assert [id(change) for change in heard[step]] == [id(change) for change in wanted], step
        assert wanted, step


def test_another_owner_or_another_pod_of_the_same_name_is_a_move() -> None:
    """A pod that is adopted, or replaced under its name, has moved; one that became ready has not."""
    store, heard = WorldStore(), list[Change]()
    store.listen_to_pods(heard.append, MOVES)
    pod = store.put(Pod(metadata=ObjectMeta(name="a", namespace="default")))
    pod = store.put(pod)
    assert len(heard) == 1
    owner = OwnerReference(kind="ReplicaSet", name="web", uid="u")
    pod = store.touch_meta(pod, owner_references=(owner,))
    store.touch_meta(pod, uid="other")
    assert len(heard) == 3


def compare_statuses(world: World) -> None:
    """Compare each budget's status with a count of all pods and owners."""
    sets = [cast("ReplicaSet", item) for item in world.store.by_kind["ReplicaSet"].values()]
    replicas = {item.metadata.uid: item.spec.replicas or 0 for item in sets}
    seen: dict[str, dict[str, None]] = {}
    for pod in world.store.pods.values():
        for owner in pod.metadata.owner_references:
            seen.setdefault(pod.metadata.labels["app"], {})[owner.uid] = None
    for budget in world.store.pdbs.values():
        assert budget.spec.selector is not None
        wanted = budget.spec.selector.match_labels.items()
        pods = [pod for pod in world.store.pods.values() if wanted <= pod.metadata.labels.items()]
        healthy = sum(
            pod.metadata.deletion_timestamp is None and is_true(pod.status.conditions, "Ready") for pod in pods
        )
        names = [app for app in ("web", "api") if not wanted or ("app", app) in wanted]
        assert budget.status.current_healthy == healthy
        assert budget.status.expected_pods == sum(replicas[uid] for app in names for uid in seen[app])


def test_budget_over_pods_without_an_owner_expects_all_of_them() -> None:
    """Each pod that nobody owns is expected, as it comes and as it goes."""
    world = small_world(nodes=2)
    world.put(
        PodDisruptionBudget(
            metadata=ObjectMeta(name="bare", namespace="default"),
            spec=PodDisruptionBudgetSpec(selector=LabelSelectorSpec(), max_unavailable=1),
        )
    )
    expected = []
    for name in "abc":
        world.put(Pod(metadata=ObjectMeta(name=name, namespace="default")))
        expected.append(world.store.pdbs["default/bare"].status.expected_pods)
    world.kubelets.kill("default/b")
    assert [*expected, world.store.pdbs["default/bare"].status.expected_pods] == [1, 2, 3, 2]


@pytest.mark.parametrize("seed", range(4))
def test_statuses_of_budgets_are_late_only_until_a_controller_listens(seed: int) -> None:
    """A controller that begins to listen finds budgets up to date, and hears at once of every count that changes."""
    dice, world = Random(seed), world_with_pods(seed)
    heard: list[Change] = []
    world.store.listen(heard.append)
    kept = cast("dict[str, PodDisruptionBudget]", world.store.by_kind["PodDisruptionBudget"])
    for _ in range(40):
        known = dict(kept)
        assert known == world.store.pdbs
        heard.clear()
        changed_by_chance(world, dice)
        told = {change.key: change.new for change in heard if change.kind == "PodDisruptionBudget"}
        assert known | told == kept


@pytest.mark.parametrize("seed", range(4))
def test_every_object_is_kept_under_its_own_key(seed: int) -> None:
    """Whoever writes an object names it by its namespace and name, in all indexes."""
    dice, world = Random(seed), world_with_pods(seed)
    for _ in range(60):
        changed_by_chance(world, dice)
        store = world.store
        for items in store.by_kind.values():
            assert all(key == key_of(item.metadata) for key, item in items.items())
        on_nodes = {key: pod for pods in store.pods_on.values() for key, pod in pods.items()}
        assert on_nodes == {key: pod for key, pod in store.pods.items() if pod.spec.node_name}


@pytest.mark.parametrize("seed", range(4))
def test_statuses_of_budgets_equal_a_count_of_everything(seed: int) -> None:
    """Whatever happens to pods and to the size of their owners, budgets count them as they are."""
    dice, world = Random(seed), world_with_pods(seed)
    for _ in range(60):
        changed_by_chance(world, dice)
        if {pod.metadata.labels["app"] for pod in world.store.pods.values()} == {"web", "api"}:
            compare_statuses(world)


def test_an_owner_that_is_gone_no_longer_says_how_many_pods_are_expected() -> None:
    """Once a ReplicaSet is gone, the next count expects as many pods as are there."""
    world = world_with_pods(0)
    assert world.store.pdbs["default/web"].status.expected_pods == 6
    world.store.remove("ReplicaSet", "default/web")
    key, pod = next((key, pod) for key, pod in world.store.pods.items() if pod.metadata.labels["app"] == "web")
    world.store.put(replace(pod, status=replace(pod.status, conditions=())))
    assert key in world.store.pods
    assert world.store.pdbs["default/web"].status.expected_pods == 6
    world.store.remove("Pod", key)
    assert world.store.pdbs["default/web"].status.expected_pods == 5
