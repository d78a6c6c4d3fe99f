"""The warnings of a round: broken policies and budgets, annotations that can't be read.

Sentences only, in a stable order. Sits in decide, below the round.
"""

from collections.abc import Iterator

from dovetail.api.findings import shown
from dovetail.api.manifests.pool_rules import launch_problems
from dovetail.api.pool_marks import read_history, read_pause
from dovetail.api.settings import unknown_names
from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import read_expiry
from dovetail.decide.facts.oddities import odd_spans
from dovetail.decide.methods import unhealthy
from dovetail.model.names import RECENT_DISRUPTIONS
from dovetail.model.timing.duration import format_duration

UNREADABLE_MAX = 20
"""How many unreadable annotations are spelled out; the rest is counted."""


def warnings_of(context: RoundContext) -> tuple[str, ...]:
    """Return all warnings of a round: first names in the settings, then pools by name, then pods."""
    found: list[str] = list(unknown_names(context.settings, context.snapshot.cluster))
    found.extend(context.snapshot.surroundings.overlaid.notes)
    broken = {pool.metadata.name: launch_problems(pool) for pool in context.snapshot.cluster.node_pools}
    for name in sorted(context.policies):
        policy = context.policies[name]
        found.extend(f"NodePool {name}: {text}" for text in (*policy.problems, *policy.warnings))
        found.extend(f"NodePool {name}: {text}; it launches no node until that is mended" for text in broken[name])
        found.extend(_refused(context, name))
        found.extend(_forceful_first(context, name))
        found.extend(_marks(context, name))
    found.extend(unhealthy.warnings(context))
    unreadable = list(_unreadable(context))
    found.extend(unreadable[:UNREADABLE_MAX])
    if len(unreadable) > UNREADABLE_MAX:
        found.append(f"{len(unreadable) - UNREADABLE_MAX} more NodeClaims or pods have values that can't be read")
    return tuple(found)


def _unreadable(context: RoundContext) -> Iterator[str]:
    """Return which NodeClaims have unreadable durations, which pods have unreadable values, and the consequence."""
    claims, oddities = context.snapshot.cluster.node_claims, context.roster.oddities
    closes = {"expireAfter": "the node never expires", "terminationGracePeriod": "it lifts no pod's protection"}
    for claim in claims if oddities.in_claims(claims) else ():
        for key, text in odd_spans(claim):
            yield f"NodeClaim {claim.metadata.name}: spec.{key} ({shown(text)}) is no duration; {closes[key]}"
    for facts in context.nodes if oddities.in_nodes(context.nodes) else ():
        yield from facts.unreadable


def _marks(context: RoundContext, pool: str) -> Iterator[str]:
    """Return which annotations on a pool can't be read (spec sections 13 and 16)."""
    if not context.settings.rules.pauses:
        return
    item = next(item for item in context.snapshot.cluster.node_pools if item.metadata.name == pool)
    pause = read_pause(item)
    if pause is not None and pause.warning:
        yield f"NodePool {pool}: {pause.warning}"
    if read_history(item) is None:
        yield f"NodePool {pool}: {RECENT_DISRUPTIONS} can't be read; its rate budgets count as used up"


def _refused(context: RoundContext, pool: str) -> Iterator[str]:
    """Return which required fields a pool lacks: the API server and `validate` refuse it."""
    item = next(item for item in context.snapshot.cluster.node_pools if item.metadata.name == pool)
    reference = item.spec.template.spec.node_class_ref
    missing = [key for key in ("group", "kind", "name") if not getattr(reference, key)]
    if missing:
        fields = "" if len(missing) == 3 else f".{missing[0]}"
        yield f"NodePool {pool}: spec.template.spec.nodeClassRef{fields} is missing; the API server refuses such a pool"


def _forceful_first(context: RoundContext, pool: str) -> Iterator[str]:
    """Return pools in which Karpenter's forceful expiry comes before the graceful one (spec section 10)."""
    policy = context.policies[pool]
    graceful = policy.expire_after
    if not context.settings.rules.retires_expired or not policy.expire_after_set or graceful is None:
        return
    count = 0
    for facts in context.nodes:
        own = read_expiry(facts.claim.spec.expire_after) if facts.claim and facts.pool_name == pool else None
        count += own is not None and own <= graceful
    if count:
        yield (
            f"NodePool {pool}: {count} NodeClaims have an expireAfter of their own that is not after the pool's "
            f"{format_duration(graceful)}; Karpenter removes those nodes forcefully first"
        )
