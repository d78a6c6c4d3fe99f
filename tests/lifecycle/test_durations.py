"""How long savings last in a pool (docs/rules.md#one-price): removals that held, and a load that stays level."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.memory.durations import Durations
from dovetail.lifecycle.store import Store
from dovetail.model.objects import Node, Pod
from dovetail.model.persistence import PRIOR, Persistence, PoolLoad
from dovetail.model.timing.duration import HOUR, MINUTE
from tests.support.nodes import NOW


def _wall(at: int) -> Any:
    return NOW + timedelta(microseconds=at // 1000)


def _known(durations: Durations, elapsed: int) -> Persistence:
    return durations.known(elapsed, _wall)["pool"]


def _load(cpu: int, memory: int = 0) -> dict[str, PoolLoad]:
    return {"pool": PoolLoad(total=(cpu, memory), node=(1000, 1000))}


@pytest.mark.parametrize(
    ("removed", "opened", "now", "learned"),
    [
        ([0], [], 5, PRIOR),
        ([0], [4], 5, (PRIOR + 4 * MINUTE) // 2),
        ([0, 2], [4], 10, (PRIOR + 12 * MINUTE) // 2),
        ([0, 2], [4, 5], 10, (PRIOR + 7 * MINUTE) // 3),
        ([0], [61], 100, PRIOR),
        ([0, 200], [201], 201, PRIOR),
        ([*range(0, 200, 20), 200, 220], [201, 221], 221, PRIOR),
    ],
    ids=["nothing undone", "undone", "the latest is undone", "both", "it had lasted", "one held", "ten are remembered"],
)
def test_what_removals_teach(removed: list[int], opened: list[int], now: int, learned: int) -> None:
    """Each node that a provisioner opens undoes the latest removal that still holds; an hour is long enough."""
    durations = Durations()
    for minute, what in sorted([*((at, "took") for at in removed), *((at, "opened") for at in opened)]):
        if what == "took":
            durations.took(["pool"], minute * MINUTE)
        else:
            durations.opened("pool", minute * MINUTE)
    found = _known(durations, now * MINUTE)
    assert (found.learned, found.removals) == (learned, min(10, len(removed)))


def test_many_openings_shorten_what_is_expected() -> None:
    """A pool in which every removal is undone after a minute expects little, but never nothing."""
    durations = Durations()
    for minute in range(0, 40, 2):
        durations.took(["pool"], minute * MINUTE)
        durations.opened("pool", (minute + 1) * MINUTE)
    assert _known(durations, HOUR).learned == (PRIOR + 10 * MINUTE) // 11


@pytest.mark.parametrize(
    ("loads", "since"),
    [
        ([(0, 5000), (30, 5000), (60, 5000)], 0),
        ([(0, 5000), (30, 5999), (60, 5000)], 0),
        ([(0, 5000), (30, 6001), (60, 5000)], 60),
        ([(0, 9000), (30, 5000), (60, 5900)], 30),
        ([(0, 5000), (20, 5600), (40, 6200), (60, 6800)], 40),
    ],
    ids=["level", "within a node", "a peak", "after a fall", "a slow rise"],
)
def test_a_level_that_lasted_lasts(loads: list[tuple[int, int]], since: int) -> None:
    """Calm is the time for which the load stayed within one average node of today's, in CPU and in memory."""
    for resource in (0, 1):
        durations = Durations()
        for minute, amount in loads:
            durations.update(_load(*((amount, 0) if resource == 0 else (0, amount))), Store(), minute * MINUTE)
        found = _known(durations, 90 * MINUTE)
        assert found.calm_since == NOW + timedelta(minutes=since)
        assert found.expected(NOW + timedelta(minutes=90)) == max(PRIOR, (90 - since) * MINUTE // 3)


def test_what_happens_within_a_minute_counts() -> None:
    """A peak of a few seconds ends the calm as well."""
    durations = Durations()
    for second, amount in ((0, 5000), (90, 5000), (100, 7000), (110, 5000), (200, 5001)):
        durations.update(_load(amount), Store(), second * 10**9)
    assert _known(durations, HOUR).calm_since == NOW + timedelta(seconds=200)


def test_what_objects_say_counts_until_the_load_changes() -> None:
    """The first look takes over how calm the objects are; openings shorten it as they do the prior."""
    durations, calm = Durations(), 40 * MINUTE
    durations.update({"pool": PoolLoad(total=(9000, 0), node=(1000, 1000), prior=calm)}, Store(), 0)
    assert _known(durations, MINUTE).learned == calm
    durations.update(_load(9500), Store(), 10 * MINUTE)
    assert _known(durations, 10 * MINUTE).learned == calm
    durations.took(["pool"], 10 * MINUTE)
    durations.opened("pool", 14 * MINUTE)
    assert _known(durations, 14 * MINUTE).learned == (calm + 4 * MINUTE) // 2
    durations.update(_load(5000), Store(), 20 * MINUTE)
    assert _known(durations, 20 * MINUTE).learned == (PRIOR + 4 * MINUTE) // 2


def test_an_opened_node_ends_the_calm() -> None:
    """A provisioner that opens a node shows that the room was too small."""
    durations = Durations()
    durations.update(_load(5000), Store(), 0)
    durations.opened("pool", 30 * MINUTE)
    assert _known(durations, HOUR).calm_since == NOW + timedelta(minutes=30)


def _pod(name: str, node: str = "") -> Pod:
    tree = {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": name,
            "ownerReferences": [{"kind": "ReplicaSet", "uid": "rs"}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
        "status": {"phase": "Running" if node else "Pending"},
    }
    return msgspec.convert(tree, Pod, strict=False)


@pytest.mark.parametrize("sibling", [True, False], ids=["a sibling runs there", "it ran there"])
def test_pods_on_their_way_are_no_change_of_load(sibling: bool) -> None:
    """A pod that waits for a node counts where its owner's pods run, or ran before a command moved them."""
    durations, store = Durations(), Store()
    node = {"metadata": {"name": "n", "uid": "n", "labels": {"karpenter.sh/nodepool": "pool"}}}
    store.observe(msgspec.convert(node, Node, strict=False))
    if sibling:
        store.observe(_pod("other", "n"))
    else:
        durations.leaves([_pod("moved", "n")], "pool")
    durations.update(_load(5000), store, 0)
    store.observe(_pod("waiting"))
    durations.update(_load(3000), store, 30 * MINUTE)
    assert _known(durations, HOUR).calm_since == NOW
    durations.forget()
    assert durations.known(HOUR, _wall) == {}
