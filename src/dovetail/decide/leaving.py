"""What expiry and drift share: nodes that have to go, one command each, the empty ones together.

Spec section 5, S4 (LifecycleActions): an expired or drifted node that is empty is simply deleted, all such together;
otherwise a command takes one node, deletes it where its pods find room, and else replaces it first. A static pool's
node is replaced from the pool's template without a simulation, within the pool's node limit. Which nodes, and in which
order, is for the two methods to say. Sits in decide, below `expired` and `drifted`.
"""

from collections.abc import Sequence

from dovetail.decide.facts import NodeFacts
from dovetail.decide.method import budget_result, take_within
from dovetail.decide.moves import Move, bare_command, command_of, plain_move
from dovetail.decide.price import Refusal
from dovetail.decide.scene import Scene
from dovetail.model.command import Command, Method, Replacement
from dovetail.model.objects import NodePool
from dovetail.model.quantity import resource_amount
from dovetail.model.verdicts import Gate, GateResult
from dovetail.scheduling.templates import unreadable


def first_command(
    scene: Scene, method: Method, candidates: Sequence[NodeFacts]
) -> tuple[Command | None, dict[str, GateResult]]:
    """Give the next command for nodes that have to go, in the order given, and what budgets hold back."""
    left = scene.left(method)
    empties = [facts for facts in candidates if goes_without_pods(facts)]
    taken, held = take_within(scene, method, empties, left)
    others = [facts for facts in candidates if not goes_without_pods(facts)]
    for facts in others:
        if left.get(facts.pool_name, 0) <= 0:
            held[facts.name] = budget_result(scene, method, facts.pool_name)
    if taken:
        return bare_command(scene, method, taken), held
    for facts in others:
        if facts.name not in held:
            outcome = alone(scene, method, facts)
            if isinstance(outcome, Command):
                return outcome, held
    return None, held


def goes_without_pods(facts: NodeFacts) -> bool:
    """Whether the node is simply deleted: empty, and not of a pool that keeps its number of nodes."""
    return facts.empty and not is_static(facts)


def is_static(facts: NodeFacts) -> bool:
    """Whether the node's pool keeps a fixed number of nodes."""
    return facts.policy is not None and facts.policy.static


def alone(scene: Scene, method: Method, facts: NodeFacts) -> Command | Refusal:
    """Give what would become of one node by itself, budgets left aside."""
    if is_static(facts):
        refusal = refuse_static(scene, facts)
        return refusal or bare_command(scene, method, (facts,), (template_replacement(facts.pool),))
    if goes_without_pods(facts) and not scene.settings.is_karpenter:
        return bare_command(scene, method, (facts,))
    move = plain_move(scene, (facts,))
    return command_of(scene, method, move) if isinstance(move, Move) else move


# ---------------------------------------------------------------- static pools


def static_room(scene: Scene, pool: NodePool) -> int | None:
    """Give how many nodes a static pool may have more than now (`limits.nodes`); None: no limit. Unreadable: 0."""
    limit = pool.spec.limits.get("nodes")
    if unreadable(pool):
        return 0
    if limit is None:
        return None
    count = sum(1 for facts in scene.nodes if facts.claim is not None and facts.pool_name == pool.metadata.name)
    return max(0, resource_amount("nodes", limit) - count)


def scaling_down(scene: Scene, pool: NodePool) -> bool:
    """Whether a static pool has more nodes than it should: it gives some up anyway."""
    staying = sum(
        1
        for facts in scene.nodes
        if facts.claim is not None and facts.pool_name == pool.metadata.name and not facts.marked
    )
    return staying > (pool.spec.replicas or 0)


def refuse_static(scene: Scene, facts: NodeFacts) -> Refusal | None:
    """Say why a static pool's node can't be replaced now."""
    assert facts.pool is not None
    name = facts.pool_name
    broken = unreadable(facts.pool)
    if broken:
        return Refusal(
            gate=Gate.NEW_NODES, why=f"Static NodePool {name} can't be read ({broken}): it launches nothing."
        )
    if scaling_down(scene, facts.pool):
        return Refusal(
            gate=Gate.NEW_NODES, why=f"Static NodePool {name} has more nodes than replicas and is shrinking."
        )
    if static_room(scene, facts.pool) == 0:
        limit = str(facts.pool.spec.limits.get("nodes"))
        return Refusal(
            gate=Gate.NEW_NODES,
            why=f"Static NodePool {name} is at its limit of {limit} nodes: no replacement can come first.",
            figures={"nodePool": name, "limit": limit},
        )
    return None


def template_replacement(pool: NodePool | None) -> Replacement:
    """Give a replacement that is the pool's template, whatever type comes of it."""
    assert pool is not None
    spec = pool.spec.template.spec
    return Replacement(
        node_pool=pool.metadata.name,
        instance_types=(),
        requirements=spec.requirements,
        taints=spec.taints,
        startup_taints=spec.startup_taints,
    )
