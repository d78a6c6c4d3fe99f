"""Save money with one node at a time: the first candidate, in order, whose pods fit elsewhere for less.

Spec section 5; S1, Design Options 1; S4 (`deleteCost`, `replaceCost`). No time-out: every candidate gets its turn. The
profile `karpenter-1.15` takes the pools in turn, one node of each. Sits in decide, beside the other methods, which it
does not know.
"""

from dataclasses import replace

from dovetail.decide import balanced
from dovetail.decide.facts import NodeFacts
from dovetail.decide.method import MethodRun, held_back
from dovetail.decide.moves import Move, command_of, cost_move, score
from dovetail.decide.price import Refusal
from dovetail.decide.scene import Scene
from dovetail.model.command import Method

METHOD = Method.SINGLE_NODE


def candidates(scene: Scene) -> tuple[NodeFacts, ...]:
    """Give the cost candidates in the order they are asked."""
    if not scene.settings.is_karpenter:
        return scene.cost_order
    pools: dict[str, list[NodeFacts]] = {}
    for facts in scene.cost_order:
        pools.setdefault(facts.pool_name, []).append(facts)
    turns = max((len(members) for members in pools.values()), default=0)
    return tuple(members[turn] for turn in range(turns) for members in pools.values() if turn < len(members))


def run(scene: Scene) -> MethodRun:
    """Give the first command that is worth it."""
    found = candidates(scene)
    left = scene.left(METHOD)
    held = held_back(scene, METHOD, [facts for facts in found if left.get(facts.pool_name, 0) <= 0])
    if scene.stabilizing:
        return MethodRun(method=METHOD, candidates=found, held=held)
    refused: list[tuple[tuple[NodeFacts, ...], Refusal]] = []
    for facts in found:
        if facts.name in held:
            continue
        outcome = judge(scene, facts)
        if isinstance(outcome, Move):
            return MethodRun(
                method=METHOD,
                candidates=found,
                commands=(command_of(scene, METHOD, outcome),),
                held=held,
                refused=tuple(refused),
            )
        refused.append(((facts,), outcome))
    return MethodRun(method=METHOD, candidates=found, held=held, refused=tuple(refused))


def judge(scene: Scene, facts: NodeFacts) -> Move | Refusal:
    """Judge one node by every gate, the Balanced score included; asked once a round."""
    known = scene.judged.get(facts.name)
    if known is None:
        hopeless = balanced.cannot_pass(facts, scene.totals, scene.settings) if balanced.asks(facts) else None
        known = hopeless or _judge(scene, facts)
        scene.judged[facts.name] = known
    return known


def judge_in_full(scene: Scene, facts: NodeFacts) -> Move | Refusal:
    """Judge one node gate after gate, so that a refusal is by the first gate that is closed."""
    known = judge(scene, facts)
    if isinstance(known, Move) or known.simulated:
        return known
    outcome = cost_move(scene, (facts,), in_full=True)
    return outcome if isinstance(outcome, Refusal) else replace(known, simulated=True)


def _judge(scene: Scene, facts: NodeFacts) -> Move | Refusal:
    outcome = unscored(scene, facts)
    if isinstance(outcome, Refusal):
        return outcome
    return score(scene, outcome) or outcome


def unscored(scene: Scene, facts: NodeFacts) -> Move | Refusal:
    """Judge one node before the Balanced score; asked once a round."""
    known = scene.unscored.get(facts.name)
    if known is None:
        known = cost_move(scene, (facts,))
        scene.unscored[facts.name] = known
    return known
