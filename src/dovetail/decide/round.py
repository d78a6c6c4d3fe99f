"""One round: methods run in order, the first one with a command acts, and every node gets a verdict.

See docs/rules.md#methods; lifecycle-controller (one lifecycle controller): empty, expired, drifted, several nodes for
cost, one node for cost. A pure function of the question. The methods don't know each other: this is the only module
that knows them all. Sits in decide, below the decider.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.candidates import Chain
from dovetail.decide.horizon import next_change
from dovetail.decide.loads import pool_loads
from dovetail.decide.methods import drifted, empty, expired, leaving, multi_node, single_node, unhealthy
from dovetail.decide.methods.method import MethodRun, blocked_move
from dovetail.decide.methods.moves import Move, command_of, score
from dovetail.decide.methods.outlook import LOOK_AHEAD, expiring_nodes, waiting_nodes
from dovetail.decide.methods.turns import active_domains
from dovetail.decide.optimal import value_at_most
from dovetail.decide.outcome import (
    BlockedMove,
    BudgetRow,
    BufferRow,
    CandidateAlone,
    ExpiringNode,
    JudgedMove,
    MethodResult,
    RollChange,
    SteeringPlan,
    WaitingNode,
)
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
from dovetail.model.cached import cached
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import COST_METHODS, REASON_OF, Command, Method
from dovetail.model.commitments import Bill
from dovetail.model.karpenter import FeatureGate, assumptions
from dovetail.model.money import Money, nearest
from dovetail.model.persistence import PoolLoad
from dovetail.model.settings import Profile
from dovetail.model.verdicts import BriefVerdict, Gate, NodeVerdict
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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoundResult:
    """Everything a round found. `commands` is what to do now; the rest says why, and why not.

    `next_change` is the earliest time at which the answer could change without an event: a timer ends, a budget's
    window opens or closes, a node expires. None: never by time alone. `rolling`: what NodePools should say about their
    rolls from now on. `done`: what the round tried out; `runs`: what the methods found that were asked.

    Immutable. Most is computed on first access, because a controller that only acts does not need 5,000 sentences; the
    values don't depend on when or in which order they are read.
    """

    scene: Scene
    done: Work
    runs: Mapping[Method, MethodRun]
    every_candidate: bool
    commands: tuple[Command, ...]
    budgets: tuple[BudgetRow, ...]
    warnings: tuple[str, ...]
    blocked: tuple[BlockedMove, ...]
    next_change: datetime | None
    rolling: tuple[RollChange, ...]

    @property
    def now(self) -> datetime:
        """Return when the question was asked."""
        return self.scene.now

    @property
    def profile(self) -> Profile:
        """Return the profile of the rules."""
        return self.scene.settings.profile

    @property
    def policy(self) -> str:
        """Return the name of the policy; empty: none was named."""
        return self.scene.settings.policy

    @property
    def called(self) -> str:
        """Return what people call the rules of this round: the policy, or else the profile."""
        return self.policy or self.profile.value

    @property
    def catalogue(self) -> Catalogue:
        """Return the instance types and prices that it was decided with."""
        return self.scene.snapshot.catalogue

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return what was assumed about Karpenter."""
        return assumptions(self.scene.settings.karpenter, self.scene.snapshot.surroundings.features)

    @property
    def feature_gates(self) -> Mapping[str, bool]:
        """Return Karpenter's feature gates and whether each counts as on."""
        features = self.scene.snapshot.surroundings.features
        return {gate.value: features.has(gate) for gate in FeatureGate}

    @cached
    def buffers(self) -> tuple[BufferRow, ...]:
        """Return the active CapacityBuffers, by name, with the nodes that hold them."""
        return _buffers(self.scene)

    @cached
    def steering(self) -> SteeringPlan:
        """Return the nodes to close and the pods to mark (docs/rules.md#steering); nothing if steering is off."""
        return steer(self.scene)

    @cached
    def expiring(self) -> tuple[ExpiringNode, ...]:
        """Return the nodes that Karpenter ends by force within a week, and whether budgets can take each before."""
        return expiring_nodes(self.scene, LOOK_AHEAD)

    @cached
    def waiting(self) -> tuple[WaitingNode, ...]:
        """Return the unhealthy, expired and drifted nodes that are not leaving yet, and since when each waits."""
        return waiting_nodes(self.scene)

    @cached
    def could_save(self) -> Mapping[str, Money | None]:
        """Return what removing each node would save per hour, if its pool prices disruption (docs/rules.md#waste)."""
        return could_save(self._go_on())

    @cached
    def loads(self) -> Mapping[str, PoolLoad]:
        """Return the load of every pool that prices restarts (docs/rules.md#one-price)."""
        return pool_loads(self.scene)

    @cached
    def value_at_most(self) -> Money | None:
        """Return an upper bound on the hourly value of any set of the nodes that may go now; None: none may go."""
        return value_at_most(self.scene)

    @cached
    def judged_moves(self) -> tuple[JudgedMove, ...]:
        """Return every cost action that was judged, by pool, as Karpenter's metrics count moves."""
        return tuple(_judged_moves(self.done, self.runs))

    @cached
    def rollouts(self) -> tuple[RollStatus, ...]:
        """Return the state of every roll, by pool."""
        scene = self.scene
        if scene.settings.rules.roll_requests and not scene.table.rolling_pools():
            return ()
        work = self._go_on()
        return rollouts(work, self.runs.get(Method.DRIFTED) or drifted.run(work))

    @cached
    def prices(self) -> Mapping[str, Money]:
        """Return what each node with a known price costs per hour: what its going by itself would save."""
        scene = self.scene
        return {facts.name: scene.shown_price(facts) for facts in scene.nodes if facts.offering_price is not None}

    @property
    def bill(self) -> Bill | None:
        """Return what is committed and what is not covered; None if the nodes simply cost the sum of their prices."""
        return self.scene.bill

    @property
    def cost_per_hour(self) -> Money:
        """Return what all nodes with a known price cost per hour."""
        return sum(self.prices.values()) if self.bill is None else nearest(self.bill.total)

    @property
    def staying_cost(self) -> Money:
        """Return the same without nodes that are leaving, where those change what the others cost.

        What commands save is a difference of these: a commitment that a leaving node uses is free again soon.
        """
        return self.cost_per_hour if self.bill is None else self.scene.billing.staying

    @cached
    def methods(self) -> tuple[MethodResult, ...]:
        """Return every method, in the order they are asked.

        One that was not asked, because another acts, has its candidates and no command.
        """
        work, found = self._go_on(), []
        for method in _methods(self.scene):
            within = {row.node_pool: row.left_with_domains for row in self.budgets if row.reason is REASON_OF[method]}
            run, left = self.runs.get(method) or MethodRun(method=method), {**self.scene.left(method), **within}
            found.append(_method_result(work, run, left, every_candidate=self.every_candidate))
        return tuple(found)

    @cached
    def verdicts(self) -> tuple[NodeVerdict, ...]:
        """Return every node's verdict, by name."""
        return self._judges().all()

    @cached
    def brief_verdicts(self) -> tuple[BriefVerdict, ...]:
        """Return every node's verdict without its reasons, by name."""
        return self._in_brief.brief()

    def verdict(self, node: str) -> NodeVerdict:
        """Return one node's verdict, the same as in `verdicts`; the others are computed only if it depends on them."""
        return self._in_brief.of(node)

    def chains(self, node: str) -> tuple[Mapping[Method, Chain], Chain]:
        """Return a node's gates by method, and those of the method that its verdict goes by."""
        return self._in_brief.chains(node)

    def why(self, node: str) -> str:
        """Return the reason of a node's verdict."""
        return self.verdict(node).why

    @cached
    def _in_brief(self) -> Verdicts:
        return self._judges()

    def _judges(self) -> Verdicts:
        """Return the nodes' verdicts; methods that were not asked are asked now."""
        work, methods = self._go_on(), _methods(self.scene)
        return Verdicts(work, {method: self.runs.get(method) or ask(work) for method, ask in methods.items()})

    def _go_on(self) -> Work:
        """Return the round's work to go on with, so that no part depends on another."""
        return Work(self.scene, self.done)

    @property
    def saves(self) -> Money:
        """Return what its commands save per hour, together."""
        return sum(command.savings for command in self.commands)

    @property
    def taken(self) -> tuple[str, ...]:
        """Return the nodes that its commands remove."""
        return tuple(node for command in self.commands for node in command.nodes)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `dovetail plan` (contract.md)."""
        from dovetail.decide.document import plan_document

        return plan_document(self)


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
    return RoundResult(
        scene=scene,
        done=Work(scene, work),  # the parts go on from here, whatever else is tried out on `work`
        runs=runs,
        every_candidate=every_candidate,
        commands=acting.commands if acting else (),
        budgets=scene.ledger.rows(active_domains(work)),
        warnings=warnings_of(scene, rolling),
        blocked=tuple(blocked_move(*entry) for entry in refused if entry[1].gate is Gate.SAVINGS_THRESHOLD),
        next_change=soonest,
        rolling=rolling,
    )


def _methods(scene: Scene) -> Mapping[Method, Callable[[Work], MethodRun]]:
    """Return the methods in the order in which they are asked; repair only if a pool asks for it."""
    methods = _BY_VALUE if scene.settings.searches_by_value else METHODS
    if any(policy.repair for policy in scene.policies.values()) and not unhealthy.left_to_karpenter(scene):
        return methods
    return {method: ask for method, ask in methods.items() if method is not Method.UNHEALTHY}


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
    for method in COST_METHODS:
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


def _method_result(work: Work, run: MethodRun, left: Mapping[str, int], *, every_candidate: bool) -> MethodResult:
    scene = work.scene
    candidates, alone = _CANDIDATES[run.method](scene), None
    if every_candidate and run.method in (Method.DRIFTED, Method.SINGLE_NODE):
        alone = tuple(_alone(work, run.method, facts) for facts in candidates)
    return MethodResult(
        method=run.method,
        candidates=tuple(scene.figures(facts) for facts in candidates),
        budget=left,
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
