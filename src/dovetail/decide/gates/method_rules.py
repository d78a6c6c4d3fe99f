"""The rules of gate 7: each method's own conditions (docs/rules.md#gates, #methods and #repair; docs/designs).

`candidates` says which rules belong to which method, and in which order. Sits in decide, above facts and timers.
"""

from datetime import datetime
from typing import Final

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.gate_results import GateContext, Said, rule, said
from dovetail.decide.words import clock, nanoseconds, seconds
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import Pod, is_true
from dovetail.model.policies.policy import ConsolidationPolicy
from dovetail.model.settings import Settings
from dovetail.model.verdicts import Figure, Gate


def wants(method: Method, facts: NodeFacts, settings: Settings, now: datetime) -> bool:
    """Return whether a method's own condition holds for a node, whatever its other gates say; cost wants none."""
    match method:
        case Method.UNHEALTHY:
            return facts.sickness is not None and now >= facts.sickness.due
        case Method.EMPTY:
            return _is_empty(facts, settings)
        case Method.EXPIRED:
            return settings.rules.retires_expired and facts.expires_at is not None and now >= facts.expires_at
        case Method.DRIFTED:
            return facts.drifted
        case _:
            return False


def _is_empty(facts: NodeFacts, settings: Settings) -> bool:
    return facts.empty_for_karpenter if settings.rules.empty_by_pod_cost else facts.empty


@rule(Gate.NOT_EMPTY, lambda facts, gates: not _is_empty(facts, gates.settings), "It is empty.")
def empty_only(facts: NodeFacts, _: GateContext) -> Said:
    """The node is not empty."""
    count = len(facts.reschedulable)
    return said(f"It is not empty: {'1 pod' if count == 1 else f'{count} pods'} would have to move.", pods=count)


@rule(Gate.NOT_EMPTY, lambda facts, gates: _is_empty(facts, gates.settings), "It is not empty.")
def occupied_only(facts: NodeFacts, _: GateContext) -> Said:
    """The node is empty."""
    return said("It is empty: that is for the method `empty`.", pods=len(facts.reschedulable))


def _is_static(facts: NodeFacts, _: GateContext) -> bool:
    return facts.policy is not None and facts.policy.static


@rule(Gate.POOL_POLICY, _is_static, "Its pool may be consolidated.")
def not_static(facts: NodeFacts, _: GateContext) -> Said:
    """The pool is static."""
    return said(f"NodePool {facts.pool_name} is static (spec.replicas): it is never consolidated.")


def _keeps_pods(facts: NodeFacts, gate_context: GateContext) -> bool:
    policy = facts.policy
    if policy is None:
        return False
    if policy.consolidation_policy is ConsolidationPolicy.BALANCED and not gate_context.settings.rules.balanced_policy:
        return True
    return policy.consolidation_policy is ConsolidationPolicy.WHEN_EMPTY or policy.static


@rule(Gate.POOL_POLICY, _keeps_pods, "Its pool may be consolidated.")
def underutilized_allowed(facts: NodeFacts, gate_context: GateContext) -> Said:
    """The pool's policy does not allow consolidating nodes with pods."""
    assert facts.policy is not None
    policy = facts.policy.consolidation_policy
    if policy is ConsolidationPolicy.WHEN_EMPTY:
        return said(
            f"NodePool {facts.pool_name} consolidates empty nodes only (consolidationPolicy WhenEmpty).",
            consolidationPolicy=policy.value,
        )
    if policy is ConsolidationPolicy.BALANCED and not gate_context.settings.rules.balanced_policy:
        return said(
            f"NodePool {facts.pool_name} has the policy Balanced, which this version of Karpenter doesn't know.",
            consolidationPolicy=policy.value,
        )
    return not_static.why(facts, gate_context)


def _idle_from(facts: NodeFacts, gate_context: GateContext) -> datetime | bool | None:
    if facts.policy is None or facts.policy.consolidate_after is None:
        return True
    if gate_context.settings.rules.consolidatable_condition:
        claim = facts.claim
        return claim is None or not is_true(claim.status.conditions, names.CONDITION_CONSOLIDATABLE)
    return None if facts.consolidate_after is None else facts.consolidate_after.until


_CONSOLIDATABLE: Final = said("Its NodeClaim has condition Consolidatable.")
_IDLE: Final = said("consolidateAfter has passed.")


def _why_idle(_: NodeFacts, gate_context: GateContext) -> Said:
    return _CONSOLIDATABLE if gate_context.settings.rules.consolidatable_condition else _IDLE


@rule(Gate.CONSOLIDATE_AFTER, _idle_from, _why_idle)
def consolidate_after_passed(facts: NodeFacts, gate_context: GateContext) -> Said:
    """`consolidateAfter` has not passed since the last pod event."""
    assert facts.policy is not None
    period = facts.policy.consolidate_after
    if facts.policy.closed:
        return said(f"NodePool {facts.pool_name}: {facts.policy.closed}.", problem=facts.policy.closed)
    if period is None:
        return said(f"NodePool {facts.pool_name} has consolidateAfter Never.", consolidateAfter="Never")
    if gate_context.settings.rules.consolidatable_condition:
        return said("Its NodeClaim does not have condition Consolidatable.", consolidateAfter=nanoseconds(period))
    timer = facts.consolidate_after
    assert timer is not None
    left = seconds(timer.until - gate_context.now)
    return said(
        f"A pod came or went {seconds(gate_context.now - timer.since)} ago; consolidateAfter {nanoseconds(period)} "
        f"ends in {left}.",
        consolidateAfter=nanoseconds(period),
        lastPodEvent=clock(timer.since),
        until=clock(timer.until),
    )


@rule(Gate.MIN_NODE_AGE, lambda facts, _: facts.old_enough_at, "It is old enough to be consolidated.")
def old_enough(facts: NodeFacts, gate_context: GateContext) -> Said:
    """The node is younger than `minNodeAge`."""
    at = facts.old_enough_at
    assert at is not None
    assert facts.policy is not None
    assert facts.policy.min_node_age is not None
    age = nanoseconds(facts.policy.min_node_age)
    left = seconds(at - gate_context.now)
    return said(f"It is younger than minNodeAge {age}: {left} to go.", minNodeAge=age, until=clock(at))


@rule(
    Gate.GRACE_PERIOD,
    lambda facts, gates: facts.hidden_until if gates.settings.rules.grace_period else None,
    "It is not in a grace period.",
)
def grace_period_passed(facts: NodeFacts, gate_context: GateContext) -> Said:
    """The node is in its consolidation grace period (grace-period)."""
    timer = facts.grace_period
    assert timer is not None
    left, period = seconds(timer.until - gate_context.now), nanoseconds(timer.period)
    return said(
        f"A pod came or went {seconds(gate_context.now - timer.since)} ago; "
        f"its grace period of {period} ends in {left}.",
        consolidationGracePeriod=period,
        lastPodEvent=clock(timer.since),
        until=clock(timer.until),
    )


def _price_unknown(facts: NodeFacts, gate_context: GateContext) -> bool:
    return (
        not facts.type_known
        or names.CAPACITY_TYPE not in facts.labels
        or names.ZONE not in facts.labels
        or (facts.offering_price is None and gate_context.settings.rules.unpriced_nodes_stay)
    )


@rule(Gate.INSTANCE_TYPE_KNOWN, _price_unknown, "Its instance type, zone and capacity type are known.")
def price_known(facts: NodeFacts, _: GateContext) -> Said:
    """The catalogue has no price for the node."""
    if not facts.type_known:
        return said(
            f"Instance type {facts.instance_type or '(no label)'} is not in the catalogue.",
            instanceType=facts.instance_type,
        )
    for label in (names.CAPACITY_TYPE, names.ZONE):
        if label not in facts.labels:
            return said(f"The node has no label {label}.", label=label)
    # The cost of a node without a price is unknown, not 0: removing it could save any amount.
    return said(
        f"The catalogue has no price for {facts.instance_type} as {facts.capacity_type} in {facts.zone}.",
        instanceType=facts.instance_type,
        capacityType=facts.capacity_type,
        zone=facts.zone,
    )


def _expires(facts: NodeFacts, gate_context: GateContext) -> datetime | bool:
    return facts.expires_at if gate_context.settings.rules.retires_expired and facts.expires_at is not None else True


def _expiry(facts: NodeFacts, gate_context: GateContext) -> Said:
    """Return when the node expires or expired, with the figures."""
    at, now = facts.expires_at, gate_context.now
    assert at is not None
    figures: dict[str, Figure] = {"expiresAt": clock(at)}
    if facts.expire_after is not None:
        figures["expireAfter"] = nanoseconds(facts.expire_after)
    force = ""
    if facts.forced_at is not None:
        figures["forcedAt"] = clock(facts.forced_at)
        force = f"; Karpenter ends it by force in {seconds(facts.forced_at - now)}" if now < facts.forced_at else ""
    if now < at:
        return said(f"It expires in {seconds(at - now)}.", **figures)
    return said(f"It expired {seconds(now - at)} ago{force}.", **figures)


@rule(Gate.NOT_EXPIRED, _expires, _expiry)
def expired(facts: NodeFacts, gate_context: GateContext) -> Said:
    """The node does not count as expired: by its pool's `expireAfter`, or shortly before Karpenter's own expiry."""
    if not gate_context.settings.rules.retires_expired:
        return said("Expiry is left to Karpenter.")
    if facts.expires_at is None:
        return said("It never expires.", expireAfter="Never")
    return _expiry(facts, gate_context)


def _drifts(facts: NodeFacts, _: GateContext) -> datetime | bool | None:
    if facts.drifted_since is None:
        return True
    return None if facts.roll is None or facts.found_drifted else facts.roll.requested


def _why_drifted(facts: NodeFacts, _: GateContext) -> Said:
    roll = facts.roll
    if roll is None or facts.found_drifted:
        assert facts.drifted_since is not None
        return said("It has drifted.", since=clock(facts.drifted_since))
    why = f" ({roll.reason})" if roll.reason else ""
    asked = clock(roll.requested)
    return said(f"A person asked at {asked} to replace it{why}.", requested=asked, before=clock(roll.before))


@rule(Gate.NOT_DRIFTED, _drifts, _why_drifted)
def drifted(facts: NodeFacts, _: GateContext) -> Said:
    """The node has not drifted, and nobody asked to replace it by now."""
    roll = facts.roll
    if facts.drifted_since is None or roll is None:
        return said("It has not drifted.")
    why = f" ({roll.reason})" if roll.reason else ""
    asked = clock(roll.requested)
    return said(f"It is to be replaced from {asked} on{why}.", requested=asked, before=clock(roll.before))


@rule(
    Gate.CAPACITY_BUFFER,
    lambda facts, gates: bool(gates.buffered.get(facts.name)),
    "It holds no room for a CapacityBuffer.",
)
def no_buffer(facts: NodeFacts, gate_context: GateContext) -> Said:
    """The node provides room for a CapacityBuffer."""
    count = gate_context.buffered[facts.name]
    what = "1 virtual pod" if count == 1 else f"{count} virtual pods"
    return said(f"It is empty but holds room for {what} of CapacityBuffers.", virtualPods=count)


def _has_claims(facts: NodeFacts, gate_context: GateContext) -> bool:
    # Karpenter finds out in its simulation; a static pool's node goes without one.
    stays = gate_context.settings.rules.resource_claims_stay
    return facts.claiming is not None and stays and facts.policy is not None and not facts.policy.static


@rule(Gate.DYNAMIC_RESOURCES, _has_claims, "No pod that would move has resource claims.")
def no_resource_claims(facts: NodeFacts, gate_context: GateContext) -> Said:
    """A pod that would move has resource claims."""
    assert facts.claiming is not None
    return said(claims_why(facts.claiming, gate_context.settings), pod=facts.claiming.metadata.key)


def claims_why(pod: Pod, settings: Settings) -> str:
    """Return why a pod with resource claims keeps its node."""
    if settings.karpenter.ignores_dra:
        return f"Pod {pod.metadata.key} has resource claims: Karpenter launches no node for it and moves it nowhere."
    return (
        f"Pod {pod.metadata.key} has resource claims: Dovetail does not simulate where its devices would be allocated."
    )


def _broken(facts: NodeFacts, gate_context: GateContext) -> Said:
    """Return the condition that says that the node is broken, and for how long."""
    sickness = facts.sickness
    assert sickness is not None
    rule = sickness.rule
    what = f"Its condition {rule.condition} has been {rule.status} for {seconds(gate_context.now - sickness.since)}"
    return said(f"{what}.", condition=rule.condition, status=rule.status, since=clock(sickness.since))


@rule(Gate.NOT_UNHEALTHY, lambda facts, _: True if facts.sickness is None else facts.sickness.due, _broken)
def unhealthy(facts: NodeFacts, gate_context: GateContext) -> Said:
    """No condition has marked the node as broken for long enough (docs/rules.md#repair)."""
    sickness = facts.sickness
    if sickness is None:
        return said("No condition says that it is broken.")
    why, figures = _broken(facts, gate_context)
    left = seconds(sickness.due - gate_context.now)
    return said(f"{why[:-1]}; it is repaired in {left}.", **figures, due=clock(sickness.due))


@rule(
    Gate.DO_NOT_REPAIR,
    lambda facts, _: facts.annotations.get(names.DO_NOT_REPAIR) == "true",
    "The node does not say do-not-repair.",
)
def may_be_repaired(_facts: NodeFacts, _: GateContext) -> Said:
    """The node says do-not-repair."""
    return said(f"The node says {names.DO_NOT_REPAIR}=true.", annotation=names.DO_NOT_REPAIR)
