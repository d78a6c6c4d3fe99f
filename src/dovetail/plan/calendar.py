"""What each pool's budgets allow, now and over the coming days, and which budget decides.

Applies the same rules as a round (`decide.gates`) at each moment at which a window opens or closes or a rate budget
allows nodes again. The number of nodes, the leaving nodes and the history are taken as they are now.
disruption-controls, Proposed Spec; topology-budgets; docs/rules.md#rates and #windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dovetail.decide.gates.budgets import REASONS, Allowance, BudgetLedger, flat_allowance, is_active
from dovetail.decide.gates.pool_holds import window_hold
from dovetail.decide.methods.outlook import expiring_nodes
from dovetail.decide.methods.turns import active_domains
from dovetail.decide.outcome import ExpiringNode
from dovetail.decide.question import Question
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.policies.policy import Budget, DisruptionPolicy, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A period with one allowance; `budget` decides it, None if none is active.

    `closed`: no allow window for the reason is open, so nothing may leave whatever the budgets say.
    """

    begin: datetime
    end: datetime
    allowed: int
    budget: Budget | None
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCalendar:
    """One pool: what it has, what it allows now by reason, and how that changes.

    `left`: how many more nodes may leave now, within its topology budgets too.
    """

    pool: str
    nodes: int
    used: int
    policy: DisruptionPolicy
    now: dict[Reason, Allowance]
    left: dict[Reason, int]
    stretches: dict[Reason, tuple[Stretch, ...]]
    active: tuple[bool, ...]
    next_changes: tuple[datetime | None, ...]
    expiring: tuple[ExpiringNode, ...] = ()


def calendar(question: Question, days: int) -> tuple[PoolCalendar, ...]:
    """Return every pool's calendar, by name."""
    return calendar_of(Scene.of(question), days)


def calendar_of(scene: Scene, days: int) -> tuple[PoolCalendar, ...]:
    """Return every pool's calendar, by name, of a scene."""
    ledger, policies, now = scene.ledger, scene.policies, scene.now
    end = now + timedelta(days=days)
    expiring = expiring_nodes(scene, end - now)
    left: dict[str, dict[Reason, int]] = {}
    for row in ledger.rows(active_domains(Work(scene))):
        left.setdefault(row.node_pool, {})[row.reason] = row.left_with_domains
    pools = []
    for pool in sorted(policies):
        policy, counted = policies[pool], ledger.members[pool].count
        current = {reason: ledger.allowance(pool, reason) for reason in REASONS}
        moments = _moments(ledger, pool, now, end)
        pools.append(
            PoolCalendar(
                pool=pool,
                nodes=counted,
                used=ledger.leaving(pool),
                policy=policy,
                now=current,
                left=left[pool],
                stretches={reason: _stretches(ledger, pool, reason, moments, end) for reason in REASONS},
                active=tuple(budget.problem is None and is_active(budget, now) for budget in policy.budgets),
                next_changes=tuple(
                    budget.window.next_change(now) if budget.window is not None else None for budget in policy.budgets
                ),
                expiring=tuple(entry for entry in expiring if entry.node_pool == pool),
            )
        )
    return tuple(pools)


def _moments(ledger: BudgetLedger, pool: str, begin: datetime, end: datetime) -> list[datetime]:
    """Return every moment from `begin` on, before `end`, at which an allowance of the pool may change."""
    policy = ledger.policies[pool]
    moments = {begin, *(at for at in ledger.rate_times_of(pool) if begin < at < end)}
    windows = [*(budget.window for budget in policy.budgets), *(entry.window for entry in policy.windows)]
    for window in windows:
        at: datetime | None = begin
        while window is not None and at is not None:
            at = window.next_change(at)
            if at is None or at >= end:
                break
            moments.add(at)
    return sorted(moments)


def _stretches(
    ledger: BudgetLedger, pool: str, reason: Reason, moments: Sequence[datetime], end: datetime
) -> tuple[Stretch, ...]:
    found: list[Stretch] = []
    for place, begin in enumerate(moments):
        until = moments[place + 1] if place + 1 < len(moments) else end
        stretch = _stretch(ledger, pool, reason, begin, until)
        before = found[-1] if found else None
        if before is not None and replace(before, begin=begin, end=until) == stretch:
            found[-1] = replace(before, end=until)
        else:
            found.append(stretch)
    return tuple(found)


def _stretch(ledger: BudgetLedger, pool: str, reason: Reason, begin: datetime, end: datetime) -> Stretch:
    """Return what may leave from `begin` on: by the flat budgets, and by what the rates have left."""
    policy, nodes = ledger.policies[pool], ledger.members[pool].count
    if window_hold(pool, policy, reason, begin) is not None:
        return Stretch(begin=begin, end=end, allowed=0, budget=None, closed=True)
    flat = flat_allowance(policy, nodes, 0, reason, ledger.settings, begin)
    tightest = min((flat, *ledger.rates(pool, reason, begin)), key=lambda entry: entry.left)
    return Stretch(begin=begin, end=end, allowed=min(tightest.left, flat.allowed), budget=tightest.budget)
