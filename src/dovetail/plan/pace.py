"""How long planned commands take: by the budgets, windows, rates and timers of their pools.

Commands start in the order of the plan, as early as the rules of their pools allow, side by side where budgets allow
it. A launch and a drain take as long as `rollout status` assumes (`decide.facts.node_facts`); what a cloud, a
PodDisruptionBudget or a person delays is not known. `plan.to_end` and `plan.change` ask. Decides nothing. Sits in plan.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from dovetail.api.pool_marks import Departure, read_history
from dovetail.decide.facts.node_facts import DRAIN, usual_launch
from dovetail.decide.gates.budgets import (
    amount_of,
    domain_of,
    flat_allowance,
    is_active,
    names_reason,
    rate_allowance,
    rate_span,
)
from dovetail.decide.gates.pool_holds import window_edges, window_hold
from dovetail.decide.scene import Scene
from dovetail.model.command import COST_METHODS, REASON_OF, Command, Method
from dovetail.model.policies.policy import Budget, DisruptionPolicy, Reason
from dovetail.model.settings import Settings, StabilizationEnds
from dovetail.model.timing.duration import format_duration, later

LANDED: Final = timedelta(seconds=60)
"""How long moved pods take to be ready, if stabilization ends when they are."""
BY_ITSELF: Final = "how long a node takes to launch and drain"
_HORIZON: Final = timedelta(days=366)


@dataclass(frozen=True, slots=True, kw_only=True)
class Departing:
    """A command as far as its pace depends on it.

    `nodes`: how many leave, by pool; `names`: which. `takers`: nodes that get pods, `opened`: nodes that are launched,
    each with its pool. `domains`: the values of topology keys of the nodes that leave, by pool and key.
    """

    method: Method
    nodes: Mapping[str, int]
    names: tuple[str, ...] = ()
    takers: tuple[tuple[str, str], ...] = ()
    opened: tuple[tuple[str, str], ...] = ()
    domains: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def reason(self) -> Reason:
        """Return the reason that budgets count it for."""
        return REASON_OF[self.method]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When the last of some commands has ended; None: never, as things are. `paced_by`: what they wait for most."""

    begin: datetime
    end: datetime | None
    paced_by: str = BY_ITSELF

    @property
    def seconds(self) -> float | None:
        """Return how long they take."""
        return None if self.end is None else (self.end - self.begin).total_seconds()


class _Wait(NamedTuple):
    """Something that a command has to wait for, and the earliest moment to look again; None: never."""

    what: str
    until: datetime | None


def pace_of(scene: Scene, commands: Iterable[Departing]) -> Pace:
    """Return when commands that start in this order have all ended."""
    return _Schedule(scene).run(commands)


class _Schedule:
    """The commands that were started, and what is known of the pools meanwhile."""

    def __init__(self, scene: Scene) -> None:
        self._policies, self._settings, self._begin = scene.policies, scene.settings, scene.now
        self._launches: dict[str, timedelta] = {}
        self._members = members = scene.ledger.members
        self._counts = {pool: members[pool].count for pool in self._policies}
        self._sizes = _domain_sizes(scene)
        leaving = scene.now + DRAIN
        self._running: list[tuple[datetime, Departing]] = [
            (leaving, Departing(method=Method.EMPTY, nodes={pool: entry.used}))
            for pool, entry in members.items()
            if entry.used
        ]
        self._started: dict[str, list[Departure]] = {
            pool.metadata.name: list(read_history(pool) or ()) for pool in scene.snapshot.cluster.node_pools
        }
        self._ends: dict[str, datetime] = {}
        self._settled: dict[str, datetime] = {}
        self._busy: dict[str, datetime] = {}
        self._born: dict[str, datetime] = {}
        self._waits: dict[str, timedelta] = {}

    def run(self, commands: Iterable[Departing]) -> Pace:
        at, last = self._begin, self._begin
        for command in commands:
            start = self._start(command, at)
            if start.until is None:
                return Pace(begin=self._begin, end=None, paced_by=start.what)
            at = start.until
            last = max(last, self._begin_at(command, at))
        most = max(self._waits, key=lambda what: (self._waits[what], what), default="")
        return Pace(begin=self._begin, end=last, paced_by=most or BY_ITSELF)

    def _start(self, command: Departing, at: datetime) -> _Wait:
        """Return the first moment at which nothing holds the command; if there is none, what holds it for ever."""
        while True:
            waits = list(self._held(command, at))
            if not waits:
                return _Wait("", at)
            longest = max(waits, key=lambda wait: (wait.until is None, wait.until or at, wait.what))
            if longest.until is None or longest.until > self._begin + _HORIZON or longest.until <= at:
                return _Wait(longest.what, None)
            waited = longest.until - at
            self._waits[longest.what] = self._waits.get(longest.what, timedelta()) + waited
            at = longest.until

    def _begin_at(self, command: Departing, at: datetime) -> datetime:
        """Start a command; return when it ends."""
        settings = self._settings
        launch = max((self._launch(pool) for _, pool in command.opened), default=timedelta())
        end = at + timedelta(microseconds=settings.validation_delay // 1000) + launch + DRAIN
        self._running = [entry for entry in self._running if entry[0] > at]
        self._running.append((end, command))
        for pool, nodes in command.nodes.items():
            entry = Departure(at=at, nodes=nodes, reason=command.reason, command="")
            self._started.setdefault(pool, []).append(entry)
            self._counts[pool] = self._counts.get(pool, 0) - nodes
        for _, pool in command.opened:
            self._counts[pool] = self._counts.get(pool, 0) + 1
        touched = {*command.nodes, *(pool for _, pool in (*command.takers, *command.opened))}
        quiet = end + _stabilization(command.method, settings)
        for pool in touched:
            self._ends[pool] = max(end, self._ends.get(pool, end))
            self._settled[pool] = max(quiet, self._settled.get(pool, quiet))
        for node, _ in (*command.takers, *command.opened):
            self._busy[node] = end
        for node, _ in command.opened:
            self._born[node] = at
        return end

    def _launch(self, pool: str) -> timedelta:
        if pool not in self._launches:
            members = self._members.get(pool)
            self._launches[pool] = usual_launch(() if members is None else members.nodes)
        return self._launches[pool]

    # ------------------------------------------------------------ what a command waits for

    def _held(self, command: Departing, at: datetime) -> Iterator[_Wait]:
        for pool, nodes in command.nodes.items():
            policy = self._policies.get(pool)
            if policy is None:
                continue
            yield from self._windows(pool, policy, command.reason, at)
            yield from self._flat(pool, policy, nodes, command.reason, at)
            yield from self._rates(pool, policy, nodes, command.reason, at)
            if command.method is Method.DRIFTED:
                yield from self._topology(pool, policy, command, at)
        if command.method in COST_METHODS:
            for pool in {*command.nodes, *(pool for _, pool in command.opened)}:
                ends, quiet = self._ends.get(pool, at), self._settled.get(pool, at)
                if ends > at:
                    yield _Wait(BY_ITSELF, ends)
                elif quiet > at:
                    yield _Wait("the stabilization after each action", quiet)
        if command.method in COST_METHODS or command.method is Method.EMPTY:
            yield from self._timers(command, at)

    def _windows(self, pool: str, policy: DisruptionPolicy, reason: Reason, at: datetime) -> Iterator[_Wait]:
        if window_hold(pool, policy, reason, at) is not None:
            yield _Wait(f"the windows of NodePool {pool}", min(window_edges(policy, at), default=None))

    def _flat(self, pool: str, policy: DisruptionPolicy, nodes: int, reason: Reason, at: datetime) -> Iterator[_Wait]:
        count = self._counts.get(pool, 0)
        used = sum(entry.nodes.get(pool, 0) for end, entry in self._running if end > at)
        allowance = flat_allowance(policy, count + used, used, reason, self._settings, at)
        if allowance.left >= nodes or (not used and allowance.allowed > 0):
            return
        budget = allowance.budget
        ends = [end for end, entry in self._running if end > at and entry.nodes.get(pool)]
        edges = [*ends, *_budget_edges(policy, at)]
        yield _Wait(_named(pool, budget), min(edges, default=None))

    def _rates(self, pool: str, policy: DisruptionPolicy, nodes: int, reason: Reason, at: datetime) -> Iterator[_Wait]:
        if not self._settings.rules.rate_budgets:
            return
        for budget in policy.budgets:
            if budget.per is None or budget.problem is not None or not names_reason(budget, reason, self._settings):
                continue
            if not is_active(budget, at):
                continue
            count = self._counts.get(pool, 0)
            past = [
                entry for entry in self._started.get(pool, ()) if names_reason(budget, entry.reason, self._settings)
            ]
            allowance = rate_allowance(budget, count, past, 0, at)
            if allowance.left < min(nodes, max(1, allowance.allowed)):
                span = rate_span(budget)
                frees = [later(entry.at, budget.per) for entry in past if at - span < entry.at <= at]
                yield _Wait(_named(pool, budget), min(frees, default=None) if allowance.allowed else None)

    def _topology(self, pool: str, policy: DisruptionPolicy, command: Departing, at: datetime) -> Iterator[_Wait]:
        """Yield the domain budgets that hold drift: one domain at a time, and so many of its nodes at once."""
        if not self._settings.rules.topology_budgets:
            return
        for budget in policy.budgets:
            domain = command.domains.get((pool, budget.topology_key)) if budget.topology_key else None
            if domain is None or not names_reason(budget, Reason.DRIFTED, self._settings):
                continue
            if budget.problem is None and not is_active(budget, at):
                continue
            drifting = [
                (end, entry)
                for end, entry in self._running
                if end > at and entry.method is Method.DRIFTED and entry.nodes.get(pool)
            ]
            key = pool, budget.topology_key
            here = [entry for entry in drifting if entry[1].domains.get(key) == domain]
            elsewhere = [entry for entry in drifting if entry[1].domains.get(key) != domain]
            allowed = amount_of(budget, self._sizes.get((pool, budget.topology_key, domain), 0))
            if len(here) >= allowed or (budget.sequential and elsewhere):
                ends = [end for end, _ in (elsewhere if budget.sequential and elsewhere else here)]
                yield _Wait(_named(pool, budget), min(ends, default=None))

    def _timers(self, command: Departing, at: datetime) -> Iterator[_Wait]:
        """Yield the timers of nodes that got pods, or were launched, earlier in the plan."""
        pool = next(iter(command.nodes), "")
        policy = self._policies.get(pool)
        if policy is None:
            return
        timers = (
            ("consolidateAfter", policy.consolidate_after, self._busy),
            ("consolidationGracePeriod", policy.grace_period, self._busy),
            ("minNodeAge", policy.min_node_age, self._born),
        )
        for name, length, since in timers:
            for node in command.names if length else ():
                ends = later(since[node], length) if node in since and length is not None else at
                if ends > at:
                    yield _Wait(f"{name} {format_duration(length)} of NodePool {pool}", ends)


def _stabilization(method: Method, settings: Settings) -> timedelta:
    windows = settings.stabilization
    length = {Method.EMPTY: windows.empty, Method.EXPIRED: windows.expired, Method.DRIFTED: windows.drifted}
    if method is Method.UNHEALTHY:
        return timedelta()
    window = timedelta(microseconds=length.get(method, windows.cost) // 1000)
    lands = method in COST_METHODS and settings.stabilization_ends is StabilizationEnds.LANDED
    return min(window, LANDED) if lands else window


def _domain_sizes(scene: Scene) -> dict[tuple[str, str, str], int]:
    """Return how many nodes each domain of a topology budget has, by pool, key and domain."""
    sizes: dict[tuple[str, str, str], int] = {}
    for pool, policy in scene.policies.items():
        keys = _topology_keys(policy)
        for facts in scene.ledger.members[pool].nodes if keys else ():
            for key in keys:
                place = pool, key, domain_of(facts, key)
                sizes[place] = sizes.get(place, 0) + 1
    return sizes


def _budget_edges(policy: DisruptionPolicy, at: datetime) -> Iterator[datetime]:
    for budget in policy.budgets:
        edge = budget.window.next_change(at) if budget.window is not None else None
        if edge is not None:
            yield edge


def _named(pool: str, budget: Budget | None) -> str:
    if budget is None:
        return f"the budgets of NodePool {pool}"
    per = f" per {format_duration(budget.per)}" if budget.per is not None else ""
    domain = f" per {budget.topology_key}" if budget.topology_key else ""
    one = ", one after the other" if budget.sequential else ""
    return f"the budget of NodePool {pool} (nodes: {budget.nodes}{per}{domain}{one})"


def departures_of(scene: Scene, commands: Iterable[tuple[Command, Sequence[tuple[str, str]]]]) -> Iterator[Departing]:
    """Yield commands as far as their pace depends on them; each comes with the nodes that it opens, and their pools."""
    known = {facts.name: facts for facts in scene.nodes}
    pools = {name: facts.pool_name for name, facts in known.items()}
    keys = {pool: _topology_keys(policy) for pool, policy in scene.policies.items()}
    for command, opened in commands:
        counts: dict[str, int] = {}
        domains: dict[tuple[str, str], str] = {}
        for node in command.nodes:
            pool = pools.get(node, "")
            counts[pool] = counts.get(pool, 0) + 1
            if node in known:
                domains.update({(pool, key): domain_of(known[node], key) for key in keys.get(pool, ())})
        pools.update(opened)
        yield Departing(
            method=command.method,
            nodes=counts,
            names=command.nodes,
            takers=tuple((entry.node, pools.get(entry.node, "")) for entry in command.placements),
            opened=tuple(opened),
            domains=domains,
        )


def _topology_keys(policy: DisruptionPolicy) -> tuple[str, ...]:
    return tuple(dict.fromkeys(budget.topology_key for budget in policy.budgets if budget.topology_key))
