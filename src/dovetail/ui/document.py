"""The document of the live view: `report/schemas/live.schema.json` says what it holds.

What is happening, what comes next and when, why, money, history. Built from a question, the round's answer and the
history; decides nothing.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from dovetail.decide.context import RoundContext
from dovetail.decide.outcome import UNLIMITED, RoundResult
from dovetail.decide.question import Question
from dovetail.decide.words import clock
from dovetail.plan.calendar import PoolCalendar, calendar_of
from dovetail.plan.view import plan_view
from dovetail.report.words import count
from dovetail.ui.commands import CommandNow
from dovetail.ui.history import History, Sample, seconds_of
from dovetail.ui.sources import SPEEDS, Status

Json = dict[str, Any]
DAYS: Final = 7
_NEXT_MAX: Final = 12
_DOLLAR: Final = 10**18


def sample_of(question: Question, context: RoundContext, result: RoundResult, under_way: int) -> Sample:
    """Return the cluster in figures."""
    waiting = sum(not pod.spec.node_name and pod.status.phase == "Pending" for pod in question.cluster.pods)
    return Sample(
        at=seconds_of(question.now),
        nodes=len(context.nodes),
        cost=round(sum(result.prices.values()) / _DOLLAR, 6),
        pods=len(question.cluster.pods),
        pending=waiting,
        under_way=under_way,
    )


def live_document(
    question: Question,
    context: RoundContext,
    result: RoundResult,
    commands: tuple[CommandNow, ...],
    history: History,
    status: Status,
) -> Json:
    """Return the whole document."""
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
        },
        "commands": [_command(entry, question.now) for entry in commands],
        "next": coming(context, result),
        "calendar": [_pool(entry) for entry in calendar_of(context, DAYS)],
        "money": {
            "costPerHour": round(sum(result.prices.values()) / _DOLLAR, 4),
            "savedPerHour": round(saved.per_hour, 4),
            "savedSoFar": round(saved.so_far, 4),
            "commands": saved.commands,
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
        "warnings": list(result.warnings[:20]),
        "plan": plan_view(question, context, result, live=True),
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
    }


def held(result: RoundResult) -> list[Json]:
    """Return, per check, how many nodes it blocks and their price; the most expensive first."""
    taken = {node for command in result.commands for node in command.nodes}
    groups: dict[str, list[str]] = {}
    for entry in result.verdicts:
        if entry.node not in taken:
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


def coming(context: RoundContext, result: RoundResult) -> list[Json]:
    """Return what changes by time alone, soonest first: timers, protections, expiry, windows."""
    now = context.now
    groups: dict[tuple[str, str], list[datetime]] = {}

    def note(what: str, pool: str, when: datetime | None) -> None:
        if when is not None and when > now:
            groups.setdefault((what, pool), []).append(when)

    for facts in context.nodes:
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
    rows = [
        {
            "at": clock(min(times)),
            "seconds": int((min(times) - now).total_seconds()),
            "what": what.format(nodes=count(len(times), "node")),
            "pool": pool,
            "until": clock(max(times)),
        }
        for (what, pool), times in groups.items()
    ]
    rows += _windows(context)
    if context.question.cost_held_until is not None and context.question.cost_held_until > now:
        until = context.question.cost_held_until
        rows.append(_row("cost actions may start again", "", until, now))
    if result.next_change is not None and result.next_change > now and not rows:
        rows.append(_row("the answer could change", "", result.next_change, now))
    return sorted(rows, key=lambda row: (row["seconds"], row["what"], row["pool"]))[:_NEXT_MAX]


def _windows(context: RoundContext) -> list[Json]:
    rows = []
    for pool, policy in sorted(context.policies.items()):
        for budget in policy.budgets:
            change = None if budget.window is None else budget.window.next_change(context.now)
            if change is not None:
                rows.append(_row(f"a budget's window ({budget.schedule}) opens or closes", pool, change, context.now))
    return rows


def _row(what: str, pool: str, when: datetime, now: datetime) -> Json:
    return {
        "at": clock(when),
        "seconds": int((when - now).total_seconds()),
        "what": what,
        "pool": pool,
        "until": clock(when),
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
