"""`dovetail budgets`: what each pool's budgets allow, now and over the coming days."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dovetail.api.findings import InputError

if TYPE_CHECKING:
    from dovetail.decide.outcome import ExpiringDay
    from dovetail.lifecycle.published import PublishedState
    from dovetail.model.cluster import Cluster
    from dovetail.model.policies.policy import Budget, Reason
    from dovetail.plan.calendar import PoolCalendar, Stretch

_SLOT: Final = timedelta(minutes=30)
_DAYS_MAX: Final = 366
_EPILOG = """\
The drawing has a character for each half hour: 0 to 9 nodes may leave at once, + is more than 9, · is no limit,
x is nothing because no window that allows it is open. A rate budget (`per`) counts the nodes that left lately.
Topology budgets also limit drift, zone by zone; they are listed with the pool. "expire by" counts the nodes that
Karpenter ends by force on that day, and how many of them the budgets let go before that.

examples:
  dovetail budgets -f cluster.json                       the coming week, in your time zone
  dovetail budgets -f nodepools.yaml --days 2 --tz Europe/Berlin
  dovetail budgets -f cluster.json -o json | jq '.pools[].now'
"""


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    from dovetail.cli.inputs import add_input_options, add_output_option, add_policy_option
    from dovetail.cli.live_cluster import add_live_options

    parser = subparsers.add_parser(
        "budgets",
        help="what each pool's budgets allow, now and over the coming days",
        description="Shows each pool's allowance by reason, now and over the coming days, and the budget that decides.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input_options(parser)
    add_policy_option(parser)
    add_live_options(parser)
    parser.add_argument("--days", type=int, default=7, metavar="N", help="how many days to look ahead (default: 7)")
    parser.add_argument("--tz", metavar="AREA/CITY", help="time zone to show times in; by default this machine's")
    add_output_option(parser, ("text", "json"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compute the calendar and print it."""
    from dovetail.cli.inputs import (
        check_now,
        load_cluster_option,
        load_settings_option,
        moment_of,
        naming_the_culprit,
        note_input,
        note_problems,
        with_controller,
    )
    from dovetail.cli.live_cluster import read_live
    from dovetail.decide.question import Question
    from dovetail.model.catalogue import Catalogue
    from dovetail.plan.calendar import calendar

    if not 1 <= args.days <= _DAYS_MAX:
        raise InputError(f"--days is {args.days}; write a number from 1 to {_DAYS_MAX}")
    zone = _zone(args.tz)
    settings = load_settings_option(args)
    check_now(args.now)
    published: list[PublishedState | None] = []

    def capture() -> "Cluster":
        cluster, state = read_live(args)
        published.append(state)
        return cluster

    cluster = load_cluster_option(args, capture)
    now = moment_of(args.now, cluster, noted=bool(args.files))
    note_input(cluster)
    nothing = Catalogue(instance_types=())  # budgets know no prices
    question = Question(cluster=cluster, catalogue=nothing, settings=settings, now=now)
    for state in published:
        question = replace(with_controller(args, question, state), managed_pools=None)
    note_problems(cluster, question.settings, launches=False)
    if not cluster.node_pools:
        print("note: there is no NodePool in the input, so there are no budgets", file=sys.stderr)
    elif not cluster.nodes and not cluster.node_claims:
        print("note: there is no Node in the input, so percentages come to 0", file=sys.stderr)
    with naming_the_culprit(cluster):
        pools = calendar(question, args.days)
    if args.output == "json":
        print(json.dumps(_tree(pools, now, zone, args.days), indent=2, sort_keys=True))
    else:
        for line in _text(pools, now, zone, args.days):
            print(line)
    return 0


def _zone(name: str | None) -> tzinfo:
    if name is None:
        local = datetime.now().astimezone().tzinfo
        assert local is not None
        return local
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f'--tz is "{name}", not a time zone; write one such as Europe/Berlin or UTC') from None


# ---------------------------------------------------------------- JSON


def _tree(pools: Sequence["PoolCalendar"], now: datetime, zone: tzinfo, days: int) -> dict[str, Any]:
    return {
        "now": now.isoformat(),
        "timeZone": str(zone),
        "days": days,
        "pools": [_pool_tree(entry, zone) for entry in pools],
        "warnings": [
            f"{entry.pool}: {text}"
            for entry in pools
            for text in (*entry.policy.problems, *entry.policy.warnings, *_late(entry, zone))
        ],
    }


def _pool_tree(entry: "PoolCalendar", zone: tzinfo) -> dict[str, Any]:
    return {
        "nodePool": entry.pool,
        "nodes": entry.nodes,
        "used": entry.used,
        "budgets": [
            {
                **_budget_tree(budget),
                "active": active,
                "nextChange": change.astimezone(zone).isoformat() if change is not None else None,
            }
            for budget, active, change in zip(entry.policy.budgets, entry.active, entry.next_changes, strict=True)
        ],
        "expiring": [
            {"day": day.first.astimezone(zone).date().isoformat(), "nodes": day.nodes, "inTime": day.in_time}
            for day in _days(entry, zone)
        ],
        "now": [
            {
                "reason": reason.value,
                "allowed": allowance.allowed,
                "used": allowance.used,
                "left": entry.left[reason],
                "budget": allowance.budget.index if allowance.budget is not None else None,
            }
            for reason, allowance in entry.now.items()
        ],
        "calendar": [
            {
                "reason": reason.value,
                "from": stretch.begin.astimezone(zone).isoformat(),
                "to": stretch.end.astimezone(zone).isoformat(),
                "allowed": stretch.allowed,
                "budget": stretch.budget.index if stretch.budget is not None else None,
                "windowOpen": not stretch.closed,
            }
            for reason, stretches in entry.stretches.items()
            for stretch in stretches
        ],
    }


def _days(entry: "PoolCalendar", zone: tzinfo) -> Sequence["ExpiringDay"]:
    from dovetail.decide.methods.outlook import expiring_days

    return expiring_days(entry.expiring, zone)


def _late(entry: "PoolCalendar", zone: tzinfo) -> list[str]:
    """Return the days on which more nodes expire than the budgets can take before Karpenter ends them by force."""
    return [text for day in _days(entry, zone) if (text := day.late(zone))]


def _budget_tree(budget: "Budget") -> dict[str, Any]:
    from dovetail.model.timing.duration import format_duration

    return {
        "index": budget.index,
        "nodes": budget.nodes,
        "schedule": budget.schedule,
        "duration": budget.duration,
        "reasons": [reason.value for reason in budget.reasons] if budget.reasons is not None else None,
        "topologyKey": budget.topology_key or None,
        "sequential": budget.sequential,
        "per": None if budget.per is None else format_duration(budget.per),
        "problem": budget.problem,
    }


# ---------------------------------------------------------------- text


def _text(pools: Sequence["PoolCalendar"], now: datetime, zone: tzinfo, days: int) -> Iterator[str]:
    from dovetail.report.words import count, safe

    here = now.astimezone(zone)
    yield f"{here:%a %Y-%m-%d %H:%M %Z}"
    for entry in pools:
        yield ""
        yield f"{safe(entry.pool)}: {count(entry.nodes, 'node')}, {entry.used} leaving or not ready"
        for problem in (*entry.policy.problems, *entry.policy.warnings, *_late(entry, zone)):
            yield f"  ! {safe(problem)}"
        for day in _days(entry, zone):
            when = f"{day.first.astimezone(zone):%a %Y-%m-%d}"
            yield f"  expire by {when}: {count(day.nodes, 'node')}, {day.in_time} within the budgets before"
        yield from _budget_lines(entry, now, zone)
        yield from _window_lines(entry, now, zone)
        if not entry.nodes and any(budget.nodes.endswith("%") for budget in entry.policy.budgets):
            yield from _without_nodes(entry)
            continue
        for reasons, stretches in _alike(entry):
            allowed, about = entry.now[reasons[0]].allowed, ", ".join(reason.value for reason in reasons)
            yield f"  {about}: {_amount(entry.left[reasons[0]])} of {_amount(allowed)} now"
            yield from _drawing(stretches, here, zone, days)


def _without_nodes(entry: "PoolCalendar") -> Iterator[str]:
    """Return what the budgets allow now of a pool whose nodes are not in the input: a share of none would be 0."""
    said: dict[str, list[str]] = {}
    for reason in entry.now:
        there = [
            budget
            for budget, active in zip(entry.policy.budgets, entry.active, strict=True)
            if (active or budget.problem is not None)
            and not budget.topology_key
            and (not budget.reasons or reason in budget.reasons)
        ]
        nothing = next((one for one in there if one.problem is not None or one.nodes.rstrip("%") == "0"), None)
        if nothing is not None:
            text = f"0 (budget {nothing.index + 1})"
        else:
            parts = [
                f"{one.nodes}{' of the nodes' if '%' in one.nodes else ''} (budget {one.index + 1})" for one in there
            ]
            text = " and at most ".join(parts) or "no limit"
        said.setdefault(text, []).append(reason.value)
    for text, reasons in said.items():
        yield f"  {', '.join(reasons)}: {text} now"


def _moment(when: datetime, now: datetime, zone: tzinfo) -> str:
    """Write a time within the week by its day, a later one by its date."""
    here = when.astimezone(zone)
    return f"{here:%a %H:%M}" if when - now < timedelta(days=6) else f"{here:%a %Y-%m-%d %H:%M}"


def _window_lines(entry: "PoolCalendar", now: datetime, zone: tzinfo) -> Iterator[str]:
    from dovetail.report.words import safe

    for each in entry.policy.windows:
        about = "all reasons" if not each.reasons else ", ".join(reason.value for reason in each.reasons)
        if each.window is None:
            state = "broken, opens nothing"
        else:
            is_open, change = each.window.active(now), each.window.next_change(now)
            when = "" if change is None else f" {'until' if is_open else 'before'} {_moment(change, now, zone)}"
            state = f"{'open' if is_open else 'closed'}{when}"
        yield f"  window {each.index + 1}: {safe(f'{each.schedule} for {each.duration}, {about} ({state})')}"


def _budget_lines(entry: "PoolCalendar", now: datetime, zone: tzinfo) -> Iterator[str]:
    from dovetail.model.timing.duration import format_duration
    from dovetail.report.words import safe

    for budget, active, change in zip(entry.policy.budgets, entry.active, entry.next_changes, strict=True):
        state = "broken, allows 0" if budget.problem is not None else "active" if active else "not active"
        when = "" if change is None else f" {'until' if active else 'before'} {_moment(change, now, zone)}"
        about = "all reasons" if not budget.reasons else ", ".join(reason.value for reason in budget.reasons)
        scope = f", per {budget.topology_key}" if budget.topology_key else ""
        order = ", one at a time" if budget.sequential else ""
        window = f', "{budget.schedule}" for {budget.duration}' if budget.schedule else ""
        rate = "" if budget.per is None else f" per {format_duration(budget.per)}"
        of = "of the nodes" if budget.nodes.endswith("%") else "node" if budget.nodes == "1" else "nodes"
        what = f"{budget.nodes} {of}{rate}"
        text = f"{what}{window}, {about}{scope}{order} ({state}{when})"
        yield f"  budget {budget.index + 1}: {safe(text)}"


def _alike(entry: "PoolCalendar") -> Iterator[tuple[list["Reason"], tuple["Stretch", ...]]]:
    """Yield the reasons of which the same is left and whose calendars are equal, together with that calendar."""
    groups: dict[tuple[int, tuple[Stretch, ...]], list[Reason]] = {}
    for reason, stretches in entry.stretches.items():
        groups.setdefault((entry.left[reason], stretches), []).append(reason)
    for (_, stretches), reasons in groups.items():
        yield reasons, stretches


def _drawing(stretches: Sequence["Stretch"], here: datetime, zone: tzinfo, days: int) -> Iterator[str]:
    if len({stretch.allowed for stretch in stretches}) == 1:
        deciding = list(dict.fromkeys(_decided(stretch) for stretch in stretches))
        yield f"    the whole time: {' or '.join(deciding)}"
        return
    yield "    " + " " * 11 + "".join(f"{hour:<12}" for hour in ("00", "06", "12", "18")).rstrip()
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    for day in range(days + 1):
        begin = midnight + timedelta(days=day)
        slots = "".join(_slot(stretches, begin + _SLOT * slot, here.tzinfo) for slot in range(48)).rstrip()
        if slots.strip():
            yield f"    {begin:%a %m-%d}  {slots}"
    for stretch in stretches[:8]:
        span = f"{_moment(stretch.begin, here, zone)} to {_moment(stretch.end, here, zone)}"
        yield f"    {span}: {_decided(stretch)}"
    if len(stretches) > 8:
        yield f"    and {len(stretches) - 8} more changes (-o json lists all)"


def _slot(stretches: Sequence["Stretch"], local: datetime, zone: tzinfo | None) -> str:
    """Return what holds at the middle of a half hour; blank outside the time looked at."""
    at = (local + _SLOT / 2).replace(tzinfo=zone)
    for stretch in stretches:
        if stretch.begin <= at < stretch.end:
            if stretch.closed:
                return "x"
            if stretch.budget is None:
                return "·"
            return str(stretch.allowed) if stretch.allowed <= 9 else "+"
    return " "


def _decided(stretch: "Stretch") -> str:
    if stretch.closed:
        return "nothing (no window is open)"
    if stretch.budget is None:
        return "no limit"
    return f"{_amount(stretch.allowed)} (budget {stretch.budget.index + 1})"


def _amount(number: int) -> str:
    from dovetail.decide.outcome import UNLIMITED

    return "no limit" if number >= UNLIMITED else f"{number:,}"
