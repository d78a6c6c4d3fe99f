"""Karpenter's own answers to small questions about costs, budgets, timers, PDBs and scores."""

import math
from datetime import datetime
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from dovetail.api.policy import effective_policy
from dovetail.decide.facts import cost
from dovetail.decide.facts.drainability import Guards, protection
from dovetail.decide.facts.node_facts import read_expiry
from dovetail.decide.gates import balanced
from dovetail.decide.gates.budgets import flat_allowance
from dovetail.decide.gates.table import moved_pods_until
from dovetail.decide.outcome import UNLIMITED
from dovetail.model.objects import NodeClaim, NodePool, Pod, PodDisruptionBudget
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import KARPENTER_1_15
from tests.support.golden_units import units
from tests.support.nodes import facts_of


def _read(kind: type, tree: dict[str, Any]) -> Any:
    return msgspec.convert(tree, kind, strict=False)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _number(value: float | str) -> float:
    return float(value)


# Feature gates are Karpenter's own and no part of the profile.
_EVICTION_COSTS = [entry for entry in units("evictionCost") if "featureGates" not in entry.values[0]]


@pytest.mark.parametrize(("question", "answer"), _EVICTION_COSTS)
def test_eviction_cost(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """A pod's eviction cost is Karpenter's, to the last bit."""
    assert cost.eviction_cost(_read(Pod, question["pod"])) / cost.UNIT == answer["cost"]


@pytest.mark.parametrize(("question", "answer"), units("reschedulingCost"))
def test_rescheduling_cost(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Sums over pods are Karpenter's: all costs, and one plus the positive ones."""
    costs = [cost.eviction_cost(_read(Pod, pod)) for pod in question["pods"]]
    assert sum(costs) / cost.UNIT == answer["reschedulingCost"]
    assert cost.rescheduling_cost(sum(c for c in costs if c > 0)) == answer["rescheduleDisruptionCost"]


@pytest.mark.parametrize(("question", "answer"), units("allowedDisruptions"))
def test_allowed_disruptions(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Under Karpenter's profile a pool allows for a reason what Karpenter says it must."""
    policy = effective_policy(_read(NodePool, question["nodePool"]), KARPENTER_1_15)
    found = flat_allowance(
        policy, question["numNodes"], 0, Reason(question["reason"]), KARPENTER_1_15, _time(question["now"])
    )
    assert min(found.allowed, UNLIMITED) == answer["must"]


@pytest.mark.parametrize(("question", "answer"), units("lifetimeRemaining"))
def test_lifetime_remaining(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """The float is Karpenter's; the exact fraction is equal unless Karpenter's is not a number."""
    claim: NodeClaim = _read(NodeClaim, question["nodeClaim"])
    now, expiry = _time(question["now"]), read_expiry(claim.spec.expire_after)
    expected = _number(answer["remaining"])
    found = cost.lifetime_remaining_float(expiry, claim.metadata.creation_timestamp, now)
    assert found == expected or (math.isnan(found) and math.isnan(expected))
    if not math.isnan(expected):
        assert float(cost.lifetime_remaining(expiry, claim.metadata.creation_timestamp, now)) == pytest.approx(expected)


@pytest.mark.parametrize(("question", "answer"), units("underConsolidateAfter"))
def test_closed_by_consolidate_after(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """A node within consolidateAfter is closed to moved pods where Karpenter says so."""
    pool, claim = _read(NodePool, question["nodePool"]), _read(NodeClaim, question["nodeClaim"])
    now = _time(question["now"])
    facts = facts_of(claim=claim, pool=pool, policy=effective_policy(pool, KARPENTER_1_15))
    until = moved_pods_until(facts, KARPENTER_1_15)
    assert (until is not None and now < until) == answer["under"]


@pytest.mark.parametrize(("question", "answer"), units("podFilters"))
def test_pod_protection(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """A pod is protected by do-not-disrupt exactly if Karpenter says that it is not disruptable."""
    pod = _read(Pod, question["pod"])
    assert (protection(pod, _time(question["now"])) is None) == answer["disruptable"]


@pytest.mark.parametrize(("question", "answer"), units("pdb"))
def test_pdb(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """PDBs refuse evictions where Karpenter says so, and the same ones are named."""
    guards = Guards([_read(PodDisruptionBudget, pdb) for pdb in question["pdbs"]])
    now = _time(question.get("now", "2026-05-13T15:30:00Z"))
    vetoes = [guards.veto(_read(Pod, pod), now) for pod in question["pods"]]
    first = next((veto for veto in vetoes if veto is not None), None)
    assert (first is None) == answer["canEvict"]
    assert sorted(first.pdbs if first else ()) == sorted(answer["pdbs"] or ())


@pytest.mark.parametrize(("question", "answer"), units("scoreMove"))
def test_score(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """A Balanced move is approved where Karpenter approves it."""
    saved = disturbed = 0.0
    if question["totalCost"] > 0 and question["totalDisruptionCost"] > 0:
        saved = question["savings"] / question["totalCost"]
        disturbed = question["disruptionCost"] / question["totalDisruptionCost"]
    assert (balanced.judge_shares("np", saved, disturbed) is None) == answer["approved"]
    assert (balanced.judge_shares("np", Fraction(saved), Fraction(disturbed)) is None) == answer["approved"]
