"""The rules of gate 7 of spec section 4: each method's own conditions (spec sections 5 and 19; docs/designs).

`candidates` says which rules belong to which method, and in which order. Sits in decide, above facts and timers.
"""

from functools import lru_cache

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates import timers
from dovetail.decide.gates.gate_results import GateContext, passed, pod_name, stopped
from dovetail.decide.words import clock, nanoseconds, seconds
from dovetail.model import names
from dovetail.model.objects import Pod, is_true
from dovetail.model.policies.policy import ConsolidationPolicy
from dovetail.model.settings import Settings
from dovetail.model.verdicts import Figure, Gate, GateResult


def _is_empty(facts: NodeFacts, gate_context: GateContext) -> bool:
    return facts.empty_for_karpenter if gate_context.settings.rules.empty_by_pod_cost else facts.empty


def empty_only(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that the node is empty."""
    if not _is_empty(facts, gate_context):
        return _not_empty(len(facts.reschedulable))
    return passed(Gate.NOT_EMPTY, "It is empty.")


@lru_cache(maxsize=1024)
def _not_empty(count: int) -> GateResult:
    return stopped(Gate.NOT_EMPTY, f"It is not empty: {_pods(count)} would have to move.", pods=count)


def occupied_only(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that the node is not empty."""
    if _is_empty(facts, gate_context):
        return stopped(Gate.NOT_EMPTY, "It is empty: that is for the method `empty`.", pods=len(facts.reschedulable))
    return passed(Gate.NOT_EMPTY, "It is not empty.")


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def not_static(facts: NodeFacts, _: GateContext) -> GateResult:
    """Check that the pool is not static."""
    assert facts.policy is not None
    if facts.policy.static:
        return stopped(
            Gate.POOL_POLICY, f"NodePool {facts.pool_name} is static (spec.replicas): it is never consolidated."
        )
    return passed(Gate.POOL_POLICY, "Its pool may be consolidated.")


def underutilized_allowed(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that the pool's policy allows consolidating nodes with pods."""
    assert facts.policy is not None
    if facts.policy.consolidation_policy is ConsolidationPolicy.WHEN_EMPTY:
        return stopped(
            Gate.POOL_POLICY,
            f"NodePool {facts.pool_name} consolidates empty nodes only (consolidationPolicy WhenEmpty).",
            consolidationPolicy=facts.policy.consolidation_policy.value,
        )
    return not_static(facts, gate_context)


def consolidate_after_passed(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that `consolidateAfter` has passed since the last pod event."""
    assert facts.policy is not None
    assert facts.claim is not None
    gate, period = Gate.CONSOLIDATE_AFTER, facts.policy.consolidate_after
    if period is None:
        return stopped(gate, f"NodePool {facts.pool_name} has consolidateAfter Never.", consolidateAfter="Never")
    if gate_context.settings.rules.consolidatable_condition:
        if is_true(facts.claim.status.conditions, names.CONDITION_CONSOLIDATABLE):
            return passed(gate, "Its NodeClaim has condition Consolidatable.")
        return stopped(
            gate, "Its NodeClaim does not have condition Consolidatable.", consolidateAfter=nanoseconds(period)
        )
    timer = timers.consolidate_after(facts)
    if timer is None or not timer.running(gate_context.now):
        return passed(gate, "consolidateAfter has passed.")
    left = seconds(timer.until - gate_context.now)
    return stopped(
        gate,
        f"A pod came or went {seconds(gate_context.now - timer.since)} ago; consolidateAfter {nanoseconds(period)} "
        f"ends in {left}.",
        consolidateAfter=nanoseconds(period),
        lastPodEvent=clock(timer.since),
        until=clock(timer.until),
    )


def old_enough(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that the node is older than `minNodeAge`."""
    gate, at = Gate.MIN_NODE_AGE, facts.old_enough_at
    if at is None or gate_context.now >= at:
        return passed(gate, "It is old enough to be consolidated.")
    assert facts.policy is not None
    assert facts.policy.min_node_age is not None
    age = nanoseconds(facts.policy.min_node_age)
    left = seconds(at - gate_context.now)
    return stopped(gate, f"It is younger than minNodeAge {age}: {left} to go.", minNodeAge=age, until=clock(at))


def grace_period_passed(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that the node is not in its consolidation grace period (grace-period)."""
    gate = Gate.GRACE_PERIOD
    timer = timers.grace_period(facts) if gate_context.settings.rules.grace_period else None
    if timer is None or not timer.running(gate_context.now):
        return passed(gate, "It is not in a grace period.")
    left, period = seconds(timer.until - gate_context.now), nanoseconds(timer.period)
    return stopped(
        gate,
        f"A pod came or went {seconds(gate_context.now - timer.since)} ago; "
        f"its grace period of {period} ends in {left}.",
        consolidationGracePeriod=period,
        lastPodEvent=clock(timer.since),
        until=clock(timer.until),
    )


def price_known(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that the catalogue has a price for the node."""
    gate = Gate.INSTANCE_TYPE_KNOWN
    if not facts.type_known:
        return stopped(
            gate,
            f"Instance type {facts.instance_type or '(no label)'} is not in the catalogue.",
            instanceType=facts.instance_type,
        )
    for label in (names.CAPACITY_TYPE, names.ZONE):
        if label not in facts.labels:
            return stopped(gate, f"The node has no label {label}.", label=label)
    if facts.offering_price is None and gate_context.settings.rules.unpriced_nodes_stay:
        # The cost of a node without a price is unknown, not 0: removing it could save any amount.
        return stopped(
            gate,
            f"The catalogue has no price for {facts.instance_type} as {facts.capacity_type} in {facts.zone}.",
            instanceType=facts.instance_type,
            capacityType=facts.capacity_type,
            zone=facts.zone,
        )
    return passed(gate, "Its instance type, zone and capacity type are known.")


def expired(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that the node has reached `expireAfter`."""
    gate = Gate.NOT_EXPIRED
    if not gate_context.settings.rules.retires_expired:
        return stopped(gate, "Expiry is left to Karpenter.")
    if facts.expire_after is None or facts.created is None:
        return stopped(gate, "It never expires.", expireAfter="Never")
    at = facts.expires_at
    assert at is not None
    if gate_context.now < at:
        return stopped(
            gate,
            f"It expires in {seconds(at - gate_context.now)}.",
            expireAfter=nanoseconds(facts.expire_after),
            expiresAt=clock(at),
        )
    return GateResult(
        gate=gate,
        passed=True,
        why=f"It expired {seconds(gate_context.now - at)} ago.",
        figures={"expireAfter": nanoseconds(facts.expire_after), "expiresAt": clock(at)},
    )


def drifted(facts: NodeFacts, _: GateContext) -> GateResult:
    """Check that the node has drifted."""
    if facts.drifted_since is None:
        return stopped(Gate.NOT_DRIFTED, "It has not drifted.")
    return GateResult(
        gate=Gate.NOT_DRIFTED, passed=True, why="It has drifted.", figures={"since": clock(facts.drifted_since)}
    )


def no_buffer(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that the node provides no room for a CapacityBuffer."""
    gate, count = Gate.CAPACITY_BUFFER, gate_context.buffered.get(facts.name, 0)
    if not count:
        return passed(gate, "It holds no room for a CapacityBuffer.")
    what = "1 virtual pod" if count == 1 else f"{count} virtual pods"
    return stopped(gate, f"It is empty but holds room for {what} of CapacityBuffers.", virtualPods=count)


def no_resource_claims(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that no pod that would move has resource claims."""
    assert facts.policy is not None
    gate, pod = Gate.DYNAMIC_RESOURCES, facts.claiming
    if pod is None or facts.policy.static or not gate_context.settings.rules.resource_claims_stay:
        # Karpenter finds out in its simulation; a static pool's node goes without one.
        return passed(gate, "No pod that would move has resource claims.")
    return stopped(gate, claims_why(pod, gate_context.settings), pod=pod_name(pod))


def claims_why(pod: Pod, settings: Settings) -> str:
    """Return why a pod with resource claims keeps its node."""
    if settings.karpenter.ignores_dra:
        return f"Pod {pod_name(pod)} has resource claims: Karpenter launches no node for it and moves it nowhere."
    return f"Pod {pod_name(pod)} has resource claims: Dovetail does not simulate where its devices would be allocated."


def unhealthy(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that a condition has marked the node as broken for long enough (spec section 19)."""
    gate, sickness = Gate.NOT_UNHEALTHY, facts.sickness
    if sickness is None:
        return stopped(gate, "No condition says that it is broken.")
    rule = sickness.rule
    what = f"Its condition {rule.condition} has been {rule.status} for {seconds(gate_context.now - sickness.since)}"
    figures: dict[str, Figure] = {"condition": rule.condition, "status": rule.status, "since": clock(sickness.since)}
    if gate_context.now < sickness.due:
        left = seconds(sickness.due - gate_context.now)
        return stopped(gate, f"{what}; it is repaired in {left}.", **figures, due=clock(sickness.due))
    return GateResult(gate=gate, passed=True, why=f"{what}.", figures=figures)


def may_be_repaired(facts: NodeFacts, _: GateContext) -> GateResult:
    """Check the do-not-repair annotation of the node."""
    if facts.annotations.get(names.DO_NOT_REPAIR) == "true":
        return stopped(Gate.DO_NOT_REPAIR, f"The node says {names.DO_NOT_REPAIR}=true.", annotation=names.DO_NOT_REPAIR)
    return passed(Gate.DO_NOT_REPAIR, "The node does not say do-not-repair.")
