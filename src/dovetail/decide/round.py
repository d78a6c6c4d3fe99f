"""One round: methods run in order, the first one with a command acts, and every node gets a verdict.

See docs/rules.md#methods; lifecycle-controller (one lifecycle controller): empty, expired, drifted, several nodes for
cost, one node for cost. A pure function of the question. The methods don't know each other: this is the only module
that knows them all. Sits in decide, below the decider.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.horizon import next_change
from dovetail.decide.loads import pool_loads
from dovetail.decide.methods import drifted, empty, expired, leaving, multi_node, single_node, unhealthy
from dovetail.decide.methods.method import MethodRun, blocked_move
from dovetail.decide.methods.moves import Move, command_of, score
from dovetail.decide.methods.outlook import LOOK_AHEAD, expiring_nodes, waiting_nodes
from dovetail.decide.optimal import value_at_most
from dovetail.decide.outcome import BufferRow, CandidateAlone, JudgedMove, MethodResult, RoundResult
from dovetail.decide.question import Question
from dovetail.decide.refusal import Refusal
from dovetail.decide.rollouts.status import RollStatus, rollouts
from dovetail.decide.scene import Scene
from dovetail.decide.search import by_value
from dovetail.decide.steering import steer
from dovetail.decide.verdict import Verdicts
from dovetail.decide.warnings import warnings_of
from dovetail.decide.waste import could_save
from dovetail.decide.work import Work
from dovetail.model.command import Command, Method
from dovetail.model.karpenter import FeatureGate, assumptions
from dovetail.model.verdicts import Gate
from dovetail.scheduling.simulate import buffers_by_name

METHODS: dict[Method, Callable[[Work], MethodRun]] = {
    Method.UNHEALTHY: unhealthy.run,
    Method.EMPTY: empty.run,
    Method.EXPIRED: expired.run,
    Method.DRIFTED: drifted.run,
    Method.MULTI_NODE: multi_node.run,
    Method.SINGLE_NODE: single_node.run,
}

_BY_VALUE: dict[Method, Callable[[Work], MethodRun]] = {
    **METHODS,
    Method.MULTI_NODE: by_value.run_several,
    Method.SINGLE_NODE: by_value.run_one,
}

_CANDIDATES: dict[Method, Callable[[Scene], Sequence[NodeFacts]]] = {
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
    return decide(Work(Scene.of(question)), every_method=every_method, every_candidate=every_candidate)


def decide(
    work: Work, *, every_method: bool = False, every_candidate: bool = False, without: Sequence[Method] = ()
) -> RoundResult:
    """Decide on a scene; `without`: methods that are not asked this time."""
    scene = work.scene
    runs: dict[Method, MethodRun] = {}
    for method, ask in _methods(scene).items():
        if method in without:
            continue
        runs[method] = ask(work)
        if runs[method].commands and not every_method:
            break
    acting = next((run for run in runs.values() if run.commands), None)
    refused = [entry for run in runs.values() for entry in run.refused]
    soonest = next_change(work, refused, [entry for run in runs.values() for entry in run.aside])
    rolling = runs[Method.DRIFTED].rolling if Method.DRIFTED in runs else ()
    done = Work(scene, work)  # the parts go on from here, whatever else is tried out on `work`
    return RoundResult(
        now=scene.now,
        profile=scene.settings.profile,
        policy=scene.settings.policy,
        commands=acting.commands if acting else (),
        budgets=scene.ledger.rows(),
        warnings=warnings_of(scene, rolling),
        blocked=tuple(blocked_move(*entry) for entry in refused if entry[1].gate is Gate.SAVINGS_THRESHOLD),
        next_change=soonest,
        rolling=rolling,
        list_rollouts=lambda: _rollouts(Work(scene, done), runs),
        list_judged_moves=lambda: tuple(_judged_moves(done, runs)),
        assumed=assumptions(scene.settings.karpenter, scene.snapshot.surroundings.features),
        feature_gates={gate.value: scene.snapshot.surroundings.features.has(gate) for gate in FeatureGate},
        buffers=_buffers(scene),
        catalogue_source=scene.snapshot.catalogue.source,
        catalogue_date=scene.snapshot.catalogue.as_of,
        compute_steering=lambda: steer(scene),
        compute_expiring=lambda: expiring_nodes(scene, LOOK_AHEAD),
        list_waiting=lambda: waiting_nodes(scene),
        compute_could_save=lambda: could_save(Work(scene, done)),
        compute_loads=lambda: pool_loads(scene),
        compute_value_at_most=lambda: value_at_most(scene),
        list_prices=lambda: {f.name: scene.shown_price(f) for f in scene.nodes if f.offering_price is not None},
        compute_bill=lambda: scene.bill,
        compute_staying_cost=lambda: scene.billing.staying if scene.bill is not None else None,
        list_verdicts=lambda: _verdicts(Work(scene, done), runs),
        list_methods=lambda: _method_results(Work(scene, done), runs, every_candidate=every_candidate),
    )


def _methods(scene: Scene) -> Mapping[Method, Callable[[Work], MethodRun]]:
    """Return the methods in the order in which they are asked; repair only if a pool asks for it."""
    methods = _BY_VALUE if scene.settings.searches_by_value else METHODS
    if any(policy.repair for policy in scene.policies.values()) and not unhealthy.left_to_karpenter(scene):
        return methods
    return {method: ask for method, ask in methods.items() if method is not Method.UNHEALTHY}


def _verdicts(work: Work, runs: Mapping[Method, MethodRun]) -> Verdicts:
    """Return the nodes' verdicts; methods that were not asked are asked now."""
    methods = _methods(work.scene)
    return Verdicts(work, {method: runs.get(method) or ask(work) for method, ask in methods.items()})


def _rollouts(work: Work, runs: Mapping[Method, MethodRun]) -> tuple[RollStatus, ...]:
    scene = work.scene
    if scene.settings.rules.roll_requests and not scene.table.rolling_pools():
        return ()
    return rollouts(work, runs.get(Method.DRIFTED) or drifted.run(work))


def _method_results(work: Work, runs: Mapping[Method, MethodRun], *, every_candidate: bool) -> tuple[MethodResult, ...]:
    return tuple(
        _method_result(work, runs.get(method) or MethodRun(method=method), every_candidate=every_candidate)
        for method in _methods(work.scene)
    )


def _buffers(scene: Scene) -> tuple[BufferRow, ...]:
    """Return the active CapacityBuffers, by name, with the nodes that hold them."""
    found = []
    for name, entries in buffers_by_name(scene.snapshot).items():
        counts: dict[str, int] = {}
        for index in entries:
            if index is not None:
                node = scene.snapshot.states[index].name
                counts[node] = counts.get(node, 0) + 1
        found.append(BufferRow(name=name, replicas=len(entries), nodes=tuple(sorted(counts.items()))))
    return tuple(found)


def _judged_moves(work: Work, runs: Mapping[Method, MethodRun]) -> Iterator[JudgedMove]:
    """Yield the cost actions of a round by pool, as Karpenter counts them: only the last batch that was tried."""
    for method in (Method.MULTI_NODE, Method.SINGLE_NODE):
        run = runs.get(method)
        if run is None:
            continue
        refused = run.refused if method is Method.SINGLE_NODE else run.refused[-1:] if not run.commands else ()
        for nodes, _ in refused:
            yield from _by_pool(work, tuple(facts.name for facts in nodes), approved=False)
        for entry in run.aside if method is Method.SINGLE_NODE else ():
            yield from _by_pool(work, (entry.facts.name,), approved=False)
        for command in run.commands:
            yield from _by_pool(work, command.nodes, approved=True)


def _by_pool(work: Work, nodes: tuple[str, ...], *, approved: bool) -> Iterator[JudgedMove]:
    scene = work.scene
    scores = work.scores.get(nodes, {})
    for pool in sorted({scene.by_name[name].pool_name for name in nodes}):
        policy = scene.policies[pool].consolidation_policy.value
        yield JudgedMove(node_pool=pool, policy=policy, approved=approved, score=scores.get(pool))


def _method_result(work: Work, run: MethodRun, *, every_candidate: bool) -> MethodResult:
    scene = work.scene
    candidates, alone = _CANDIDATES[run.method](scene), None
    if every_candidate and run.method in (Method.DRIFTED, Method.SINGLE_NODE):
        alone = tuple(_alone(work, run.method, facts) for facts in candidates)
    return MethodResult(
        method=run.method,
        candidates=tuple(scene.figures(facts) for facts in candidates),
        budget=scene.left(run.method),
        commands=run.commands,
        alone=alone,
    )


def _alone(work: Work, method: Method, facts: NodeFacts) -> CandidateAlone:
    """Return what would happen to a candidate alone; a Balanced pool's refusal is only named (contract)."""
    scene = work.scene
    outcome: Command | Move | Refusal
    if method is Method.DRIFTED:
        outcome = leaving.alone(work, method, facts)
        why = leaving.why_it_goes(outcome) if isinstance(outcome, Command) else outcome.why
    else:
        outcome = single_node.in_words(scene, facts, single_node.unscored(work, facts))
        refusal = score(work, outcome) if isinstance(outcome, Move) else outcome
        why = refusal.why if refusal else "It is worth it."
        outcome = command_of(scene, method, outcome) if isinstance(outcome, Move) else outcome
    return CandidateAlone(node=facts.name, command=outcome if isinstance(outcome, Command) else None, why=why)
