"""The warnings of a round: broken policies and budgets, annotations that can't be read.

Sentences only, in a stable order. Sits in decide, below the round.
"""

from collections.abc import Iterator, Sequence

from dovetail.api.commitments import unknown_parts
from dovetail.api.findings import shown
from dovetail.api.manifests.pool_rules import launch_problems
from dovetail.api.pool_marks import read_history, read_pause
from dovetail.api.roll_request import read_request
from dovetail.api.rolling import Rollout, read_rolling, read_rollout
from dovetail.api.settings import unknown_names
from dovetail.decide.facts.node_facts import odd_spans, read_expiry
from dovetail.decide.methods import unhealthy
from dovetail.decide.outcome import RollChange
from dovetail.decide.scene import Scene
from dovetail.decide.words import clock
from dovetail.model.names import RECENT_DISRUPTIONS, ROLL, ROLLING_DOMAIN
from dovetail.model.objects import NodeClaim, NodePool
from dovetail.model.quantity import format_amount
from dovetail.model.timing.duration import format_duration
from dovetail.scheduling.launch.machines import places_of
from dovetail.scheduling.launch.paid_prices import unplaced_discounts
from dovetail.scheduling.pods.coming_sizes import SIZED
from dovetail.scheduling.pods.requests import amounts

NAMED_MAX = 10
"""How many nodes that were left behind are named; the rest is counted."""
UNREADABLE_MAX = 20
"""How many unreadable annotations are spelled out; the rest is counted."""


def warnings_of(scene: Scene, rolling: Sequence[RollChange] = ()) -> tuple[str, ...]:
    """Return all warnings of a round: what the input lacks, names in the settings, pools by name, then pods.

    `rolling`: what this round changes in the rolls.
    """
    cluster = scene.snapshot.cluster
    rolls = {change.node_pool: change.rollout for change in rolling}
    found: list[str] = [*cluster.notes, *unknown_names(scene.settings, cluster)]
    found.extend(scene.snapshot.surroundings.overlaid.notes)
    found.extend(_too_large(scene))
    found.extend(unknown_parts(scene.settings.commitments, scene.snapshot.surroundings.given))
    found.extend(unplaced_discounts(cluster, scene.snapshot.surroundings.given, scene.settings))
    pools = {pool.metadata.name: pool for pool in cluster.node_pools}
    for name in sorted(scene.policies):
        policy = scene.policies[name]
        found.extend(f"NodePool {name}: {text}" for text in (*policy.problems, *policy.warnings))
        found.extend(
            f"NodePool {name}: {text}; it launches no node until that is mended"
            for text in launch_problems(pools[name])
        )
        found.extend(_refused(pools[name]))
        if not launch_problems(pools[name]):
            found.extend(_unmet(scene, pools[name]))
        found.extend(_forceful_first(scene, name))
        found.extend(_marks(scene, pools[name]))
        found.extend(_rolls(scene, pools[name], rolls.get(name) or read_rollout(pools[name])))
    found.extend(_requests(scene))
    found.extend(unhealthy.warnings(scene))
    unreadable = [*_unreadable_claims(scene), *scene.table.unreadable_values()]
    found.extend(unreadable[:UNREADABLE_MAX])
    if len(unreadable) > UNREADABLE_MAX:
        found.append(f"{len(unreadable) - UNREADABLE_MAX} more NodeClaims or pods have values that can't be read")
    return tuple(found)


def _too_large(scene: Scene) -> Iterator[str]:
    """Return the VerticalPodAutoscalers that recommend more than any machine has: their pods can't be moved."""
    snapshot = scene.snapshot
    advice = snapshot.surroundings.coming.advice
    if not advice:
        return
    most: dict[str, int] = {}
    types = {place for template in snapshot.frame.templates for place in places_of(template.types)}
    for kind in map(snapshot.frame.machines.kinds.__getitem__, sorted(types)):
        for name in SIZED:
            most[name] = max(most.get(name, 0), kind.capacity.get(name, 0) - kind.overhead.get(name, 0))
    for node in snapshot.cluster.nodes:
        for name, amount in amounts(node.status.allocatable).items():
            most[name] = max(most.get(name, 0), amount)
    for target in sorted(advice):
        entry = advice[target]
        for name, amount in sorted(entry.total().items()):
            if amount > most.get(name, 0):
                yield (
                    f"VerticalPodAutoscaler {entry.vpa}: status.recommendation asks for {format_amount(name, amount)} "
                    f"{name}, and no machine that is there or that a NodePool can launch has more than "
                    f"{format_amount(name, most.get(name, 0))}; pods of {target[1]} {target[2]} can't come back if "
                    "they are moved. Set maxAllowed in its spec.resourcePolicy, or let a NodePool launch larger types"
                )


def _unreadable_claims(scene: Scene) -> Iterator[str]:
    """Return which NodeClaims have unreadable durations, and the consequence."""
    claims, table = scene.snapshot.cluster.node_claims, scene.table
    closes = {"expireAfter": "the node never expires", "terminationGracePeriod": "it lifts no pod's protection"}
    for claim in claims if table.may_be_noted(len(claims)) else ():
        for key, text in odd_spans(claim):
            yield f"NodeClaim {claim.metadata.name}: spec.{key} ({shown(text)}) is not a duration; {closes[key]}"


def _marks(scene: Scene, pool: NodePool) -> Iterator[str]:
    """Return which annotations on a pool can't be read (docs/rules.md#rates and #pause)."""
    if not scene.settings.rules.pauses:
        return
    name, pause = pool.metadata.name, read_pause(pool)
    if pause is not None and pause.warning:
        yield f"NodePool {name}: {pause.warning}"
    if read_history(pool) is None:
        yield f"NodePool {name}: {RECENT_DISRUPTIONS} can't be read; its rate budgets count as used up"


def _requests(scene: Scene) -> Iterator[str]:
    """Return the requests to replace nodes that can't be read, or begin in the future."""
    cluster = scene.snapshot.cluster
    claims = cluster.node_claims if scene.table.may_be_noted(len(cluster.node_claims)) else ()
    asked: tuple[NodePool | NodeClaim, ...] = (*cluster.node_pools, *claims)
    for item in asked if scene.settings.rules.roll_requests else ():
        if ROLL not in item.metadata.annotations:
            continue
        what, request = f"{type(item).__name__} {item.metadata.name}", read_request(item)
        if request is None:
            yield f"{what}: {ROLL} can't be read; nothing is rolled for it (dovetail roll writes it)"
        elif scene.now < request.requested:
            yield f"{what}: {ROLL} was requested at {clock(request.requested)}, which is still to come"


def _rolls(scene: Scene, pool: NodePool, rollout: Rollout) -> Iterator[str]:
    """Return what is wrong with a pool's roll: an annotation that is ignored, domains that were left behind.

    Design: topology-budgets.
    """
    name, annotations = pool.metadata.name, pool.metadata.annotations
    keys = [budget.topology_key for budget in scene.policies[name].budgets if budget.sequential]
    if not keys or not scene.settings.rules.topology_budgets:
        return
    rolling = read_rolling(pool)
    if rolling is None and ROLLING_DOMAIN in annotations:
        yield f"NodePool {name}: {ROLLING_DOMAIN} can't be read and is ignored; the oldest drift decides where to begin"
    elif rolling is not None and rolling.key not in keys:
        yield f"NodePool {name}: {ROLLING_DOMAIN} is about {shown(rolling.key)}, not {keys[0]}, and is ignored"
    left = rollout.left_behind
    waiting = scene.ledger.domains(name, keys[0]) if left else {}
    for domain in left:
        nodes = [facts.name for facts in waiting.get(domain, ()) if facts.drifted]
        if nodes:
            more = f" and {len(nodes) - NAMED_MAX} more" if len(nodes) > NAMED_MAX else ""
            yield (
                f"NodePool {name}: drift left {keys[0]} {domain} behind, since its nodes could not go: "
                f"{', '.join(nodes[:NAMED_MAX])}{more}; it has its turn again after the others"
            )


def _refused(pool: NodePool) -> Iterator[str]:
    """Return which required fields a pool lacks: the API server and `validate` refuse it."""
    name, reference = pool.metadata.name, pool.spec.template.spec.node_class_ref
    missing = [key for key in ("group", "kind", "name") if not getattr(reference, key)]
    if missing:
        fields = "" if len(missing) == 3 else f".{missing[0]}"
        yield f"NodePool {name}: spec.template.spec.nodeClassRef{fields} is missing; the API server refuses such a pool"


def _unmet(scene: Scene, pool: NodePool) -> Iterator[str]:
    """Return which requirements keep a pool from launching: labels that no type has, or all of them together."""
    snapshot, name = scene.snapshot, pool.metadata.name
    source = snapshot.catalogue.source or "the catalogue"
    unknown = snapshot.unknown_labels(pool)
    for key in unknown:
        yield (
            f"NodePool {name}: it requires {key}, a label that no instance type has ({source}); "
            "no launch is planned in this pool"
        )
    if not unknown and snapshot.has_no_type(pool) and snapshot.catalogue.instance_types:
        yield f"NodePool {name}: no instance type ({source}) meets its requirements; no launch is planned in this pool"


def _forceful_first(scene: Scene, pool: str) -> Iterator[str]:
    """Return pools in which Karpenter's forceful expiry comes before the graceful one (docs/rules.md#karpenter)."""
    policy = scene.policies[pool]
    graceful = policy.expire_after
    if not scene.settings.rules.retires_expired or not policy.expire_after_set or graceful is None:
        return
    count = 0
    for facts in scene.nodes:
        own = read_expiry(facts.claim.spec.expire_after) if facts.claim and facts.pool_name == pool else None
        count += own is not None and own <= graceful
    if count:
        then = "those nodes expire by it, before Karpenter removes them forcefully"
        if scene.settings.expiry_lead == 0:
            then = "Karpenter removes those nodes forcefully first"
        yield (
            f"NodePool {pool}: {count} NodeClaims have an expireAfter of their own that is not after the pool's "
            f"{format_duration(graceful)}; {then}"
        )
