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
from dovetail.decide.gates.candidates import Chain
from dovetail.decide.gates.gate_results import passed, stopped
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.methods import leaving, single_node
from dovetail.decide.methods.method import MethodRun
from dovetail.decide.methods.moves import Move
from dovetail.decide.words import clock, dollars, seconds
from dovetail.model.command import REASON_OF, Command, Method
from dovetail.model.money import Money
from dovetail.model.verdicts import ELIGIBLE, Gate, GateResult, NodeVerdict

PODS_MAX = 30_000
"""How many pods a round and its verdicts place, before nodes that nobody had to simulate are left for their turn."""
FIRST_GATE_PODS_MAX = 5_000
"""Up to how many pods on candidates nodes that could not pay anyhow are simulated too: their first closed gate."""
_WRONG_METHOD = (Gate.NOT_UNHEALTHY, Gate.NOT_EMPTY, Gate.NOT_EXPIRED, Gate.NOT_DRIFTED)
_PLACE = {gate: place for place, gate in enumerate(Gate)}
_COST = (Method.MULTI_NODE, Method.SINGLE_NODE)
_TAKEN = {
    Method.UNHEALTHY: "It is broken and would be repaired",
    Method.EMPTY: "It is empty and would be deleted",
    Method.EXPIRED: "It has expired and would be retired",
    Method.DRIFTED: "It has drifted and would be retired",
    Method.MULTI_NODE: "It would go together with others, to save money",
    Method.SINGLE_NODE: "It would go, to save money",
}


def verdicts(context: RoundContext, runs: Mapping[Method, MethodRun]) -> tuple[NodeVerdict, ...]:
    """Return every node's verdict, by name."""
    batch = frozenset(name for command in runs[Method.MULTI_NODE].commands for name in command.nodes)
    simulated = (Method.UNHEALTHY, Method.EXPIRED, Method.DRIFTED, Method.SINGLE_NODE)
    pods = sum(len(facts.reschedulable) for method in simulated for facts in context.passing(method))
    thorough = pods <= FIRST_GATE_PODS_MAX
    return tuple(_verdict(facts, chains_of(context, runs, facts, batch, thorough=thorough)) for facts in context.nodes)


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
        if method is Method.MULTI_NODE and facts.name not in batch:
            continue  # alone it may still go: the last method decides
        if method is Method.SINGLE_NODE and facts.name in batch:
            continue
        if method not in runs:
            continue
        chains[method] = _go_on(context, runs[method], facts, chain, thorough=thorough) if chain.open else chain
    return chains


def _go_on(context: RoundContext, run: MethodRun, facts: NodeFacts, chain: Chain, *, thorough: bool) -> Chain:
    """Return the chain with gates 8 to 10."""
    method = run.method
    if method in _COST and context.stabilizing:
        return chain.then(_stabilizing(context))
    until = context.regrown_until(facts) if method in _COST else None
    if until is not None:
        return chain.then(_regrown(facts, until, context))
    if facts.name in run.held:
        return chain.then(run.held[facts.name])
    chain = chain.then(_budget_passed(context, method, facts))
    if method is Method.EMPTY:
        return chain
    if method is Method.MULTI_NODE:
        together = passed(Gate.SIMULATION, "Its pods find room, together with those of the whole batch.")
        return chain.then(together, _saves(run.commands[0].savings, run.commands[0].required_savings, "The batch"))
    if not thorough and _waits_for_its_turn(context, method, facts):
        return chain.then(passed(Gate.SIMULATION, "It is simulated when its turn comes."))
    if method is Method.SINGLE_NODE:
        judge = single_node.judge_in_full if thorough else single_node.judge
        return chain.then(*_priced(judge(context, facts)))
    outcome = leaving.alone(context, method, facts)
    if isinstance(outcome, Command):
        return chain.then(passed(Gate.SIMULATION, leaving.why_it_goes(outcome)))
    return chain.then(_refused(outcome))


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
    return max(chains.values(), key=_reached)


def _reached(chain: Chain) -> tuple[bool, int]:
    gate = chain.results[-1].gate
    return gate not in _WRONG_METHOD, _PLACE[gate]


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
