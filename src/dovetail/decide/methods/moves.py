"""From nodes to a command: simulate, apply the price gates, and build the command.

The part that methods share. `cost_move` judges any set of nodes as one cost action (docs/rules.md#methods and #price);
`plain_move` removes one node whatever it costs, for expiry and drift. The methods decide which sets are tried, and in
which order. Sits in decide, above price and balanced, below the methods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates import balanced, price
from dovetail.decide.gates.method_rules import claims_why
from dovetail.decide.gates.price import Approved, judge_new_nodes
from dovetail.decide.methods.method import SetAside
from dovetail.decide.refusal import Refusal
from dovetail.decide.refusals.as_scheduled import stays_empty
from dovetail.decide.refusals.bounds import Needs
from dovetail.decide.refusals.starting import STARTING
from dovetail.decide.scene import Scene
from dovetail.decide.words import clock
from dovetail.decide.work import Work
from dovetail.model.command import Action, Command, Method, Placement, Replacement
from dovetail.model.money import Money, nearest
from dovetail.model.settings import Settings
from dovetail.model.timing.duration import HOUR
from dovetail.model.verdicts import Figure, Gate, GateResult
from dovetail.scheduling.buffers import is_virtual
from dovetail.scheduling.entries import ALL_TYPES
from dovetail.scheduling.explain import explain_uninitialized
from dovetail.scheduling.pods.requests import uses_resource_claims
from dovetail.scheduling.result import LaunchPrice, NewNode, SimulationResult, Unplaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A set of nodes that may go, with the results of the simulation and the price gates."""

    nodes: tuple[NodeFacts, ...]
    simulation: SimulationResult
    new_nodes: tuple[NewNode, ...]
    approved: Approved
    launchable: tuple[str, ...] = ()


Tried = tuple[tuple[NodeFacts, ...], Refusal]
"""A set of nodes that was judged and refused."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found: the best move, if any; what budgets held back; what was refused, and what is set aside."""

    move: Move | None
    held: Mapping[str, GateResult]
    refused: tuple[Tried, ...]
    aside: tuple[SetAside, ...] = ()


def cost_move(
    work: Work, nodes: Sequence[NodeFacts], *, in_full: bool = False, launchable: tuple[str, ...] = ()
) -> Move | Refusal:
    """Judge removing these nodes together to save money; `score` adds the Balanced score.

    `in_full`: gate after gate. Otherwise hopeless sets are refused without a simulation, possibly by a later gate than
    the first closed one: the same result for less work. `launchable`: types that new nodes are limited to.
    """
    scene = work.scene
    hopeless = None
    if not in_full:
        hopeless = _hopeless_alone(work, nodes[0]) if len(nodes) == 1 else _hopeless(scene, nodes)
    if hopeless:
        return hopeless
    sources = scene.sources(nodes)
    types = scene.snapshot.frame.machines.named(launchable) if launchable else ALL_TYPES
    simulation = work.simulate(nodes, for_cost=True, launchable=types, in_full=in_full)
    refusal = refuse_unplaced(simulation, scene.settings)
    if refusal:
        stopped = work.hasty and not in_full and simulation.stopped_early
        return msgspec.structs.replace(refusal, simulated=False) if stopped else refusal
    own = simulation.own_new_nodes(count_all=scene.settings.rules.others_pods_count)
    if len(own) > scene.new_nodes_max:
        return _too_many(len(own), scene.new_nodes_max, exact=not simulation.stopped_early)
    barren = next((node for node in own if not node.instance_types), None)
    judged = _nothing(barren) if barren else judge_new_nodes(sources, scene.priced(nodes, own), scene.settings)
    if isinstance(judged, Refusal):
        return judged
    idle = None if own else _saves_nothing(sources)
    if idle is not None:
        return idle
    kept = judged.new_nodes
    backing_off = refuse_back_off(scene, kept)
    if backing_off:
        return backing_off
    empty = stays_empty(scene, nodes, simulation, kept)
    if empty is not None:
        return _empty(empty)
    return Move(nodes=tuple(nodes), simulation=simulation, new_nodes=kept, approved=judged, launchable=launchable)


def _hopeless(scene: Scene, nodes: Sequence[NodeFacts]) -> Refusal | None:
    """Refuse hopeless sets: the sums rule them out, or even the best outcome doesn't save enough."""
    if scene.starting.destination(tuple(map(scene.index_of, nodes))) is not None:
        return STARTING
    least, launch = scene.bounds.together(nodes)
    if least > scene.new_nodes_max:
        return _too_many(least, scene.new_nodes_max, exact=False, simulated=False)
    sources = scene.sources(nodes)
    if launch and scene.new_nodes_max == 1:
        paid = price.paid_for(sources)
        refusal = price.refuse_no_cheaper(paid, price.float_sum(sources), launch, scene.settings)
        if refusal:
            return refusal
    return price.refuse_at_most(sources, scene.settings)


def _hopeless_alone(work: Work, facts: NodeFacts) -> Refusal | None:
    """Refuse one node that can't go, or that saves too little even in the best case."""
    scene = work.scene
    found = work.certain.get(facts.name) or rule_out(work, (facts,))[0]
    if isinstance(found, Refusal):
        return found
    if not scene.settings.rules.savings_threshold:
        return None
    return price.refuse_one_at_most(facts.price, scene.required_savings(facts), found.launch)


@dataclass(frozen=True, slots=True)
class Possible:
    """Only what it saves can still refuse a node; `launch`: the minimum price of a machine for its pods, if known."""

    launch: LaunchPrice | None


NOTHING_NEEDED: Final = Possible(None)


def rule_out(work: Work, nodes: Sequence[NodeFacts]) -> list[Refusal | Possible]:
    """Return what is certain about each of some nodes alone, whatever it has to save; found once a round."""
    scene = work.scene
    found: list[Refusal | Possible] = []
    alike: dict[tuple[Needs, Money, float], Refusal | Possible] = {}
    for facts, needs in zip(nodes, scene.bounds.needs_alone(nodes), strict=True):
        key = needs, facts.price, facts.price_float
        outcome = alike.get(key)
        if outcome is None:
            outcome = alike[key] = _by_bounds(scene, facts, needs)
        found.append(outcome)
    left = [at for at, outcome in enumerate(found) if isinstance(outcome, Possible)]
    for at, lands in zip(left, scene.starting.lands([nodes[at] for at in left], scene.needs), strict=True):
        if lands:
            found[at] = STARTING
    work.certain.update(zip([facts.name for facts in nodes], found, strict=True))
    return found


def _by_bounds(scene: Scene, facts: NodeFacts, needs: Needs) -> Refusal | Possible:
    """Return what the bounds say about one node, by what new nodes must hold and by its price."""
    launch = None
    for least, launch in scene.bounds.least_for_each(needs):
        refusal = _refuse_bound(scene, facts, least, launch)
        if refusal:
            return refusal
    return NOTHING_NEEDED if launch is None else Possible(launch)


def _refuse_bound(scene: Scene, facts: NodeFacts, least: int, launch: LaunchPrice | None) -> Refusal | None:
    """Refuse one node that needs too many new nodes, or one that costs no less."""
    if least > scene.new_nodes_max:
        return _too_many(least, scene.new_nodes_max, exact=False, simulated=False)
    return price.refuse_no_cheaper(facts.price, facts.price_float, launch, scene.settings) if launch else None


def starting_in_words(scene: Scene, nodes: Sequence[NodeFacts]) -> Refusal:
    """Return the refusal `STARTING` of these nodes with the names of a pod and of the starting node."""
    found = scene.starting.destination(tuple(map(scene.index_of, nodes)))
    assert found is not None
    pod, node = found
    return Refusal(
        gate=Gate.UNINITIALIZED_DESTINATION,
        why=f"Pod {explain_uninitialized(pod, node)()}.",
        figures={"pod": pod.metadata.key, "pods": 1},
        simulated=False,
    )


def score(work: Work, move: Move) -> Refusal | None:
    """Apply the Balanced policy of the pools involved (docs/rules.md#price, gate 6)."""
    scene = work.scene
    if not any(balanced.asks(facts) for facts in move.nodes):
        return None
    scores = balanced.scores(move.nodes, move.approved, scene.totals, scene.settings)
    work.scores[tuple(facts.name for facts in move.nodes)] = scores
    return balanced.refuse(move.nodes, move.approved, scene.totals, scene.settings)


def plain_move(work: Work, nodes: Sequence[NodeFacts]) -> Move | Refusal:
    """Remove nodes that have to go: each pod is placed, on as many new nodes as it takes (docs/rules.md#methods)."""
    scene = work.scene
    simulation = work.simulate(nodes, for_cost=False)
    refusal = refuse_unplaced(simulation, scene.settings)
    if refusal:
        return refusal
    own = simulation.own_new_nodes(count_all=scene.settings.rules.others_pods_count)
    for node in own if scene.settings.rules.checks_launches else ():
        if price.least_price(node) is None:
            # A claim that can't be launched makes Karpenter's whole provisioner wait.
            why = f"NodePool {node.pool} can launch no machine for its pods now: nothing that fits is available."
            return Refusal(gate=Gate.NEW_NODES, why=why, figures={"nodePool": node.pool})
    backing_off = refuse_back_off(scene, own)
    if backing_off:
        return backing_off
    paid = price.paid_for(scene.sources(nodes))
    for node in scene.priced(nodes, own):
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
        figures: dict[str, Figure] = {"pod": claiming.metadata.key, "pods": len(homeless)}
        return Refusal(gate=Gate.DYNAMIC_RESOURCES, why=claims_why(claiming, settings), figures=figures)
    if homeless:
        return _no_place(homeless[0], len(homeless))
    entry = blocking[0]
    return Refusal(
        gate=Gate.UNINITIALIZED_DESTINATION,
        why=f"Pod {entry.why}.",
        figures={"pod": entry.pod.metadata.key, "pods": len(blocking)},
    )


def _no_place(entry: Unplaced, count: int) -> Refusal:
    others = f" (and {count - 1} more)" if count > 1 else ""
    return Refusal(
        gate=Gate.SIMULATION,
        why=f"Pod {entry.pod.metadata.key}{others} finds no place: {entry.why}.",
        figures={"pod": entry.pod.metadata.key, "pods": count},
    )


def _too_many(count: int, most: int, *, exact: bool, simulated: bool = True) -> Refusal:
    least = "" if exact else "at least "
    return Refusal(
        gate=Gate.NEW_NODES,
        why=f"Its pods would need {least}{count} new nodes; a cost action may open {'one' if most == 1 else most}.",
        figures={"newNodes": count, "newNodesMax": most},
        simulated=simulated,
    )


def _nothing(new_node: NewNode) -> Refusal:
    return Refusal(gate=Gate.PRICE, why=f"No instance type of NodePool {new_node.pool} fits.", figures={"types": 0})


def _saves_nothing(sources: Sequence[price.Source]) -> Refusal | None:
    """Refuse a batch with a node that commitments pay for anyway: without it as much is saved, for fewer restarts."""
    for source in sources:
        if source.kept_price is not None and source.kept_price <= 0 and source.required > 0:
            return Refusal(
                gate=Gate.PRICE,
                why=f"Beside the others {source.name} would go for nothing: commitments pay for it anyway.",
                figures={"node": source.name},
            )
    return None


def _empty(new_node: NewNode) -> Refusal:
    return Refusal(
        gate=Gate.NEW_NODES,
        why=f"The scheduler would put the {len(new_node.pods)} pods of a new node of NodePool {new_node.pool} on nodes "
        "that are there; it would stay empty.",
        figures={"nodePool": new_node.pool, "pods": len(new_node.pods)},
    )


def refuse_back_off(scene: Scene, new_nodes: Sequence[NewNode]) -> Refusal | None:
    """Refuse to launch in a pool whose last replacement did not come, until its back-off has passed."""
    for node in new_nodes:
        until = scene.in_flight.back_off.get(node.pool)
        if until is not None and scene.now < until:
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


def command_of(scene: Scene, method: Method, move: Move) -> Command:
    """Build the command of a method from a move."""
    made = _command(
        scene,
        method,
        move.nodes,
        replacements=tuple(replacement_of(node) for node in move.new_nodes),
        placements=tuple(
            Placement(node=entry.node, pods=pods)
            for entry in move.simulation.placements
            if (pods := tuple(pod.metadata.key for pod in entry.pods if not is_virtual(pod)))
        ),
        approved=_at_savings(move.approved, scene.really_saved(move.nodes, move.new_nodes, move.approved.savings)),
        launchable=move.launchable,
    )
    pays_after = _pays_after(move, scene.settings)
    return replace(made, pays_after=pays_after) if pays_after else made


def _pays_after(move: Move, settings: Settings) -> int:
    """Return the nanoseconds until a command has earned its restarts and launches (docs/rules.md#one-price)."""
    approved = move.approved
    if approved.restarts <= 0 or approved.savings <= 0:
        return 0
    new = sum(price.least_price(node) or 0 for node in move.new_nodes)
    return int((approved.restarts * HOUR + settings.launch_price * new) / approved.savings)


def bare_command(
    scene: Scene,
    method: Method,
    nodes: Sequence[NodeFacts],
    replacements: tuple[Replacement, ...] = (),
    *,
    saves: bool = True,
) -> Command:
    """Build a command that needed no simulation: empty nodes, a static pool's replacement, terminate first.

    `saves`: false if other nodes replace these later.
    """
    saved = scene.paid_for(nodes) if saves and not replacements else 0
    approved = Approved(savings=saved, savings_float=0.0)
    really = scene.really_saved(nodes, (), saved) if saved else saved
    approved = _at_savings(approved, really)
    return _command(scene, method, nodes, replacements=replacements, placements=(), approved=approved)


def _at_savings(approved: Approved, savings: Money) -> Approved:
    """Return what was approved, with what is really saved."""
    return approved if savings == approved.savings else msgspec.structs.replace(approved, savings=savings)


def _command(
    scene: Scene,
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
        disruption_cost=scene.disruption_cost(nodes),
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
        pods=tuple(pod.metadata.key for pod in node.pods),
    )
