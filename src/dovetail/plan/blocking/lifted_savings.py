"""What the core would save with certain nodes if only budgets limited them: one command, found as in a round.

Uses the methods' own judgement on a context in which some blocker has been removed. Sits in plan; `blockers` and
`pool_blockers` use it.
"""

from collections.abc import Sequence

from dovetail.decide.context import RoundContext, in_cost_order
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.methods import multi_node, single_node
from dovetail.decide.methods.method import take_within
from dovetail.decide.methods.moves import Move, cost_move, plain_move, score
from dovetail.model.command import Method
from dovetail.model.money import Money


def savings_of(context: RoundContext, nodes: Sequence[str]) -> Money:
    """Return what the nodes would save per hour: the empty ones, and the best command for the others."""
    chosen = frozenset(nodes)
    if not chosen:
        return 0
    empties = _within(context, Method.EMPTY, chosen)
    saved = sum(facts.price for facts in empties)
    leaving = max(_leaving(context, method, chosen) for method in (Method.EXPIRED, Method.DRIFTED))
    return saved + max(_cost(context, chosen), leaving, 0)


def _within(context: RoundContext, method: Method, chosen: frozenset[str]) -> list[NodeFacts]:
    """Return those that pass gates 1 to 7 of a method, in cost order, as many as the budgets allow."""
    found = [facts for facts in context.passing(method) if facts.name in chosen]
    ordered = in_cost_order(found, context.settings, context.now)
    return take_within(ordered, context.left(method))[0]


def _cost(context: RoundContext, chosen: frozenset[str]) -> Money:
    taken = _within(context, Method.MULTI_NODE, chosen)
    if context.stabilizing or not taken:
        return 0
    asked: dict[int, Move | Refusal] = {}

    def attempt(size: int) -> Move | Refusal:
        if size not in asked:
            outcome = cost_move(context, taken[:size])
            asked[size] = (score(context, outcome) if isinstance(outcome, Move) else None) or outcome
        return asked[size]

    pods = [len(facts.reschedulable) for facts in taken]
    multi_node.search(attempt, min(len(taken), context.settings.batch_maximum), asked, pods)
    together = [outcome.approved.savings for outcome in asked.values() if isinstance(outcome, Move)]
    singles = (single_node.judge(context, facts) for facts in taken)
    alone = [outcome.approved.savings for outcome in singles if isinstance(outcome, Move)]
    return max([*together, *alone], default=0)


def _leaving(context: RoundContext, method: Method, chosen: frozenset[str]) -> Money:
    """Return what retiring expired or drifted nodes saves, together where that works, else the best alone."""
    taken = _within(context, method, chosen)
    if not taken:
        return 0
    outcomes = [plain_move(context, taken), *(plain_move(context, (facts,)) for facts in taken[: len(taken) - 1 or 1])]
    return max((outcome.approved.savings for outcome in outcomes if isinstance(outcome, Move)), default=0)
