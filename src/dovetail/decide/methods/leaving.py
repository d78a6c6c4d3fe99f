"""What expiry and drift share: nodes that have to go, one command each, the empty ones together.

See docs/rules.md#methods, lifecycle-controller (LifecycleActions): empty nodes that are expired or drifted are deleted
together. Any other gets a command of its own: it is deleted if its pods find room, and replaced first if they don't.
`static` handles nodes of static pools. The two methods decide which nodes, and in which order. Sits in decide, below
`expired` and `drifted`.
"""

from collections.abc import Sequence

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.methods.method import budget_result, out_of_budget, take_within
from dovetail.decide.methods.moves import Move, bare_command, command_of, plain_move
from dovetail.decide.methods.static import NO_RESERVED_CAPACITY, is_static, static_alone, terminate_first
from dovetail.decide.refusal import Refusal
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.command import Command, Method
from dovetail.model.karpenter import FeatureGate
from dovetail.model.verdicts import Gate, GateResult
from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.launch.machines import RESERVATION
from dovetail.scheduling.simulate import simulate


def first_command(
    work: Work, method: Method, candidates: Sequence[NodeFacts]
) -> tuple[Command | None, dict[str, GateResult]]:
    """Return the next command for nodes that have to go, in the order given, and what budgets block."""
    scene = work.scene
    left = scene.left(method)
    empties = [facts for facts in candidates if goes_without_pods(facts)]
    taken, waiting = take_within(empties, left)
    held = out_of_budget(scene, method, waiting)
    others = [facts for facts in candidates if not goes_without_pods(facts)]
    for facts in others:
        if left[facts.pool_name] <= 0:
            held[facts.name] = budget_result(scene, method, facts.pool_name)
    if taken:
        return bare_command(scene, method, taken), held
    for facts in others:
        if facts.name not in held:
            outcome = alone(work, method, facts)
            if isinstance(outcome, Command):
                return outcome, held
    return None, held


def why_it_goes(command: Command) -> str:
    """Return the sentence for a node that has to go and is not blocked."""
    if command.terminate_first == NO_RESERVED_CAPACITY:
        return "It goes first: its own slot of the reservation is what its pods wait for."
    if command.terminate_first:
        return "It goes first: Karpenter refills its static pool."
    return "Every pod finds a place."


def goes_without_pods(facts: NodeFacts) -> bool:
    """Return whether the node is simply deleted: it is empty, and its pool is not static."""
    return facts.empty and not is_static(facts)


def alone(work: Work, method: Method, facts: NodeFacts) -> Command | Refusal:
    """Return what would happen to one node alone, ignoring budgets."""
    scene = work.scene
    if is_static(facts):
        return static_alone(scene, method, facts)
    if goes_without_pods(facts) and scene.settings.rules.empty_skips_simulation:
        return bare_command(scene, method, (facts,))
    move = plain_move(work, (facts,))
    if isinstance(move, Move):
        return command_of(scene, method, move)
    unplaced = move.gate in (Gate.SIMULATION, Gate.UNINITIALIZED_DESTINATION)
    return (_terminate_first(scene, method, facts) if unplaced else None) or move


def _terminate_first(scene: Scene, method: Method, facts: NodeFacts) -> Command | None:
    """Return a command that deletes a drifted node whose reservation is full: its pods wait for its own slot.

    Karpenter's gate TerminateFirstDrift; None without it, or if one more slot would not help.
    """
    reservation = facts.labels.get(RESERVATION, "")
    features = scene.snapshot.surroundings.features
    if method is not Method.DRIFTED or not features.has(FeatureGate.TERMINATE_FIRST_DRIFT):
        return None
    if facts.capacity_type != names.RESERVED or not reservation:
        return None
    result = simulate(
        scene.snapshot,
        (scene.index_of(facts),),
        SimulationOptions(strict_reserved=True, credited=reservation),
        scene.in_flight.under_way,
    )
    return None if result.blocking else terminate_first(scene, method, facts, NO_RESERVED_CAPACITY)
