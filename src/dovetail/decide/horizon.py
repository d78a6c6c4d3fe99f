"""When could the answer change with no event in between? The earliest timer, window edge, expiry or crossing.

So that a shell need not ask again while nothing happened and this time has not come. Errs on the early side. Sits in
decide, above the methods, below the round.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from fractions import Fraction

from dovetail.decide.facts import NodeFacts
from dovetail.decide.price import Refusal
from dovetail.decide.scene import Scene
from dovetail.model.policy import DisruptionPolicy
from dovetail.model.verdicts import Gate


def next_change(scene: Scene, refused: Iterable[tuple[tuple[NodeFacts, ...], Refusal]]) -> datetime | None:
    """Give the earliest time after now at which a round could answer differently; None: never by time alone."""
    times = [
        *_scene_times(scene),
        *(when for nodes, refusal in refused for when in _crossing(nodes, refusal, scene)),
    ]
    for facts in scene.nodes:
        times.extend(node_times(facts, scene))
    now = scene.now
    return min((when for when in times if when > now), default=None)


def _scene_times(scene: Scene) -> Iterator[datetime]:
    if scene.stabilized_until is not None:
        yield scene.stabilized_until
    yield from scene.in_flight.back_off.values()
    yield from scene.in_flight.regrown.values()
    for policy in scene.policies.values():
        yield from window_times(policy, scene.now)


def window_times(policy: DisruptionPolicy, now: datetime) -> Iterator[datetime]:
    """Give when each budget of a pool next opens or closes."""
    for budget in policy.budgets:
        if budget.window is not None and budget.problem is None:
            edge = budget.window.next_change(now)
            if edge is not None:
                yield edge


def node_times(facts: NodeFacts, scene: Scene) -> tuple[datetime, ...]:
    """Give when a node's timers run out: consolidateAfter, grace period, expiry, a pod's do-not-disrupt."""
    if facts.policy is None:
        return ()
    if facts.expires_at is None or scene.settings.is_karpenter:
        return facts.turns
    return (*facts.turns, facts.expires_at)


def _crossing(nodes: tuple[NodeFacts, ...], refusal: Refusal, scene: Scene) -> Iterator[datetime]:
    """Give when ageing lowers the required savings to what is saved (S1: nodes get easier to move as they age)."""
    if refusal.gate is not Gate.SAVINGS_THRESHOLD:
        return
    per_nanosecond = Fraction(0)
    for facts in nodes:
        if facts.policy is not None and facts.expire_after:
            per_nanosecond += facts.policy.savings_threshold * facts.full_cost / facts.expire_after
    missing = refusal.required - refusal.savings
    if per_nanosecond > 0 and missing > 0:
        wait = -(-missing // per_nanosecond)  # whole nanoseconds, rounded up
        yield scene.now + timedelta(microseconds=-(-int(wait) // 1000))
