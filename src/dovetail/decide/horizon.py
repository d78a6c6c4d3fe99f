"""When could the answer change without an event? The earliest timer, window edge, expiry or crossing.

A shell need not ask again until an event or this time. If in doubt, the time is too early. Sits in
decide, above the methods, below the round.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.pool_holds import pending_times, window_edges
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.timing.duration import later
from dovetail.model.verdicts import Gate


def next_change(context: RoundContext, refused: Iterable[tuple[tuple[NodeFacts, ...], Refusal]]) -> datetime | None:
    """Return the earliest time after now at which a round could answer differently; None: never by time alone."""
    now = context.now
    times = [*_scene_times(context)]
    waits = []
    for nodes, refusal in refused:
        if refusal.gate in (Gate.SAVINGS_THRESHOLD, Gate.WASTE):
            wait = _until_crossing(context, nodes, refusal)
            if wait > 0:
                waits.append(wait)
        if refusal.due is not None:
            times.append(refusal.due)
    if waits:
        times.append(later(now, min(waits)))
    soonest = context.roster.timetable.soonest(context.nodes, now, lambda facts: node_times(facts, context))
    if soonest is not None:
        times.append(soonest)
    return min((when for when in times if when > now), default=None)


def _scene_times(context: RoundContext) -> Iterator[datetime]:
    if context.stabilized_until is not None:
        yield context.stabilized_until
    yield from context.in_flight.back_off.values()
    yield from context.in_flight.regrown.values()
    yield from context.question.restless.values()
    yield from context.ledger.rate_times()
    for policy in context.policies.values():
        yield from window_times(policy, context.now)
        yield from pending_times(policy.health, context.waiting.pods)


def window_times(policy: DisruptionPolicy, now: datetime) -> Iterator[datetime]:
    """Return when each budget of a pool next opens or closes."""
    for budget in policy.budgets:
        if budget.window is not None and budget.problem is None:
            edge = budget.window.next_change(now)
            if edge is not None:
                yield edge
    yield from window_edges(policy, now)


def node_times(facts: NodeFacts, context: RoundContext) -> tuple[datetime, ...]:
    """Return when a node's timers run out: consolidateAfter, grace period, expiry, a pod's do-not-disrupt."""
    rules = context.settings.rules
    times = facts.times if rules.retires_expired else facts.turns
    return (*times, *facts.window_edges(context.now)) if rules.pod_windows and facts.pod_windows else times


def _until_crossing(context: RoundContext, nodes: tuple[NodeFacts, ...], refusal: Refusal) -> int:
    """Return in how many nanoseconds ageing lowers the required savings to the savings; 0: never.

    Design: savings-threshold: nodes get easier to move as they age.
    """
    required = refusal.required
    missing = required.numerator - refusal.savings * required.denominator
    amount, per = context.haste.falls_by(nodes[0])
    for facts in nodes[1:]:
        falls, span = context.haste.falls_by(facts)
        amount, per = amount * span + falls * per, per * span
    return -(-missing * per // (required.denominator * amount)) if amount > 0 else 0  # rounded up
