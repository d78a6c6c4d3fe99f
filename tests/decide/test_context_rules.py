"""Rules of a round's context, checked directly: holds of pools, sources of prices, cached simulations."""

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from dovetail.decide import context as module
from dovetail.decide.context import RoundContext
from dovetail.decide.decider import Decider
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.roster import FirstClosed
from dovetail.decide.gates import passing
from dovetail.decide.gates.gate_results import GateContext
from dovetail.model import names
from dovetail.model.command import Method
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


def _context(town: Town | None = None, **question: Any) -> RoundContext:
    return RoundContext((town or _town()).question(**question))


def test_what_holds_a_pool() -> None:
    """An alert holds all pools and unsettled pods hold their own; repair goes on."""
    for question, pools in (({"alert": "x"}, {"default"}), ({"unsettled": {"default": "y"}}, {"default"}), ({}, set())):
        context = _context(**question)
        held = context.holds.of("default", Reason.DRIFTED)
        assert (held is not None) is bool(pools)
        if held is not None:
            assert (held.passed, held.figures) == (False, {"nodePool": "default"})
        assert context.holds.of("default", Reason.UNHEALTHY) is None
    assert _context(unsettled={"other": "y"}).holds.of("default", Reason.DRIFTED) is None


def test_pods_that_wait_are_looked_for_where_a_pool_asks() -> None:
    """Pending pods are read if at least one pool limits them."""
    town = _town(health={"pendingPods": {"count": 1, "for": "5m"}})
    town.pod("waiting", cpu="64")
    town.pool("plain")
    context = _context(town)
    if context.policies["default"].health is None or context.policies["default"].health.pending_pods is None:
        pytest.fail(str(context.policies["default"].problems))
    assert len(context.waiting.pods) == 1
    town.pool()
    assert _context(town).waiting.pods == ()


def test_health_counts_the_pools_own_nodes() -> None:
    """Health limits count the nodes that budgets count, in pools that set a limit."""
    town = _town(health={"notReadyNodes": "1"})
    town.pool("other")
    for name, pool, ready in (("c", "default", False), ("d", "other", False), ("e", "other", False)):
        town.node(name, "m", pool=pool, ready=ready)
    assert _context(town).holds.of("default", Reason.DRIFTED) is None
    town.node("f", "m", ready=False, without=[names.INITIALIZED_LABEL])
    assert _context(town).holds.of("default", Reason.DRIFTED) is None
    town.node("g", "m", ready=False)
    assert _context(town).holds.of("default", Reason.DRIFTED) is not None


def test_how_many_new_nodes() -> None:
    """A command may launch one node, or the number in the settings if sets are searched by value."""
    assert _context().new_nodes_max == 1
    value = replace(DOVETAIL, search=Search.VALUE, replacements_max=3)
    assert _context(settings=value).new_nodes_max == 3


@pytest.mark.parametrize(("until", "waits"), [(None, False), (-1, False), (0, False), (1, True)])
def test_stabilizing(until: int | None, waits: bool) -> None:
    """Stabilization ends exactly at its deadline."""
    when = None if until is None else NOW + minutes(until)
    assert _context(cost_held_until=when).stabilizing is waits


def test_what_the_price_gates_ask() -> None:
    """The price gates get the required savings, the waste and the floor; unobserved time wastes nothing."""
    town = _town(disruptionPrice=0.05)
    plain = _context(town).sources(_context(town).nodes)
    assert [(each.required, each.wasted, each.least, each.asked_waste) for each in plain] == [
        (4 * CENT, 0, 0, 10 * CENT)
    ] * 2
    waste = {"a": Wasted(amount=CENT, rate=CENT, at=NOW - timedelta(hours=2))}
    context = _context(town, waste=waste, settings=replace(DOVETAIL, waste_floor=CENT))
    first, second = context.sources(context.nodes)
    assert (first.wasted, second.wasted) == (3 * CENT, 0)
    assert (first.least, first.asked_waste) == (2 * CENT, 10 * CENT)
    assert context.sources(context.nodes)[0] is first
    assert _context(town, settings=KARPENTER_1_15).sources(context.nodes)[0].asked_waste is None


def test_required_savings() -> None:
    """The threshold sets the required savings; it is 0 after enough waste, or without a policy."""
    town = _town(disruptionPrice=0.05)
    enough = {"a": Wasted(amount=10 * CENT, rate=0, at=NOW)}
    context = _context(town, waste=enough)
    assert [Fraction(*context.required_savings(facts)) for facts in context.nodes] == [0, 4 * CENT]
    assert Fraction(*context.required_savings(facts_of(policy=None))) == 0
    plain = _context()
    assert [Fraction(*plain.required_savings(facts)) for facts in plain.nodes] == [4 * CENT] * 2


def test_places() -> None:
    """A node that the scheduler does not see has no place."""
    context = _context()
    assert sorted(context.index_of(facts) for facts in context.nodes) == [0, 1]
    assert context.index_of(facts_of(name="stranger")) == -1


def test_simulations_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations are cached by set and rules; a forced move serves cost too if no node is closed."""
    asked: list[Any] = []
    real = module.simulate

    def counted(snapshot: Any, chosen: Any, options: Any, under_way: Any) -> Any:
        asked.append((tuple(chosen), options.new_nodes_max, tuple(options.closed)))
        return real(snapshot, chosen, options, under_way)

    monkeypatch.setattr(module, "simulate", counted)
    context = _context()
    a, b = context.nodes
    place = context.index_of(a)
    assert not context.has_simulated(a)
    first = context.simulate((a,), for_cost=True)
    assert asked == [((place,), 1, ())]
    assert not context.has_simulated(a)
    assert context.simulate((a,), for_cost=True) is first
    plain = context.simulate((b,), for_cost=False)
    assert asked[1:] == [((context.index_of(b),), None, ())]
    assert context.has_simulated(b)
    assert not context.has_simulated(a)
    assert context.simulate((b,), for_cost=True) is plain
    both = context.simulate((a, b), for_cost=False)
    assert context.simulate((b, a), for_cost=False) is both
    assert len(asked) == 3
    fork = context.fork()
    spent = fork.pods_simulated
    fork.simulate((a,), for_cost=False)
    assert fork.pods_simulated > spent
    context.simulate((a,), for_cost=False)
    assert len(asked) == 4
    town = _town(consolidationGracePeriod="2h")
    shut = _context(town)
    one = shut.nodes[0]
    asked.clear()
    shut.simulate((one,), for_cost=False)
    shut.simulate((one,), for_cost=True)
    assert [(most, bool(closed)) for _, most, closed in asked] == [(None, False), (1, True)]


def test_gates_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decider with memory evaluates a node's gates once while nothing changes."""
    asked: list[str] = []
    real = passing.first_closed

    def counted(facts: NodeFacts, gates: GateContext) -> FirstClosed:
        asked.append(facts.name)
        return real(facts, gates)

    monkeypatch.setattr(passing, "first_closed", counted)
    town = _town()
    decider, question = Decider(), town.question()
    first = decider.scene(question).passing(Method.MULTI_NODE)
    assert sorted(asked) == ["a", "b"]
    assert decider.scene(question).passing(Method.MULTI_NODE) == first
    assert sorted(asked) == ["a", "b"]
    assert len(first) == 2
