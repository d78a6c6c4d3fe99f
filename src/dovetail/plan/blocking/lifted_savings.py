"""What the core would save with certain nodes if only budgets limited them: one command, found as in a round.

Uses the methods' own judgement on a scene in which some blocker has been removed. Sits in plan; `blockers` and
`pool_blockers` use it.
"""

from collections.abc import Sequence

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.table import in_cost_order
from dovetail.decide.methods import multi_node, single_node
from dovetail.decide.methods.method import take_within
from dovetail.decide.methods.moves import Move, cost_move, plain_move, score
from dovetail.decide.refusal import Refusal
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.command import Method
from dovetail.model.money import Money


def savings_of(work: Work, nodes: Sequence[str]) -> Money:
    """Return what the nodes would save per hour: the empty ones, and the best command for the others."""
    chosen = frozenset(nodes)
    if not chosen:
        return 0
    empties = _within(work.scene, Method.EMPTY, chosen)
    saved = sum(facts.price for facts in empties)
    leaving = max(_leaving(work, method, chosen) for method in (Method.EXPIRED, Method.DRIFTED))
    return saved + max(_cost(work, chosen), leaving, 0)


def _within(scene: Scene, method: Method, chosen: frozenset[str]) -> list[NodeFacts]:
    """Return those that pass gates 1 to 7 of a method, in cost order, as many as the budgets allow."""
    found = [facts for facts in scene.passing(method) if facts.name in chosen]
    ordered = in_cost_order(found, scene.settings, scene.now)
    return take_within(ordered, scene.left(method))[0]


def _cost(work: Work, chosen: frozenset[str]) -> Money:
    scene = work.scene
    taken = _within(scene, Method.MULTI_NODE, chosen & {facts.name for facts in scene.cost_sources})
    if not taken:
        return 0
    asked: dict[int, Move | Refusal] = {}

    def attempt(size: int) -> Move | Refusal:
        if size not in asked:
            outcome = cost_move(work, taken[:size])
            asked[size] = (score(work, outcome) if isinstance(outcome, Move) else None) or outcome
        return asked[size]

    pods = [len(facts.reschedulable) for facts in taken]
    multi_node.search(attempt, min(len(taken), scene.settings.batch_maximum), asked, pods)
    together = [outcome.approved.savings for outcome in asked.values() if isinstance(outcome, Move)]
    singles = (single_node.judge(work, facts) for facts in taken)
    alone = [outcome.approved.savings for outcome in singles if isinstance(outcome, Move)]
    return max([*together, *alone], default=0)


def _leaving(work: Work, method: Method, chosen: frozenset[str]) -> Money:
    """Return what retiring expired or drifted nodes saves, together where that works, else the best alone."""
    taken = _within(work.scene, method, chosen)
    if not taken:
        return 0
    outcomes = [plain_move(work, taken), *(plain_move(work, (facts,)) for facts in taken[: len(taken) - 1 or 1])]
    return max((outcome.approved.savings for outcome in outcomes if isinstance(outcome, Move)), default=0)
