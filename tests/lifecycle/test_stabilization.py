"""Where cost actions wait after an action (docs/rules.md#stabilization): last action, its pools, half of any hour."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.memory.stabilization import HALF, HOUR, Footprint, StabilizationMemory, held_until, window_of
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Command, Method, Placement
from dovetail.model.objects import Node, NodeClaim
from dovetail.model.settings import Stabilization, StabilizationScope
from tests.support.conversation import pod, replica_set
from tests.support.lifecycle_world import CALM, Driver, ScriptedPlanner, TaintNode, World, engine_for

MINUTE = 60 * SECOND
POOL, CLUSTER = StabilizationScope.POOL, StabilizationScope.CLUSTER
FIVE = Stabilization()
NOW = datetime(2026, 5, 13, 12, tzinfo=UTC)


def finished(memory: StabilizationMemory, at: int, method: Method, *pools: str, **more: Any) -> None:
    """Let an action end."""
    touched = Footprint(pools=pools, nodes=more.get("nodes", ()))
    memory.finished(method, touched, more.get("windows", FIVE), more.get("scope", POOL), at)


def held(memory: StabilizationMemory, at: int, *pools: str) -> dict[str, int]:
    """Return the pools that wait and for how long."""
    return {pool: wait.until - at for pool, wait in memory.pools(pools or ("a", "b"), at).items()}


@pytest.mark.parametrize("method", Method)
def test_window_of_each_method(method: Method) -> None:
    """Each kind of action has its own window; repair has none."""
    windows = Stabilization(empty=1, expired=2, drifted=3, cost=4)
    expected = {"unhealthy": None, "empty": 1, "expired": 2, "drifted": 3, "multiNode": 4, "singleNode": 4}
    assert window_of(method, windows) == expected[method.value]


def test_pools_that_an_action_did_not_touch_do_not_wait() -> None:
    """An action holds the pools that it touched, until its window has passed."""
    memory = StabilizationMemory()
    finished(memory, 100, Method.DRIFTED, "a")
    assert held(memory, 100) == {"a": 5 * MINUTE}
    assert not memory.expire(99 + 5 * MINUTE)
    assert memory.times() == [100 + 5 * MINUTE]
    assert memory.expire(100 + 5 * MINUTE)
    assert (held(memory, 100 + 5 * MINUTE), memory.times()) == ({}, [])


@pytest.mark.parametrize(
    ("first", "then", "left"),
    [
        (Method.DRIFTED, Method.EMPTY, 30 * SECOND),
        (Method.EMPTY, Method.DRIFTED, 5 * MINUTE),
        (Method.MULTI_NODE, Method.EMPTY, 30 * SECOND),
        (Method.DRIFTED, Method.EXPIRED, 0),
        (Method.DRIFTED, Method.UNHEALTHY, 4 * MINUTE),
    ],
)
def test_the_last_action_decides_by_its_kind(first: Method, then: Method, left: int) -> None:
    """The window of the last action counts, shorter or longer; a kind that is switched off ends the wait.

    Repair has no window and leaves the pool as it is.
    """
    windows = Stabilization(empty=30 * SECOND, expired=0)
    memory = StabilizationMemory()
    finished(memory, 0, first, "a", "b", windows=windows)
    finished(memory, MINUTE, then, "a", windows=windows)
    assert held(memory, MINUTE, "a") == ({"a": left} if left else {})
    before = window_of(first, windows)
    assert before is not None
    still = before - MINUTE
    assert held(memory, MINUTE, "b") == ({"b": still} if still > 0 else {}), "it was not touched again"


def test_the_sentence_names_the_action_and_its_pools() -> None:
    """People read which kind of action in which pools they wait for."""
    memory = StabilizationMemory()
    finished(memory, 0, Method.EMPTY, "a", "b")
    assert {wait.after for wait in memory.pools(("a", "b"), 0).values()} == {
        "an action of method empty in NodePools a, b"
    }


def test_the_whole_cluster_waits_if_the_scope_says_so() -> None:
    """With the scope `cluster` the last action anywhere decides for all pools, and nothing bounds that."""
    memory = StabilizationMemory()
    for minute in range(0, 120, 2):
        finished(memory, minute * MINUTE, Method.EXPIRED, "a", scope=CLUSTER)
        assert held(memory, minute * MINUTE, "a", "z") == {"a": 5 * MINUTE, "z": 5 * MINUTE}
    finished(memory, 119 * MINUTE, Method.EMPTY, "b", windows=Stabilization(empty=SECOND), scope=CLUSTER)
    assert held(memory, 119 * MINUTE, "a") == {"a": SECOND}


# ---------------------------------------------------------------- half of any hour


def test_expiries_hold_a_pool_for_half_an_hour_at_most() -> None:
    """A pool in which something expires every two minutes is free of that for half of the time.

    Beyond that only the nodes that the actions touched wait, each for its window.
    """
    memory = StabilizationMemory()
    waits = []
    for minute in range(180):
        at = minute * MINUTE
        memory.expire(at)
        if minute % 2 == 0:
            finished(memory, at, Method.EXPIRED, "a", nodes=(f"n{minute}",))
        waits.append(bool(held(memory, at, "a")))
    assert all(waits[:30])
    assert not any(waits[30:60]), "half of the hour is used up"
    assert sum(waits[60:120]) <= 30
    at = 179 * MINUTE
    kept = memory.nodes(at)
    if not waits[-1]:
        assert list(kept) == ["n176", "n178"]
        assert kept["n178"].until == 183 * MINUTE


def test_cost_actions_are_not_part_of_that_half_hour() -> None:
    """The pause after a cost action is never cut, and uses up nothing."""
    memory = StabilizationMemory()
    for minute in range(0, 60, 2):
        finished(memory, minute * MINUTE, Method.MULTI_NODE, "a")
    finished(memory, 60 * MINUTE, Method.EMPTY, "a")
    assert held(memory, 60 * MINUTE, "a") == {"a": 5 * MINUTE}
    for minute in range(62, 120, 2):
        finished(memory, minute * MINUTE, Method.EMPTY, "a")
    finished(memory, 120 * MINUTE, Method.SINGLE_NODE, "a")
    assert held(memory, 120 * MINUTE, "a") == {"a": 5 * MINUTE}


ACTIONS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.sampled_from((Method.EMPTY, Method.EXPIRED, Method.DRIFTED, Method.SINGLE_NODE)),
    ),
    min_size=1,
    max_size=60,
)


@given(actions=ACTIONS, window=st.integers(1, 90))
def test_no_hour_is_held_for_longer(actions: list[tuple[int, Method]], window: int) -> None:
    """Counted minute by minute, no hour has more than thirty minutes that such actions held; else they do hold."""
    windows = Stabilization(empty=window * MINUTE, expired=5 * MINUTE, drifted=17 * MINUTE, cost=3 * MINUTE)
    ends: dict[int, list[Method]] = {}
    at = 0
    for gap, method in actions:
        at += gap
        ends.setdefault(at, []).append(method)
    memory, last, begun, counted = StabilizationMemory(), Method.EMPTY, -(10**9), []
    for minute in range(at + 100):
        memory.expire(minute * MINUTE)
        for method in ends.get(minute, ()):
            finished(memory, minute * MINUTE, method, "a", windows=windows)
            last, begun = method, minute
        length = window_of(last, windows)
        assert length is not None
        within = minute < begun + length // MINUTE
        holds = bool(held(memory, minute * MINUTE, "a"))
        assert within or not holds
        counted.append(holds and last is not Method.SINGLE_NODE)
        if last is Method.SINGLE_NODE or sum(counted[-60:]) < 20:
            assert holds == within or sum(counted[-120:]) >= 30
    assert all(sum(counted[begin : begin + 60]) <= 30 for begin in range(len(counted)))


@pytest.mark.parametrize(
    ("earlier", "window", "until"),
    [
        ([], 5, 5),
        ([], 90, 30),
        ([(-20, -10)], 90, 20),
        ([(-60, -30)], 5, 5),
        ([(-60, -30)], 90, 30),
        ([(-50, -30), (-10, 0)], 5, 0),
        ([(-55, -35), (-10, 0)], 90, 0),
        ([(-60, -40), (-10, 0)], 90, 20),
        ([(-90, -61)], 90, 30),
    ],
)
def test_how_long_a_window_may_hold(earlier: list[tuple[int, int]], window: int, until: int) -> None:
    """A hold grows the hour's share, and stays level while an earlier one leaves the hour."""
    before = [(since * MINUTE, end * MINUTE) for since, end in earlier]
    assert held_until(before, 0, window * MINUTE) == until * MINUTE
    assert (HOUR, HALF) == (60 * MINUTE, 30 * MINUTE)


# ---------------------------------------------------------------- what an action touches


def node(name: str, of: str) -> Node:
    """Build a node of a pool."""
    return msgspec.convert({"metadata": {"name": name, "labels": {names.NODEPOOL: of}}}, Node, strict=False)


def command(*placements: Placement) -> Run:
    """Build a drift command of pool `a` that launches in pool `b`."""
    made = Run(
        id="c",
        action=Action.REPLACE_DRIFTED,
        method=Method.DRIFTED,
        candidates=(Candidate(node="old", claim="old", uid="old", pool="a"),),
        phase=Phase.DELETING,
        began=NOW,
    )
    made.command = Command(
        action=made.action, method=made.method, nodes=("old",), placements=placements, replacements=()
    )
    made.replacements, made.pools = ("new",), ("b",)
    return made


def test_an_action_touches_the_pools_of_nodes_that_took_its_pods() -> None:
    """Touched are its own pools, its replacements', and those of nodes where its pods are planned or have come to be.

    Pods of other leaving nodes in its plan, pods that were there before and pods of other owners don't count.
    """
    store = Store()
    for name, of in (("old", "a"), ("planned", "c"), ("other", "d"), ("chosen", "e"), ("before", "f"), ("new-n", "b")):
        store.observe(node(name, of))
    for item in (replica_set("rs"), pod("x", "old"), pod("y", "before"), pod("z", "other", "them")):
        store.observe(item)
    made = command(Placement(node="planned", pods=("d/x",)), Placement(node="other", pods=("d/not-ours",)))
    memory = StabilizationMemory()
    memory.begin(made, store)
    store.vanish("Pod", "d", "x")
    store.observe(pod("x2", "chosen"))
    store.observe(pod("z2", "other", "them"))
    claim = {"metadata": {"name": "new", "uid": "new"}, "status": {"nodeName": "new-n"}}
    store.observe(msgspec.convert(claim, NodeClaim, strict=False))
    touched = memory.touched(made, store)
    assert touched == Footprint(pools=("a", "b", "c", "e"), nodes=("chosen", "new-n", "planned"))
    assert memory.touched(made, Store()) == Footprint(pools=("a", "b")), "a successor knows what the record says"


# ---------------------------------------------------------------- the engine


def two_pools() -> World:
    """Build nodes that are to go for drift in pool `web`, and for cost in pool `batch`."""
    world = World()
    world.add_pool("web")
    world.add_pool("batch")
    world.add_node("a", want="delete")
    world.add_node("z", pool="batch", want="cost-delete")
    return world


@pytest.mark.parametrize("scope", StabilizationScope)
def test_one_pools_drift_holds_another_pool_only_by_choice(scope: StabilizationScope) -> None:
    """After an action in one pool, the other pool's cost action starts at once, or waits with the scope `cluster`."""
    windows = Stabilization(empty=0, expired=0, drifted=300 * SECOND, cost=0)
    settings = replace(CALM, stabilization=windows, stabilization_scope=scope)
    world = two_pools()
    driver = Driver(world, engine_for(settings, ScriptedPlanner(limit=1))).begin().run(600)
    tainted = {item.node: at for at, item in driver.log if isinstance(item, TaintNode)}
    gap = (tainted["z"] - tainted["a"]).total_seconds()
    assert gap < 60 if scope is POOL else gap >= 300
