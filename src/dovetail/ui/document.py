"""The document of the live view: `report/schemas/live.schema.json` says what it holds.

What is happening, what comes next and when, why, money, history. Built from a question, the round's answer and the
history; decides nothing.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from dovetail.decide.billing_words import bill_text, use_rows
from dovetail.decide.methods.outlook import expiring_days
from dovetail.decide.outcome import UNLIMITED, ExpiringDay
from dovetail.decide.question import Question
from dovetail.decide.rollouts.status import RollStatus
from dovetail.decide.round import RoundResult
from dovetail.decide.scene import Scene
from dovetail.decide.words import clock
from dovetail.decide.work import Work
from dovetail.model.verdicts import ELIGIBLE
from dovetail.plan.calendar import PoolCalendar, calendar_of
from dovetail.plan.view import plan_view
from dovetail.report.words import count
from dovetail.ui.commands import CommandNow
from dovetail.ui.history import Past, Sample, seconds_of
from dovetail.ui.lives import Lives, lives_document
from dovetail.ui.sources import SPEEDS, Status

Json = dict[str, Any]
DAYS: Final = 7
_NEXT_MAX: Final = 12
_POOLS_MAX: Final = 4
_BLOCKERS_MAX: Final = 8
_WARNINGS_MAX: Final = 20
_DOLLAR: Final = 10**18


def sample_of(question: Question, scene: Scene, result: RoundResult, under_way: int) -> Sample:
    """Return the cluster in figures."""
    waiting = sum(not pod.spec.node_name and pod.status.phase == "Pending" for pod in question.cluster.pods)
    return Sample(
        at=seconds_of(question.now),
        nodes=len(scene.nodes),
        cost=round(result.cost_per_hour / _DOLLAR, 6),
        pods=len(question.cluster.pods),
        pending=waiting,
        under_way=under_way,
    )


def live_document(
    question: Question,
    work: Work,
    result: RoundResult,
    commands: tuple[CommandNow, ...],
    history: Past,
    lives: Lives,
    status: Status,
) -> Json:
    """Return the whole document."""
    scene = work.scene
    now = seconds_of(question.now)
    samples, saved = history.samples(), history.saved(now)
    return {
        "kind": "live",
        "now": clock(question.now),
        "source": {
            "kind": status.kind,
            "name": status.name,
            "problem": status.problem,
            "speed": status.speed,
            "speeds": list(SPEEDS) if status.speed >= 0 else [],
            "ended": status.ended,
            "position": status.position,
            "length": status.length,
            "seekable": status.seekable,
        },
        "commands": [_command(entry, question.now) for entry in commands],
        "rolls": [_roll(status) for status in result.rollouts],
        "next": coming(scene, result),
        "calendar": [_pool(entry) for entry in calendar_of(scene, DAYS)],
        "money": {
            "costPerHour": round(result.cost_per_hour / _DOLLAR, 4),
            "paid": bill_text(result.bill),
            "commitments": [
                {"name": name, "kind": kind, "usedShare": round(used, 4), "free": free}
                for name, kind, used, free in use_rows(result.bill)
            ],
            "savedPerHour": None if saved is None else round(saved.per_hour, 4),
            "savedSoFar": None if saved is None else round(saved.so_far, 4),
            "commands": 0 if saved is None else saved.commands,
            "held": held(result),
        },
        "history": {
            "since": clock(datetime.fromtimestamp(samples[0].at, question.now.tzinfo)) if samples else "",
            "seconds": [round(entry.at - samples[0].at, 1) for entry in samples],
            "nodes": [entry.nodes for entry in samples],
            "cost": [entry.cost for entry in samples],
            "pods": [entry.pods for entry in samples],
            "pending": [entry.pending for entry in samples],
            "events": [
                {
                    "at": clock(datetime.fromtimestamp(entry.at, question.now.tzinfo)),
                    "kind": entry.kind,
                    "text": entry.text,
                }
                for entry in history.events()[:60]
            ],
        },
        "lives": lives_document(lives.lives(), samples[0].at if samples else now),
        "warnings": [*(day.late(UTC) for day in _too_late(result)), *result.warnings[:_WARNINGS_MAX], *_more(result)],
        "plan": plan_view(question, work, result, live=True),
    }


def _command(entry: CommandNow, now: datetime) -> Json:
    return {
        "id": entry.id,
        "by": entry.by,
        "action": entry.action,
        "reason": entry.reason,
        "seconds": max(0, int((now - entry.since).total_seconds())),
        "nodes": list(entry.nodes),
        "replacements": list(entry.replacements),
        "steps": list(entry.steps),
        "podsLeft": entry.pods_left,
        "draining": 0 if entry.draining is None else max(1, int((now - entry.draining).total_seconds())),
        "heldBy": entry.held_by,
    }


def _roll(status: RollStatus) -> Json:
    """Return a roll: how far it is in each domain, what is blocked, and when it ends (empty: never, as things are)."""
    return {
        "nodePool": status.node_pool,
        "cause": status.cause,
        "total": status.total,
        "replaced": status.replaced,
        "inFlight": status.in_flight,
        "waiting": status.waiting,
        "blocked": status.blocked,
        "activeDomain": status.active_domain or "",
        "domains": [
            {"value": entry.domain, "total": entry.total, "replaced": entry.replaced, "state": entry.state.value}
            for entry in status.domains
        ],
        "blockers": [
            {"node": one.node, "gate": one.gate.value, "why": one.why} for one in status.blockers[:_BLOCKERS_MAX]
        ],
        "expectedEnd": "" if status.expected_end is None else clock(status.expected_end),
        "why": status.why,
    }


def held(result: RoundResult) -> list[Json]:
    """Return, per check, how many nodes it blocks and their price; the most expensive first."""
    taken = {node for command in result.commands for node in command.nodes}
    groups: dict[str, list[str]] = {}
    for entry in result.verdicts:
        if entry.node not in taken and entry.verdict != ELIGIBLE:  # what could go is held back by nothing
            groups.setdefault(entry.verdict, []).append(entry.node)
    rows = [
        {
            "gate": gate,
            "nodes": len(members),
            "costPerHour": round(sum(result.prices.get(node, 0) for node in members) / _DOLLAR, 4),
        }
        for gate, members in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row["costPerHour"], row["gate"]))


def coming(scene: Scene, result: RoundResult) -> list[Json]:
    """Return what changes by time alone, soonest first: timers, protections, expiry, windows. Similar changes are one.

    A change of several pools is one row from `_POOLS_MAX` pools on.
    """
    now = scene.now
    found: dict[str, dict[str, list[datetime]]] = {}

    def note(what: str, pool: str, *times: datetime | None) -> None:
        for when in times:
            if when is not None and when > now:
                found.setdefault(what, {}).setdefault(pool, []).append(when)

    for facts in scene.nodes:
        if facts.policy is None:
            continue
        for what, timer in (
            ("consolidateAfter ends for {nodes}", facts.consolidate_after),
            ("grace period ends for {nodes}", facts.grace_period),
        ):
            note(what, facts.pool_name, None if timer is None else timer.until)
        protection = facts.protection
        note(
            "a pod's do-not-disrupt ends on {nodes}", facts.pool_name, None if protection is None else protection.until
        )
        note("expiry of {nodes}", facts.pool_name, facts.expires_at)
    for pool, policy in sorted(scene.policies.items()):
        for budget in policy.budgets:
            change = None if budget.window is None else budget.window.next_change(now)
            note(f"a budget's window ({budget.schedule}) opens or closes", pool, change)
    for pool, hold in scene.question.settling.items():
        note("cost actions may start again", pool, hold.until)
    rows = [row for what, pools in found.items() for row in _rows(what, pools, now)]
    rows += _expiring(result, now)
    if result.next_change is not None and result.next_change > now and not rows:
        rows += _rows("the answer could change", {"": [result.next_change]}, now)
    return sorted(rows, key=lambda row: (row["seconds"], row["what"], row["pool"]))[:_NEXT_MAX]


def _too_late(result: RoundResult) -> list[ExpiringDay]:
    return [day for day in expiring_days(result.expiring, UTC) if day.in_time < day.nodes]


def _more(result: RoundResult) -> list[str]:
    left = len(result.warnings) - _WARNINGS_MAX
    return [f"and {left:,} more: dovetail plan -o wide lists all"] if left > 0 else []


def _expiring(result: RoundResult, now: datetime) -> list[Json]:
    """Return how many nodes of each pool Karpenter ends by force, and how many the budgets can't take before."""
    days: dict[str, list[ExpiringDay]] = {}
    for day in expiring_days(result.expiring, UTC):
        days.setdefault(day.node_pool, []).append(day)
    rows = []
    for pool, members in days.items():
        nodes = sum(day.nodes for day in members)
        late = nodes - sum(day.in_time for day in members)
        what = f"Karpenter ends {count(nodes, 'node')} by force"
        more = f"; the budgets can't take {late} of them before" if late else ", unless they go before"
        rows.append(_row(what + more, pool, [day.first for day in members], now))
    return rows


def _rows(what: str, pools: dict[str, list[datetime]], now: datetime) -> list[Json]:
    """Return a change of several pools: a row for each, or one for all if they are many."""
    if len(pools) < _POOLS_MAX:
        return [_row(what.format(nodes=count(len(times), "node")), pool, times, now) for pool, times in pools.items()]
    every = [when for times in pools.values() for when in times]
    return [_row(f"{what.format(nodes=count(len(every), 'node'))}, in {len(pools)} pools", "", every, now)]


def _row(what: str, pool: str, times: Sequence[datetime], now: datetime) -> Json:
    return {
        "at": clock(min(times)),
        "seconds": int((min(times) - now).total_seconds()),
        "what": what,
        "pool": pool,
        "until": clock(max(times)),
    }


def _pool(entry: PoolCalendar) -> Json:
    return {
        "pool": entry.pool,
        "nodes": entry.nodes,
        "used": entry.used,
        "reasons": [
            {
                "reason": reason.value,
                "stretches": [
                    {
                        "begin": clock(stretch.begin),
                        "end": clock(stretch.end),
                        "allowed": _amount(stretch.allowed),
                    }
                    for stretch in stretches
                ],
            }
            for reason, stretches in _distinct(entry)
        ],
    }


def _distinct(entry: PoolCalendar) -> Iterable[tuple[Any, Any]]:
    return entry.stretches.items()


def _amount(allowed: int) -> int:
    return -1 if allowed >= UNLIMITED - 100_000 else allowed
