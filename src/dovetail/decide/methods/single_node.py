"""Save money with one node at a time: the first candidate, in order, whose pods fit elsewhere for less.

Spec section 5; savings-threshold, Design Options 1; lifecycle-controller (`deleteCost`, `replaceCost`). No time-out:
every candidate gets its turn. The profile `karpenter-1.15` takes the pools in turn, one node of each. Sits in decide,
beside the other methods, which it does not know.
"""

from msgspec.structs import replace

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates import balanced
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.methods.method import MethodRun, with_budget
from dovetail.decide.methods.moves import Move, command_of, cost_move, score
from dovetail.decide.waste import as_waste
from dovetail.model.command import Method

METHOD = Method.SINGLE_NODE


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
    for facts in found:
        outcome = judge(context, facts)
        if isinstance(outcome, Move):
            return MethodRun(
                method=METHOD,
                commands=(command_of(context, METHOD, outcome),),
                held=held,
                refused=tuple(refused),
            )
        refused.append(((facts,), outcome))
    return MethodRun(method=METHOD, held=held, refused=tuple(refused))


def judge(context: RoundContext, facts: NodeFacts) -> Move | Refusal:
    """Judge one node by every gate, including the Balanced score; computed once a round."""
    known = context.judged.get(facts.name)
    if known is None:
        asks = balanced.asks(facts)
        hopeless = balanced.cannot_pass(facts, context.totals, context.settings) if asks else None
        known = hopeless or _judge(context, facts)
        if isinstance(known, Refusal):
            known = as_waste(context, facts, known)
        context.judged[facts.name] = known
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


def _judge(context: RoundContext, facts: NodeFacts) -> Move | Refusal:
    outcome = unscored(context, facts)
    if isinstance(outcome, Refusal):
        return outcome
    return score(context, outcome) or outcome


def unscored(context: RoundContext, facts: NodeFacts) -> Move | Refusal:
    """Judge one node before the Balanced score; computed once a round."""
    known = context.unscored.get(facts.name)
    if known is None:
        known = context.standing.refusal_of(facts) if context.standing is not None else None
        known = known or cost_move(context, (facts,))
        context.unscored[facts.name] = known
    return known
