"""What each pool's budgets allow, now and over the coming days, and which budget decides.

Asks the same rules as a round (`decide.budgets`), at each moment at which a window opens or closes; nothing is worked
out a second way. The number of nodes and the nodes already leaving are taken as they are now. S3, Proposed Spec; S2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dovetail.decide.context import RoundContext
from dovetail.decide.gates.budgets import REASONS, Allowance, flat_allowance, is_active
from dovetail.decide.question import Question
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.policies.policy import Budget, DisruptionPolicy, Reason
from dovetail.model.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time during which one allowance holds; `budget` decides it, None where none is active."""

    begin: datetime
    end: datetime
    allowed: int
    budget: Budget | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCalendar:
    """One pool: what it has, what it allows now by reason, and how that changes."""

    pool: str
    nodes: int
    used: int
    policy: DisruptionPolicy
    now: dict[Reason, Allowance]
    stretches: dict[Reason, tuple[Stretch, ...]]
    active: tuple[bool, ...]
    next_changes: tuple[datetime | None, ...]


def calendar(cluster: Cluster, settings: Settings, now: datetime, days: int) -> tuple[PoolCalendar, ...]:
    """Return every pool's calendar, by name."""
    nothing = Catalogue(instance_types=())  # budgets know no prices
    return calendar_of(RoundContext(Question(cluster=cluster, catalogue=nothing, settings=settings, now=now)), days)


def calendar_of(context: RoundContext, days: int) -> tuple[PoolCalendar, ...]:
    """Return every pool's calendar, by name, for a context that is there already."""
    ledger, policies, settings, now = context.ledger, context.policies, context.settings, context.now
    end = now + timedelta(days=days)
    pools = []
    for pool in sorted(policies):
        policy, counted = policies[pool], len(ledger.nodes_of[pool])
        current = {reason: ledger.allowance(pool, reason) for reason in REASONS}
        used = next(iter(current.values())).used
        moments = _moments(policy.budgets, now, end)
        pools.append(
            PoolCalendar(
                pool=pool,
                nodes=counted,
                used=used,
                policy=policy,
                now=current,
                stretches={
                    reason: _stretches(policy, counted, used, reason, settings, moments, end) for reason in REASONS
                },
                active=tuple(budget.problem is None and is_active(budget, now) for budget in policy.budgets),
                next_changes=tuple(
                    budget.window.next_change(now) if budget.window is not None else None for budget in policy.budgets
                ),
            )
        )
    return tuple(pools)


def _moments(budgets: Sequence[Budget], begin: datetime, end: datetime) -> list[datetime]:
    """Return every moment from `begin` on, before `end`, at which some window opens or closes."""
    moments = {begin}
    for budget in budgets:
        at: datetime | None = begin
        while budget.window is not None and at is not None:
            at = budget.window.next_change(at)
            if at is None or at >= end:
                break
            moments.add(at)
    return sorted(moments)


def _stretches(
    policy: DisruptionPolicy,
    nodes: int,
    used: int,
    reason: Reason,
    settings: Settings,
    moments: Sequence[datetime],
    end: datetime,
) -> tuple[Stretch, ...]:
    found: list[Stretch] = []
    for place, begin in enumerate(moments):
        until = moments[place + 1] if place + 1 < len(moments) else end
        allowance = flat_allowance(policy, nodes, used, reason, settings, begin)
        before = found[-1] if found else None
        if before is not None and (before.allowed, before.budget) == (allowance.allowed, allowance.budget):
            found[-1] = Stretch(begin=before.begin, end=until, allowed=before.allowed, budget=before.budget)
        else:
            found.append(Stretch(begin=begin, end=until, allowed=allowance.allowed, budget=allowance.budget))
    return tuple(found)
