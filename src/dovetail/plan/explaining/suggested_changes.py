"""Which changes of the input suggest themselves for the gate that refused a node: an annotation, a setting, a time.

Each is a copy of the question with one thing changed, and words for it; nothing is asked of the round here. Times are
not listed: each follows from the answer at the one before. Sits in plan; `counterfactual` asks about each.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from typing import Any

import msgspec

from dovetail.api.manifests.validate import read_annotation
from dovetail.api.policy_change import with_policy_field
from dovetail.decide.decider import Decider
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.budgets import window_times
from dovetail.decide.gates.node_rules import window_edges
from dovetail.decide.horizon import until_lower
from dovetail.decide.lifts import resumed, with_mended_pool, with_pdbs, without_node_vetoes, without_protection
from dovetail.decide.question import Question
from dovetail.decide.scene import Scene
from dovetail.model import names
from dovetail.model.command import REASON_OF
from dovetail.model.money import UNIT
from dovetail.model.objects import Pod
from dovetail.model.settings import PreferencePolicy
from dovetail.model.timing.duration import later
from dovetail.model.verdicts import Gate
from dovetail.plan.explaining.node_answer import NodeAnswer

PODS_MAX = 20
"""How many vetoes of pods are taken away one after the other before giving up."""

Changes = Iterator[tuple[str, Question]]


def suggested_changes(question: Question, answer: NodeAnswer) -> Changes:
    """Yield the changes that could open the gate that a node stops at, each in words and as a question."""
    gate = answer.last.gate
    if gate in _BY_GATE:
        yield from _BY_GATE[gate](question, answer)


def _pod_veto(question: Question, answer: NodeAnswer) -> Changes:
    """Remove do-not-disrupt from every pod of the node, one after the other."""
    named: list[str] = []
    changed, decider = question, Decider()
    facts: NodeFacts | None = answer.facts
    while facts is not None and facts.protection is not None and len(named) < PODS_MAX:
        name = facts.protection.pod.metadata.key
        named.append(name)
        changed = without_protection(changed, {name})
        facts = decider.scene(changed).by_name.get(answer.facts.name)
    several = "pods" if len(named) > 1 else "pod"
    yield f"if {several} {', '.join(named)} had no {names.DO_NOT_DISRUPT}", changed


def _pdb(question: Question, answer: NodeAnswer) -> Changes:
    """Change the PDB to allow one disruption; of several PDBs of a pod, leave one that allows one."""
    changed, decider, scene = question, Decider(), answer.work.scene
    named: list[str] = []
    facts: NodeFacts | None = answer.facts
    while facts is not None and len(named) < PODS_MAX:
        veto = scene.vetoes.of(facts)
        if veto is None:
            break
        spare = veto.pdbs[1:] if len(veto.pdbs) > 1 else ()
        if spare:
            named.append(f"{', '.join(spare)} did not select pod {veto.pod.metadata.key}")
        else:
            named.append(f"PodDisruptionBudget {veto.pdbs[0]} allowed a disruption")
        changed = with_pdbs(changed, veto.pdbs, spare)
        scene = decider.scene(changed)
        facts = scene.by_name.get(answer.facts.name)
    yield f"if {' and '.join(named)}", changed


def _node_veto(question: Question, answer: NodeAnswer) -> Changes:
    """Remove do-not-disrupt from the node and its claim."""
    yield "if the node had no do-not-disrupt", without_node_vetoes(question, (answer.facts,))


def _policy(question: Question, answer: NodeAnswer) -> Changes:
    yield _with_policy(question, answer, "consolidationPolicy", "WhenEmptyOrUnderutilized")


def _consolidate_after(question: Question, answer: NodeAnswer) -> Changes:
    policy = answer.facts.policy
    if policy is not None and policy.closed:
        name = answer.facts.pool_name
        yield f"if NodePool {name} had nothing that can't be read", with_mended_pool(question, name, policy)
    elif policy is not None and policy.consolidate_after is None:
        yield _with_policy(question, answer, "consolidateAfter", "15s")


def _threshold(question: Question, answer: NodeAnswer) -> Changes:
    """Change the threshold to what the move saves per unit of disruption, rounded down to three digits."""
    refusal, facts = answer.last.figures, answer.facts
    cost = facts.disruption_cost(answer.work.scene.now)
    if cost <= 0 or "savingsPerHour" not in refusal:
        return
    enough = Fraction(str(refusal["savingsPerHour"])) / cost
    down = Context(prec=3, rounding=ROUND_DOWN)
    text = format(down.divide(Decimal(enough.numerator), Decimal(enough.denominator)).normalize(), "f")
    yield _with_policy(question, answer, "consolidationSavingsThreshold", text)


def _budget(question: Question, answer: NodeAnswer) -> Changes:
    """Allow one more node for the reason, whichever budgets refuse it."""
    reason = REASON_OF[answer.deciding.method].value
    used = answer.last.figures.get("used", 0)
    assert isinstance(used, int)
    wanted = [{"nodes": str(used + 1), "reasons": [reason]}]
    _, changed = _with_policy(question, answer, "budgets", wanted)
    yield f"if the budgets of NodePool {answer.facts.pool_name} allowed {used + 1} nodes for {reason}", changed


def _topology(question: Question, answer: NodeAnswer) -> Changes:
    """Drop the topology budgets and keep the flat ones."""
    pool = answer.facts.pool
    assert pool is not None
    written = msgspec.to_builtins(pool.spec.disruption.budgets or ())
    annotation = pool.metadata.annotations.get(names.POLICY_ANNOTATION)
    if annotation is not None:
        written = read_annotation(annotation).get("budgets", written)
    flat = [budget for budget in written if not budget.get("topologyKey")]
    _, changed = _with_policy(question, answer, "budgets", flat)
    yield f"if NodePool {answer.facts.pool_name} had no budget per {answer.last.figures.get('topologyKey')}", changed


def _preferences(question: Question, _: NodeAnswer) -> Changes:
    if question.settings.preference_policy is PreferencePolicy.RESPECT:
        changed = replace(question, settings=replace(question.settings, preference_policy=PreferencePolicy.IGNORE))
        yield "if preferences of pods were ignored (setting preferencePolicy: Ignore)", changed


def _spot(question: Question, _: NodeAnswer) -> Changes:
    changed = replace(question, settings=replace(question.settings, spot_to_spot_consolidation=True))
    yield "if spotToSpotConsolidation were on", changed


def _flexibility(question: Question, answer: NodeAnswer) -> Changes:
    count = answer.last.figures.get("types", 0)
    assert isinstance(count, int)
    changed = replace(question, settings=replace(question.settings, spot_minimum_types=count))
    yield f"if {count} types were enough (setting spotMinimumTypes: {count})", changed
    if answer.facts.policy is not None and answer.facts.policy.savings_threshold:
        yield _with_policy(question, answer, "consolidationSavingsThreshold", "0")


def _resume(question: Question, answer: NodeAnswer) -> Changes:
    """Remove the pause, wherever it is."""
    if question.settings.paused:
        yield "if the setting paused were off", replace(question, settings=replace(question.settings, paused=False))
        return
    yield _resumed(question, answer)


def _health(question: Question, answer: NodeAnswer) -> Changes:
    """Remove the alert, the halt or the limits."""
    if question.alert:
        yield "if the alert gate had nothing to hold", replace(question, alert="")
        return
    if answer.facts.pool is not None and names.HALTED in answer.facts.pool.metadata.annotations:
        yield _resumed(question, answer)
        return
    _, changed = _with_policy(question, answer, "health", {})
    yield f"if NodePool {answer.facts.pool_name} had no health limits", changed


def _resumed(question: Question, answer: NodeAnswer) -> tuple[str, Question]:
    name = answer.facts.pool_name
    return f"if NodePool {name} were resumed", resumed(question, name)


def _allow_windows(question: Question, answer: NodeAnswer) -> Changes:
    _, changed = _with_policy(question, answer, "windows", [])
    yield f"if NodePool {answer.facts.pool_name} had no windows", changed


def _min_node_age(question: Question, answer: NodeAnswer) -> Changes:
    yield _with_policy(question, answer, "minNodeAge", "0s")


def _pod_window(question: Question, answer: NodeAnswer) -> Changes:
    """Remove the windows of the node's pods."""
    wanted = {id(pod) for pod, _ in answer.facts.pod_windows}

    def bare(pod: Pod) -> Pod:
        kept = {k: v for k, v in pod.metadata.annotations.items() if k != names.DISRUPTION_WINDOW}
        return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=kept))

    pods = tuple(bare(pod) if id(pod) in wanted else pod for pod in question.cluster.pods)
    yield "if its pods had no windows of their own", replace(question, cluster=replace(question.cluster, pods=pods))


_BY_GATE: dict[Gate, Callable[[Question, NodeAnswer], Changes]] = {
    Gate.PAUSED: _resume,
    Gate.HEALTH: _health,
    Gate.WINDOW: _allow_windows,
    Gate.MIN_NODE_AGE: _min_node_age,
    Gate.POD_WINDOW: _pod_window,
    Gate.POD_DO_NOT_DISRUPT: _pod_veto,
    Gate.PDB: _pdb,
    Gate.NODE_DO_NOT_DISRUPT: _node_veto,
    Gate.POOL_POLICY: _policy,
    Gate.CONSOLIDATE_AFTER: _consolidate_after,
    Gate.SAVINGS_THRESHOLD: _threshold,
    Gate.BUDGET: _budget,
    Gate.TOPOLOGY_BUDGET: _topology,
    Gate.SIMULATION: _preferences,
    Gate.NEW_NODES: _preferences,
    Gate.SPOT_TO_SPOT: _spot,
    Gate.SPOT_FLEXIBILITY: _flexibility,
    Gate.BALANCED: _policy,
}


def _with_policy(question: Question, answer: NodeAnswer, key: str, value: Any) -> tuple[str, Question]:
    """Write a policy field where it takes effect: into the annotation if there is one, else into the spec."""
    pool = answer.facts.pool
    assert pool is not None
    changed = with_policy_field(pool, key, value)
    pools = tuple(changed if entry is pool else entry for entry in question.cluster.node_pools)
    shown = value if isinstance(value, str) else json.dumps(value)
    if_ = f"if NodePool {answer.facts.pool_name} had {key}: {shown}"
    return if_, replace(question, cluster=replace(question.cluster, node_pools=pools))


# ---------------------------------------------------------------- time alone


def next_time(answer: NodeAnswer) -> datetime | None:
    """Return the next time at which this node's answer could change by itself; None if there is none."""
    scene = answer.work.scene
    edges = window_edges(answer.facts, scene.gate_context)
    times = {*scene.table.times_of(answer.facts.name), *edges, *_crossings(answer), *_windows(scene, answer)}
    if answer.last.due is not None:
        times.add(answer.last.due)
    return min((when for when in times if when > scene.now), default=None)


def _windows(scene: Scene, answer: NodeAnswer) -> Iterator[datetime]:
    policy = answer.facts.policy
    if policy is None or answer.last.gate not in (Gate.BUDGET, Gate.TOPOLOGY_BUDGET, Gate.WINDOW):
        return
    yield from window_times(policy, scene.now)


def _crossings(answer: NodeAnswer) -> Iterator[datetime]:
    """Return when ageing has lowered the required savings to what the move saves."""
    facts, scene = answer.facts, answer.work.scene
    if answer.last.gate is not Gate.SAVINGS_THRESHOLD:
        return
    saved = Fraction(str(answer.last.figures["savingsPerHour"])) * UNIT
    missing = Fraction(*scene.haste.asked_savings(facts)) - saved
    wait = until_lower(scene, (facts,), missing.numerator, missing.denominator)
    if wait > 0 and saved > 0:
        yield later(scene.now, wait)
