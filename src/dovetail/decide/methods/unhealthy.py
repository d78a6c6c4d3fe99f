"""Repair: replace nodes with a broken condition, longest first, within budgets, with a circuit breaker.

Spec section 19; actions `deleteUnhealthy` and `replaceUnhealthy`. The first method of a round, and only for pools that
set `repair`. If Karpenter repairs nodes itself, Dovetail does not. Sits in decide, beside the other methods, which it
does not know.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.gate_results import stopped
from dovetail.decide.methods.leaving import first_command
from dovetail.decide.methods.method import MethodRun
from dovetail.model.command import Method
from dovetail.model.karpenter import FeatureGate
from dovetail.model.verdicts import Gate, GateResult

METHOD: Final = Method.UNHEALTHY
BREAKER_PERCENT: Final = 20
"""The share of a pool's nodes, rounded up, that may have a covered condition before nothing is repaired."""


def candidates(context: RoundContext) -> list[NodeFacts]:
    """Return the nodes to repair, longest unhealthy first, then by name."""
    return sorted(context.passing(METHOD), key=_since)


def _since(facts: NodeFacts) -> tuple[datetime, str]:
    assert facts.sickness is not None
    return facts.sickness.since, facts.name


def run(context: RoundContext) -> MethodRun:
    """Return the next command for nodes that are broken."""
    found = candidates(context)
    tripped = {pool: _breaker(pool, sick, nodes) for pool, sick, nodes in tripped_pools(context)}
    held: dict[str, GateResult] = {
        facts.name: tripped[facts.pool_name] for facts in found if facts.pool_name in tripped
    }
    command, more = first_command(context, METHOD, [facts for facts in found if facts.name not in held])
    held.update(more)
    return MethodRun(method=METHOD, commands=(command,) if command else (), held=held)


def tripped_pools(context: RoundContext) -> Iterator[tuple[str, int, int]]:
    """Yield the pools in which too many nodes have a covered condition, with that number and the total."""
    for pool in sorted(context.policies):
        nodes: Sequence[NodeFacts] = [facts for facts in context.nodes if facts.pool_name == pool and facts.claim]
        sick = sum(facts.sickness is not None for facts in nodes)
        if sick > -(-BREAKER_PERCENT * len(nodes) // 100):
            yield pool, sick, len(nodes)


def warnings(context: RoundContext) -> Iterator[str]:
    """Yield warnings about repair: a breaker that tripped, and Karpenter repairing as well."""
    if not any(policy.repair for policy in context.policies.values()):
        return
    if left_to_karpenter(context):
        yield "Karpenter's feature gate NodeRepair is on: repair is left to Karpenter"
        return
    for pool, sick, nodes in tripped_pools(context):
        yield f"NodePool {pool}: {_tripped(sick, nodes)}"


def left_to_karpenter(context: RoundContext) -> bool:
    """Return whether Karpenter repairs nodes itself."""
    return dict(context.settings.karpenter.feature_gates).get(FeatureGate.NODE_REPAIR, False)


def _tripped(sick: int, nodes: int) -> str:
    return f"{sick} of {nodes} nodes are unhealthy, more than {BREAKER_PERCENT} %: nothing is repaired"


def _breaker(pool: str, sick: int, nodes: int) -> GateResult:
    why = f"In NodePool {pool} {_tripped(sick, nodes)}."
    return stopped(Gate.HEALTH, why, nodePool=pool, unhealthy=sick, nodes=nodes)
