"""When a roll will end: by the budgets and windows of its pool, and the pace so far.

Plays the rest of the roll: a node starts as soon as every budget has room and every window is open, and is gone after
as long as replaced nodes took so far; before the first, as long as the pool's nodes took to launch. In a pool with a
sequential budget one domain follows the other. Knows no gate of a node: `status` says what is blocked. Sits in decide,
below `status`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from dovetail.decide.facts.node_facts import DRAIN, usual_launch
from dovetail.decide.gates.budgets import (
    amount_of,
    flat_allowance,
    is_active,
    names_reason,
    rate_span,
    topology_budgets,
    window_times,
)
from dovetail.decide.gates.pool_holds import window_hold
from dovetail.decide.scene import Scene
from dovetail.model.policies.policy import Budget, DisruptionPolicy, Reason

_SHOWN: Final = 3
"""How many nodes must be replaced before it is known how many really leave at once."""
_SECOND: Final = timedelta(seconds=1)
HORIZON: Final = timedelta(days=60)
_NOTED_LATE: Final = timedelta(minutes=1)
_STARTS_MAX: Final = 20_000


class RollPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a roll. `waiting`: nodes by domain, in the order in which domains have their turn.

    `in_flight`: since when each node that leaves has been leaving. `begins`: no node starts before, since a pause ends
    then. `one_by_one`: one domain after the other.
    """

    waiting: Mapping[str, int]
    in_flight: Sequence[datetime]
    begins: datetime
    one_by_one: bool


class RollBudget:
    """What the budgets and windows of a pool allow at any time, for drift. `nodes`: how many nodes each domain has."""

    def __init__(self, scene: Scene, pool: str, key: str, nodes: Mapping[str, int]) -> None:
        self._scene, self._pool, self._key, self._nodes = scene, pool, key, nodes
        self._policy: DisruptionPolicy = scene.policies[pool]
        members = scene.ledger.members[pool]
        self._count = members.count
        self._others = sum(1 for facts in members.nodes if facts.used and not facts.marked)
        """Nodes that use up budget all the time: they are not ready."""

    def room(self, at: datetime, domains: Iterable[str]) -> int:
        """Return how many nodes of some domains may be leaving at once; 0: none may start."""
        settings = self._scene.settings
        if window_hold(self._pool, self._policy, Reason.DRIFTED, at) is not None:
            return 0
        flat = flat_allowance(self._policy, self._count, 0, Reason.DRIFTED, settings, at).allowed - self._others
        budgets = [one for one in topology_budgets(self._policy, settings, at) if one.topology_key == self._key]
        if budgets:
            flat = min(flat, sum(self._amount(budgets, domain) for domain in domains))
        return max(0, flat)

    def _amount(self, budgets: Sequence[Budget], domain: str) -> int:
        return min(amount_of(budget, self._nodes.get(domain, 0)) for budget in budgets)

    def rates(self, at: datetime) -> list[Budget]:
        """Return the rate budgets that apply at a time."""
        settings = self._scene.settings
        return [
            budget
            for budget in self._policy.budgets
            if budget.per is not None
            and budget.problem is None
            and settings.rules.rate_budgets
            and names_reason(budget, Reason.DRIFTED, settings)
            and is_active(budget, at)
        ]

    def amount(self, budget: Budget) -> int:
        """Return how many nodes a rate budget lets go within its span."""
        return amount_of(budget, self._count)

    def window_times(self, at: datetime) -> Iterator[datetime]:
        """Yield when the windows of the pool and its budgets next open or close."""
        return window_times(self._policy, at)

    def first_pace(self, began: datetime) -> timedelta:
        """Return how long a node takes by the launches of the pool, those of this roll if there are any."""
        launch = usual_launch(self._scene.ledger.members[self._pool].nodes, began)
        return timedelta(microseconds=self._scene.settings.validation_delay // 1000) + launch + DRAIN

    def started(self) -> list[datetime]:
        """Return when nodes started to leave that rate budgets still count."""
        found = []
        for entry in self._scene.ledger.history(self._pool) or ():
            found.extend([entry.at] * entry.nodes)
        return sorted(found)


class RollPace(msgspec.Struct, frozen=True, kw_only=True):
    """How long a node takes, and how many left at once at most, where that is known."""

    per_node: timedelta
    at_once: int | None = None


def pace_of(budget: RollBudget, plan: RollPlan, began: datetime, now: datetime, done: tuple[int, int]) -> RollPace:
    """Return the pace so far. `done`: the nodes that were replaced, and how many seconds each took (0: not known).

    Where the latter is not known, it follows from how long the pool's nodes took to launch, or else is an assumption.
    """
    replaced, took = done
    if took:
        per_node = timedelta(seconds=took)
        going = sum(min(now - since, per_node) / per_node for since in plan.in_flight if since <= now)
        span = max(now - began, _SECOND)
        at_once = (replaced + going) * per_node / span
        seen = max(len(plan.in_flight), math.ceil(1.25 * at_once))
        return RollPace(per_node=per_node, at_once=seen if replaced >= _SHOWN else None)
    return RollPace(per_node=budget.first_pace(began))


def expected_end(budget: RollBudget, plan: RollPlan, pace: RollPace, now: datetime) -> datetime | None:
    """Return when the last node is gone; None: never by the budgets and windows of the pool."""
    per_node = pace.per_node
    leaving = [max(now + per_node / 10, since + per_node) for since in plan.in_flight]
    play = _Play(budget, pace, leaving, _departures(budget.started(), plan.in_flight))
    at, groups = max(now, plan.begins), [[name] for name in plan.waiting] if plan.one_by_one else [list(plan.waiting)]
    for domains in groups:
        end = play.run(at, domains, sum(plan.waiting[name] for name in domains), now + HORIZON)
        if end is None:
            return None
        at = end
    return at


def _departures(noted: Sequence[datetime], in_flight: Sequence[datetime]) -> list[datetime]:
    """Return when nodes started to leave; one that is in flight may not be in the pool's history yet."""
    first = min(in_flight, default=None)
    recent = 0 if first is None else sum(at >= first - _NOTED_LATE for at in noted)
    return sorted([*noted, *sorted(in_flight)[recent:]])


class _Play:
    """Plays starts and departures of nodes.

    `running`: when those that leave already are gone; `started`: when nodes began to leave.
    """

    def __init__(self, budget: RollBudget, pace: RollPace, running: list[datetime], started: list[datetime]) -> None:
        self._budget, self._pace, self._running, self._started = budget, pace, running, started
        heapify(running)

    def run(self, at: datetime, domains: Sequence[str], count: int, horizon: datetime) -> datetime | None:
        """Start so many nodes of some domains, and return when the last of them is gone; None: they never start."""
        for _ in range(_STARTS_MAX):
            while self._running and self._running[0] <= at:
                heappop(self._running)
            if not count:
                break
            if len(self._running) < self._room(at, domains) and not self._is_full(at):
                heappush(self._running, at + self._pace.per_node)
                self._started.append(at)
                count -= 1
                continue
            later = min((when for when in self._events(at) if when > at), default=None)
            if later is None or later > horizon:
                return None
            at = later
        return max(self._running, default=at)

    def _room(self, at: datetime, domains: Sequence[str]) -> int:
        room = self._budget.room(at, domains)
        return room if self._pace.at_once is None else min(room, self._pace.at_once)

    def _is_full(self, at: datetime) -> bool:
        """Return whether a rate budget lets no node start now."""
        return any(len(self._recent(budget, at)) >= self._budget.amount(budget) for budget in self._budget.rates(at))

    def _recent(self, budget: Budget, at: datetime) -> list[datetime]:
        return [start for start in self._started if at - rate_span(budget) < start <= at]

    def _events(self, at: datetime) -> Iterator[datetime]:
        """Yield when something changes next: a node is gone, a window opens or closes, a rate has a place again."""
        if self._running:
            yield self._running[0]
        yield from self._budget.window_times(at)
        for budget in self._budget.rates(at):
            recent = self._recent(budget, at)
            if recent and len(recent) >= self._budget.amount(budget):
                yield recent[0] + rate_span(budget)
