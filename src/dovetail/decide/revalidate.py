"""Checks whether a command is still valid, some seconds later, on fresh state.

Spec section 9; savings-threshold, VALIDATION of the pipeline. The same candidates must still pass every gate, the
budget must still allow it, and the simulation must give the same or a subset. Commands that only delete empty nodes
keep those that still qualify; all others are accepted or refused as a whole. Returns the command to execute now (with
new placements), or the gate that it failed. Sits in decide, beside the round, below the decider.
"""

from collections.abc import Sequence
from dataclasses import replace

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.gates.price_sum import judge_new_nodes
from dovetail.decide.methods import drifted, leaving
from dovetail.decide.methods.method import budget_result, domain_result
from dovetail.decide.methods.moves import (
    FORESEEN,
    Move,
    bare_command,
    command_of,
    cost_move,
    plain_move,
    score,
    starting_in_words,
)
from dovetail.decide.methods.static import is_static
from dovetail.decide.refusals.unready import STARTING
from dovetail.model.command import Command, Method, Replacement
from dovetail.model.verdicts import Gate, GateResult
from dovetail.scheduling.result import NewNode

_COST = (Method.MULTI_NODE, Method.SINGLE_NODE)


def revalidate(command: Command, context: RoundContext) -> Command | Refusal:
    """Check a command again; what is in flight must not contain the command itself."""
    standing, refusal = _still_standing(context, command)
    if refusal is not None and (not standing or not _only_empties(command)):
        return refusal
    if _only_empties(command):
        return bare_command(context, command.method, standing)
    if command.method in _COST:
        return _again_for_cost(context, command, standing)
    return _again(context, command, standing)


def _only_empties(command: Command) -> bool:
    """Return whether it is a command from which empty nodes may be dropped."""
    return command.method is Method.EMPTY or (command.pods == 0 and not command.replacements)


def _still_standing(context: RoundContext, command: Command) -> tuple[list[NodeFacts], Refusal | None]:
    """Return the nodes that still pass gates 1 to 8, and why the first of the others does not."""
    left = context.left(command.method)
    standing: list[NodeFacts] = []
    first: Refusal | None = None
    turn = _whose_turn(context, command)
    for name in command.nodes:
        facts = context.by_name.get(name)
        stop = _gone(name) if facts is None else _stop(context, command, facts, left, turn)
        if stop is None and facts is not None:
            left[facts.pool_name] -= 1
            standing.append(facts)
        else:
            first = first or stop
    return standing, first


def _stop(
    context: RoundContext, command: Command, facts: NodeFacts, left: dict[str, int], turn: dict[str, GateResult]
) -> Refusal | None:
    chain = context.chains[facts.name][command.method]
    if not chain.open:
        return _as_refusal(facts, chain.results[-1])
    if _only_empties(command) and not facts.empty and context.settings.rules.revalidates_empty:
        count = len(facts.reschedulable)
        return Refusal(gate=Gate.NOT_EMPTY, why=f"{facts.name}: it is not empty any more.", figures={"pods": count})
    if facts.name in turn:
        return _as_refusal(facts, turn[facts.name])
    if left[facts.pool_name] <= 0:
        return _as_refusal(facts, budget_result(context, command.method, facts.pool_name))
    return None


def _whose_turn(context: RoundContext, command: Command) -> dict[str, GateResult]:
    """Return which of a drift command's nodes a topology budget holds back now (topology-budgets)."""
    if command.method is not Method.DRIFTED:
        return {}
    wanted = frozenset(command.nodes)
    found = [facts for facts in drifted.candidates(context) if facts.name in wanted]
    held: dict[str, GateResult] = {}
    for pool in sorted({facts.pool_name for facts in found}):
        own = [facts for facts in found if facts.pool_name == pool]
        _, waiting = context.ledger.take_by_domain(pool, own)
        held.update({name: domain_result(pool, entry) for name, entry in waiting.items()})
    return held


def _gone(name: str) -> Refusal:
    return Refusal(gate=Gate.MANAGED, why=f"{name}: the node is gone.")


def _as_refusal(facts: NodeFacts, result: GateResult) -> Refusal:
    return Refusal(gate=result.gate, why=f"{facts.name}: {result.why}", figures=dict(result.figures))


def _again(context: RoundContext, command: Command, nodes: Sequence[NodeFacts]) -> Command | Refusal:
    """Simulate the removal of an expired or drifted node again."""
    if is_static(nodes[0]):
        return leaving.alone(context, command.method, nodes[0])
    move = plain_move(context, nodes)
    if isinstance(move, Refusal):
        return move
    return _same_or_less(context, command, move)


def _again_for_cost(context: RoundContext, command: Command, nodes: Sequence[NodeFacts]) -> Command | Refusal:
    """Simulate again; the command must still fit and still be worth it."""
    move = cost_move(context, nodes, launchable=command.launchable)
    if move is FORESEEN:
        move = cost_move(context, nodes, in_full=True)  # for its words: they are reported
    if move is STARTING:
        return starting_in_words(context, nodes)
    if isinstance(move, Refusal):
        return move
    refusal = score(context, move) if context.settings.rules.revalidates_balanced else None
    return refusal or _same_or_less(context, command, move)


def _same_or_less(context: RoundContext, command: Command, move: Move) -> Command | Refusal:
    """Compare what the simulation needs now with what the command would launch."""
    before, after = len(command.replacements), len(move.new_nodes)
    if after < before and command.method not in _COST and context.settings.rules.accepts_fewer_nodes:
        # The node has to go anyway, and fewer new nodes are a subset of the decision. A refusal would repeat the same
        # decision while another command comes and goes. For cost there may be a better move now.
        return command_of(context, command.method, move)
    if before != after:
        less = after < before and context.settings.rules.accepts_fewer_nodes
        return Refusal(
            gate=Gate.NEW_NODES,
            why=f"It would take {after} new nodes now, and the command was for {before}.",
            figures={"newNodes": after, "planned": before},
            instead=command_of(context, command.method, move) if less else None,
        )
    if not command.replacements:
        return command_of(context, command.method, move)
    own = move.simulation.own_new_nodes(count_all=context.settings.rules.others_pods_count)
    for planned, fitting in zip(command.replacements, own, strict=True):
        fits = frozenset(kind.name for kind in fitting.instance_types)
        if planned.node_pool != fitting.pool or not fits.issuperset(planned.instance_types):
            return Refusal(gate=Gate.NEW_NODES, why="The replacement that was planned would not do any more.")
    if command.method in _COST:
        # Price exactly the types that would be launched: some may have become more expensive since.
        chosen = [_as_planned(new, planned) for new, planned in zip(own, command.replacements, strict=True)]
        judged = judge_new_nodes(context.sources(move.nodes), chosen, context.settings)
        if isinstance(judged, Refusal):
            return judged
        move = replace(move, new_nodes=judged.new_nodes, approved=judged)
    return command_of(context, command.method, move)


def _as_planned(new_node: NewNode, planned: Replacement) -> NewNode:
    """Keep only the types of a new node that the command would launch."""
    types = frozenset(planned.instance_types)
    return new_node.with_types([kind for kind in new_node.instance_types if kind.name in types])
