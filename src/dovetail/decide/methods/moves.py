"""From nodes to a command: simulate, apply the price gates, and build the command.

The part that methods share. `cost_move` judges any set of nodes as one cost action (spec sections 5 and 8);
`plain_move` removes one node whatever it costs, for expiry and drift. The methods decide which sets are tried, and in
which order. Sits in decide, above price and balanced, below the methods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates import balanced, price
from dovetail.decide.gates.gate_results import pod_name
from dovetail.decide.gates.method_rules import claims_why
from dovetail.decide.gates.price import Approved
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.gates.price_sum import judge_new_nodes
from dovetail.decide.refusals.sieve import Possible
from dovetail.decide.refusals.unready import STARTING
from dovetail.decide.words import clock
from dovetail.model.command import Action, Command, Method, Placement, Replacement
from dovetail.model.money import nearest
from dovetail.model.settings import Settings
from dovetail.model.verdicts import Figure, Gate
from dovetail.scheduling.buffers import is_virtual
from dovetail.scheduling.entries import ALL_TYPES
from dovetail.scheduling.explain import explain_uninitialized
from dovetail.scheduling.pods.requests import uses_resource_claims
from dovetail.scheduling.result import LaunchPrice, NewNode, SimulationResult, Unplaced

FORESEEN: Final = Refusal(
    gate=Gate.UNINITIALIZED_DESTINATION,
    why="One of its pods would go to a node that is not initialized yet.",
    simulated=False,
)
"""A simulation would refuse the node at this gate; `single_node.judge_in_full` runs it, for its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A set of nodes that may go, with the results of the simulation and the price gates."""

    nodes: tuple[NodeFacts, ...]
    simulation: SimulationResult
    new_nodes: tuple[NewNode, ...]
    approved: Approved
    launchable: tuple[str, ...] = ()


def cost_move(
    context: RoundContext, nodes: Sequence[NodeFacts], *, in_full: bool = False, launchable: tuple[str, ...] = ()
) -> Move | Refusal:
    """Judge removing these nodes together to save money; `score` adds the Balanced score.

    `in_full`: gate after gate. Otherwise hopeless sets are refused without a simulation, possibly by a later gate than
    the first closed one: the same result for less work. `launchable`: types that new nodes are limited to.
    """
    hopeless = None
    if not in_full:
        hopeless = _hopeless_alone(context, nodes[0]) if len(nodes) == 1 else _hopeless(context, nodes)
    if hopeless:
        return hopeless
    if len(nodes) == 1 and not in_full and not launchable and context.foresees_unready(nodes[0]):
        return FORESEEN
    sources = context.sources(nodes)
    types = context.snapshot.frame.machines.named(launchable) if launchable else ALL_TYPES
    simulation = context.simulate(nodes, for_cost=True, launchable=types)
    refusal = refuse_unplaced(simulation, context.settings)
    if refusal:
        return refusal
    own = simulation.own_new_nodes(count_all=context.settings.rules.others_pods_count)
    if len(own) > context.new_nodes_max:
        return _too_many(len(own), context.new_nodes_max, certain=not simulation.stopped_early)
    barren = next((node for node in own if not node.instance_types), None)
    judged = _nothing(barren) if barren else judge_new_nodes(sources, own, context.settings)
    if isinstance(judged, Refusal):
        return judged
    kept = judged.new_nodes
    backing_off = refuse_back_off(context, kept)
    if backing_off:
        return backing_off
    return Move(nodes=tuple(nodes), simulation=simulation, new_nodes=kept, approved=judged, launchable=launchable)


def _hopeless(context: RoundContext, nodes: Sequence[NodeFacts]) -> Refusal | None:
    """Refuse hopeless sets: the sums rule them out, or even the best outcome doesn't save enough."""
    places = tuple(map(context.index_of, nodes))
    if context.unready.destination(places) is not None:
        return STARTING
    least, launch = context.bounds.replacements_at_least(places)
    if least > context.new_nodes_max:
        return _too_many_for_certain(least, context.new_nodes_max)
    sources = context.sources(nodes)
    if launch and context.new_nodes_max == 1:
        paid = sum(source.price for source in sources)
        refusal = price.refuse_no_cheaper(paid, price.float_sum(sources), launch, context.settings)
        if refusal:
            return refusal
    return price.refuse_at_most(sources, context.settings)


def _hopeless_alone(context: RoundContext, facts: NodeFacts) -> Refusal | None:
    """Refuse one node that can't go, or that saves too little even in the best case."""
    place, standing = context.index_of(facts), context.standing
    found = None if standing is None else standing.of(facts, place)
    if found is None:
        found, alone = rule_out(context, facts, place)
        if standing is not None:
            standing.keep(facts, place, found, alone=alone)
    if isinstance(found, Refusal):
        return found
    if not context.settings.rules.savings_threshold:
        return None
    return price.refuse_one_at_most(facts.price, context.required_savings(facts), found.launch)


def rule_out(context: RoundContext, facts: NodeFacts, place: int) -> tuple[Refusal | Possible, bool]:
    """Refuse one node whatever it has to save, with the likeliest and cheapest checks first.

    Return also whether this rests only on pods that fit on no other node.
    """
    launch = None
    for least, launch, alone in context.bounds.replacement_at_least(place, several=context.new_nodes_max > 1):
        refusal = _refuse_bound(context, facts, least, launch)
        if refusal:
            return refusal, alone
    return (Possible(launch) if context.unready.destination((place,)) is None else STARTING), False


def rule_out_many(context: RoundContext, nodes: Sequence[NodeFacts]) -> Sequence[Refusal | None]:
    """Refuse those of many nodes that can be refused at once, as `rule_out` would; None: judge it alone."""
    standing = context.standing if context.new_nodes_max == 1 else None
    if standing is None:
        return [None] * len(nodes)
    return standing.rule_out(nodes, partial(_refuse_bound, context))


def _refuse_bound(context: RoundContext, facts: NodeFacts, least: int, launch: LaunchPrice | None) -> Refusal | None:
    """Refuse one node that needs too many new nodes, or one that costs no less."""
    if least > context.new_nodes_max:
        return _too_many_for_certain(least, context.new_nodes_max)
    return price.refuse_no_cheaper(facts.price, facts.price_float, launch, context.settings) if launch else None


def starting_in_words(context: RoundContext, nodes: Sequence[NodeFacts]) -> Refusal:
    """Return the refusal `STARTING` of these nodes with the names of a pod and of the starting node."""
    found = context.unready.destination(tuple(map(context.index_of, nodes)))
    assert found is not None
    pod, node = found
    return Refusal(
        gate=Gate.UNINITIALIZED_DESTINATION,
        why=f"Pod {explain_uninitialized(pod, node)()}.",
        figures={"pod": pod_name(pod), "pods": 1},
        simulated=False,
    )


def score(context: RoundContext, move: Move) -> Refusal | None:
    """Apply the Balanced policy of the pools involved (section 8, gate 6)."""
    if not any(balanced.asks(facts) for facts in move.nodes):
        return None
    scores = balanced.scores(move.nodes, move.approved, context.totals, context.settings)
    context.scores[tuple(facts.name for facts in move.nodes)] = scores
    return balanced.refuse(move.nodes, move.approved, context.totals, context.settings)


def plain_move(context: RoundContext, nodes: Sequence[NodeFacts]) -> Move | Refusal:
    """Remove nodes that have to go: every pod must be placed, on as many new nodes as necessary (spec section 5)."""
    simulation = context.simulate(nodes, for_cost=False)
    refusal = refuse_unplaced(simulation, context.settings)
    if refusal:
        return refusal
    own = simulation.own_new_nodes(count_all=context.settings.rules.others_pods_count)
    for node in own if context.settings.rules.checks_launches else ():
        if price.least_price(node) is None:
            # A claim that can't be launched makes Karpenter's whole provisioner wait.
            why = f"NodePool {node.pool} can launch no machine for its pods now: nothing that fits is available."
            return Refusal(gate=Gate.NEW_NODES, why=why, figures={"nodePool": node.pool})
    backing_off = refuse_back_off(context, own)
    if backing_off:
        return backing_off
    paid = sum(facts.price for facts in nodes)
    for node in own:
        paid -= price.least_price(node) or 0
    approved = Approved(savings=paid, savings_float=0.0)
    return Move(nodes=tuple(nodes), simulation=simulation, new_nodes=own, approved=approved)


# ---------------------------------------------------------------- refusals of the simulation (gate 9)


def refuse_unplaced(simulation: SimulationResult, settings: Settings) -> Refusal | None:
    """Return which pod finds no place, or only one that is not ready yet."""
    blocking = simulation.blocking
    if not blocking:
        return None
    homeless = [entry for entry in blocking if entry in simulation.unplaced]
    claiming = next((entry.pod for entry in homeless if uses_resource_claims(entry.pod.spec)), None)
    if claiming is not None:
        figures: dict[str, Figure] = {"pod": pod_name(claiming), "pods": len(homeless)}
        return Refusal(gate=Gate.DYNAMIC_RESOURCES, why=claims_why(claiming, settings), figures=figures)
    if homeless:
        return _no_place(homeless[0], len(homeless))
    entry = blocking[0]
    return Refusal(
        gate=Gate.UNINITIALIZED_DESTINATION,
        why=f"Pod {entry.why}.",
        figures={"pod": pod_name(entry.pod), "pods": len(blocking)},
    )


def _no_place(entry: Unplaced, count: int) -> Refusal:
    others = f" (and {count - 1} more)" if count > 1 else ""
    return Refusal(
        gate=Gate.SIMULATION,
        why=f"Pod {pod_name(entry.pod)}{others} finds no place: {entry.why}.",
        figures={"pod": pod_name(entry.pod), "pods": count},
    )


def _too_many(count: int, most: int, *, certain: bool) -> Refusal:
    least = "" if certain else "at least "
    return Refusal(
        gate=Gate.NEW_NODES,
        why=f"Its pods would need {least}{count} new nodes; a cost action may open {'one' if most == 1 else most}.",
        figures={"newNodes": count, "newNodesMax": most},
    )


def _too_many_for_certain(least: int, most: int) -> Refusal:
    return msgspec.structs.replace(_too_many(least, most, certain=False), simulated=False)


def _nothing(new_node: NewNode) -> Refusal:
    return Refusal(gate=Gate.PRICE, why=f"No instance type of NodePool {new_node.pool} fits.", figures={"types": 0})


def refuse_back_off(context: RoundContext, new_nodes: Sequence[NewNode]) -> Refusal | None:
    """Refuse to launch in a pool whose last replacement did not come, until its back-off has passed."""
    for node in new_nodes:
        until = context.in_flight.back_off.get(node.pool)
        if until is not None and context.now < until:
            return Refusal(
                gate=Gate.BACK_OFF,
                why=f"The last replacement in NodePool {node.pool} did not come; the next try is at {clock(until)}.",
                figures={"nodePool": node.pool, "until": clock(until)},
            )
    return None


# ---------------------------------------------------------------- writing a command down

_ACTIONS: dict[Method, tuple[Action, Action]] = {
    Method.UNHEALTHY: (Action.DELETE_UNHEALTHY, Action.REPLACE_UNHEALTHY),
    Method.EMPTY: (Action.DELETE_EMPTY, Action.DELETE_EMPTY),
    Method.EXPIRED: (Action.DELETE_EXPIRED, Action.REPLACE_EXPIRED),
    Method.DRIFTED: (Action.DELETE_DRIFTED, Action.REPLACE_DRIFTED),
    Method.MULTI_NODE: (Action.DELETE_COST, Action.REPLACE_COST),
    Method.SINGLE_NODE: (Action.DELETE_COST, Action.REPLACE_COST),
}


def command_of(context: RoundContext, method: Method, move: Move) -> Command:
    """Build the command of a method from a move."""
    return _command(
        context,
        method,
        move.nodes,
        replacements=tuple(replacement_of(node) for node in move.new_nodes),
        placements=tuple(
            Placement(node=entry.node, pods=pods)
            for entry in move.simulation.placements
            if (pods := tuple(pod_name(pod) for pod in entry.pods if not is_virtual(pod)))
        ),
        approved=move.approved,
        launchable=move.launchable,
    )


def bare_command(
    context: RoundContext,
    method: Method,
    nodes: Sequence[NodeFacts],
    replacements: tuple[Replacement, ...] = (),
    *,
    saves: bool = True,
) -> Command:
    """Build a command that needed no simulation: empty nodes, a static pool's replacement, terminate first.

    `saves`: false if other nodes replace these later.
    """
    saved = sum(facts.price for facts in nodes) if saves and not replacements else 0
    approved = Approved(savings=saved, savings_float=0.0)
    return _command(context, method, nodes, replacements=replacements, placements=(), approved=approved)


def _command(
    context: RoundContext,
    method: Method,
    nodes: Sequence[NodeFacts],
    *,
    replacements: tuple[Replacement, ...],
    placements: tuple[Placement, ...],
    approved: Approved,
    launchable: tuple[str, ...] = (),
) -> Command:
    return Command(
        action=_ACTIONS[method][1 if replacements else 0],
        method=method,
        nodes=tuple(facts.name for facts in nodes),
        replacements=replacements,
        placements=placements,
        savings=approved.savings,
        required_savings=nearest(approved.required),
        disruption_cost=context.disruption_cost(nodes),
        pods=sum(len(facts.reschedulable) for facts in nodes),
        launchable=launchable,
        surges=tuple(sorted({surge.name for facts in nodes for _, surge in facts.surges})),
    )


def replacement_of(node: NewNode) -> Replacement:
    """Build the NodeClaim for a new node of a simulation."""
    return Replacement(
        node_pool=node.pool,
        instance_types=tuple(kind.name for kind in node.instance_types),
        capacity_types=node.capacity_types,
        zones=node.zones,
        requirements=node.requirements,
        requests=node.requests,
        taints=node.taints,
        startup_taints=node.startup_taints,
        pods=tuple(pod_name(pod) for pod in node.pods),
    )
