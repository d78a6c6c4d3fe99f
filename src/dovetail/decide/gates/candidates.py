"""Which nodes can be disrupted at all: gates 1 to 7 of spec section 4, as an ordered table of small rules.

Every node runs through the same table and carries how each gate ended, with the figures that decided and one plain
sentence; nothing is dropped silently. Gates 1 to 6 are the same for all methods, but that those that may wait (drift,
expiry) pass the pods' gates where the NodeClaim has a terminationGracePeriod; gate 7 is each method's own conditions
(spec section 5; S0 to S4). Budgets, simulation and prices come later and are not known here. Sits in decide, above
facts and timers, below the methods.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import takewhile

from dovetail.api.pod_windows import PodWindow
from dovetail.decide.facts.node_facts import NodeFacts, is_length
from dovetail.decide.gates import timers
from dovetail.decide.words import clock, nanoseconds, seconds
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import NodeClaim, Pod, is_true
from dovetail.model.policy import ConsolidationPolicy
from dovetail.model.settings import Settings
from dovetail.model.verdicts import Figure, Gate, GateResult


@dataclass(frozen=True, slots=True, kw_only=True)
class GateContext:
    """What the rules know beside the node: settings, the time, and which pools are ours (None: all).

    `buffered`: how many virtual pods of buffers nodes carry, by name.
    """

    settings: Settings
    now: datetime
    managed_pools: frozenset[str] | None = None
    may_surge: bool = True
    buffered: Mapping[str, int] = field(default_factory=dict)


@lru_cache(maxsize=256)
def passed(gate: Gate, why: str) -> GateResult:
    """Return the result of a gate that a node passed without figures; the same object for all nodes."""
    return GateResult(gate=gate, passed=True, why=why)


def stopped(gate: Gate, why: str, **figures: Figure) -> GateResult:
    """Return the result of a gate that a node stopped at."""
    return GateResult(gate=gate, passed=False, why=why, figures=figures)


def pod_name(pod: Pod) -> str:
    """Return `namespace/name`."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


# ---------------------------------------------------------------- gates 1 to 6


def _managed(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    gate = Gate.MANAGED
    if facts.claim is None:
        return stopped(gate, "The node has no NodeClaim: Karpenter does not manage it.")
    if facts.node is None:
        return stopped(gate, "The NodeClaim has no node yet.", nodeClaim=facts.claim.metadata.name)
    if not facts.pool_name:
        return stopped(gate, f"The node has no label {names.NODEPOOL}.")
    if facts.pool is None:
        return stopped(gate, f"NodePool {facts.pool_name} does not exist.", nodePool=facts.pool_name)
    if gate_context.managed_pools is not None and facts.pool_name not in gate_context.managed_pools:
        return stopped(
            gate,
            f"NodePool {facts.pool_name} is only observed: it is neither labelled {names.MANAGE}=true nor in `pools`.",
            nodePool=facts.pool_name,
        )
    return passed(gate, f"It belongs to NodePool {facts.pool_name}.")


def _not_rebooting(facts: NodeFacts, _: GateContext) -> GateResult:
    if facts.rebooting:
        return stopped(Gate.REBOOTING, "Karpenter is rebooting it.", condition=names.CONDITION_REBOOTING)
    return passed(Gate.REBOOTING, "It is not being rebooted.")


def _not_paused(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    gate, settings = Gate.PAUSED, gate_context.settings
    if not settings.rules.pauses:
        return passed(gate, "Karpenter knows no pause.")
    if settings.paused:
        return stopped(gate, "The setting `paused` is on: nothing starts anywhere.")
    pause = facts.pause
    if pause is None or not pause.holds(gate_context.now):
        return passed(gate, "Its pool is not paused.")
    why = f" ({pause.reason})" if pause.reason else ""
    if pause.until is None:
        return stopped(gate, f"NodePool {facts.pool_name} is paused until it is resumed{why}.", reason=pause.reason)
    left = seconds(pause.until - gate_context.now)
    return stopped(
        gate,
        f"NodePool {facts.pool_name} is paused for {left} more{why}.",
        until=clock(pause.until),
        reason=pause.reason,
    )


def _not_marked(facts: NodeFacts, _: GateContext) -> GateResult:
    gate = Gate.MARKED_FOR_DELETION
    if facts.marked:
        return stopped(gate, f"It is leaving already: {facts.marked}.", cause=facts.marked)
    return passed(gate, "It is not leaving yet.")


def _initialized(facts: NodeFacts, _: GateContext) -> GateResult:
    if not facts.initialized:
        return stopped(Gate.INITIALIZED, f"It is not initialized: label {names.INITIALIZED_LABEL} is not true.")
    return passed(Gate.INITIALIZED, "It is initialized.")


def _not_nominated(facts: NodeFacts, _: GateContext) -> GateResult:
    if facts.nominated:
        return stopped(Gate.NOMINATED, "Pods are on their way to it.")
    return passed(Gate.NOMINATED, "No pods are on their way to it.")


def _node_may_be_disrupted(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    gate = Gate.NODE_DO_NOT_DISRUPT
    if gate_context.settings.rules.own_annotations:
        claim = facts.claim.metadata.annotations if facts.claim else {}
        for where, annotations in (("node", facts.annotations), ("NodeClaim", claim)):
            if annotations.get(names.ALWAYS_DO_NOT_DISRUPT) == "true":
                return stopped(
                    gate,
                    f"The {where} says {names.ALWAYS_DO_NOT_DISRUPT}=true.",
                    annotation=names.ALWAYS_DO_NOT_DISRUPT,
                )
        if names.HOLD in facts.annotations:
            return passed(gate, "It is held for Dovetail, which does not count.")
    if facts.annotations.get(names.DO_NOT_DISRUPT) == "true":
        return stopped(gate, f"The node says {names.DO_NOT_DISRUPT}=true.", annotation=names.DO_NOT_DISRUPT)
    return passed(gate, "The node does not say do-not-disrupt.")


def _pods_may_be_disrupted(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    gate, found = Gate.POD_DO_NOT_DISRUPT, facts.protection
    if found is None:
        return passed(gate, "No pod says do-not-disrupt.")
    pod = pod_name(found.pod)
    if found.until is None:
        return stopped(gate, f"Pod {pod} says {names.DO_NOT_DISRUPT}={found.value}.", pod=pod, value=found.value)
    left = seconds(found.until - gate_context.now)
    return stopped(
        gate,
        f"Pod {pod} may not be disrupted for {found.value} from its start: {left} to go.",
        pod=pod,
        value=found.value,
        until=clock(found.until),
    )


def _pdbs_allow(facts: NodeFacts, _: GateContext) -> GateResult:
    gate, veto = Gate.PDB, facts.pdb_veto
    if veto is None:
        return passed(gate, "No PodDisruptionBudget refuses an eviction now.")
    pod = pod_name(veto.pod)
    if len(veto.pdbs) > 1:
        return stopped(
            gate,
            f"Pod {pod} has {len(veto.pdbs)} PodDisruptionBudgets ({', '.join(veto.pdbs)}) and can't be evicted.",
            pod=pod,
            pdb=", ".join(veto.pdbs),
        )
    return stopped(
        gate,
        f"PodDisruptionBudget {veto.pdbs[0]} allows no disruption of pod {pod} now.",
        pod=pod,
        pdb=veto.pdbs[0],
        disruptionsAllowed=veto.allowed,
    )


def _pod_windows_open(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    gate = Gate.POD_WINDOW
    if not facts.pod_windows or not gate_context.settings.rules.pod_windows:
        return passed(gate, "No pod asks for a window of its own.")
    closed = [(pod, entry) for pod, entry in facts.pod_windows if not _is_open(entry, gate_context.now)]
    if not closed:
        return passed(gate, "The windows of its pods are open.")
    pod, entry = closed[0]
    name = pod_name(pod)
    if entry.window is None:
        return stopped(gate, f"The window of pod {name} can't be read ({entry.problem}).", pod=name, window=entry.text)
    opens = entry.window.next_change(gate_context.now)
    when = "never again" if opens is None else f"at {clock(opens)}, in {seconds(opens - gate_context.now)}"
    return stopped(
        gate,
        f"Pod {name} may be disrupted only in its window ({entry.text}), which opens {when}.",
        pod=name,
        window=entry.text,
        opensAt=None if opens is None else clock(opens),
        closed=len(closed),
    )


def _can_surge(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    gate = Gate.SURGE
    if not facts.surges:
        return passed(gate, "No pod needs its Deployment to roll.")
    for pod, surge in facts.surges:
        name = pod_name(pod)
        if not gate_context.may_surge:
            why = f"Pod {name} moves with Deployment {surge.name}, which Dovetail has no right to patch."
            return stopped(gate, why, pod=name, deployment=surge.name)
        if surge.problem:
            why = f"Pod {name} moves with Deployment {surge.name}, but {surge.problem}."
            return stopped(gate, why, pod=name, deployment=surge.name)
    rolled = ", ".join(surge.name for _, surge in facts.surges)
    return GateResult(gate=gate, passed=True, why=f"It goes after a rolling update of {rolled}.", figures={})


def _is_open(entry: PodWindow, now: datetime) -> bool:
    return entry.window is not None and entry.window.active(now)


Rule = Callable[[NodeFacts, GateContext], GateResult]
NODE_RULES: tuple[Rule, ...] = (
    _managed,
    _not_paused,
    _not_rebooting,
    _not_marked,
    _initialized,
    _not_nominated,
    _node_may_be_disrupted,
)
POD_RULES: tuple[Rule, ...] = (_pods_may_be_disrupted, _pdbs_allow, _pod_windows_open, _can_surge)


# ---------------------------------------------------------------- gate 7: each method's own conditions


def _is_empty(facts: NodeFacts, gate_context: GateContext) -> bool:
    return facts.empty_for_karpenter if gate_context.settings.rules.empty_by_pod_cost else facts.empty


def _empty_only(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    if not _is_empty(facts, gate_context):
        return _not_empty(len(facts.reschedulable))
    return passed(Gate.NOT_EMPTY, "It is empty.")


@lru_cache(maxsize=1024)
def _not_empty(count: int) -> GateResult:
    return stopped(Gate.NOT_EMPTY, f"It is not empty: {_pods(count)} would have to move.", pods=count)


def _occupied_only(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    if _is_empty(facts, gate_context):
        return stopped(Gate.NOT_EMPTY, "It is empty: that is for the method `empty`.", pods=len(facts.reschedulable))
    return passed(Gate.NOT_EMPTY, "It is not empty.")


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _not_static(facts: NodeFacts, _: GateContext) -> GateResult:
    assert facts.policy is not None
    if facts.policy.static:
        return stopped(
            Gate.POOL_POLICY, f"NodePool {facts.pool_name} is static (spec.replicas): it is never consolidated."
        )
    return passed(Gate.POOL_POLICY, "Its pool may be consolidated.")


def _underutilized_allowed(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    assert facts.policy is not None
    if facts.policy.consolidation_policy is ConsolidationPolicy.WHEN_EMPTY:
        return stopped(
            Gate.POOL_POLICY,
            f"NodePool {facts.pool_name} consolidates empty nodes only (consolidationPolicy WhenEmpty).",
            consolidationPolicy=facts.policy.consolidation_policy.value,
        )
    return _not_static(facts, gate_context)


def _consolidate_after_passed(facts: NodeFacts, gate_context: GateContext) -> GateResult:
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


def _old_enough(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    gate, at = Gate.MIN_NODE_AGE, facts.old_enough_at
    if at is None or gate_context.now >= at:
        return passed(gate, "It is old enough to be consolidated.")
    assert facts.policy is not None
    assert facts.policy.min_node_age is not None
    age = nanoseconds(facts.policy.min_node_age)
    left = seconds(at - gate_context.now)
    return stopped(gate, f"It is younger than minNodeAge {age}: {left} to go.", minNodeAge=age, until=clock(at))


def _grace_period_passed(facts: NodeFacts, gate_context: GateContext) -> GateResult:
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


def _price_known(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    gate = Gate.INSTANCE_TYPE_KNOWN
    if not facts.type_known:
        return stopped(
            gate,
            f"Instance type {facts.instance_type or '(no label)'} is not in the catalogue.",
            instanceType=facts.instance_type,
        )
    for label, value in ((names.CAPACITY_TYPE, facts.capacity_type), (names.ZONE, facts.zone)):
        if not value and label not in facts.labels:
            return stopped(gate, f"The node has no label {label}.", label=label)
    if facts.offering_price is None and gate_context.settings.rules.unpriced_nodes_stay:
        # What a node costs that has no price is unknown, not nothing: taking it away could save anything.
        return stopped(
            gate,
            f"The catalogue has no price for {facts.instance_type} as {facts.capacity_type} in {facts.zone}.",
            instanceType=facts.instance_type,
            capacityType=facts.capacity_type,
            zone=facts.zone,
        )
    return passed(gate, "Its instance type, zone and capacity type are known.")


def _expired(facts: NodeFacts, gate_context: GateContext) -> GateResult:
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


def _drifted(facts: NodeFacts, _: GateContext) -> GateResult:
    if facts.drifted_since is None:
        return stopped(Gate.NOT_DRIFTED, "It has not drifted.")
    return GateResult(
        gate=Gate.NOT_DRIFTED, passed=True, why="It has drifted.", figures={"since": clock(facts.drifted_since)}
    )


def _no_buffer(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    gate, count = Gate.CAPACITY_BUFFER, gate_context.buffered.get(facts.name, 0)
    if not count:
        return passed(gate, "It holds no room for a CapacityBuffer.")
    what = "1 virtual pod" if count == 1 else f"{count} virtual pods"
    return stopped(gate, f"It is empty but holds room for {what} of CapacityBuffers.", virtualPods=count)


def _no_resource_claims(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    gate, pod = Gate.DYNAMIC_RESOURCES, facts.claiming
    closes = gate_context.settings.rules.resource_claims_stay
    if pod is None or not closes or (facts.policy is not None and facts.policy.static):
        # Karpenter finds out in its simulation; a static pool's node goes without one.
        return passed(gate, "No pod that would move has resource claims.")
    return stopped(gate, claims_why(pod, gate_context.settings), pod=pod_name(pod))


def claims_why(pod: Pod, settings: Settings) -> str:
    """Say why a pod with resource claims keeps its node."""
    if settings.karpenter.ignores_dra:
        return f"Pod {pod_name(pod)} has resource claims: Karpenter launches no node for it and moves it nowhere."
    return f"Pod {pod_name(pod)} has resource claims: Dovetail does not simulate where its devices would be allocated."


def _unhealthy(facts: NodeFacts, gate_context: GateContext) -> GateResult:
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


def _may_be_repaired(facts: NodeFacts, _: GateContext) -> GateResult:
    if facts.annotations.get(names.DO_NOT_REPAIR) == "true":
        return stopped(Gate.DO_NOT_REPAIR, f"The node says {names.DO_NOT_REPAIR}=true.", annotation=names.DO_NOT_REPAIR)
    return passed(Gate.DO_NOT_REPAIR, "The node does not say do-not-repair.")


REPAIR_RULES: tuple[Rule, ...] = (_managed, _not_paused, _not_marked, _initialized, _unhealthy, _may_be_repaired)
OWN_RULES: dict[Method, tuple[Rule, ...]] = {
    Method.EMPTY: (_empty_only, _not_static, _no_buffer, _consolidate_after_passed, _old_enough),
    Method.EXPIRED: (_expired, _no_resource_claims),
    Method.DRIFTED: (_drifted, _no_resource_claims),
    Method.MULTI_NODE: (
        _occupied_only,
        _underutilized_allowed,
        _price_known,
        _consolidate_after_passed,
        _old_enough,
        _grace_period_passed,
        _no_resource_claims,
    ),
}
OWN_RULES[Method.SINGLE_NODE] = OWN_RULES[Method.MULTI_NODE]
MAY_WAIT = (Method.EXPIRED, Method.DRIFTED)


@dataclass(frozen=True, slots=True)
class Chain:
    """How a node fared with one method so far: the gates in order; all but the last are passed."""

    method: Method
    results: tuple[GateResult, ...]

    @property
    def open(self) -> bool:
        """Return whether every gate was passed."""
        return self.results[-1].passed

    def then(self, *results: GateResult) -> "Chain":
        """Return the chain with further gates."""
        return Chain(self.method, (*self.results, *results))


def _run(rules: tuple[Rule, ...], facts: NodeFacts, gate_context: GateContext) -> tuple[GateResult, ...]:
    results = []
    for rule in rules:
        result = rule(facts, gate_context)
        results.append(result)
        if not result.passed:
            break
    return tuple(results)


def _repair_chain(facts: NodeFacts, gate_context: GateContext) -> dict[Method, Chain]:
    """Run a node of a pool that repairs through its own gates: a bounded drain passes the pods' (spec section 19)."""
    if facts.policy is None or not facts.policy.repair:
        return {}
    results = _run(REPAIR_RULES, facts, gate_context)
    if results[-1].passed and facts.sickness is not None:
        pods = _run(
            (_pods_may_be_disrupted, _pdbs_allow, _can_surge), facts, gate_context
        )  # a workload's window is for voluntary disruption
        bounded = facts.sickness.rule.drain_for is not None or (facts.claim is not None and is_bounded(facts.claim))
        results += tuple(_waived(result) for result in pods) if bounded else pods
    return {Method.UNHEALTHY: Chain(Method.UNHEALTHY, results)}


def gates_of(facts: NodeFacts, gate_context: GateContext) -> dict[Method, Chain]:
    """Run a node through gates 1 to 7 for every method."""
    chains = _repair_chain(facts, gate_context)
    common = _run(NODE_RULES, facts, gate_context)
    if not common[-1].passed:
        return chains | {method: Chain(method, common) for method in Method if method is not Method.UNHEALTHY}
    strict = common + _run(POD_RULES, facts, gate_context)
    lenient = strict
    if not strict[-1].passed and facts.claim is not None and is_bounded(facts.claim):
        lenient = (*common, *(_waived(result) for result in strict[len(common) :]))
    for method in Method:
        if method is Method.UNHEALTHY:
            continue
        before = lenient if method in MAY_WAIT else strict
        if method is Method.SINGLE_NODE:
            chains[method] = Chain(method, chains[Method.MULTI_NODE].results)
        elif before[-1].passed:
            chains[method] = Chain(method, before + _run(OWN_RULES[method], facts, gate_context))
        else:
            chains[method] = Chain(method, before)
    return chains


def awaited(chain: Chain, pods: Sequence[Pod]) -> Chain:
    """Return the chain of an empty node that pods which wait now would land on: it ends at the gate `nominated`."""
    before = tuple(takewhile(lambda result: result.gate is not Gate.NOMINATED, chain.results))
    first, more = pod_name(pods[0]), len(pods) - 1
    if more:
        why = f"It is empty, but pod {first} and {more} more wait for a node and would land on it."
    else:
        why = f"It is empty, but pod {first} waits for a node and would land on it."
    return Chain(chain.method, (*before, stopped(Gate.NOMINATED, why, pod=first, pods=len(pods))))


def is_bounded(claim: NodeClaim) -> bool:
    """Return whether a NodeClaim has a terminationGracePeriod, which ends every drain in time."""
    period = claim.spec.termination_grace_period
    return period is not None and is_length(period)  # what can't be read lifts nothing


def _waived(result: GateResult) -> GateResult:
    if result.passed:
        return result
    return GateResult(
        gate=result.gate,
        passed=True,
        why=f"{result.why} The NodeClaim's terminationGracePeriod lifts that.",
        figures=result.figures,
    )
