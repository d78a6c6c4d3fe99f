"""The Balanced policy: the share of its pool's cost that a move saves against the share of disruption it causes.

See docs/rules.md#price, gate 6; Karpenter v1.15's own policy, which the designs leave alone. Exact in the profile
`dovetail`, Karpenter's floats in its own. Knows totals of pools and one move; nothing of other gates. Sits in decide,
below the methods.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import inf

import msgspec
from msgspec.structs import replace

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price import Approved
from dovetail.decide.refusal import Refusal
from dovetail.model import names
from dovetail.model.policies.policy import ConsolidationPolicy
from dovetail.model.settings import Settings
from dovetail.model.verdicts import Gate

LEAST = Fraction(1, 2)


class PoolTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a pool and the cost of disrupting all of it: exact, and in Karpenter's floats."""

    cost: Fraction
    disruption: Fraction
    cost_float: float
    disruption_float: float


def pool_totals(
    nodes: Sequence[NodeFacts], is_candidate: Callable[[NodeFacts], bool], settings: Settings
) -> dict[str, PoolTotals]:
    """Sum price and rescheduling cost over all nodes of each pool, including nodes that are not candidates."""
    as_tracked = settings.rules.tracked_totals
    prices: dict[str, list[NodeFacts]] = {}
    for facts in nodes:
        if facts.pool_name:
            prices.setdefault(facts.pool_name, []).append(facts)
    totals = {}
    for pool, members in prices.items():
        claimed = [facts for facts in members if facts.claim is not None]
        own = [
            facts.tracked_cost if as_tracked and not is_candidate(facts) else facts.rescheduling_cost
            for facts in members
        ]
        tracked = claimed
        if as_tracked:
            # Karpenter adds up the NodeClaims with a known type and offering; if there are none, the candidates.
            tracked = [facts for facts in claimed if _is_tracked(facts)]
            if not any(facts.price_float for facts in tracked):
                tracked = list(filter(is_candidate, members))
        cost_float = 0.0
        for facts in tracked:
            cost_float += facts.price_float
        disruption_float = 0.0
        for amount in own:
            disruption_float += float(amount)
        totals[pool] = PoolTotals(
            cost=Fraction(sum(facts.price for facts in claimed)),
            disruption=sum(own, Fraction(0)),
            cost_float=cost_float,
            disruption_float=disruption_float,
        )
    return totals


def _is_tracked(facts: NodeFacts) -> bool:
    """Return whether Karpenter's running total of a pool's cost includes the node's claim."""
    labels = facts.claim.metadata.labels if facts.claim is not None else {}
    return all(labels.get(key) for key in (names.INSTANCE_TYPE, names.ZONE, names.CAPACITY_TYPE, names.NODEPOOL))


def asks(facts: NodeFacts) -> bool:
    """Return whether the node's pool has the policy."""
    policy = facts.policy
    return policy is not None and policy.consolidation_policy is ConsolidationPolicy.BALANCED


def refuse(
    nodes: Sequence[NodeFacts], approved: Approved, totals: Mapping[str, PoolTotals], settings: Settings
) -> Refusal | None:
    """Score a move for each Balanced pool involved; every one must approve."""
    for pool, shares in _shares(nodes, approved, totals, settings):
        refusal = judge_shares(pool, *shares)
        if refusal:
            return refusal
    return None


def scores(
    nodes: Sequence[NodeFacts], approved: Approved, totals: Mapping[str, PoolTotals], settings: Settings
) -> dict[str, float]:
    """Return the score of a move in each Balanced pool involved: 0 where it saves nothing."""
    found = {}
    for pool, (saved, disturbed) in _shares(nodes, approved, totals, settings):
        found[pool] = 0.0 if saved <= 0 else float(saved / disturbed) if disturbed else inf
    return found


def _shares(
    nodes: Sequence[NodeFacts], approved: Approved, totals: Mapping[str, PoolTotals], settings: Settings
) -> Iterator[tuple[str, tuple[Fraction | float, Fraction | float]]]:
    """Yield the shares of savings and disruption in each Balanced pool, by name."""
    pools = sorted({facts.pool_name for facts in nodes})
    score = _score_float if settings.rules.float_prices else _score
    for pool in pools:
        members = [facts for facts in nodes if facts.pool_name == pool]
        if asks(members[0]):
            yield pool, score(members, nodes, approved, totals[pool])


def cannot_pass(facts: NodeFacts, totals: Mapping[str, PoolTotals], settings: Settings) -> Refusal | None:
    """Refuse a node of a Balanced pool that even a plain deletion would not justify: no simulation needed."""
    best = Approved(savings=facts.price, savings_float=facts.price_float)
    if not totals[facts.pool_name].cost:
        return None
    refusal = refuse((facts,), best, totals, settings)
    return None if refusal is None else replace(refusal, simulated=False)


def _score(
    members: Sequence[NodeFacts], nodes: Sequence[NodeFacts], approved: Approved, totals: PoolTotals
) -> tuple[Fraction, Fraction]:
    """Return the exact shares; savings across several pools are split by the prices of their nodes."""
    source, whole = sum(facts.price for facts in members), sum(facts.price for facts in nodes)
    if not totals.cost:
        return Fraction(0), Fraction(0)
    savings = Fraction(approved.savings * source, whole) if whole else Fraction(approved.savings)
    disruption = sum((facts.rescheduling_cost for facts in members), Fraction(0))
    return savings / totals.cost, disruption / totals.disruption


def _score_float(
    members: Sequence[NodeFacts], nodes: Sequence[NodeFacts], approved: Approved, totals: PoolTotals
) -> tuple[float, float]:
    source = whole = cost = 0.0
    for facts in members:
        source += facts.price_float
        cost += facts.rescheduling_cost_float
    for facts in nodes:
        whole += facts.price_float
    if not totals.cost_float:
        return 0.0, 0.0
    savings = approved.savings_float * (source / whole) if whole else approved.savings_float
    return savings / totals.cost_float, cost / totals.disruption_float


def judge_shares(pool: str, saved: Fraction | float, disturbed: Fraction | float) -> Refusal | None:
    """Refuse a move whose share of savings is less than half its share of disruption."""
    if saved > 0 and (disturbed == 0 or saved / disturbed >= LEAST):
        return None
    score = float(max(saved, 0) / disturbed) if disturbed else 0.0
    return Refusal(
        gate=Gate.BALANCED,
        why=f"It saves {float(saved):.2%} of the cost of NodePool {pool} and disturbs {float(disturbed):.2%} of it: "
        f"a score of {score:.2f}, and the policy Balanced asks for {float(LEAST):.2f}.",
        figures={
            "nodePool": pool,
            "savingsShare": float(saved),
            "disruptionShare": float(disturbed),
            "score": score,
            "leastScore": float(LEAST),
        },
    )
