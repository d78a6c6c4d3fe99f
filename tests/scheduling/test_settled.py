"""Planned pods of leaving nodes are placed once for all simulations, with the same result as each time."""

import random
from typing import Any

import pytest

from dovetail.model.command import Placement, Replacement
from dovetail.scheduling import simulate as module
from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.simulate import simulate
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.under_way import UnderWay
from tests.support.scheduling_build import class_of, homes, near, node, pod, pool, snapshot, spread

LEAVING = {"meta": {"deletionTimestamp": "2026-05-01T11:00:00Z"}}
PLAN = UnderWay(
    launches=(
        Replacement(node_pool="p", instance_types=("c.4",), requirements=(), requests={}, pods=("default/l-0",)),
    ),
    placements=(
        Placement(node="n1", pods=("default/l-1", "default/l-2", "default/l-3")),
        Placement(node="n2", pods=("default/l-4", "default/l-5")),
        Placement(node="gone", pods=("default/l-6",)),
    ),
)


def _cluster(rules: dict[str, Any], limits: dict[str, str]) -> Snapshot:
    """Build four nodes with some pods each, a leaving node with many pods, and a pending pod."""
    objects: list[Any] = [pool(limits=limits), *node("old", **LEAVING)]
    for at in range(1, 5):
        objects += node(f"n{at}", zone="ab"[at % 2])
        objects += [pod(f"a-{at}{i}", "1.5", on=f"n{at}", **(rules if i else {})) for i in range(3)]
    objects += [pod(f"l-{i}", "1", on="old") for i in range(8)]
    return snapshot(*objects, pod("w", "3"))


def _answers(seen: Snapshot, under_way: UnderWay) -> list[object]:
    found: list[object] = []
    for chosen in ([], [0], [1], [2], [3], [0, 1], [2, 3], [4]):
        result = simulate(seen, chosen, under_way=under_way)
        launched = [(new.pool, tuple(kind.name for kind in new.instance_types)) for new in result.new_nodes]
        found.append((chosen, homes(result), launched, [entry.pod.metadata.name for entry in result.unplaced]))
    return found


@pytest.mark.parametrize("limits", [{}, {"cpu": "48"}], ids=["no limits", "limits"])
@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"topologySpreadConstraints": [spread()]},
        {"topologySpreadConstraints": [spread("kubernetes.io/hostname", app="l")]},
        {"topologySpreadConstraints": [spread(app="l")]},
        {"affinity": near("podAntiAffinity", app="l")},
    ],
    ids=["plain", "spread", "spread by those that come over hosts", "over zones", "away from those that come"],
)
def test_placed_once_is_as_placed_each_time(
    rules: dict[str, Any], limits: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans for staying, leaving, deleted and new nodes give the same result when placed once."""
    once = _answers(_cluster(rules, limits), PLAN)
    monkeypatch.setattr(module, "_FEW", 10**6)
    assert once == _answers(_cluster(rules, limits), PLAN)


def test_another_plan_is_placed_anew() -> None:
    """The placements of one plan are not reused for another plan on the same snapshot."""
    seen = _cluster({}, {})
    before = homes(simulate(seen, [2], under_way=PLAN))
    after = homes(simulate(seen, [2], under_way=UnderWay(placements=(Placement(node="n4", pods=("default/l-1",)),))))
    assert (before["l-1"], after["l-1"]) == ("n1", "n4")
    assert homes(simulate(seen, [2], under_way=PLAN)) == before


_SSD = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
_PREFERS: dict[str, Any] = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_SSD]}}}
"""A preference that no node meets: without it, the pod is like those that have none."""
_WISHES: tuple[dict[str, Any], ...] = ({}, {}, {"nodeSelector": {"topology.kubernetes.io/zone": "a"}}, _PREFERS)


def _crowd(dice: random.Random) -> tuple[Snapshot, UnderWay]:
    """Build nodes with little room, some not initialized, and a leaving node with plans for most of its pods."""
    names = [f"n{at}" for at in range(9)]
    objects: list[Any] = [pool(), *node("old", **LEAVING), *(pod(f"l-{i}", "1", on="old") for i in range(12))]
    for name in names:
        objects += node(name, zone=dice.choice("ab"), started=dice.random() < 0.8)
        sizes = [dice.choice(["0.5", "1", "1.5"]) for _ in range(dice.randint(2, 8))]
        picky = [dice.choice(_WISHES) for _ in sizes]
        objects += [pod(f"{name}-{i}", size, on=name, **picky[i]) for i, size in enumerate(sizes)]
    places = [Placement(node=dice.choice(names), pods=(f"default/l-{i}",)) for i in range(9)]
    return snapshot(*objects), UnderWay(placements=tuple(places))


def _moves(seed: int) -> list[object]:
    """Return where the pods of each node go, with several sets of closed nodes on one snapshot."""
    dice = random.Random(seed)
    seen, plan = _crowd(dice)
    found: list[object] = []
    for _ in range(3):
        closed = frozenset(dice.sample(range(9), dice.randint(0, 5)))
        for chosen in range(9):
            options = SimulationOptions(closed=closed, new_nodes_max=1)
            result = simulate(seen, [chosen], options, plan)
            waiting = [entry.pod.metadata.name for entry in result.uninitialized]
            found.append((homes(result), waiting, [entry.why for entry in result.unplaced], result.stopped_early))
    return found


def test_nodes_that_are_closed_or_full_are_passed_over_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations that share the plans' places use the same nodes as those that place the planned pods themselves."""
    shared = [_moves(seed) for seed in range(20)]
    monkeypatch.setattr(module, "_FEW", 10**6)
    assert shared == [_moves(seed) for seed in range(20)]


def test_a_pod_that_drops_its_preference_leaves_the_others_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods with and without a preference take turns; a plan fills the first node, and all of them go to the second."""
    objects = [pool(), *node("old", **LEAVING), *node("n1", cpu=8), *node("n2", cpu=8), *node("z", cpu=8)]
    objects += [pod(f"l-{i:02}", "0.5", on="old") for i in range(15)]
    objects += [pod(f"c-{i}", on="z", **(_PREFERS if i % 2 else {})) for i in range(4)]
    plan = UnderWay(placements=(Placement(node="n1", pods=tuple(f"default/l-{i:02}" for i in range(15))),))

    def moved() -> dict[str, str]:
        seen = snapshot(*objects)
        found = homes(simulate(seen, [seen.index["z"]], under_way=plan))
        return {name: found[name] for name in ("c-0", "c-1", "c-2", "c-3")}

    assert set(moved().values()) == {"n2"}
    shared = moved()
    monkeypatch.setattr(module, "_FEW", 10**6)
    assert shared == moved()


def test_pods_of_the_same_needs_share_their_nodes() -> None:
    """Classes that differ only in labels share one list of nodes; other needs, selectors or tolerations do not."""
    pods = [
        pod("a-0", on="n"),
        pod("b-0", on="n"),
        pod("c-0", "2", on="n"),
        pod("d-0", on="n", nodeSelector={"topology.kubernetes.io/zone": "a"}),
        pod("e-0", on="n", tolerations=[{"operator": "Exists"}]),
    ]
    tainted = node("m", taints=[{"key": "k", "effect": "NoSchedule"}])
    rule = {"topologySpreadConstraints": [spread(app="z")]}
    seen = snapshot(pool(), node("n"), node("o", cpu=2.5, zone="b"), tainted, *pods, pod("z-0", on="o", **rule))
    a, b, c, d, e = (seen.frame.first(class_of(seen, each)) for each in pods)
    assert a.cls is not b.cls
    assert a.buckets is b.buckets
    assert a.mask is b.mask
    names = [[seen.states[at].name for at in variant.buckets[0][1]] for variant in (a, c, d, e)]
    assert names == [["n", "o"], ["n"], ["n"], ["m", "n", "o"]]
