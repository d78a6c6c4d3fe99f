"""Rules of a round's scene and work, checked directly: holds of pools, sources of prices, cached simulations."""

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from dovetail.decide import work as module
from dovetail.decide.question import CostHold
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Search
from dovetail.model.waste import Wasted
from tests.support.design_world import NOW, Town, kind
from tests.support.nodes import facts_of, minutes

CENT = 10**16


def _town(**disruption: Any) -> Town:
    town = Town(kind("m", "0.20"), kind("xl", "2.00", cpu=16, memory=64))
    town.pool(disruption={"consolidationSavingsThreshold": 0.02, **disruption})
    for name, made in (("a", "m"), ("b", "xl")):
        town.node(name, made)
        town.fill(name, 2)
    return town


def _scene(town: Town | None = None, **question: Any) -> Scene:
    return Scene.of((town or _town()).question(**question))


def test_what_holds_a_pool() -> None:
    """An alert holds all pools and unsettled pods hold their own; repair goes on."""
    for question, pools in (({"alert": "x"}, {"default"}), ({"unsettled": {"default": "y"}}, {"default"}), ({}, set())):
        scene = _scene(**question)
        held = scene.holds.of("default", Reason.DRIFTED)
        assert (held is not None) is bool(pools)
        if held is not None:
            assert (held.passed, held.figures) == (False, {"nodePool": "default"})
        assert scene.holds.of("default", Reason.UNHEALTHY) is None
    assert _scene(unsettled={"other": "y"}).holds.of("default", Reason.DRIFTED) is None


def test_pods_that_wait_are_looked_for_where_a_pool_asks() -> None:
    """Pending pods are read if at least one pool limits them."""
    town = _town(health={"pendingPods": {"count": 1, "for": "5m"}})
    town.pod("waiting", cpu="64")
    town.pool("plain")
    scene = _scene(town)
    if scene.policies["default"].health is None or scene.policies["default"].health.pending_pods is None:
        pytest.fail(str(scene.policies["default"].problems))
    assert len(scene.waiting.pods) == 1
    town.pool()
    assert _scene(town).waiting.pods == ()


def test_health_counts_the_pools_own_nodes() -> None:
    """Health limits count the nodes that budgets count, in pools that set a limit."""
    town = _town(health={"notReadyNodes": "1"})
    town.pool("other")
    for name, pool, ready in (("c", "default", False), ("d", "other", False), ("e", "other", False)):
        town.node(name, "m", pool=pool, ready=ready)
    assert _scene(town).holds.of("default", Reason.DRIFTED) is None
    town.node("f", "m", ready=False, without=[names.INITIALIZED_LABEL])
    assert _scene(town).holds.of("default", Reason.DRIFTED) is None
    town.node("g", "m", ready=False)
    assert _scene(town).holds.of("default", Reason.DRIFTED) is not None


def test_how_many_new_nodes() -> None:
    """A command may launch one node, or the number in the settings if sets are searched by value."""
    assert _scene().new_nodes_max == 1
    value = replace(DOVETAIL, search=Search.VALUE, replacements_max=3)
    assert _scene(settings=value).new_nodes_max == 3


@pytest.mark.parametrize(("until", "waits"), [(None, False), (-1, False), (0, False), (1, True)])
def test_stabilizing(until: int | None, waits: bool) -> None:
    """A pool, or a node of it, stops settling exactly at its deadline."""
    hold = {} if until is None else {"default": CostHold(until=NOW + minutes(until))}
    node = {} if until is None else {"a": CostHold(until=NOW + minutes(until))}
    whole, one = _scene(settling=hold), _scene(settling_nodes=node)
    assert len(whole.cost_order) == len(one.cost_order) == 2, "candidates are listed, whatever they wait for"
    assert (len(whole.cost_sources), len(one.cost_sources)) == ((0, 1) if waits else (2, 2))


def test_what_the_price_gates_ask() -> None:
    """The price gates get the required savings, the waste and the floor; unobserved time wastes nothing."""
    town = _town(disruptionPrice=0.05)
    plain = _scene(town).sources(_scene(town).nodes)
    assert [(each.required, each.wasted, each.least, each.asked_waste) for each in plain] == [
        (4 * CENT, 0, 0, 10 * CENT)
    ] * 2
    waste = {"a": Wasted(amount=CENT, rate=CENT, at=NOW - timedelta(hours=2))}
    scene = _scene(town, waste=waste, settings=replace(DOVETAIL, waste_floor=CENT))
    first, second = scene.sources(scene.nodes)
    assert (first.wasted, second.wasted) == (3 * CENT, 0)
    assert (first.least, first.asked_waste) == (2 * CENT, 10 * CENT)
    assert scene.sources(scene.nodes)[0] is first
    assert _scene(town, settings=KARPENTER_1_15).sources(scene.nodes)[0].asked_waste is None


def test_required_savings() -> None:
    """The threshold sets the required savings; it is 0 after enough waste, or without a policy."""
    town = _town(disruptionPrice=0.05)
    enough = {"a": Wasted(amount=10 * CENT, rate=0, at=NOW)}
    scene = _scene(town, waste=enough)
    assert [Fraction(*scene.required_savings(facts)) for facts in scene.nodes] == [0, 4 * CENT]
    assert Fraction(*scene.required_savings(facts_of(policy=None))) == 0
    plain = _scene()
    assert [Fraction(*plain.required_savings(facts)) for facts in plain.nodes] == [4 * CENT] * 2


def test_places() -> None:
    """A node that the scheduler does not see has no place."""
    scene = _scene()
    assert sorted(scene.index_of(facts) for facts in scene.nodes) == [0, 1]
    assert scene.index_of(facts_of(name="stranger")) == -1


def test_simulations_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations are cached by set and rules; a forced move serves cost too if no node is closed."""
    asked: list[Any] = []
    real = module.simulate

    def counted(snapshot: Any, chosen: Any, options: Any, under_way: Any) -> Any:
        asked.append((tuple(chosen), options.new_nodes_max, tuple(options.closed)))
        return real(snapshot, chosen, options, under_way)

    monkeypatch.setattr(module, "simulate", counted)
    scene = _scene()
    work = Work(scene)
    a, b = scene.nodes
    place = scene.index_of(a)
    assert not work.has_simulated(a)
    first = work.simulate((a,), for_cost=True)
    assert asked == [((place,), 1, ())]
    assert not work.has_simulated(a)
    assert work.simulate((a,), for_cost=True) is first
    plain = work.simulate((b,), for_cost=False)
    assert asked[1:] == [((scene.index_of(b),), None, ())]
    assert work.has_simulated(b)
    assert not work.has_simulated(a)
    assert work.simulate((b,), for_cost=True) is plain
    both = work.simulate((a, b), for_cost=False)
    assert work.simulate((b, a), for_cost=False) is both
    assert len(asked) == 3
    later, spent = Work(scene, work), work.pods_simulated
    later.simulate((a,), for_cost=False)
    assert later.pods_simulated > work.pods_simulated == spent
    work.simulate((a,), for_cost=False)
    assert len(asked) == 4
    town = _town(consolidationGracePeriod="2h")
    shut = Work(_scene(town))
    one = shut.scene.nodes[0]
    asked.clear()
    shut.simulate((one,), for_cost=False)
    shut.simulate((one,), for_cost=True)
    assert [(most, bool(closed)) for _, most, closed in asked] == [(None, False), (1, True)]
