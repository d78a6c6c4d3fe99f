"""The savings of removing nodes, with a scripted context (docs/rules.md#waste)."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as change

from dovetail.decide import waste
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.in_flight import InFlight
from dovetail.decide.refusal import below_threshold
from dovetail.decide.search.dual import SLACK
from dovetail.decide.waste import as_waste, could_save
from dovetail.model.objects import Pod
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.model.verdicts import Gate
from dovetail.scheduling.result import LaunchPrice, SimulationResult, Unplaced
from tests.support.launches import DOLLAR, kind_at, new_node, source
from tests.support.nodes import NOW, facts_of, minutes

CHEAP, GONE = kind_at("cheap", 2), kind_at("gone")


def _node(name: str, price: int = 5) -> NodeFacts:
    return facts_of(name=name, price=price * DOLLAR, price_float=float(price))


def _context(*nodes: NodeFacts, **parts: Any) -> Any:
    """Return a context with these cost candidates; `least`: what bounds say, `new`: what a simulation would launch."""
    launch = parts.get("launch")
    price = None if launch is None else LaunchPrice(amount=launch * DOLLAR, as_float=0.0, capacity_type="", zone="")
    context = SimpleNamespace(
        now=NOW,
        settings=parts.get("settings", DOVETAIL),
        cost_sources=nodes,
        policies={"default": SimpleNamespace(disruption_price=Fraction(1), restart_price=None)},
        could_save=None,
        new_nodes_max=parts.get("most", 1),
        index_of=lambda facts: 0,
        in_flight=InFlight(back_off=parts.get("back_off", {})),
        question=SimpleNamespace(waste=parts.get("waste", {})),
        price_scale=DOLLAR,
        haste=SimpleNamespace(
            restarts=SimpleNamespace(applies=lambda facts: False, earning_until=lambda facts: None),
            asked_waste=lambda facts: None if facts.name in parts.get("unpriced", ()) else (1, 1),
            go_by_waste=lambda nodes: [facts.name not in parts.get("unpriced", ()) for facts in nodes],
            waits_for_jobs=lambda facts: False,
            restless_until=lambda facts: None,
        ),
        asked=[],
        closed=(),
        snapshot=None,
        table=SimpleNamespace(rows_of=lambda chosen: np.argsort(np.argsort([facts.name for facts in chosen]))),
        wasted=lambda facts: 0,
    )
    context.scene = context
    context.priced = lambda nodes, new_nodes: tuple(new_nodes)
    context.bounds = SimpleNamespace(alone=lambda nodes: [[(parts.get("least", 0), price)] for _ in nodes])

    def simulate(chosen: Any, *, for_cost: bool) -> SimulationResult:
        context.asked.append(for_cost)
        return SimulationResult(candidates=(), new_nodes=parts.get("new", ()), unplaced=parts.get("unplaced", ()))

    def sources(chosen: Any) -> list[Any]:
        floor = Fraction(parts.get("floor", 0) * DOLLAR)
        return [
            change(source(facts.name, facts.price // DOLLAR, required=99), least=floor, asked_waste=Fraction(1))
            for facts in chosen
        ]

    context.simulate, context.sources = simulate, sources
    return context


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a bound that says there is something to be saved."""
    limit = [1.0]

    class Bound:
        def __init__(self, *_: Any, free: bool) -> None:
            assert free

        def at_most(self) -> float:
            return limit[0]

    monkeypatch.setattr(waste, "ValueBound", Bound)
    monkeypatch.setattr(waste, "Plenty", lambda *_: SimpleNamespace(for_pods_of=lambda node: False))
    monkeypatch.setattr(waste, "_one_saves_for_certain", lambda *_: False)
    return limit


STUCK = Unplaced(pod=Pod(), forgiven=False, explain=lambda: "so")


@pytest.mark.parametrize(
    ("parts", "saved", "simulated"),
    [
        ({}, 5, True),
        ({"floor": 5}, 5, True),
        ({"floor": 6}, None, True),
        ({"new": (new_node(CHEAP),)}, 3, True),
        ({"new": (new_node(CHEAP), new_node(CHEAP))}, None, True),
        ({"new": (new_node(CHEAP), new_node(CHEAP)), "most": 2}, 1, True),
        ({"new": (new_node(),)}, None, True),
        ({"new": (new_node(GONE),)}, None, True),
        ({"new": (new_node(CHEAP),), "back_off": {"default": NOW + minutes(1)}}, None, True),
        ({"new": (change(new_node(CHEAP), serves_only_others=True),)}, 5, True),
        ({"unplaced": (STUCK,)}, None, True),
        ({"least": 1, "launch": 4}, 5, True),
        ({"least": 1, "launch": 5}, None, False),
        ({"least": 2}, None, False),
        ({"least": 1}, 5, True),
    ],
)
def test_what_one_node_would_save(parts: dict[str, Any], saved: int | None, simulated: bool) -> None:
    """A node saves its five dollars minus its replacement, or nothing if it cannot go."""
    context = _context(_node("n"), **parts)
    found = could_save(context)
    assert found == {"n": None if saved is None else saved * DOLLAR}
    assert context.asked == ([True] if simulated else [])
    assert could_save(context) is found


def test_who_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools with a price are checked: earlier waste first, then most savings per disruption, then name."""
    nodes = [_node("cheap", 1), _node("b"), _node("a"), _node("unpriced", 9), _node("known", 2)]
    parts = {"waste": {"known": None}, "unpriced": ("unpriced",)}
    assert list(could_save(_context(*nodes, **parts))) == ["known", "a", "b", "cheap"]
    monkeypatch.setattr(waste, "LOOKED_AT_MAX", 2)
    assert list(could_save(_context(*nodes, **parts))) == ["known", "a"]


def test_when_nothing_is_looked_at() -> None:
    """No waste is measured where nothing may be taken for cost, nor under Karpenter's profile."""
    assert could_save(_context()) == {}
    assert could_save(_context(_node("n"), settings=KARPENTER_1_15)) == {}


def test_clusters_without_a_price_are_not_put_in_order() -> None:
    """Without a price for disruption in any pool, the nodes are not sorted."""
    context = _context(_node("n"))
    context.policies = {"default": SimpleNamespace(disruption_price=None, restart_price=None)}
    del context.cost_sources
    assert could_save(context) == {}


def test_a_packed_cluster_saves_nothing(bound: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """If the bound is within its rounding error, nothing is simulated."""
    monkeypatch.setattr(waste, "LOOKED_AT_MAX", 1)
    for limit, packed in ((SLACK, True), (SLACK * 1.01, False)):
        bound[0] = limit
        context = _context(_node("a"), _node("b"))
        assert could_save(context) == {"a": None if packed else 5 * DOLLAR}
        assert bool(context.asked) is not packed


@pytest.mark.parametrize(("unplaced", "when"), [((), "at 2026-05-13T15:30:01Z"), ((STUCK,), "once it could go")])
def test_how_waste_is_told(unplaced: Any, when: str) -> None:
    """The sentence says when the node has wasted enough, or that it cannot go at all."""
    context = _context(_node("n"), unplaced=unplaced)
    refusal = below_threshold(DOLLAR, DOLLAR, Fraction(2 * DOLLAR), replaced=False)
    told = as_waste(context, _node("n"), refusal)
    assert told.gate is Gate.WASTE
    assert (told.due is None) is bool(unplaced)
    assert (told.figures["at"] is None) is bool(unplaced)
    assert f"{when}; so far" in told.why or (not unplaced and " at 2026-05-13T15:30:0" in told.why)
    price = change(refusal, gate=Gate.PRICE)
    assert as_waste(context, _node("n"), price) is price
