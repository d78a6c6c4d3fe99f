"""What expiry and drift share: nodes that have to go, one command each, the empty ones together.

Spec section 5, S4 (LifecycleActions): an expired or drifted node that is empty is simply deleted, all such together;
otherwise a command takes one node, deletes it where its pods find room, and else replaces it first. A static pool's
node is replaced from the pool's template without a simulation, within the pool's node limit. Which nodes, and in which
order, is for the two methods to say. Sits in decide, below `expired` and `drifted`.
"""

from collections.abc import Sequence

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price import Refusal
from dovetail.decide.methods.method import budget_result, take_within
from dovetail.decide.methods.moves import Move, bare_command, command_of, plain_move
from dovetail.model.command import Command, Method, Replacement
from dovetail.model.objects import NodePool
from dovetail.model.quantity import resource_amount
from dovetail.model.verdicts import Gate, GateResult
from dovetail.scheduling.launch.templates import unreadable


def first_command(
    context: RoundContext, method: Method, candidates: Sequence[NodeFacts]
) -> tuple[Command | None, dict[str, GateResult]]:
    """Return the next command for nodes that have to go, in the order given, and what budgets hold back."""
    left = context.left(method)
    empties = [facts for facts in candidates if goes_without_pods(facts)]
    taken, held = take_within(context, method, empties, left)
    others = [facts for facts in candidates if not goes_without_pods(facts)]
    for facts in others:
        if left.get(facts.pool_name, 0) <= 0:
            held[facts.name] = budget_result(context, method, facts.pool_name)
    if taken:
        return bare_command(context, method, taken), held
    for facts in others:
        if facts.name not in held:
            outcome = alone(context, method, facts)
            if isinstance(outcome, Command):
                return outcome, held
    return None, held


def goes_without_pods(facts: NodeFacts) -> bool:
    """Return whether the node is simply deleted: empty, and not of a pool that keeps its number of nodes."""
    return facts.empty and not is_static(facts)


def is_static(facts: NodeFacts) -> bool:
    """Return whether the node's pool keeps a fixed number of nodes."""
    return facts.policy is not None and facts.policy.static


def alone(context: RoundContext, method: Method, facts: NodeFacts) -> Command | Refusal:
    """Return what would become of one node by itself, budgets left aside."""
    if is_static(facts):
        refusal = refuse_static(context, facts)
        return refusal or bare_command(context, method, (facts,), (template_replacement(facts.pool),))
    if goes_without_pods(facts) and context.settings.rules.empty_skips_simulation:
        return bare_command(context, method, (facts,))
    move = plain_move(context, (facts,))
    return command_of(context, method, move) if isinstance(move, Move) else move


# ---------------------------------------------------------------- static pools


def static_room(context: RoundContext, pool: NodePool) -> int | None:
    """Return how many nodes a static pool may have more than now (`limits.nodes`); None: no limit. Unreadable: 0."""
    limit = pool.spec.limits.get("nodes")
    if unreadable(pool):
        return 0
    if limit is None:
        return None
    count = sum(1 for facts in context.nodes if facts.claim is not None and facts.pool_name == pool.metadata.name)
    return max(0, resource_amount("nodes", limit) - count)


def scaling_down(context: RoundContext, pool: NodePool) -> bool:
    """Return whether a static pool has more nodes than it should: it gives some up anyway."""
    staying = sum(
        1
        for facts in context.nodes
        if facts.claim is not None and facts.pool_name == pool.metadata.name and not facts.marked
    )
    return staying > (pool.spec.replicas or 0)


def refuse_static(context: RoundContext, facts: NodeFacts) -> Refusal | None:
    """Say why a static pool's node can't be replaced now."""
    assert facts.pool is not None
    name = facts.pool_name
    broken = unreadable(facts.pool)
    if broken:
        return Refusal(
            gate=Gate.NEW_NODES, why=f"Static NodePool {name} can't be read ({broken}): it launches nothing."
        )
    if scaling_down(context, facts.pool):
        return Refusal(
            gate=Gate.NEW_NODES, why=f"Static NodePool {name} has more nodes than replicas and is shrinking."
        )
    if static_room(context, facts.pool) == 0:
        limit = str(facts.pool.spec.limits.get("nodes"))
        return Refusal(
            gate=Gate.NEW_NODES,
            why=f"Static NodePool {name} is at its limit of {limit} nodes: no replacement can come first.",
            figures={"nodePool": name, "limit": limit},
        )
    return None


def template_replacement(pool: NodePool | None) -> Replacement:
    """Return a replacement that is the pool's template, whatever type comes of it."""
    assert pool is not None
    spec = pool.spec.template.spec
    return Replacement(
        node_pool=pool.metadata.name,
        instance_types=(),
        requirements=spec.requirements,
        taints=spec.taints,
        startup_taints=spec.startup_taints,
    )
