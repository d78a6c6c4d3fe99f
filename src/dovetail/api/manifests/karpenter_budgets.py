"""Budgets as Karpenter v1.15 reads them, its oddities included, for the profile `karpenter-1.15`.

Schedules are in UTC and a time zone in front makes them invalid; one invalid budget stops the whole pool, whatever its
reasons; `reasons: []` applies to nothing; a budget without a duration (or with a zero one) is never active; no budgets
at all means no limit; `topologyKey` and `sequential` are unknown fields. Counts below zero and percentages beyond 100
are taken as written. Sits in api; pure.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dovetail.model.policies.policy import Budget, Reason
from dovetail.model.timing.cron import ScheduleError
from dovetail.model.timing.duration import parse_go_duration
from dovetail.model.timing.windows import Window, window

_COUNT: Final = re.compile(r"[+-]?[0-9]{1,18}")


def karpenter_budgets(written: Sequence[Mapping[str, Any]] | None, problems: list[str]) -> tuple[Budget, ...]:
    """Read a pool's budgets; those that can never be active are left out, problems are added to the list."""
    budgets: list[Budget] = []
    for index, entry in enumerate(written or ()):
        try:
            budget = _read(entry, index)
        except ValueError as problem:
            text = f"spec.disruption.budgets[{index}]: {problem}; this stops the whole pool"
            problems.append(text)
            budget = Budget(index=index, nodes=str(entry.get("nodes", "")), problem=text)
        if budget is not None:
            budgets.append(budget)
    return tuple(budgets)


def _read(entry: Mapping[str, Any], index: int) -> Budget | None:
    for key in ("schedule", "duration"):
        if not isinstance(entry.get(key), str | None):
            raise ValueError(f"{key} is {entry[key]} and must be text")
    if not isinstance(entry.get("reasons"), list | None):
        raise ValueError("reasons must be a list")
    is_ever_active, opening = _window(entry.get("schedule"), entry.get("duration"))
    nodes = str(entry.get("nodes", "10%"))
    amount, is_percent = _amount(nodes)
    written = entry.get("reasons")
    known = {reason.value for reason in Reason}
    reasons = None if written is None else tuple(Reason(word) for word in written if word in known)
    if not is_ever_active or reasons == ():
        return None
    return Budget(
        index=index,
        nodes=nodes,
        amount=amount,
        is_percent=is_percent,
        reasons=reasons,
        window=opening,
        schedule=entry.get("schedule"),
        duration=entry.get("duration"),
    )


def _amount(nodes: str) -> tuple[int, bool]:
    is_percent = _COUNT.fullmatch(nodes) is None and nodes.endswith("%")
    digits = nodes.removesuffix("%") if is_percent else nodes
    if _COUNT.fullmatch(digits) is None:
        raise ValueError(f'nodes is "{nodes}", neither a count nor a percentage')
    return int(digits), is_percent


def _window(schedule: str | None, duration: str | None) -> tuple[bool, Window | None]:
    """Return whether the budget can be active at all, and when (None: always)."""
    if schedule is None and duration is None:
        return True, None
    text = schedule or ""
    length = 0 if duration is None else parse_go_duration(duration)
    if text.lstrip().startswith(("TZ=", "CRON_TZ=")):
        raise ScheduleError("schedule", text, "names a time zone, which Karpenter can't read", "write it in UTC")
    opening = window(text, length)
    if length <= 0:
        return False, None
    if opening.never_hits():  # Karpenter treats a window that never opens as always open
        return True, None
    return True, opening
