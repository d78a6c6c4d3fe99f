"""What is ahead for nodes that go for another reason than their cost: which wait, and which expire in the coming days.

A node waits for the first method that wants it: unhealthy, expired, drifted.

Nodes expire as docs/rules.md#expiry says: every one is retired between the moment at which it counts as expired and the
one at which Karpenter ends it by force. Between them, the pool's budgets for Expired are played forward: nodes that are
due first go first, a replacement takes as long as the pool's nodes took to launch, and a drain takes `DRAIN`. A node
goes in time if its replacement is there before Karpenter ends it. Other reasons use the same budgets, and a
PodDisruptionBudget may slow a drain, so this is the best case. Decides nothing. Sits in decide, beside the methods,
below the round.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from heapq import heappop, heappush
from typing import Final

from dovetail.decide.facts.node_facts import NodeFacts, usual_launch
from dovetail.decide.gates.budgets import flat_allowance, rate_span, window_times
from dovetail.decide.gates.pool_holds import window_hold
from dovetail.decide.outcome import ExpiringDay, ExpiringNode, WaitingNode
from dovetail.decide.scene import Scene
from dovetail.model.policies.policy import Budget, Reason

LOOK_AHEAD: Final = timedelta(days=7)
DRAIN: Final = timedelta(minutes=1)
"""From a deleted NodeClaim to its end, if no PodDisruptionBudget makes the drain wait."""


def expiring_nodes(scene: Scene, span: timedelta) -> tuple[ExpiringNode, ...]:
    """Return the nodes that Karpenter would end by force within a time, by pool, then by that moment, then by name.

    Whether one goes in time is found for a week at least, so that a shorter look says the same.
    """
    if not scene.settings.rules.retires_expired:
        return ()
    pools: dict[str, list[NodeFacts]] = {}
    end = scene.now + span
    horizon = max(end, scene.now + LOOK_AHEAD)
    for facts in scene.nodes:
        at = facts.forced_at
        if at is None or facts.marked or facts.pool is None or not scene.now < at <= horizon:
            continue
        if scene.gate_context.manages(facts.pool_name):
            pools.setdefault(facts.pool_name, []).append(facts)
    found = []
    for pool in sorted(pools):
        in_time = _Play(scene, pool).run(pools[pool])
        for facts in sorted(pools[pool], key=lambda facts: (facts.forced_at or scene.now, facts.name)):
            assert facts.expires_at is not None
            assert facts.forced_at is not None
            if facts.forced_at > end:
                break
            found.append(
                ExpiringNode(
                    node=facts.name,
                    node_pool=pool,
                    expires_at=facts.expires_at,
                    forced_at=facts.forced_at,
                    left=facts.forced_at - scene.now,
                    in_time=facts.name in in_time,
                )
            )
    return tuple(found)


def expiring_days(nodes: Sequence[ExpiringNode], zone: tzinfo) -> tuple[ExpiringDay, ...]:
    """Count nodes by pool and by the day on which Karpenter ends them, in a time zone."""
    days: dict[tuple[str, str], list[ExpiringNode]] = {}
    for entry in nodes:
        days.setdefault((entry.node_pool, entry.forced_at.astimezone(zone).date().isoformat()), []).append(entry)
    return tuple(
        ExpiringDay(
            node_pool=pool,
            first=min(entry.forced_at for entry in entries),
            nodes=len(entries),
            in_time=sum(entry.in_time for entry in entries),
        )
        for (pool, _), entries in sorted(days.items())
    )


class _Play:
    """Plays a pool's budgets forward. `_leaving`: when nodes that leave are gone; `_starts`: when nodes began to."""

    def __init__(self, scene: Scene, pool: str) -> None:
        self._ledger, self._pool, self._now = scene.ledger, pool, scene.now
        self._policy = scene.policies[pool]
        members = scene.ledger.members[pool]
        self._launch = timedelta(microseconds=scene.settings.validation_delay // 1000) + usual_launch(members.nodes)
        self._leaving = [scene.now + self._launch + DRAIN for facts in members.nodes if facts.marked]
        self._unready = sum(facts.used and not facts.marked for facts in members.nodes)
        self._starts: list[datetime] = []

    def run(self, nodes: Sequence[NodeFacts]) -> dict[str, None]:
        """Return the nodes that go before Karpenter ends them."""
        now = self._now
        coming = sorted(nodes, key=lambda facts: (facts.expires_at or now, facts.name), reverse=True)
        due: list[tuple[datetime, str]] = []
        found: dict[str, None] = {}
        at: datetime | None = now
        while at is not None:
            while coming and (coming[-1].expires_at or now) <= at:
                facts = coming.pop()
                heappush(due, (facts.forced_at or now, facts.name))
            while self._leaving and self._leaving[0] <= at:
                heappop(self._leaving)
            while due and due[0][0] <= at + self._launch:
                heappop(due)  # Karpenter is faster
            for _ in range(min(len(due), self._room(at)) if due else 0):
                found[heappop(due)[1]] = None
                self._starts.append(at)
                heappush(self._leaving, at + self._launch + DRAIN)
            if not due and not coming:
                break
            arrival = [coming[-1].expires_at or now] if coming else []
            at = min((*arrival, *(self._changes(at) if due else ())), default=None)
        return found

    def _room(self, at: datetime) -> int:
        """Return how many nodes may begin to leave at a time."""
        if window_hold(self._pool, self._policy, Reason.EXPIRED, at) is not None:
            return 0
        ledger, count = self._ledger, self._ledger.members[self._pool].count
        used = self._unready + len(self._leaving)
        flat = flat_allowance(self._policy, count, used, Reason.EXPIRED, ledger.settings, at)
        rates = (
            entry.left - len(self._since(entry.budget, at)) for entry in ledger.rates(self._pool, Reason.EXPIRED, at)
        )
        return max(0, min((flat.left, *rates)))

    def _changes(self, at: datetime) -> Iterator[datetime]:
        """Yield when there may be room again: a node is gone, a window opens or closes, a rate lets the next one go."""
        if self._leaving:
            yield self._leaving[0]
        yield from window_times(self._policy, at)
        for budget in self._policy.budgets:
            if budget.per is not None and (counted := self._since(budget, at)):
                yield counted[0] + rate_span(budget)
        yield from (moment for moment in self._ledger.rate_times_of(self._pool) if moment > at)

    def _since(self, budget: Budget | None, at: datetime) -> Sequence[datetime]:
        """Return when the nodes began to leave that a rate budget counts at a time, in order."""
        assert budget is not None
        return self._starts[bisect_right(self._starts, at - rate_span(budget)) :]


def waiting_nodes(scene: Scene) -> tuple[WaitingNode, ...]:
    """Return the nodes that wait, in the order of their names."""
    found = []
    for facts in scene.nodes:
        if facts.marked or facts.pool is None or not scene.gate_context.manages(facts.pool_name):
            continue
        wanted = next(_wanted(facts, scene.now), None)
        if wanted is not None:
            found.append(WaitingNode(node=facts.name, node_pool=facts.pool_name, reason=wanted[0], since=wanted[1]))
    return tuple(sorted(found, key=lambda entry: entry.node))


def _wanted(facts: NodeFacts, now: datetime) -> Iterator[tuple[Reason, datetime]]:
    if facts.sickness is not None and facts.sickness.due <= now:
        yield Reason.UNHEALTHY, facts.sickness.due
    if facts.expires_at is not None and facts.expires_at <= now:
        yield Reason.EXPIRED, facts.expires_at
    if facts.drifted_since is not None and facts.drifted_since <= now:
        yield Reason.DRIFTED, facts.drifted_since
