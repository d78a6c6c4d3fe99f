"""The JSON of a plan, the bound that it is compared with, and the deciders."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.decide import optimal
from dovetail.decide.decider import Decider
from dovetail.decide.document import (
    _nodes,
    optimal_document,
    plan_document,
    prices,
    requirement,
)
from dovetail.decide.facts.cache import FactsCache
from dovetail.decide.in_flight import InFlight, LeavingNode
from dovetail.decide.optimal import Optimal, optimal_of, value_at_most
from dovetail.decide.search.dual import SLACK
from dovetail.model.command import Action, Command, Method
from dovetail.model.objects import SelectorRequirement
from dovetail.model.settings import DOVETAIL
from dovetail.model.verdicts import Gate, GateResult, NodeVerdict
from tests.support.design_world import NOW, Town, kind

DOLLAR = 10**18
FREE = {"consolidationSavingsThreshold": 0}


def _town() -> Town:
    """Build a node `a` whose pod fits on `b`, and a node `unknown` without a price."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption=FREE)
    for name in ("a", "b"):
        town.node(name, "m")
        town.fill(name, 1)
    town.node("unknown", "m", zone="elsewhere")
    town.fill("unknown", 1)
    return town


def test_a_plan_as_json() -> None:
    """A plan's JSON has unknown prices, each candidate's own result and the time of the next change."""
    town = _town()
    town.pool(disruption={**FREE, "minNodeAge": "2h"})
    plain = plan_document(town.round())
    assert plain["unpricedNodes"] == ["unknown"]
    assert plain["nextChange"] == "2026-05-13T16:30:00Z"
    assert all("perCandidate" not in method for method in plain["methods"])
    town.pool(disruption=FREE)
    town.node("drifting", "m", drifted=timedelta(hours=1))
    town.fill("drifting", 1, cpu="64")
    full = plan_document(town.round(every_method=True, every_candidate=True))
    assert full["nextChange"] is None
    found = {method["method"]: method["perCandidate"] for method in full["methods"] if "perCandidate" in method}
    assert sorted(found) == ["drifted", "singleNode"]
    assert [(entry["node"], entry["action"]) for entry in found["drifted"]] == [("drifting", None)]
    alone = {entry["node"]: entry for entry in found["singleNode"]}
    assert alone["a"]["action"]["action"] == "deleteCost"
    assert alone["a"]["why"] == "It is worth it."


def test_requirements() -> None:
    """Requirements include minValues if it is set."""
    plain = SelectorRequirement(key="k", operator="In", values=("v",))
    assert requirement(plain) == {"key": "k", "operator": "In", "values": ["v"]}
    least = SelectorRequirement(key="k", operator="Exists", min_values=2)
    assert requirement(least) == {"key": "k", "operator": "Exists", "values": [], "minValues": 2}


def test_where_prices_are_from() -> None:
    """The date of prices without a date is null."""
    now = datetime(2026, 5, 3, tzinfo=UTC)
    assert prices("x", "2026-05-01", now) == {"source": "x", "asOf": "2026-05-01", "ageDays": 2}
    assert prices("x", "", now) == {"source": "x", "asOf": None, "ageDays": None}


def test_gates_alike_are_shaped_once() -> None:
    """Two nodes with the same gate result share one object in the document."""
    gate = GateResult(gate=Gate.MANAGED, passed=True, why="x")
    nodes = [NodeVerdict(node=name, node_pool="p", verdict="eligible", why="", gates=(gate,)) for name in "ab"]
    first, second = _nodes(nodes)
    assert first["gates"] == [{"gate": "managed", "passed": True, "why": "x", "figures": {}}]
    assert first["gates"][0] is second["gates"][0]


def _command(action: Action, savings: int, required: int) -> Command:
    return Command(
        action=action,
        method=Method.SINGLE_NODE,
        nodes=("n",),
        replacements=(),
        placements=(),
        savings=savings * DOLLAR,
        required_savings=required * DOLLAR,
        disruption_cost=0.0,
        pods=0,
    )


@pytest.mark.parametrize(
    ("commands", "at_most", "value", "bound", "reached"),
    [
        ([], 8, 0, 8, 0.0),
        ([], 0, 0, 0, None),
        ([(Action.DELETE_EMPTY, 5, 1), (Action.DELETE_COST, 3, 2), (Action.REPLACE_COST, 2, 1)], 8, 6, 8, 0.75),
        ([(Action.DELETE_DRIFTED, 5, 1), (Action.DELETE_COST, 3, 2)], 8, 1, 8, 0.125),
        ([(Action.DELETE_COST, 1, 2)], 8, 0, 8, 0.0),
        ([(Action.DELETE_COST, 1, 0)], 3, 1, 3, 0.3333),
    ],
)
def test_beside_the_best(
    commands: list[tuple[Action, int, int]], at_most: int, value: int, bound: int, reached: float | None
) -> None:
    """The document compares the value of the saving commands with the upper bound."""
    made = [_command(*each) for each in commands]
    found = optimal_of(made, at_most * DOLLAR)
    assert found == Optimal(value=value * DOLLAR, at_most=bound * DOLLAR)
    told = optimal_document(found)
    assert told is not None
    assert told["reached"] == reached
    assert optimal_of(made, None) is None
    assert optimal_document(None) is None


def test_a_bound_is_never_raised_to_fit() -> None:
    """Commands that are worth more than a bound show that it is none, so none is given."""
    assert optimal_of([_command(Action.DELETE_COST, 9, 0)], 8 * DOLLAR) is None


@pytest.mark.parametrize(("bound", "value"), [(SLACK, 0), (SLACK * 2, 1), (0.0, 0)])
def test_what_is_nearly_nothing_is_nothing(monkeypatch: pytest.MonkeyPatch, bound: float, value: int) -> None:
    """A bound within its own rounding error is 0; money is rounded up."""

    class Bound:
        def __init__(self, *_: Any) -> None:
            pass

        def at_most(self) -> float:
            return bound

    monkeypatch.setattr(optimal, "ValueBound", Bound)
    context = Decider().scene(_town().question())
    vars(context)["price_scale"] = 1
    assert value_at_most(context) == value


def test_nothing_may_go() -> None:
    """If no node may go, the document has no comparison."""
    town = _town()
    town.pool(disruption={"consolidateAfter": "Never"})
    assert value_at_most(Decider().scene(town.question())) is None


def test_a_decider_with_and_without_memory() -> None:
    """A decider with memory keeps the snapshot and the facts; one without reads everything again."""
    question = _town().question()
    with_memory, without = Decider(), Decider(memory=False)
    first = with_memory.scene(question)
    assert isinstance(first.memory.facts, FactsCache)
    assert with_memory.scene(question).nodes[0] is first.nodes[0]
    assert without.scene(question).memory is not without.scene(question).memory
    assert without.scene(question).nodes[0] is not without.scene(question).nodes[0]
    assert with_memory.scene(question).needs is first.needs
    assert without.scene(question).needs is not without.scene(question).needs


def test_launch_prices_are_remembered() -> None:
    """Launch prices are cached while machines and templates are the same."""
    town = _town()
    decider = Decider()
    catalogue = town.catalogue
    question = town.question(catalogue=catalogue)
    first = decider.scene(question).launches
    assert decider.scene(question).launches is first
    town.kinds["m"] = kind("m", "0.30")
    other = decider.scene(town.question()).launches
    assert other is not first


def test_what_is_in_flight_counts_in_the_snapshot() -> None:
    """Leaving and nominated nodes of commands in flight are added to those in the settings."""
    settings = replace(DOVETAIL, marked_for_deletion_nodes=("b",), nominated_nodes=("b",))
    entry = LeavingNode(node="a", method=Method.EMPTY, since=NOW)
    town = _town()
    for flight, marked, nominated in (
        (InFlight(), ("b",), ("b",)),
        (InFlight(leaving=(entry,)), ("a", "b"), ("b",)),
        (InFlight(nominated=("c",)), ("b",), ("b", "c")),
    ):
        seen = town.question(settings=settings, in_flight=flight).snapshot().settings
        assert (seen.marked_for_deletion_nodes, seen.nominated_nodes) == (marked, nominated)
