"""Save money with one node at a time: the first candidate, in order, whose pods fit elsewhere for less.

See docs/rules.md#methods; savings-threshold, Design Options 1; lifecycle-controller (`deleteCost`, `replaceCost`). No
time-out: every candidate gets its turn. The profile `karpenter-1.15` takes the pools in turn, one node of each. Sits in
decide, beside the other methods, which it does not know.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates import balanced
from dovetail.decide.methods.method import MethodRun, with_budget
from dovetail.decide.methods.moves import Move, Possible, command_of, cost_move, rule_out, score, starting_in_words
from dovetail.decide.refusal import Refusal
from dovetail.decide.refusals.starting import STARTING
from dovetail.decide.scene import Scene
from dovetail.decide.waste import as_waste
from dovetail.decide.work import Work
from dovetail.model.command import Method
from dovetail.model.policies.policy import ConsolidationPolicy

METHOD = Method.SINGLE_NODE
_FIRST = 128
"""How many candidates the first group has."""


def candidates(scene: Scene) -> tuple[NodeFacts, ...]:
    """Return the cost candidates in the order in which they are tried."""
    return _in_turn(scene, scene.cost_order)


def _in_turn(scene: Scene, nodes: tuple[NodeFacts, ...]) -> tuple[NodeFacts, ...]:
    if not scene.settings.rules.pools_take_turns:
        return nodes
    pools: dict[str, list[NodeFacts]] = {}
    for facts in nodes:
        pools.setdefault(facts.pool_name, []).append(facts)
    turns = range(len(nodes))
    return tuple(members[turn] for turn in turns for members in pools.values() if turn < len(members))


def run(work: Work) -> MethodRun:
    """Return the first command that is worth it."""
    scene = work.scene
    found, held = with_budget(scene, METHOD, _in_turn(scene, scene.cost_sources))
    refused: list[tuple[tuple[NodeFacts, ...], Refusal]] = []
    for facts, refusal in looked_through(work, found):
        outcome = refusal or judge(work, facts)
        if isinstance(outcome, Move):
            return MethodRun(
                method=METHOD,
                commands=(command_of(scene, METHOD, outcome),),
                held=held,
                refused=tuple(refused),
            )
        refused.append(((facts,), outcome))
    return MethodRun(method=METHOD, held=held, refused=tuple(refused))


def looked_through(work: Work, nodes: Sequence[NodeFacts]) -> Iterator[tuple[NodeFacts, Refusal | None]]:
    """Yield each node, with its refusal if one is certain."""
    for chosen, certain in in_groups(work, nodes):
        for facts, found in zip(chosen, certain, strict=True):
            yield facts, found if isinstance(found, Refusal) and work.judged.get(facts.name) is found else None


def in_groups(work: Work, nodes: Sequence[NodeFacts]) -> Iterator[tuple[Sequence[NodeFacts], list[Refusal | Possible]]]:
    """Yield nodes, and what is certain about each alone, in groups, each twice as large as the one before."""
    policies = work.scene.policies.values()
    scores = any(policy.consolidation_policy is ConsolidationPolicy.BALANCED for policy in policies)
    begin, count = 0, _FIRST
    while begin < len(nodes):
        chosen = nodes[begin : begin + count]
        certain = rule_out(work, chosen)
        for facts, found in zip(chosen, certain, strict=True):
            if isinstance(found, Refusal) and not (scores and balanced.asks(facts)):
                work.judged[facts.name] = found
        yield chosen, certain
        begin, count = begin + count, 2 * count


def judge(work: Work, facts: NodeFacts) -> Move | Refusal:
    """Judge one node by every gate, including the Balanced score; computed once a round."""
    known = work.judged.get(facts.name)
    if known is None:
        known = work.judged[facts.name] = _judge(work, facts)
    return known


def judge_in_full(work: Work, facts: NodeFacts) -> Move | Refusal:
    """Judge one node gate after gate, so that the first closed gate refuses it."""
    known = judge(work, facts)
    if isinstance(known, Move) or known.simulated:
        return known
    outcome = cost_move(work, (facts,), in_full=True)
    if isinstance(outcome, Refusal):
        outcome = as_waste(work, facts, outcome)
    return outcome if isinstance(outcome, Refusal) else replace(known, simulated=True)


def in_words(scene: Scene, facts: NodeFacts, outcome: Move | Refusal) -> Move | Refusal:
    """Return what was judged about one node, with the names of the pod and the node if it is a starting one."""
    return starting_in_words(scene, (facts,)) if outcome is STARTING else outcome


def _judge(work: Work, facts: NodeFacts) -> Move | Refusal:
    scene = work.scene
    hopeless = balanced.cannot_pass(facts, scene.totals, scene.settings) if balanced.asks(facts) else None
    outcome = hopeless or unscored(work, facts)
    if isinstance(outcome, Move):
        outcome = score(work, outcome) or outcome
    return as_waste(work, facts, outcome) if isinstance(outcome, Refusal) else outcome


def unscored(work: Work, facts: NodeFacts) -> Move | Refusal:
    """Judge one node before the Balanced score; computed once a round."""
    known = work.unscored.get(facts.name)
    if known is None:
        known = work.unscored[facts.name] = cost_move(work, (facts,))
    return known
