"""Drifted and expired nodes of static pools: terminate first, and let Karpenter refill the pool.

See docs/rules.md#methods. A static pool keeps `spec.replicas` nodes. Karpenter deletes an extra claim first, so a
replacement can't come first. Dovetail deletes a node within the pool's budget, and the next one when Karpenter has
refilled the pool; a setting leaves drift to Karpenter. The profile `karpenter-1.15` replaces from the pool's template
instead, within `limits.nodes`, and with gate TerminateFirstDrift terminates first if that leaves no room or only full
reservations match. Sits in decide, below `leaving`.
"""

from dataclasses import replace
from typing import Final

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.methods.moves import bare_command
from dovetail.decide.refusal import Refusal
from dovetail.decide.scene import Scene
from dovetail.model import names
from dovetail.model.command import Command, Method, Replacement
from dovetail.model.karpenter import FeatureGate, StaticDrift
from dovetail.model.objects import NodePool, condition
from dovetail.model.quantity import resource_amount
from dovetail.model.verdicts import Gate
from dovetail.scheduling.launch.machines import RESERVATION, places_of
from dovetail.scheduling.launch.templates import pool_requirements, unreadable
from dovetail.scheduling.result import launchable


def is_static(facts: NodeFacts) -> bool:
    """Return whether the node's pool keeps a fixed number of nodes."""
    return facts.policy is not None and facts.policy.static


def static_alone(scene: Scene, method: Method, facts: NodeFacts) -> Command | Refusal:
    """Return what would happen to one node of a static pool, ignoring budgets."""
    assert facts.pool is not None
    if not scene.settings.rules.replaces_static:
        return refuse_refill(scene, method, facts) or terminate_first(scene, method, facts)
    refusal = _refuse_shrinking(scene, facts.pool)
    if refusal is not None:
        return refusal
    if may_terminate_first(scene, facts):
        return terminate_first(scene, method, facts)
    return _refuse_replacement(scene, facts.pool) or bare_command(
        scene, method, (facts,), (template_replacement(facts.pool),)
    )


STATIC_AT_LIMIT: Final = "static-at-limit"
NO_RESERVED_CAPACITY: Final = "no-reserved-capacity"


def terminate_first(scene: Scene, method: Method, facts: NodeFacts, why: str = STATIC_AT_LIMIT) -> Command:
    """Return a command that deletes a node that is replaced later: it saves nothing."""
    return replace(bare_command(scene, method, (facts,), saves=False), terminate_first=why)


# ---------------------------------------------------------------- the profile dovetail


def refuse_refill(scene: Scene, method: Method, facts: NodeFacts) -> Refusal | None:
    """Return why a static pool's node is not deleted now; None if Karpenter would refill the pool."""
    pool, name = facts.pool, facts.pool_name
    assert pool is not None
    if scene.settings.karpenter.static_drift is StaticDrift.LEAVE:
        return Refusal(
            gate=Gate.POOL_POLICY,
            why=f"NodePool {name} is static and its drift is left to Karpenter (setting karpenter.staticDrift).",
            figures={"nodePool": name},
        )
    if scene.snapshot.surroundings.features.is_named_off(FeatureGate.STATIC_CAPACITY):
        return Refusal(
            gate=Gate.POOL_POLICY,
            why=f"NodePool {name} is static and Karpenter would not refill it: its gate StaticCapacity is off.",
            figures={"nodePool": name},
        )
    return _refuse_unready(pool) or _refuse_shrinking(scene, pool) or _refuse_half_full(scene, method, pool)


def _refuse_unready(pool: NodePool) -> Refusal | None:
    name, ready = pool.metadata.name, condition(pool.status.conditions, "Ready")
    broken = unreadable(pool)
    if broken:
        why = f"Static NodePool {name} can't be read ({broken}): it launches nothing."
    elif pool.metadata.deletion_timestamp is not None:
        why = f"Static NodePool {name} is being deleted: Karpenter would not refill it."
    elif ready is not None and ready.status != "True":
        why = f"Static NodePool {name} is not Ready: Karpenter would not refill it."
    else:
        return None
    return Refusal(gate=Gate.NEW_NODES, why=why, figures={"nodePool": name})


def _refuse_half_full(scene: Scene, method: Method, pool: NodePool) -> Refusal | None:
    """Refuse while missing nodes use up the budget."""
    name, replicas = pool.metadata.name, pool.spec.replicas
    assert replicas is not None
    there = sum(1 for facts in scene.nodes if facts.pool_name == name and (facts.marked or facts.initialized))
    missing = replicas - there
    if missing <= 0 or missing < scene.left(method)[name]:
        return None
    return Refusal(
        gate=Gate.NEW_NODES,
        why=f"Static NodePool {name} has {there} of {replicas} nodes: the next goes when Karpenter has refilled it.",
        figures={"nodePool": name, "nodes": there, "replicas": replicas},
    )


# ---------------------------------------------------------------- as Karpenter v1.15


def static_room(scene: Scene, pool: NodePool) -> int | None:
    """Return how many more nodes a static pool may have (`limits.nodes`); None: no limit. Unreadable: 0."""
    limit = pool.spec.limits.get("nodes")
    if unreadable(pool):
        return 0
    if limit is None:
        return None
    count = sum(1 for facts in scene.nodes if facts.claim is not None and facts.pool_name == pool.metadata.name)
    return max(0, resource_amount("nodes", limit) - count)


def scaling_down(scene: Scene, pool: NodePool) -> bool:
    """Return whether a static pool has more nodes than it should, so Karpenter removes some anyway."""
    staying = sum(
        1
        for facts in scene.nodes
        if facts.claim is not None and facts.pool_name == pool.metadata.name and not facts.marked
    )
    assert pool.spec.replicas is not None
    return staying > pool.spec.replicas


def may_terminate_first(scene: Scene, facts: NodeFacts) -> bool:
    """Return whether Karpenter deletes the node before its replacement comes (gate TerminateFirstDrift)."""
    pool = facts.pool
    assert pool is not None
    features = scene.snapshot.surroundings.features
    if not features.has(FeatureGate.TERMINATE_FIRST_DRIFT) or _refuse_unready(pool) is not None:
        return False
    if static_room(scene, pool) == 0:
        return True
    offered = _only_full_reservations(scene, pool)
    return offered is not None and facts.labels.get(RESERVATION, "") in offered


def _only_full_reservations(scene: Scene, pool: NodePool) -> frozenset[str] | None:
    """Return the pool's reservations if all its offerings are reserved and full, else None."""
    machines = scene.snapshot.frame.machines
    reqs = machines.intern(pool_requirements(pool))
    offers = [o for place in places_of(reqs.types) for o in machines.kinds[place].offerings if reqs.goes_with(o)]
    if not offers or any(o.capacity_type != names.RESERVED or launchable(o) for o in offers):
        return None
    return frozenset(o.reservation_id for o in offers if o.reservation_id)


def _refuse_shrinking(scene: Scene, pool: NodePool) -> Refusal | None:
    name, broken = pool.metadata.name, unreadable(pool)
    if broken:
        return Refusal(
            gate=Gate.NEW_NODES, why=f"Static NodePool {name} can't be read ({broken}): it launches nothing."
        )
    if scaling_down(scene, pool):
        return Refusal(
            gate=Gate.NEW_NODES, why=f"Static NodePool {name} has more nodes than replicas and is shrinking."
        )
    return None


def _refuse_replacement(scene: Scene, pool: NodePool) -> Refusal | None:
    """Return why no replacement can come first."""
    name = pool.metadata.name
    if static_room(scene, pool) == 0:
        limit = str(pool.spec.limits.get("nodes"))
        return Refusal(
            gate=Gate.NEW_NODES,
            why=f"Static NodePool {name} is at its limit of {limit} nodes: no replacement can come first.",
            figures={"nodePool": name, "limit": limit},
        )
    return None


def template_replacement(pool: NodePool | None) -> Replacement:
    """Return a replacement from the pool's template, of any of its types."""
    assert pool is not None
    spec = pool.spec.template.spec
    return Replacement(
        node_pool=pool.metadata.name,
        instance_types=(),
        requirements=spec.requirements,
        taints=spec.taints,
        startup_taints=spec.startup_taints,
    )
