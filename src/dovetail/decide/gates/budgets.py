"""How many nodes may leave: the flat allowance of each pool and reason, and the allowance per topology domain.

Spec section 7; disruption-controls, Proposed Spec and Validation/Defaults; topology-budgets, Algorithm. A ledger is
built once a round from the pools' policies, the nodes and what is in flight; methods ask it and never count themselves.
Flat budgets cap every reason; budgets with a topologyKey cap drift only, domain by domain; rate budgets (spec section
13) count nodes that started leaving within a period. Knows nothing of pods or prices. Sits in decide, below the
methods.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from dovetail.api.pool_marks import Departure, History
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.roster import NOBODY, Counted
from dovetail.decide.in_flight import InFlight
from dovetail.decide.outcome import UNLIMITED, BudgetRow
from dovetail.model.cached import cached
from dovetail.model.command import REASON_OF, Method
from dovetail.model.policies.policy import Budget, DisruptionPolicy, Reason
from dovetail.model.settings import Settings
from dovetail.model.timing.duration import later
from dovetail.model.verdicts import GateResult

REASONS = (Reason.EMPTY, Reason.EXPIRED, Reason.DRIFTED, Reason.UNDERUTILIZED)
NO_DOMAIN = ""
"""The domain of nodes that lack the label: one of their own (spec section 7)."""


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a pool's flat budgets for a reason; `budget` is the tightest, None if none is active."""

    allowed: int
    used: int
    budget: Budget | None = None
    held: GateResult | None = None
    """What holds the whole pool back for the reason, whatever the budgets say."""
    free_at: datetime | None = None
    """When a rate budget that is used up lets the next node go."""

    @property
    def left(self) -> int:
        """Return how many more nodes may leave now."""
        return max(0, self.allowed - self.used)


class DomainAllowance(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a topology budget in one domain of a pool. `active`: whether drift may take from it at all."""

    budget: Budget
    domain: str
    nodes: int
    in_flight: int
    left: int
    active: bool
    active_domain: str | None = None
    in_line: bool = False
    """Held by nothing but candidates before it: where none of them can go, its turn has come."""


def is_active(budget: Budget, now: datetime) -> bool:
    """Return whether a budget applies now: always without a schedule, else from each hit for its duration."""
    return budget.window is None or budget.window.active(now)


def amount_of(budget: Budget, nodes: int) -> int:
    """Return how many of a pool's nodes the budget allows: percentages are rounded up; a broken budget allows 0."""
    if budget.problem is not None:
        return 0
    return -(-budget.amount * nodes // 100) if budget.is_percent else budget.amount


def names_reason(budget: Budget, reason: Reason, settings: Settings) -> bool:
    """Return whether the budget applies to the reason. No list means all; so does an empty one, except in Karpenter."""
    if budget.reasons is None:
        return True
    if not budget.reasons:
        return settings.rules.empty_reasons_mean_all
    return reason in budget.reasons


def flat_allowance(
    policy: DisruptionPolicy, nodes: int, used: int, reason: Reason, settings: Settings, now: datetime
) -> Allowance:
    """Return the smallest of the active budgets for the reason; topology budgets don't count.

    Design: topology-budgets.
    """
    if settings.rules.bad_budget_stops_pool and any(budget.problem is not None for budget in policy.budgets):
        broken = next(budget for budget in policy.budgets if budget.problem is not None)
        return Allowance(allowed=0, used=used, budget=broken)  # one bad budget stops Karpenter's whole pool
    tightest: Budget | None = None
    allowed = UNLIMITED
    for budget in policy.budgets:
        if budget.topology_key and settings.rules.topology_budgets:
            continue
        if budget.per is not None and settings.rules.rate_budgets:
            continue
        if not names_reason(budget, reason, settings):
            continue
        if budget.problem is None and not is_active(budget, now):
            continue
        amount = amount_of(budget, nodes)
        if tightest is None or amount < allowed:
            tightest, allowed = budget, amount
    return Allowance(allowed=min(allowed, UNLIMITED), used=used, budget=tightest)


def rate_allowance(
    budget: Budget, nodes: int, departures: Sequence[Departure] | None, planned: int, now: datetime
) -> Allowance:
    """Return what a rate budget has left (spec section 13): each node counts once, at the time it started leaving.

    `departures`: nodes that started leaving for the budget's reasons; None: the history can't be read and counts as
    full. `planned`: nodes of commands that have not started yet.
    """
    amount = amount_of(budget, nodes)
    if departures is None:
        return Allowance(allowed=amount, used=amount, budget=budget)
    assert budget.per is not None
    span = timedelta(microseconds=-(-budget.per // 1000))
    recent = sorted((entry for entry in departures if now - span < entry.at <= now), key=lambda entry: entry.at)
    used = planned + sum(entry.nodes for entry in recent)
    free_at, over = None, used - amount
    for entry in recent:
        if over < 0:
            break
        over -= entry.nodes
        free_at = later(entry.at, budget.per)
    return Allowance(allowed=amount, used=used, budget=budget, free_at=free_at if over < 0 else None)


class BudgetLedger:
    """All budgets of a round. Built once; asking does not change it.

    `members`: the nodes of each pool that budgets count. `histories`: per pool the nodes that started leaving recently,
    None if that can't be read. `hold`: what blocks a whole pool for a reason.
    """

    def __init__(
        self,
        members: Mapping[str, Counted],
        policies: Mapping[str, DisruptionPolicy],
        settings: Settings,
        now: datetime,
        in_flight: InFlight,
        *,
        histories: Mapping[str, History | None] = MappingProxyType({}),
        hold: Callable[[str, Reason], GateResult | None] = lambda _pool, _reason: None,
    ) -> None:
        self._histories, self._hold = histories, hold
        self.policies, self.settings, self.now, self.in_flight = policies, settings, now, in_flight
        self.members: dict[str, Counted] = {name: members.get(name, NOBODY) for name in policies}
        self._flat: dict[tuple[str, Reason], Allowance] = {}
        self._domains: dict[str, dict[str, DomainAllowance]] = {}

    def allowance(self, pool: str, reason: Reason) -> Allowance:
        """Return what the pool's flat budgets allow for the reason now."""
        key = (pool, reason)
        if key not in self._flat:
            self._flat[key] = self._allowance(pool, reason)
        return self._flat[key]

    def _allowance(self, pool: str, reason: Reason) -> Allowance:
        policy, counted, used = self.policies[pool], self.members[pool].count, self.members[pool].used
        if reason is Reason.UNHEALTHY:  # nodes that are not ready are the ones to repair (spec section 19)
            used = sum(bool(facts.marked) for facts in self.members[pool].nodes)
        flat = flat_allowance(policy, counted, used, reason, self.settings, self.now)
        held = self._hold(pool, reason)
        if held is not None:
            return Allowance(allowed=0, used=used, budget=flat.budget, held=held)
        return min((flat, *self.rates(pool, reason, self.now)), key=lambda entry: entry.left)

    def rates(self, pool: str, reason: Reason, at: datetime) -> list[Allowance]:
        """Return what the rate budgets of a pool have left at a time, if no further node starts leaving until then."""
        counted = self.members[pool].count
        return [
            rate_allowance(budget, counted, self._departures(pool, budget), self._planned(pool, budget), at)
            for budget in self.policies[pool].budgets
            if budget.per is not None
            and budget.problem is None
            and names_reason(budget, reason, self.settings)
            and is_active(budget, at)
        ]

    def leaving(self, pool: str) -> int:
        """Return how many nodes of a pool are leaving or not ready, which flat budgets count as used."""
        return self.members[pool].used

    def _departures(self, pool: str, budget: Budget) -> list[Departure] | None:
        history = self._histories.get(pool, ())
        if history is None:
            return None
        return [entry for entry in history if names_reason(budget, entry.reason, self.settings)]

    def _planned(self, pool: str, budget: Budget) -> int:
        """Count the nodes of commands in validation, which the history does not contain yet."""
        history = self._histories.get(pool, ())
        noted = {entry.command for entry in history or ()}
        own = {facts.name for facts in self.members[pool].nodes}
        return sum(
            entry.node in own
            and entry.command_id not in noted
            and names_reason(budget, REASON_OF[entry.method], self.settings)
            for entry in self.in_flight.leaving
        )

    def rate_times(self) -> Iterator[datetime]:
        """Yield when rate budgets allow nodes again."""
        for pool in self.policies:
            yield from self.rate_times_of(pool)

    def rate_times_of(self, pool: str) -> Iterator[datetime]:
        """Yield when the rate budgets of a pool allow nodes again."""
        spans = [budget.per for budget in self.policies[pool].budgets if budget.per is not None]
        for entry in self._histories.get(pool, ()) or ():
            yield from (later(entry.at, span) for span in spans)

    def left(self, reason: Reason) -> dict[str, int]:
        """Return what every pool has left for the reason, by pool name."""
        return {pool: self.allowance(pool, reason).left for pool in sorted(self.policies)}

    def rows(self) -> tuple[BudgetRow, ...]:
        """Return the whole table: every pool, every reason."""
        rows = []
        for pool in sorted(self.policies):
            for reason in (*REASONS, Reason.UNHEALTHY) if self.policies[pool].repair else REASONS:
                entry = self.allowance(pool, reason)
                rows.append(
                    BudgetRow(node_pool=pool, reason=reason, allowed=entry.allowed, used=entry.used, left=entry.left)
                )
        return tuple(rows)

    # ------------------------------------------------------------ topology domains, drift only (topology-budgets)

    def topology_budgets(self, pool: str) -> tuple[tuple[Budget, ...], Budget | None]:
        """Return the pool's per-domain budgets that apply to drift now, and the first sequential one."""
        if not self.settings.rules.topology_budgets:
            return (), None
        applying = [
            budget
            for budget in self.policies[pool].budgets
            if budget.topology_key
            and names_reason(budget, Reason.DRIFTED, self.settings)
            and (budget.problem is not None or is_active(budget, self.now))
        ]
        sequential = next((budget for budget in applying if budget.sequential), None)
        return tuple(budget for budget in applying if not budget.sequential), sequential

    def take_by_domain(
        self, pool: str, candidates: Sequence[NodeFacts]
    ) -> tuple[list[NodeFacts], dict[str, DomainAllowance]]:
        """Filter a pool's drift candidates (oldest drift first) by its topology budgets.

        Returns those that are allowed, in the same order, and for each of the others the allowance that blocks it.
        """
        parallel, sequential = self.topology_budgets(pool)
        budgets = (*([sequential] if sequential else []), *parallel)
        tables = [(budget.topology_key, self._domain_allowances(pool, budget, candidates)) for budget in budgets]
        taken: list[dict[str, int]] = [{} for _ in tables]
        kept: list[NodeFacts] = []
        held: dict[str, DomainAllowance] = {}
        for facts in candidates:
            entries = [table[domain_of(facts, key)] for key, table in tables]
            full = [
                entry for entry, used in zip(entries, taken, strict=True) if used.get(entry.domain, 0) >= entry.left
            ]
            closed = next((entry for entry in entries if not entry.active or entry.left == 0), None)
            if closed is not None:
                held[facts.name] = closed
            elif full:
                held[facts.name] = replace(full[0], in_line=True)
            else:
                kept.append(facts)
                for entry, used in zip(entries, taken, strict=True):
                    used[entry.domain] = used.get(entry.domain, 0) + 1
        return kept, held

    def _domain_allowances(
        self, pool: str, budget: Budget, candidates: Sequence[NodeFacts]
    ) -> dict[str, DomainAllowance]:
        members: dict[str, list[NodeFacts]] = {}
        for facts in self.members[pool].nodes:
            members.setdefault(domain_of(facts, budget.topology_key), []).append(facts)
        for facts in candidates:
            members.setdefault(domain_of(facts, budget.topology_key), [])
        active = self._active_domain(members, budget, candidates) if budget.sequential else None
        result = {}
        for domain, nodes in members.items():
            leaving = sum(1 for facts in nodes if facts.marked)
            result[domain] = DomainAllowance(
                budget=budget,
                domain=domain,
                nodes=len(nodes),
                in_flight=leaving,
                left=max(0, amount_of(budget, len(nodes)) - leaving),
                active=not budget.sequential or domain == active,
                active_domain=active,
            )
        return result

    def _active_domain(
        self, members: Mapping[str, list[NodeFacts]], budget: Budget, candidates: Sequence[NodeFacts]
    ) -> str | None:
        """Return the domain that drift works in: the one with nodes in flight, else that of the oldest drift.

        topology-budgets, Zone Selection. Of several in flight, drift comes first, then the longest in flight, then by
        name.
        """
        busy = []
        for domain, nodes in members.items():
            leaving = [facts for facts in nodes if facts.marked]
            if leaving:
                drifting = any(self._for_drift(facts) for facts in leaving)
                busy.append((not drifting, min(facts.marked_since or self.now for facts in leaving), domain))
        if busy:
            return min(busy)[2]
        return domain_of(candidates[0], budget.topology_key) if candidates else None

    def _for_drift(self, facts: NodeFacts) -> bool:
        """Return whether a leaving node leaves for drift; without a command of Dovetail, its condition decides."""
        method = self._methods.get(facts.name)
        return facts.drifted if method is None else method is Method.DRIFTED

    @cached
    def _methods(self) -> dict[str, Method]:
        return {entry.node: entry.method for entry in self.in_flight.leaving}


def domain_of(facts: NodeFacts, key: str) -> str:
    """Return the node's topology domain; nodes without the label share one."""
    return facts.labels.get(key, NO_DOMAIN)
