"""When could the answer change without an event? The earliest timer, window edge, expiry or crossing.

A shell need not ask again until an event or this time. If in doubt, the time is too early. Sits in
decide, above the methods, below the round.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from dovetail.api.rolling import read_rolling, read_rollout
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.budgets import window_times
from dovetail.decide.gates.pool_holds import pending_times
from dovetail.decide.methods.method import SetAside
from dovetail.decide.methods.turns import DRIFT_CHECK
from dovetail.decide.refusal import Refusal
from dovetail.decide.scene import Scene
from dovetail.decide.waste import due_of, until_crossing
from dovetail.decide.work import Work
from dovetail.model.timing.duration import later
from dovetail.model.verdicts import Gate


def next_change(
    work: Work, refused: Iterable[tuple[tuple[NodeFacts, ...], Refusal]], aside: Iterable[SetAside] = ()
) -> datetime | None:
    """Return the earliest time after now at which a round could answer differently; None: never by time alone."""
    scene, now = work.scene, work.scene.now
    times = [*_scene_times(scene)]
    waits = [entry.wait for entry in aside if entry.wait > 0]
    for nodes, refusal in refused:
        if refusal.gate in (Gate.SAVINGS_THRESHOLD, Gate.WASTE):
            required, unit = refusal.required.as_integer_ratio()
            wait = until_lower(scene, nodes, required - refusal.savings * unit, unit)
            if wait > 0:
                waits.append(wait)
        if refusal.due is not None:
            times.append(refusal.due)
        elif refusal.gate is Gate.PRICE and len(nodes) == 1:
            times += [due for due in [due_of(work, nodes[0])] if due is not None]  # it goes with others
    for entry in aside:
        due = due_of(work, entry.facts)
        if due is not None:
            times.append(due)
    if waits:
        times.append(later(now, min(waits)))
    soonest = scene.table.next_change(now)
    if soonest is not None:
        times.append(soonest)
    return min((when for when in times if when > now), default=None)


def _scene_times(scene: Scene) -> Iterator[datetime]:
    yield from scene.waits.times()
    yield from scene.in_flight.back_off.values()
    yield from scene.question.restless.values()
    yield from scene.ledger.rate_times()
    for pool in scene.question.cluster.node_pools if scene.settings.rules.topology_budgets else ():
        rolling, began = read_rolling(pool), read_rollout(pool).began
        if rolling is not None and rolling.idle_since is not None:
            yield later(rolling.idle_since, scene.settings.domain_patience)
        if rolling is not None and began is not None:
            yield later(began, DRIFT_CHECK)
    for policy in scene.policies.values():
        yield from window_times(policy, scene.now)
        yield from pending_times(policy.health, scene.waiting.pods)


def until_lower(scene: Scene, nodes: Sequence[NodeFacts], missing: int, unit: int) -> int:
    """Return in how many nanoseconds ageing lowers what nodes must save by `missing` / `unit`; 0: never.

    Design: savings-threshold, Lifetime remaining. Whole numbers: fractions would take most of a round's time.
    """
    amount, per = scene.haste.falls_by(nodes[0])
    for facts in nodes[1:]:
        falls, span = scene.haste.falls_by(facts)
        amount, per = amount * span + falls * per, per * span
    return until_crossing(missing, unit, (amount, per))
