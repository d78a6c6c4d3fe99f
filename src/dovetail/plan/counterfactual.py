"""What would open a closed gate? Changes one thing in the input and asks the core again; nothing is guessed.

For the gate that refused a node, there are a few obvious changes: another annotation, another setting, a later time.
Each is tried on a copy of the input, and the resulting verdict is shown, whatever it is. Sits in plan;
`plan.explanation` formats it.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from typing import Any

import msgspec

from dovetail.api.manifests.validate import read_annotation
from dovetail.api.policy_change import with_policy_field
from dovetail.decide.context import RoundContext
from dovetail.decide.decider import Decider
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.candidates import Chain
from dovetail.decide.gates.gate_results import pod_name
from dovetail.decide.gates.price_refusals import PRICE_GATES
from dovetail.decide.horizon import node_times, window_times
from dovetail.decide.methods import leaving, single_node
from dovetail.decide.methods.moves import Move, command_of
from dovetail.decide.question import Question
from dovetail.decide.round import METHODS
from dovetail.decide.verdict import chains_of, deciding
from dovetail.decide.words import clock, dollars, seconds
from dovetail.model import names
from dovetail.model.command import REASON_OF, Command, Method
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.model.settings import PreferencePolicy
from dovetail.model.verdicts import Gate, GateResult

PODS_MAX = 20
"""How many vetoes of pods are taken away one after the other before giving up."""
TIMES_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """The answer for a node: every method's chain, the one that decides, and what would be done with the node."""

    facts: NodeFacts
    chains: dict[Method, Chain]
    deciding: Chain
    command: Command | None
    now: bool
    context: RoundContext

    @property
    def eligible(self) -> bool:
        """Return whether some method would remove it."""
        return self.deciding.open

    @property
    def last(self) -> GateResult:
        """Return the gate that it reached."""
        return self.deciding.results[-1]

    @property
    def preferences(self) -> tuple[str, ...]:
        """Return preferences that open a new node and so may block it; `preferencePolicy: Ignore` drops them.

        As in Karpenter, a preference is first treated as required, so it can open a node although there is room
        elsewhere.
        """
        asked = self.last.gate in PRICE_GATES or self.last.gate is Gate.NEW_NODES
        if self.eligible or not asked or self.context.index_of(self.facts) < 0:
            return ()
        found = self.context.simulate((self.facts,), for_cost=True).new_nodes
        return tuple(
            sorted({text for node in found if not node.serves_only_others for text in node.kept_preferences()})
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """A change and the new answer. `if_` starts with "if ..." or "at ...", e.g. "if pod web-7 had no ..."."""

    if_: str
    opens: bool
    then: str
    gate: str


def ask(question: Question, node: str, decider: Decider | None = None) -> NodeAnswer | None:
    """Run the core and return one node's part of the answer; None if there is no such node."""
    context = (decider or Decider(memory=False)).scene(question)
    facts = context.by_name.get(node)
    if facts is None:
        return None
    runs = {method: run(context) for method, run in METHODS.items()}
    batch = frozenset(name for command in runs[Method.MULTI_NODE].commands for name in command.nodes)
    chains = chains_of(context, runs, facts, batch, thorough=True)
    chain = deciding(chains)
    if not chain.open:
        return NodeAnswer(facts=facts, chains=chains, deciding=chain, command=None, now=False, context=context)
    command = next((c for c in runs[chain.method].commands if node in c.nodes), None)
    now = command is not None
    command = command or _alone(context, chain.method, facts)
    return NodeAnswer(facts=facts, chains=chains, deciding=chain, command=command, now=now, context=context)


def _alone(context: RoundContext, method: Method, facts: NodeFacts) -> Command | None:
    """Return what would happen to the node when its turn comes."""
    if method in (Method.UNHEALTHY, Method.EXPIRED, Method.DRIFTED):
        outcome = leaving.alone(context, method, facts)
        return outcome if isinstance(outcome, Command) else None
    move = single_node.judge(context, facts)
    return command_of(context, method, move) if isinstance(move, Move) else None


def counterfactuals(question: Question, node: str) -> tuple[NodeAnswer | None, tuple[Counterfactual, ...]]:
    """Return the node's answer now and, if it stays, the result of each obvious change."""
    decider = Decider()
    now = ask(question, node, decider)
    if now is None or now.eligible:
        return now, ()
    found = []
    for if_, changed in _changes(question, now):
        then = ask(changed, node, decider)
        if then is None:
            continue
        by_time_alone = changed.now != question.now
        if not by_time_alone or then.eligible:
            found.append(_described(if_, now, then))
        if by_time_alone and then.eligible:
            break  # later times say nothing new
    return now, tuple(found)


def _described(if_: str, before: NodeAnswer, after: NodeAnswer) -> Counterfactual:
    if after.eligible:
        return Counterfactual(if_=if_, opens=True, then=_fate(after), gate="eligible")
    still = after.last.gate is before.last.gate
    then = f"it would still stop at {after.last.gate}" if still else f"it would stop at {after.last.gate} instead"
    return Counterfactual(if_=if_, opens=False, then=f"{then}: {after.last.why}", gate=after.last.gate.value)


def _fate(answer: NodeAnswer) -> str:
    command = answer.command
    if command is None:
        return f"it would go ({answer.deciding.method.value})"
    verb = "replaced" if command.replacements else "deleted"
    others = f" together with {len(command.nodes) - 1} others" if len(command.nodes) > 1 else ""
    turn = "" if answer.now else " when its turn comes"
    return f"it would be {verb}{others}{turn} ({command.action.value}), saving {dollars(command.savings)}/h"


# ---------------------------------------------------------------- which changes suggest themselves

Changes = Iterator[tuple[str, Question]]


def _changes(question: Question, answer: NodeAnswer) -> Changes:
    gate = answer.last.gate
    if gate in _BY_GATE:
        yield from _BY_GATE[gate](question, answer)
    yield from _later(question, answer)


def _pod_veto(question: Question, answer: NodeAnswer) -> Changes:
    """Remove do-not-disrupt, pod by pod, until another gate decides."""
    named: list[str] = []
    changed = question
    current: NodeAnswer | None = answer
    while current is not None and current.last.gate is Gate.POD_DO_NOT_DISRUPT and len(named) < PODS_MAX:
        assert current.facts.protection is not None
        name = pod_name(current.facts.protection.pod)
        named.append(name)
        changed = _with_pods(changed, name, _without_protection)
        current = ask(changed, answer.facts.name)
    several = "pods" if len(named) > 1 else "pod"
    yield f"if {several} {', '.join(named)} had no {names.DO_NOT_DISRUPT}", changed


def _without_protection(pod: Pod) -> Pod:
    annotations = {k: v for k, v in pod.metadata.annotations.items() if k != names.DO_NOT_DISRUPT}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def _with_pods(question: Question, name: str, change: Callable[[Pod], Pod]) -> Question:
    pods = tuple(change(pod) if pod_name(pod) == name else pod for pod in question.cluster.pods)
    return replace(question, cluster=replace(question.cluster, pods=pods))


def _pdb(question: Question, answer: NodeAnswer) -> Changes:
    """Change the PDB to allow one disruption; of several PDBs of a pod, leave one that allows one."""
    changed = question
    named: list[str] = []
    current: NodeAnswer | None = answer
    while current is not None and current.last.gate is Gate.PDB and len(named) < PODS_MAX:
        veto = current.context.vetoes.of(current.facts)
        assert veto is not None
        spare = veto.pdbs[1:] if len(veto.pdbs) > 1 else ()
        if spare:
            named.append(f"{', '.join(spare)} did not select pod {pod_name(veto.pod)}")
        else:
            named.append(f"PodDisruptionBudget {veto.pdbs[0]} allowed a disruption")
        changed = _with_pdbs(changed, veto.pdbs, spare)
        current = ask(changed, answer.facts.name)
    yield f"if {' and '.join(named)}", changed


def _with_pdbs(question: Question, allow: tuple[str, ...], drop: tuple[str, ...]) -> Question:
    pdbs = []
    for pdb in question.cluster.pdbs:
        key = f"{pdb.metadata.namespace}/{pdb.metadata.name}"
        if key not in drop:
            pdbs.append(_allowing(pdb) if key in allow else pdb)
    return replace(question, cluster=replace(question.cluster, pdbs=tuple(pdbs)))


def _allowing(pdb: PodDisruptionBudget) -> PodDisruptionBudget:
    status = msgspec.structs.replace(pdb.status, disruptions_allowed=max(1, pdb.status.disruptions_allowed))
    return msgspec.structs.replace(pdb, status=status)


def _node_veto(question: Question, answer: NodeAnswer) -> Changes:
    """Remove do-not-disrupt from the node and its claim."""
    unwanted = (names.DO_NOT_DISRUPT, names.ALWAYS_DO_NOT_DISRUPT)

    def bare(item: Any) -> Any:
        annotations = {k: v for k, v in item.metadata.annotations.items() if k not in unwanted}
        return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, annotations=annotations))

    facts, cluster = answer.facts, question.cluster
    nodes = tuple(bare(node) if node is facts.node else node for node in cluster.nodes)
    claims = tuple(bare(claim) if claim is facts.claim else claim for claim in cluster.node_claims)
    changed = replace(question, cluster=replace(cluster, nodes=nodes, node_claims=claims))
    yield "if the node had no do-not-disrupt", changed


def _policy(question: Question, answer: NodeAnswer) -> Changes:
    yield _with_policy(question, answer, "consolidationPolicy", "WhenEmptyOrUnderutilized")


def _consolidate_after(question: Question, answer: NodeAnswer) -> Changes:
    policy = answer.facts.policy
    if policy is not None and policy.consolidate_after is None:
        yield _with_policy(question, answer, "consolidateAfter", "15s")


def _threshold(question: Question, answer: NodeAnswer) -> Changes:
    """Change the threshold to what the move saves per unit of disruption, rounded down to three digits."""
    refusal, facts = answer.last.figures, answer.facts
    cost = facts.disruption_cost(answer.context.now)
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
    yield _without_marks(question, answer, f"if NodePool {answer.facts.pool_name} were resumed")


def _health(question: Question, answer: NodeAnswer) -> Changes:
    """Remove the alert, the halt or the limits."""
    if question.alert:
        yield "if the alert gate had nothing to hold", replace(question, alert="")
        return
    if answer.facts.pool is not None and names.HALTED in answer.facts.pool.metadata.annotations:
        yield _without_marks(question, answer, f"if NodePool {answer.facts.pool_name} were resumed")
        return
    _, changed = _with_policy(question, answer, "health", {})
    yield f"if NodePool {answer.facts.pool_name} had no health limits", changed


def _without_marks(question: Question, answer: NodeAnswer, text: str) -> tuple[str, Question]:
    pool = answer.facts.pool
    assert pool is not None
    kept = {k: v for k, v in pool.metadata.annotations.items() if k not in (names.PAUSED, names.HALTED)}
    changed = msgspec.structs.replace(pool, metadata=msgspec.structs.replace(pool.metadata, annotations=kept))
    pools = tuple(changed if entry is pool else entry for entry in question.cluster.node_pools)
    return text, replace(question, cluster=replace(question.cluster, node_pools=pools))


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


def _later(question: Question, answer: NodeAnswer) -> Changes:
    """Ask again at the next times at which this node's answer could change by itself."""
    context = answer.context
    times = {*node_times(answer.facts, context), *_crossings(answer), *_windows(context, answer)}
    for when in sorted(when for when in times if when > question.now)[:TIMES_MAX]:
        wait = seconds(when - question.now)
        yield f"at {clock(when)} (in {wait})", replace(question, now=when)


def _windows(context: RoundContext, answer: NodeAnswer) -> Iterator[datetime]:
    policy = answer.facts.policy
    if policy is None or answer.last.gate not in (Gate.BUDGET, Gate.TOPOLOGY_BUDGET, Gate.WINDOW):
        return
    when = context.now
    for _ in range(TIMES_MAX):
        upcoming = min(window_times(policy, when), default=None)
        if upcoming is None:
            return
        yield upcoming
        when = upcoming


def _crossings(answer: NodeAnswer) -> Iterator[datetime]:
    """Return when ageing has lowered the required savings to what the move saves.

    Design: savings-threshold, Lifetime remaining.
    """
    facts, figures = answer.facts, answer.last.figures
    if answer.last.gate is not Gate.SAVINGS_THRESHOLD or not facts.expire_after or facts.policy is None:
        return
    saved = Fraction(str(figures["savingsPerHour"])) * 10**18
    full = facts.policy.savings_threshold * facts.full_cost
    if full <= 0 or facts.created is None or saved <= 0:
        return
    age = facts.expire_after * (1 - saved / full)
    yield facts.created + timedelta(microseconds=int(-(-age // 1000)))
