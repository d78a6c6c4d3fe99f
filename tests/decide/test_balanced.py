"""The Balanced policy: totals of a pool, shares of a move, and scores (docs/rules.md#price, gate 6)."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import Any

import pytest

from dovetail.decide.facts.cost import UNIT
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates import balanced
from dovetail.decide.gates.balanced import PoolTotals, judge_shares, pool_totals
from dovetail.decide.gates.candidates import Chain
from dovetail.decide.gates.price import Approved
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import NodeClaim, ObjectMeta
from dovetail.model.policies.policy import ConsolidationPolicy, DisruptionPolicy
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.model.verdicts import Gate, GateResult
from tests.support.nodes import facts_of

BALANCED = DisruptionPolicy(consolidation_policy=ConsolidationPolicy.BALANCED)
LABELS = {names.INSTANCE_TYPE: "m", names.ZONE: "a", names.CAPACITY_TYPE: "spot", names.NODEPOOL: "default"}
PROFILES = pytest.mark.parametrize("settings", [DOVETAIL, KARPENTER_1_15], ids=["exact", "floats"])


def _node(name: str, price: int, *, pods: int = 0, pool: str = "blue", **changes: Any) -> NodeFacts:
    """Return a node of a Balanced pool with this price and this many pods."""
    parts = {"policy": BALANCED, "price": price, "price_float": float(price), "pool_name": pool, **changes}
    return facts_of(name=name, pods=pods, **parts)


def _totals(cost: int, disruption: int) -> PoolTotals:
    return PoolTotals(
        cost=Fraction(cost), disruption=Fraction(disruption), cost_float=float(cost), disruption_float=float(disruption)
    )


def _approved(savings: int) -> Approved:
    return Approved(savings=savings, savings_float=float(savings))


def _among(*names: str) -> Callable[[NodeFacts], bool]:
    """Return which nodes passed the gates for pods, by name."""
    return lambda facts: facts.name in names


@PROFILES
@pytest.mark.parametrize(
    ("savings", "cost", "score"),
    [(1, 1, 1.0), (4, 8, 0.5), (3, 8, 0.375), (0, 8, 0.0), (4, 0, 0.0)],
    ids=["all of it", "half", "less", "nothing is saved", "the pool costs nothing"],
)
def test_the_score_of_one_node(settings: Settings, savings: int, cost: int, score: float) -> None:
    """The score is the saved share of the pool's cost divided by the disturbed share of its disruption."""
    node, approved, totals = _node("n", 4, pods=3), _approved(savings), {"blue": _totals(cost, 4)}
    assert balanced.scores([node], approved, totals, settings) == {"blue": score}
    refusal = balanced.refuse([node], approved, totals, settings)
    assert (refusal is None) == (score >= 0.5)
    if refusal is not None:
        shares = (savings / cost, 1.0) if cost else (0.0, 0.0)
        assert (refusal.figures["savingsShare"], refusal.figures["disruptionShare"]) == shares
        assert refusal.figures["score"] == score


@PROFILES
def test_the_share_of_what_is_disturbed(settings: Settings) -> None:
    """Moving a node with one of nine pods disturbs a tenth of a pool whose disruption is 20."""
    scores = balanced.scores([_node("n", 4, pods=1)], _approved(3), {"blue": _totals(100, 20)}, settings)
    assert scores == {"blue": pytest.approx(0.3)}


@PROFILES
def test_savings_are_split_by_price(settings: Settings) -> None:
    """Savings are split between pools by the price of their nodes; pools without Balanced have no score."""
    nodes = [
        _node("a", 6, pool="blue"),
        _node("b", 2, pool="green", pods=1),
        _node("c", 8, pool="red", policy=DisruptionPolicy()),
    ]
    totals = {"blue": _totals(12, 4), "green": _totals(8, 8), "red": _totals(8, 8)}
    scores = balanced.scores(nodes, _approved(8), totals, settings)  # 3 for blue, 1 for green
    assert scores == {"blue": (3 / 12) / (1 / 4), "green": (1 / 8) / (2 / 8)}
    assert balanced.refuse(nodes, _approved(8), totals, settings) is None
    refusal = balanced.refuse(nodes, _approved(7), totals, settings)
    assert refusal is not None
    assert refusal.figures["nodePool"] == "green"


@PROFILES
def test_nodes_that_cost_nothing_split_nothing(settings: Settings) -> None:
    """If no node has a price, each pool counts the whole savings."""
    nodes = [_node("a", 0, pool="blue"), _node("b", 0, pool="green")]
    totals = {"blue": _totals(4, 4), "green": _totals(4, 4)}
    assert balanced.scores(nodes, _approved(1), totals, settings) == {"blue": 1.0, "green": 1.0}


@pytest.mark.parametrize(
    ("saved", "disturbed", "score"),
    [(0.5, 1.0, None), (0.2, 0.0, None), (0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (-0.5, 1.0, 0.0), (0.25, 1.0, 0.25)],
)
def test_shares(saved: float, disturbed: float, score: float | None) -> None:
    """A score of a half passes; a move that saves nothing never passes; a loss scores 0."""
    refusal = judge_shares("blue", saved, disturbed)
    assert (None if refusal is None else refusal.figures["score"]) == score


@pytest.mark.parametrize(
    ("saved", "disturbed", "score"), [(1, 0, inf), (0, 0, 0.0), (0, 1, 0.0), (-1, 1, 0.0), (1, 2, 0.5)]
)
def test_scores_of_shares(monkeypatch: pytest.MonkeyPatch, saved: int, disturbed: int, score: float) -> None:
    """A move that disturbs nothing has an infinite score; a move that saves nothing scores 0."""
    monkeypatch.setattr(balanced, "_score", lambda *_: (Fraction(saved), Fraction(disturbed)))
    assert balanced.scores([_node("n", 1)], _approved(1), {"blue": _totals(1, 1)}, DOVETAIL) == {"blue": score}


@pytest.mark.parametrize(
    ("price", "pods", "cost", "hopeless"),
    [(4, 1, 8, False), (4, 4, 8, True), (4, 4, 0, False)],
    ids=["worth it", "not worth it", "nothing is known of the pool's cost"],
)
def test_what_can_never_pass(price: int, pods: int, cost: int, hopeless: bool) -> None:
    """A node that would score too low even if it were deleted is not simulated."""
    refusal = balanced.cannot_pass(_node("n", price, pods=pods), {"blue": _totals(cost, 4)}, DOVETAIL)
    assert (refusal is not None) == hopeless
    assert refusal is None or not refusal.simulated


def test_who_asks() -> None:
    """Only pools with the Balanced policy are scored."""
    assert balanced.asks(_node("n", 1))
    assert not balanced.asks(_node("n", 1, policy=DisruptionPolicy()))
    assert not balanced.asks(_node("n", 1, policy=None))


def test_totals_of_a_pool() -> None:
    """A pool's totals count all its nodes; nodes without a claim cost nothing; nodes without a pool are ignored."""
    nodes = [
        _node("a", 3, pods=1),
        _node("b", 5, pods=2),
        _node("unclaimed", 7, pods=3, claim=None),
        _node("green", 11, pool="green"),
        _node("none", 13, pool=""),
    ]
    assert pool_totals(nodes, _among(), DOVETAIL) == {
        "blue": PoolTotals(cost=Fraction(8), disruption=Fraction(9), cost_float=8.0, disruption_float=9.0),
        "green": PoolTotals(cost=Fraction(11), disruption=Fraction(1), cost_float=11.0, disruption_float=1.0),
    }


@pytest.mark.parametrize("missing", [None, *LABELS])
def test_totals_as_karpenter_tracks_them(missing: str | None) -> None:
    """Karpenter's total adds the prices of claims with a known type; candidates count with their own price."""
    labels = {key: value for key, value in LABELS.items() if key != missing}
    told, other = NodeClaim(metadata=ObjectMeta(labels=labels)), NodeClaim(metadata=ObjectMeta(labels=LABELS))
    nodes = [
        _node("a", 3, pods=1, claim=told, tracked_costs=5 * UNIT),
        _node("b", 5, pods=2, claim=other, tracked_costs=7 * UNIT),
        _node("unclaimed", 7, pods=3, claim=None, tracked_costs=9 * UNIT),
    ]
    totals = pool_totals(nodes, _among("a"), KARPENTER_1_15)["blue"]
    assert totals.cost_float == (8.0 if missing is None else 5.0)
    assert totals.disruption_float == 2.0 + 8.0 + 10.0
    assert totals.disruption == 20


def test_totals_where_karpenter_tracks_nothing() -> None:
    """If no claim with a known type has a price, the candidates' prices are the pool's cost."""
    told = NodeClaim(metadata=ObjectMeta(labels=LABELS))
    nodes = [_node("free", 0, claim=told), _node("a", 3), _node("b", 5), _node("c", 9)]
    assert pool_totals(nodes, _among("a", "b"), KARPENTER_1_15)["blue"].cost_float == 8.0
    tracked = [*nodes, _node("d", 2, claim=told)]
    assert pool_totals(tracked, _among("a"), KARPENTER_1_15)["blue"].cost_float == 2.0


@pytest.mark.parametrize(("reached", "passed"), [((), False), ((False,), False), ((True,), True)])
def test_a_candidate_has_passed_the_gates_for_pods(reached: tuple[bool, ...], passed: bool) -> None:
    """Karpenter's candidates are nodes that pass gates 1 to 6, whatever comes after."""
    managed = GateResult(gate=Gate.MANAGED, passed=True, why="")
    asked = (GateResult(gate=Gate.PDB, passed=answer, why="") for answer in reached)
    assert Chain(Method.EMPTY, (managed, *asked)).passed_pods is passed


def test_karpenters_totals_are_its_rule() -> None:
    """The exact profile ignores gates and labels when it computes totals."""
    nodes = [_node("a", 3, pods=1, tracked_costs=5 * UNIT)]
    plain = replace(KARPENTER_1_15, rules=replace(KARPENTER_1_15.rules, tracked_totals=False))
    assert pool_totals(nodes, _among(), plain)["blue"].disruption == 2


@pytest.mark.parametrize(
    ("saved", "disturbed", "score"),
    [(0.2, 0.0, None), (0.2, 0.4, None), (0.2, 0.5, 0.4), (0.2, 1.0, 0.2), (0.0, 0.0, 0.0), (0.0, 0.5, 0.0)],
)
def test_balanced_scores(saved: float, disturbed: float, score: float | None) -> None:
    """A move that disturbs nothing passes; a refusal carries its score."""
    refusal = judge_shares("blue", saved, disturbed)
    assert (None if refusal is None else refusal.figures["score"]) == (None if score is None else pytest.approx(score))
