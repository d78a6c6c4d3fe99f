"""Checks whether a command is still valid, some seconds later, on fresh state.

See docs/rules.md#carrying-out; savings-threshold, VALIDATION of the pipeline. The same candidates must still pass every
gate, the budget must still allow it, and the simulation must give the same or a subset. Commands that only delete empty
nodes keep those that still qualify; all others are accepted or refused as a whole. Returns the command to execute now
(with new placements), or the gate that it failed. Sits in decide, beside the round, below the decider.
"""

from collections.abc import Sequence
from dataclasses import replace

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price import judge_new_nodes
from dovetail.decide.methods import drifted, leaving
from dovetail.decide.methods.method import budget_result, domain_result
from dovetail.decide.methods.moves import (
    Move,
    bare_command,
    command_of,
    cost_move,
    plain_move,
    score,
    starting_in_words,
)
from dovetail.decide.methods.static import is_static
from dovetail.decide.methods.turns import turns_of
from dovetail.decide.refusal import Refusal
from dovetail.decide.refusals.starting import STARTING
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.command import COST_METHODS, Command, Method, Replacement
from dovetail.model.verdicts import Gate, GateResult
from dovetail.scheduling.result import NewNode


def revalidate(command: Command, work: Work) -> Command | Refusal:
    """Check a command again; what is in flight must not contain the command itself."""
    standing, refusal = _still_standing(work, command)
    if refusal is not None and (not standing or not _only_empties(command)):
        return refusal
    if _only_empties(command):
        return bare_command(work.scene, command.method, standing)
    if command.method in COST_METHODS:
        return _again_for_cost(work, command, standing)
    return _again(work, command, standing)


def _only_empties(command: Command) -> bool:
    """Return whether it is a command from which empty nodes may be dropped."""
    if command.terminate_first:
        return False
    return command.method is Method.EMPTY or (command.pods == 0 and not command.replacements)


def _still_standing(work: Work, command: Command) -> tuple[list[NodeFacts], Refusal | None]:
    """Return the nodes that still pass gates 1 to 8 and wait for nothing, and why the first of the others does not."""
    scene = work.scene
    left = scene.left(command.method)
    standing: list[NodeFacts] = []
    first: Refusal | None = None
    turn = _whose_turn(work, command)
    for name in command.nodes:
        facts = scene.by_name.get(name)
        stop = _gone(name) if facts is None else _stop(scene, command, facts, left, turn)
        if stop is None and facts is not None:
            left[facts.pool_name] -= 1
            standing.append(facts)
        else:
            first = first or stop
    return standing, first


def _stop(
    scene: Scene, command: Command, facts: NodeFacts, left: dict[str, int], turn: dict[str, GateResult]
) -> Refusal | None:
    chain = scene.chains.of(facts.name, command.method)
    if not chain.open:
        return _as_refusal(facts, chain.results[-1])
    if _only_empties(command) and not facts.empty and scene.settings.rules.revalidates_empty:
        count = len(facts.reschedulable)
        return Refusal(gate=Gate.NOT_EMPTY, why=f"{facts.name}: it is not empty any more.", figures={"pods": count})
    held = scene.waits.of(command.method, facts)
    if held is not None:
        return _as_refusal(facts, held)
    if facts.name in turn:
        return _as_refusal(facts, turn[facts.name])
    if left[facts.pool_name] <= 0:
        return _as_refusal(facts, budget_result(scene, command.method, facts.pool_name))
    return None


def _whose_turn(work: Work, command: Command) -> dict[str, GateResult]:
    """Return which of a drift command's nodes a topology budget holds back now (topology-budgets)."""
    scene = work.scene
    if command.method is not Method.DRIFTED:
        return {}
    wanted = frozenset(command.nodes)
    candidates = drifted.candidates(scene)
    turns, found = turns_of(work, candidates), [facts for facts in candidates if facts.name in wanted]
    held: dict[str, GateResult] = {}
    for pool in sorted({facts.pool_name for facts in found}):
        own = [facts for facts in found if facts.pool_name == pool]
        _, waiting = scene.ledger.take_by_domain(pool, own, turns[pool].active if pool in turns else None)
        held.update({name: domain_result(pool, entry) for name, entry in waiting.items()})
    return held


def _gone(name: str) -> Refusal:
    return Refusal(gate=Gate.MANAGED, why=f"{name}: the node is gone.")


def _as_refusal(facts: NodeFacts, result: GateResult) -> Refusal:
    return Refusal(gate=result.gate, why=f"{facts.name}: {result.why}", figures=dict(result.figures))


def _again(work: Work, command: Command, nodes: Sequence[NodeFacts]) -> Command | Refusal:
    """Simulate the removal of an expired or drifted node again."""
    if is_static(nodes[0]):
        return leaving.alone(work, command.method, nodes[0])
    if command.terminate_first:
        outcome = leaving.alone(work, command.method, nodes[0])
        if isinstance(outcome, Refusal) or outcome.terminate_first:
            return outcome
    move = plain_move(work, nodes)
    if isinstance(move, Refusal):
        return move
    return _same_or_less(work.scene, command, move)


def _again_for_cost(work: Work, command: Command, nodes: Sequence[NodeFacts]) -> Command | Refusal:
    """Simulate again; the command must still fit and still be worth it."""
    scene = work.scene
    move = cost_move(work, nodes, launchable=command.launchable)
    if move is STARTING:
        return starting_in_words(scene, nodes)
    if isinstance(move, Refusal):
        return move
    refusal = score(work, move) if scene.settings.rules.revalidates_balanced else None
    return refusal or _same_or_less(scene, command, move)


def _same_or_less(scene: Scene, command: Command, move: Move) -> Command | Refusal:
    """Compare what the simulation needs now with what the command would launch."""
    before, after = len(command.replacements), len(move.new_nodes)
    if after < before and command.method not in COST_METHODS and scene.settings.rules.accepts_fewer_nodes:
        # The node has to go anyway, and fewer new nodes are a subset of the decision. A refusal would repeat the same
        # decision while another command comes and goes. For cost there may be a better move now.
        return command_of(scene, command.method, move)
    if before != after:
        less = after < before and scene.settings.rules.accepts_fewer_nodes
        return Refusal(
            gate=Gate.NEW_NODES,
            why=f"It would take {after} new nodes now, and the command was for {before}.",
            figures={"newNodes": after, "planned": before},
            instead=command_of(scene, command.method, move) if less else None,
        )
    if not command.replacements:
        return command_of(scene, command.method, move)
    own = move.simulation.own_new_nodes(count_all=scene.settings.rules.others_pods_count)
    for planned, fitting in zip(command.replacements, own, strict=True):
        fits = frozenset(kind.name for kind in fitting.instance_types)
        if planned.node_pool != fitting.pool or not fits.issuperset(planned.instance_types):
            return Refusal(gate=Gate.NEW_NODES, why="The replacement that was planned would not do any more.")
    if command.method in COST_METHODS:
        # Price exactly the types that would be launched: some may have become more expensive since.
        chosen = [_as_planned(new, planned) for new, planned in zip(own, command.replacements, strict=True)]
        judged = judge_new_nodes(scene.sources(move.nodes), chosen, scene.settings)
        if isinstance(judged, Refusal):
            return judged
        move = replace(move, new_nodes=judged.new_nodes, approved=judged)
    return command_of(scene, command.method, move)


def _as_planned(new_node: NewNode, planned: Replacement) -> NewNode:
    """Keep only the types of a new node that the command would launch."""
    types = frozenset(planned.instance_types)
    return new_node.with_types([kind for kind in new_node.instance_types if kind.name in types])
