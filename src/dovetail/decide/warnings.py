"""What people should know although nothing stops: broken policies and budgets, annotations that can't be read.

Sentences only, in a stable order. Sits in decide, below the round.
"""

from collections.abc import Iterator

from dovetail.api.pool_rules import launch_problems
from dovetail.api.settings import unknown_names
from dovetail.decide.facts import read_expiry
from dovetail.decide.scene import Scene
from dovetail.model.duration import format_duration

UNREADABLE_MAX = 20
"""How many unreadable annotations are spelled out; the rest is counted."""


def warnings_of(scene: Scene) -> tuple[str, ...]:
    """Give all warnings of a round: what the settings name first, then pools by name, then pods."""
    found: list[str] = list(unknown_names(scene.settings, scene.snapshot.cluster))
    broken = {pool.metadata.name: launch_problems(pool) for pool in scene.snapshot.cluster.node_pools}
    for name in sorted(scene.policies):
        policy = scene.policies[name]
        found.extend(f"NodePool {name}: {text}" for text in (*policy.problems, *policy.warnings))
        found.extend(f"NodePool {name}: {text}; it launches no node until that is mended" for text in broken[name])
        found.extend(_forceful_first(scene, name))
    unreadable = [text for facts in scene.nodes for text in facts.unreadable]
    found.extend(unreadable[:UNREADABLE_MAX])
    if len(unreadable) > UNREADABLE_MAX:
        found.append(f"{len(unreadable) - UNREADABLE_MAX} more pods have annotations that can't be read")
    return tuple(found)


def _forceful_first(scene: Scene, pool: str) -> Iterator[str]:
    """Say where Karpenter's own expiry, which is forceful, comes before the graceful one (spec section 10)."""
    policy = scene.policies[pool]
    graceful = policy.expire_after
    if scene.settings.is_karpenter or not policy.expire_after_set or graceful is None:
        return
    count = 0
    for facts in scene.nodes:
        own = read_expiry(facts.claim.spec.expire_after) if facts.claim and facts.pool_name == pool else None
        count += own is not None and own <= graceful
    if count:
        yield (
            f"NodePool {pool}: {count} NodeClaims have an expireAfter of their own that is not after the pool's "
            f"{format_duration(graceful)}; Karpenter removes those nodes forcefully first"
        )
