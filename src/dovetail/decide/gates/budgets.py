"""How many nodes may leave: the flat allowance of each pool and reason, and the allowance per topology domain.

See docs/rules.md#budgets; disruption-controls, Proposed Spec and Validation/Defaults; topology-budgets, Algorithm. A
ledger is built once a round from the pools' policies, the nodes and what is in flight; methods ask it and never count
themselves. Flat budgets cap every reason; budgets with a topologyKey cap drift only, domain by domain; rate budgets
(docs/rules.md#rates) count nodes that started leaving within a period. Knows nothing of pods or prices. Sits in decide,
below the methods.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from dovetail.api.pool_marks import Departure, History
from dovetail.api.rolling import NO_DOMAIN, recorded_method
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.pool_holds import window_edges
from dovetail.decide.gates.table import NOBODY, Counted
from dovetail.decide.in_flight import InFlight
from dovetail.decide.outcome import UNLIMITED, BudgetRow
from dovetail.model import names
from dovetail.model.cached import cached
from dovetail.model.command import REASON_OF, Method
from dovetail.model.objects import condition
from dovetail.model.policies.policy import Budget, DisruptionPolicy, Reason
from dovetail.model.settings import Settings
from dovetail.model.timing.duration import later
from dovetail.model.verdicts import GateResult

REASONS = (Reason.EMPTY, Reason.EXPIRED, Reason.DRIFTED, Reason.UNDERUTILIZED)


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


def window_times(policy: DisruptionPolicy, at: datetime) -> Iterator[datetime]:
    """Yield when each budget of a policy, and each of its allow windows, next opens or closes."""
    for budget in policy.budgets:
        if budget.window is not None and budget.problem is None and (edge := budget.window.next_change(at)) is not None:
            yield edge
    yield from window_edges(policy, at)


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


def topology_budgets(policy: DisruptionPolicy, settings: Settings, now: datetime) -> list[Budget]:
    """Return the per-domain budgets of a policy that apply to drift now (topology-budgets)."""
    return [
        budget
        for budget in policy.budgets
        if budget.topology_key
        and settings.rules.topology_budgets
        and names_reason(budget, Reason.DRIFTED, settings)
        and (budget.problem is not None or is_active(budget, now))
    ]


def domain_at_turn(
    policy: DisruptionPolicy, labels: Mapping[str, str], settings: Settings, now: datetime
) -> tuple[str, str] | None:
    """Return the topology key of the sequential budget that applies to drift now, and a node's domain; or None."""
    applying = topology_budgets(policy, settings, now)
    key = next((budget.topology_key for budget in applying if budget.sequential), None)
    return None if key is None else (key, labels.get(key, NO_DOMAIN))


def rate_span(budget: Budget) -> timedelta:
    """Return the span of a rate budget, rounded up to microseconds."""
    assert budget.per is not None
    return timedelta(microseconds=-(-budget.per // 1000))


def rate_allowance(
    budget: Budget, nodes: int, departures: Sequence[Departure] | None, planned: int, now: datetime
) -> Allowance:
    """Return what a rate budget has left (docs/rules.md#rates): each node counts once, at the time it started leaving.

    `departures`: nodes that started leaving for the budget's reasons; None: the history can't be read and counts as
    full. `planned`: nodes of commands that have not started yet.
    """
    amount = amount_of(budget, nodes)
    if departures is None:
        return Allowance(allowed=amount, used=amount, budget=budget)
    assert budget.per is not None
    span = rate_span(budget)
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
        if reason is Reason.UNHEALTHY:  # nodes that are not ready are the ones to repair (docs/rules.md#repair)
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

    def history(self, pool: str) -> History | None:
        """Return the nodes of a pool that started leaving recently; None: that can't be read."""
        return self._histories.get(pool, ())

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

    def rows(self, active: Mapping[str, str] = MappingProxyType({})) -> tuple[BudgetRow, ...]:
        """Return the whole table: every pool, every reason.

        `active`: the domains in which sequential budgets let drift work now, by pool.
        """
        rows = []
        for pool in sorted(self.policies):
            for reason in (*REASONS, Reason.UNHEALTHY) if self.policies[pool].repair else REASONS:
                entry = self.allowance(pool, reason)
                allowed = left = UNLIMITED
                if reason is Reason.DRIFTED:
                    allowed, left = self._in_domains(pool, active.get(pool))
                rows.append(
                    BudgetRow(
                        node_pool=pool,
                        reason=reason,
                        allowed=entry.allowed,
                        used=entry.used,
                        left=entry.left,
                        allowed_with_domains=min(entry.allowed, allowed),
                        left_with_domains=min(entry.left, left),
                    )
                )
        return tuple(rows)

    def _in_domains(self, pool: str, active: str | None) -> tuple[int, int]:
        """Return how many nodes topology budgets let drift at once, and how many more now.

        A sequential budget lets one domain work: the active one, else the one with nodes in flight for drift, else the
        largest allowance.
        """
        parallel, sequential = self.topology_budgets(pool)
        allowed = left = UNLIMITED
        for budget in (*parallel, *([sequential] if sequential else ())):
            members = self.domains(pool, budget.topology_key)
            entries = self._domain_allowances(pool, budget, (), None)
            figures = {domain: (amount_of(budget, item.nodes), item.left) for domain, item in entries.items()}
            if budget.sequential:
                turn = active if active in figures else self.busy_domains(members)[0]
                figures = {turn: figures[turn]} if turn is not None else figures
                most, free = (
                    max((one for one, _ in figures.values()), default=0),
                    max((other for _, other in figures.values()), default=0),
                )
            else:
                most, free = sum(one for one, _ in figures.values()), sum(other for _, other in figures.values())
            allowed, left = min(allowed, most), min(left, free)
        return allowed, left

    # ------------------------------------------------------------ topology domains, drift only (topology-budgets)

    def topology_budgets(self, pool: str) -> tuple[tuple[Budget, ...], Budget | None]:
        """Return the pool's per-domain budgets that apply to drift now, and the first sequential one."""
        applying = topology_budgets(self.policies[pool], self.settings, self.now)
        sequential = next((budget for budget in applying if budget.sequential), None)
        return tuple(budget for budget in applying if not budget.sequential), sequential

    def domains(self, pool: str, key: str) -> dict[str, list[NodeFacts]]:
        """Return the pool's nodes that budgets count, by their value of a label."""
        found: dict[str, list[NodeFacts]] = {}
        for facts in self.members[pool].nodes:
            found.setdefault(domain_of(facts, key), []).append(facts)
        return found

    def take_by_domain(
        self, pool: str, candidates: Sequence[NodeFacts], active: str | None
    ) -> tuple[list[NodeFacts], dict[str, DomainAllowance]]:
        """Filter a pool's drift candidates (oldest drift first) by its topology budgets.

        `active`: the domain in which the sequential budget lets drift work (`methods.turns`); None: no node can go
        anyway. Returns those that are allowed, in the same order, and for each of the others the allowance that blocks
        it.
        """
        parallel, sequential = self.topology_budgets(pool)
        budgets = (*([sequential] if sequential else []), *parallel)
        tables = [
            (budget.topology_key, self._domain_allowances(pool, budget, candidates, active)) for budget in budgets
        ]
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
        self, pool: str, budget: Budget, candidates: Sequence[NodeFacts], active: str | None
    ) -> dict[str, DomainAllowance]:
        members = self.domains(pool, budget.topology_key)
        for facts in candidates:
            members.setdefault(domain_of(facts, budget.topology_key), [])
        result = {}
        for domain, nodes in members.items():
            leaving = sum(1 for facts in nodes if facts.marked)
            result[domain] = DomainAllowance(
                budget=budget,
                domain=domain,
                nodes=len(nodes),
                in_flight=leaving,
                left=max(0, amount_of(budget, len(nodes)) - leaving),
                active=not budget.sequential or active is None or domain == active,
                active_domain=active if budget.sequential else None,
            )
        return result

    def busy_domains(
        self, members: Mapping[str, list[NodeFacts]], begun: str | None = None
    ) -> tuple[str | None, str | None]:
        """Return the domain that has nodes in flight for drift, and the one that has some for another reason.

        Of several, the one that was begun, then the one whose nodes are in flight longest, then by name; None: no
        domain has such nodes. While one is begun, a drifted node elsewhere without Dovetail's taint, whose reason is
        unknown, is in flight for another: Karpenter ends nodes by itself, too.
        """
        found: dict[bool, list[tuple[bool, datetime, str]]] = {True: [], False: []}
        for domain, nodes in members.items():
            leaving = [facts for facts in nodes if facts.marked]
            unsure = begun is None or domain == begun
            drifting = [facts for facts in leaving if self._for_drift(facts, unsure=unsure)]
            if leaving:
                since = min(facts.marked_since or self.now for facts in drifting or leaving)
                found[bool(drifting)].append((domain != begun, since, domain))
        drift, other = (min(found[kind])[2] if found[kind] else None for kind in (True, False))
        return drift, other

    def _for_drift(self, facts: NodeFacts, *, unsure: bool) -> bool:
        """Return whether a leaving node leaves for drift: its command or its record says so, else its conditions.

        `unsure`: the answer for a drifted node of which none of them says why it leaves.
        """
        method = self._methods.get(facts.name) or recorded_method(facts.annotations.get(names.COMMAND))
        if method is not None:
            return method is Method.DRIFTED
        reason = condition(facts.claim.status.conditions if facts.claim else (), names.CONDITION_DISRUPTION_REASON)
        if reason is not None and reason.status == "True" and reason.reason:
            return reason.reason == Reason.DRIFTED.value
        return facts.drifted and (unsure or facts.has_taint(names.DISRUPTION_TAINT))

    @cached
    def _methods(self) -> dict[str, Method]:
        return {entry.node: entry.method for entry in self.in_flight.leaving}


def domain_of(facts: NodeFacts, key: str) -> str:
    """Return the node's topology domain; nodes without the label share one."""
    return facts.labels.get(key, NO_DOMAIN)
