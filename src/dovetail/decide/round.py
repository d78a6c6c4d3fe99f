"""One round: methods run in order, the first one with a command acts, and every node gets a verdict.

Spec section 5; lifecycle-controller (one lifecycle controller): empty, expired, drifted, several nodes for cost, one
node for cost. A pure function of the question. The methods don't know each other: this is the only module that knows
them all. Sits in decide, below the decider.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.horizon import next_change
from dovetail.decide.methods import drifted, empty, expired, leaving, multi_node, single_node, unhealthy
from dovetail.decide.methods.method import MethodRun, blocked_move
from dovetail.decide.methods.moves import Move, command_of, score
from dovetail.decide.optimal import value_at_most
from dovetail.decide.outcome import BufferRow, CandidateAlone, JudgedMove, MethodResult, RoundResult
from dovetail.decide.question import Question
from dovetail.decide.search import by_value
from dovetail.decide.steering import steer
from dovetail.decide.verdict import Verdicts
from dovetail.decide.warnings import warnings_of
from dovetail.decide.waste import could_save
from dovetail.model.command import Command, Method
from dovetail.model.karpenter import FeatureGate, assumptions
from dovetail.model.verdicts import Gate
from dovetail.scheduling.simulate import buffers_by_name

METHODS: dict[Method, Callable[[RoundContext], MethodRun]] = {
    Method.UNHEALTHY: unhealthy.run,
    Method.EMPTY: empty.run,
    Method.EXPIRED: expired.run,
    Method.DRIFTED: drifted.run,
    Method.MULTI_NODE: multi_node.run,
    Method.SINGLE_NODE: single_node.run,
}

_BY_VALUE: dict[Method, Callable[[RoundContext], MethodRun]] = {
    **METHODS,
    Method.MULTI_NODE: by_value.run_several,
    Method.SINGLE_NODE: by_value.run_one,
}

_CANDIDATES: dict[Method, Callable[[RoundContext], Sequence[NodeFacts]]] = {
    Method.UNHEALTHY: unhealthy.candidates,
    Method.EMPTY: empty.candidates,
    Method.EXPIRED: expired.candidates,
    Method.DRIFTED: drifted.candidates,
    Method.MULTI_NODE: multi_node.candidates,
    Method.SINGLE_NODE: single_node.candidates,
}


def plan_round(question: Question, *, every_method: bool = False, every_candidate: bool = False) -> RoundResult:
    """Decide what to do next. For repeated rounds use a `Decider`: it gives the same answers faster.

    `every_method`: ask all methods, each on the untouched snapshot, though only the first that acts counts.
    `every_candidate`: also what drift and one-node cost would do with each candidate alone, ignoring budgets.
    """
    return decide(RoundContext(question), every_method=every_method, every_candidate=every_candidate)


def decide(
    context: RoundContext, *, every_method: bool = False, every_candidate: bool = False, without: Sequence[Method] = ()
) -> RoundResult:
    """Decide on an existing context; `without`: methods that are not asked this time."""
    runs: dict[Method, MethodRun] = {}
    for method, ask in _methods(context).items():
        if method in without:
            continue
        runs[method] = ask(context)
        if runs[method].commands and not every_method:
            break
    acting = next((run for run in runs.values() if run.commands), None)
    refused = [entry for run in runs.values() for entry in run.refused]
    return RoundResult(
        now=context.now,
        profile=context.settings.profile,
        commands=acting.commands if acting else (),
        budgets=context.ledger.rows(),
        warnings=warnings_of(context),
        blocked=tuple(blocked_move(*entry) for entry in refused if entry[1].gate is Gate.SAVINGS_THRESHOLD),
        next_change=next_change(context, refused),
        list_judged_moves=lambda: tuple(_judged_moves(context, runs)),
        assumed=assumptions(context.settings.karpenter, context.snapshot.surroundings.features),
        feature_gates={gate.value: context.snapshot.surroundings.features.has(gate) for gate in FeatureGate},
        buffers=_buffers(context),
        catalogue_source=context.snapshot.catalogue.source,
        catalogue_date=context.snapshot.catalogue.as_of,
        compute_steering=lambda: steer(context),
        compute_could_save=lambda: could_save(context),
        compute_value_at_most=lambda: value_at_most(context),
        list_prices=lambda: {f.name: f.price for f in context.nodes if f.offering_price is not None},
        list_verdicts=lambda: _verdicts(context.fork(), runs),
        list_methods=lambda: _method_results(context.fork(), runs, every_candidate=every_candidate),
    )


def _methods(context: RoundContext) -> Mapping[Method, Callable[[RoundContext], MethodRun]]:
    """Return the methods in the order in which they are asked; repair only if a pool asks for it."""
    methods = _BY_VALUE if context.settings.searches_by_value else METHODS
    if any(policy.repair for policy in context.policies.values()) and not unhealthy.left_to_karpenter(context):
        return methods
    return {method: ask for method, ask in methods.items() if method is not Method.UNHEALTHY}


def _verdicts(context: RoundContext, runs: Mapping[Method, MethodRun]) -> Verdicts:
    """Return the nodes' verdicts; methods that were not asked are asked now."""
    methods = _methods(context)
    return Verdicts(context, {method: runs.get(method) or ask(context) for method, ask in methods.items()})


def _method_results(
    context: RoundContext, runs: Mapping[Method, MethodRun], *, every_candidate: bool
) -> tuple[MethodResult, ...]:
    return tuple(
        _method_result(context, runs.get(method) or MethodRun(method=method), every_candidate=every_candidate)
        for method in _methods(context)
    )


def _buffers(context: RoundContext) -> tuple[BufferRow, ...]:
    """Return the active CapacityBuffers, by name, with the nodes that hold them."""
    found = []
    for name, entries in buffers_by_name(context.snapshot).items():
        counts: dict[str, int] = {}
        for index in entries:
            if index is not None:
                node = context.snapshot.states[index].name
                counts[node] = counts.get(node, 0) + 1
        found.append(BufferRow(name=name, replicas=len(entries), nodes=tuple(sorted(counts.items()))))
    return tuple(found)


def _judged_moves(context: RoundContext, runs: Mapping[Method, MethodRun]) -> Iterator[JudgedMove]:
    """Yield the cost actions of a round by pool, as Karpenter counts them: only the last batch that was tried."""
    for method in (Method.MULTI_NODE, Method.SINGLE_NODE):
        run = runs.get(method)
        if run is None:
            continue
        refused = run.refused if method is Method.SINGLE_NODE else run.refused[-1:] if not run.commands else ()
        for nodes, _ in refused:
            yield from _by_pool(context, tuple(facts.name for facts in nodes), approved=False)
        for command in run.commands:
            yield from _by_pool(context, command.nodes, approved=True)


def _by_pool(context: RoundContext, nodes: tuple[str, ...], *, approved: bool) -> Iterator[JudgedMove]:
    scores = context.scores.get(nodes, {})
    for pool in sorted({context.by_name[name].pool_name for name in nodes}):
        policy = context.policies[pool].consolidation_policy.value
        yield JudgedMove(node_pool=pool, policy=policy, approved=approved, score=scores.get(pool))


def _method_result(context: RoundContext, run: MethodRun, *, every_candidate: bool) -> MethodResult:
    candidates, alone = _CANDIDATES[run.method](context), None
    if every_candidate and run.method in (Method.DRIFTED, Method.SINGLE_NODE):
        alone = tuple(_alone(context, run.method, facts) for facts in candidates)
    return MethodResult(
        method=run.method,
        candidates=tuple(context.figures(facts) for facts in candidates),
        budget=context.left(run.method),
        commands=run.commands,
        alone=alone,
    )


def _alone(context: RoundContext, method: Method, facts: NodeFacts) -> CandidateAlone:
    """Return what would happen to a candidate alone; a Balanced pool's refusal is only named (contract)."""
    outcome: Command | Move | Refusal
    if method is Method.DRIFTED:
        outcome = leaving.alone(context, method, facts)
        why = leaving.why_it_goes(outcome) if isinstance(outcome, Command) else outcome.why
    else:
        outcome = single_node.in_words(context, facts, single_node.unscored(context, facts))
        refusal = score(context, outcome) if isinstance(outcome, Move) else outcome
        why = refusal.why if refusal else "It is worth it."
        outcome = command_of(context, method, outcome) if isinstance(outcome, Move) else outcome
    return CandidateAlone(node=facts.name, command=outcome if isinstance(outcome, Command) else None, why=why)
