"""Save money with one node at a time: the first candidate, in order, whose pods fit elsewhere for less.

Spec section 5; savings-threshold, Design Options 1; lifecycle-controller (`deleteCost`, `replaceCost`). No time-out:
every candidate gets its turn. The profile `karpenter-1.15` takes the pools in turn, one node of each. Sits in decide,
beside the other methods, which it does not know.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates import balanced
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.methods.method import MethodRun, with_budget
from dovetail.decide.methods.moves import FORESEEN, Move, command_of, cost_move, rule_out_many, score, starting_in_words
from dovetail.decide.refusals.unready import STARTING
from dovetail.decide.waste import as_waste
from dovetail.model.command import Method
from dovetail.model.policies.policy import ConsolidationPolicy

METHOD = Method.SINGLE_NODE
_FIRST = 128
"""So many candidates are looked at together first."""


def candidates(context: RoundContext) -> tuple[NodeFacts, ...]:
    """Return the cost candidates in the order in which they are tried."""
    if not context.settings.rules.pools_take_turns:
        return context.cost_order
    pools: dict[str, list[NodeFacts]] = {}
    for facts in context.cost_order:
        pools.setdefault(facts.pool_name, []).append(facts)
    turns = range(len(context.cost_order))
    return tuple(members[turn] for turn in turns for members in pools.values() if turn < len(members))


def run(context: RoundContext) -> MethodRun:
    """Return the first command that is worth it."""
    if context.stabilizing:
        return MethodRun(method=METHOD)
    found, held = with_budget(context, METHOD, candidates(context))
    refused: list[tuple[tuple[NodeFacts, ...], Refusal]] = []
    for facts, refusal in _looked_through(context, found):
        outcome = refusal or judge(context, facts)
        if isinstance(outcome, Move):
            return MethodRun(
                method=METHOD,
                commands=(command_of(context, METHOD, outcome),),
                held=held,
                refused=tuple(refused),
            )
        refused.append(((facts,), outcome))
    return MethodRun(method=METHOD, held=held, refused=tuple(refused))


def _looked_through(context: RoundContext, nodes: Sequence[NodeFacts]) -> Iterator[tuple[NodeFacts, Refusal | None]]:
    """Yield each node, with its refusal if one is certain; asked in groups, each twice as large as the one before."""
    scores = any(policy.consolidation_policy is ConsolidationPolicy.BALANCED for policy in context.policies.values())
    begin, count = 0, _FIRST
    while begin < len(nodes):
        chosen = nodes[begin : begin + count]
        for facts, refusal in zip(chosen, rule_out_many(context, chosen), strict=True):
            if refusal is None or (scores and balanced.asks(facts)):
                yield facts, None
            else:
                context.judged[facts.name] = refusal
                yield facts, refusal
        begin, count = begin + count, 2 * count


def judge(context: RoundContext, facts: NodeFacts) -> Move | Refusal:
    """Judge one node by every gate, including the Balanced score; computed once a round."""
    known = context.judged.get(facts.name)
    if known is None:
        known = context.judged[facts.name] = _judge(context, facts)
    return known


def judge_in_full(context: RoundContext, facts: NodeFacts) -> Move | Refusal:
    """Judge one node gate after gate, so that the first closed gate refuses it."""
    known = judge(context, facts)
    if isinstance(known, Move) or known.simulated:
        return known
    outcome = cost_move(context, (facts,), in_full=True)
    if isinstance(outcome, Refusal):
        outcome = as_waste(context, facts, outcome)
    return outcome if isinstance(outcome, Refusal) else replace(known, simulated=True)


def in_words(context: RoundContext, facts: NodeFacts, outcome: Move | Refusal) -> Move | Refusal:
    """Return what was judged about one node, with the words of its simulation if this was only foreseen."""
    if outcome is STARTING:
        return starting_in_words(context, (facts,))
    return judge_in_full(context, facts) if outcome is FORESEEN else outcome


def _judge(context: RoundContext, facts: NodeFacts) -> Move | Refusal:
    hopeless = balanced.cannot_pass(facts, context.totals, context.settings) if balanced.asks(facts) else None
    outcome = hopeless or unscored(context, facts)
    if isinstance(outcome, Move):
        outcome = score(context, outcome) or outcome
    return as_waste(context, facts, outcome) if isinstance(outcome, Refusal) else outcome


def unscored(context: RoundContext, facts: NodeFacts) -> Move | Refusal:
    """Judge one node before the Balanced score; computed once a round."""
    known = context.unscored.get(facts.name)
    if known is None:
        known = context.unscored[facts.name] = cost_move(context, (facts,))
    return known
