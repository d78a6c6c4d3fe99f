"""The verdict of every node: the first method, in order, that would remove it; else the furthest gate it reached.

Spec section 4. Continues after gate 7, where `candidates` ends: budget, simulation, prices. Asks the same questions as
the methods, so most answers are cached; nodes that a round did not need to simulate are simulated here, which is why
verdicts are computed only on access. Sits in decide, above the methods, below the round.
"""

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from functools import lru_cache

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.roster import FirstClosed
from dovetail.decide.gates.candidates import Chain
from dovetail.decide.gates.gate_results import passed, stopped
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.methods import leaving, single_node
from dovetail.decide.methods.method import MethodRun
from dovetail.decide.methods.moves import Move
from dovetail.decide.words import clock, dollars, seconds
from dovetail.model.command import REASON_OF, Command, Method
from dovetail.model.money import Money
from dovetail.model.verdicts import ELIGIBLE, BriefVerdict, Gate, GateResult, NodeVerdict

PODS_MAX = 30_000
"""How many pods a round and its verdicts place, before nodes that nobody had to simulate are left for their turn."""
FIRST_GATE_PODS_MAX = 5_000
"""Up to how many pods on candidates nodes that could not pay anyhow are simulated too: their first closed gate."""
_WRONG_METHOD = (Gate.NOT_UNHEALTHY, Gate.NOT_EMPTY, Gate.NOT_EXPIRED, Gate.NOT_DRIFTED)
_REACHED = {gate: (gate not in _WRONG_METHOD, place) for place, gate in enumerate(Gate)}
"""How far a node got that stopped at a gate; conditions of other methods come before all else."""
_COST = (Method.MULTI_NODE, Method.SINGLE_NODE)
_TAKEN = {
    Method.UNHEALTHY: "It is broken and would be repaired",
    Method.EMPTY: "It is empty and would be deleted",
    Method.EXPIRED: "It has expired and would be retired",
    Method.DRIFTED: "It has drifted and would be retired",
    Method.MULTI_NODE: "It would go together with others, to save money",
    Method.SINGLE_NODE: "It would go, to save money",
}


class Verdicts:
    """The verdicts of a round, in full or in brief; both ask the same questions in the same order."""

    def __init__(self, context: RoundContext, runs: Mapping[Method, MethodRun]) -> None:
        self._context, self._runs = context, runs
        self._batch = frozenset(name for command in runs[Method.MULTI_NODE].commands for name in command.nodes)
        self._thorough = _has_few_pods(context)

    def all(self) -> tuple[NodeVerdict, ...]:
        """Return every node's verdict, by name."""
        return tuple(map(self._of, self._context.nodes))

    def of(self, node: str) -> NodeVerdict:
        """Return a node's verdict."""
        return self._of(self._context.by_name[node])

    def brief(self) -> tuple[BriefVerdict, ...]:
        """Return every node's verdict without its reasons, by name."""
        context, batch, found = self._context, self._batch, []
        outlooks: tuple[_Outlooks, _Outlooks] = ({}, {})
        for facts, closed in zip(context.nodes, context.first_closed(), strict=True):
            name = facts.name
            known = outlooks[name in batch]
            entry = known.get(id(closed))
            if entry is None:
                entry = known[id(closed)] = self._entry(facts, closed)
            _, verdict, furthest, methods = entry
            found.append(BriefVerdict(name, facts.pool_name, verdict or self._brief(facts, furthest, methods)))
        return tuple(found)

    def _entry(self, facts: NodeFacts, closed: FirstClosed) -> "_Entry":
        furthest, methods = self._outlook(facts, closed)
        return closed, furthest.value if furthest and not methods else "", furthest, methods

    def _of(self, facts: NodeFacts) -> NodeVerdict:
        return _verdict(facts, chains_of(self._context, self._runs, facts, self._batch, thorough=self._thorough))

    def _outlook(self, facts: NodeFacts, closed: FirstClosed) -> "_Outlook":
        asked = [entry for entry in closed if _is_asked(entry[0], self._runs, facts, self._batch)]
        furthest = max((gate for _, gate in asked if gate is not None), key=_reached, default=None)
        methods = tuple(method for method, gate in asked if gate is None)
        if methods and self._context.stabilizing and all(method in _COST for method in methods):
            return max(furthest or Gate.STABILIZATION, Gate.STABILIZATION, key=_reached), ()
        return furthest, methods

    def _brief(self, facts: NodeFacts, furthest: Gate | None, methods: tuple[Method, ...]) -> str:
        """Return the verdict that `deciding` comes to."""
        for method in methods:
            gate = _stopped_at(self._context, self._runs[method], facts, thorough=self._thorough)
            if gate is None:
                return ELIGIBLE
            furthest = gate if furthest is None else max(furthest, gate, key=_reached)
        assert furthest is not None
        return furthest.value


_Outlook = tuple[Gate | None, tuple[Method, ...]]
"""The furthest closed gate of a node's methods, and the methods whose gates 1 to 7 are open, in order."""
_Entry = tuple[FirstClosed, str, Gate | None, tuple[Method, ...]]
"""Where the gates of nodes end, the verdict of all of them (empty: they may differ), and their outlook."""
_Outlooks = dict[int, _Entry]
"""By identity: many nodes share where their gates end."""


def _has_few_pods(context: RoundContext) -> bool:
    """Return whether there are few enough pods on candidates to simulate all of them."""
    pods = 0
    for method in (Method.UNHEALTHY, Method.EXPIRED, Method.DRIFTED, Method.SINGLE_NODE):
        for facts in context.passing(method):
            pods += len(facts.reschedulable)
            if pods > FIRST_GATE_PODS_MAX:
                return False
    return True


def chains_of(
    context: RoundContext,
    runs: Mapping[Method, MethodRun],
    facts: NodeFacts,
    batch: frozenset[str],
    *,
    thorough: bool = False,
) -> dict[Method, Chain]:
    """Run one node through all gates of every method; the two cost methods share one chain.

    `thorough`: simulate every node, and apply every gate in order.
    """
    chains = {}
    for method, chain in context.chains[facts.name].items():
        if _is_asked(method, runs, facts, batch):
            further = _further(context, runs[method], facts, thorough=thorough) if chain.open else ()
            chains[method] = chain.then(*further) if further else chain
    return chains


def _is_asked(method: Method, runs: Mapping[Method, MethodRun], facts: NodeFacts, batch: frozenset[str]) -> bool:
    """Return whether a method's chain counts for a node; alone it may still go: the last method decides."""
    if method in _COST and (facts.name in batch) != (method is Method.MULTI_NODE):
        return False
    return method in runs


def _further(context: RoundContext, run: MethodRun, facts: NodeFacts, *, thorough: bool) -> tuple[GateResult, ...]:
    """Return the results of gates 8 to 10."""
    held = _held(context, run, facts)
    if held is not None:
        return (held,)
    within = _budget_passed(context, run.method, facts)
    if run.method is Method.EMPTY:
        return (within,)
    if run.method is Method.MULTI_NODE:
        together = passed(Gate.SIMULATION, "Its pods find room, together with those of the whole batch.")
        return within, together, _saves(run.commands[0].savings, run.commands[0].required_savings, "The batch")
    outcome = _outcome(context, run.method, facts, thorough=thorough)
    if outcome is None:
        return within, passed(Gate.SIMULATION, "It is simulated when its turn comes.")
    if isinstance(outcome, Command):
        return within, passed(Gate.SIMULATION, leaving.why_it_goes(outcome))
    if run.method is not Method.SINGLE_NODE and isinstance(outcome, Refusal):
        return within, _refused(outcome)
    return (within, *_priced(single_node.in_words(context, facts, outcome)))


def _stopped_at(context: RoundContext, run: MethodRun, facts: NodeFacts, *, thorough: bool) -> Gate | None:
    """Return the gate of `_further` that a node does not pass; None: it passes all."""
    held = _held(context, run, facts)
    if held is not None:
        return held.gate
    if run.method in (Method.EMPTY, Method.MULTI_NODE):
        return None
    outcome = _outcome(context, run.method, facts, thorough=thorough)
    return outcome.gate if isinstance(outcome, Refusal) else None


def _held(context: RoundContext, run: MethodRun, facts: NodeFacts) -> GateResult | None:
    """Return what holds a node back, whatever a simulation would say: gate 8."""
    if run.method in _COST and context.stabilizing:
        return _stabilizing(context)
    until = context.regrown_until(facts) if run.method in _COST else None
    return run.held.get(facts.name) if until is None else _regrown(facts, until, context)


def _outcome(
    context: RoundContext, method: Method, facts: NodeFacts, *, thorough: bool
) -> Move | Command | Refusal | None:
    """Return what comes of removing a node alone; None: its turn to be simulated has not come."""
    if not thorough and _waits_for_its_turn(context, method, facts):
        return None
    if method is Method.SINGLE_NODE:
        return (single_node.judge_in_full if thorough else single_node.judge)(context, facts)
    return leaving.alone(context, method, facts)


def _waits_for_its_turn(context: RoundContext, method: Method, facts: NodeFacts) -> bool:
    """Return whether the node's simulation is postponed: in a large cluster in which others go first anyway."""
    if context.pods_simulated < PODS_MAX or facts.empty:
        return False
    asked = facts.name in context.judged if method is Method.SINGLE_NODE else context.has_simulated(facts)
    return not asked


def _budget_passed(context: RoundContext, method: Method, facts: NodeFacts) -> GateResult:
    entry = context.ledger.allowance(facts.pool_name, REASON_OF[method])
    return passed(
        Gate.BUDGET, f"NodePool {facts.pool_name} has budget left for {REASON_OF[method].value}: {entry.left}."
    )


def _stabilizing(context: RoundContext) -> GateResult:
    assert context.stabilized_until is not None
    return _settling(context.stabilized_until, context.now, context.question.cost_held_by or "an action")


@lru_cache(maxsize=16)
def _settling(until: datetime, now: datetime, what: str) -> GateResult:
    """Return the same result for all nodes."""
    return stopped(
        Gate.STABILIZATION,
        f"{what[0].upper()}{what[1:]} has just finished; cost actions in all NodePools wait for the cluster to settle, "
        f"{seconds(until - now)} more.",
        until=clock(until),
    )


def _regrown(facts: NodeFacts, until: datetime, context: RoundContext) -> GateResult:
    left = seconds(until - context.now)
    why = f"The last cost action in NodePool {facts.pool_name} did not hold, a node came back; it waits {left} more."
    return stopped(Gate.STABILIZATION, why, until=clock(until))


def _priced(outcome: Move | Refusal) -> tuple[GateResult, ...]:
    if isinstance(outcome, Refusal):
        if outcome.is_price and outcome.simulated:
            return (passed(Gate.SIMULATION, "Every pod finds a place."), _refused(outcome))
        return (_refused(outcome),)
    approved = outcome.approved
    return (
        passed(Gate.SIMULATION, "Every pod finds a place."),
        _saves(approved.savings, approved.required, "It"),
    )


def _saves(savings: Money, required: Money | Fraction, what: str) -> GateResult:
    return GateResult(
        gate=Gate.SAVINGS_THRESHOLD,
        passed=True,
        why=f"{what} saves {dollars(savings)}/h and has to save {dollars(required)}/h.",
        figures={
            "savingsPerHour": dollars(savings, bare=True),
            "requiredSavingsPerHour": dollars(required, bare=True),
        },
    )


def _refused(refusal: Refusal) -> GateResult:
    return GateResult(gate=refusal.gate, passed=False, why=refusal.why, figures=refusal.figures)


def deciding(chains: Mapping[Method, Chain]) -> Chain:
    """Return the chain that decides: the first one that passed all gates, else the one that got furthest."""
    for chain in chains.values():
        if chain.open:
            return chain
    return max(chains.values(), key=lambda chain: _reached(chain.results[-1].gate))


def _reached(gate: Gate) -> tuple[bool, int]:
    return _REACHED[gate]


def _verdict(facts: NodeFacts, chains: Mapping[Method, Chain]) -> NodeVerdict:
    chain = deciding(chains)
    last = chain.results[-1]
    return NodeVerdict(
        node=facts.name,
        node_pool=facts.pool_name,
        verdict=ELIGIBLE if last.passed else last.gate.value,
        why=f"{_TAKEN[chain.method]}." if last.passed else last.why,
        gates=chain.results,
    )
