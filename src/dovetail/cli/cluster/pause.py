"""`dovetail pause` and `dovetail resume`: stop new commands in some pools or all, and allow them again."""

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dovetail.api.findings import InputError
from dovetail.cli.cluster.pool_commands import add_pool_command, change_pools, check_pools

_PAUSE: Final = """\
While a pool is paused, no command of any reason starts there, nor one that takes nodes of it along. Commands in flight
finish. The pause is an annotation on the NodePool (dovetail.dev/paused), so it needs no running controller and survives
restarts. Karpenter's own disruption is not affected: on managed pools it is held anyway.

examples:
  dovetail pause web --reason "release freeze"        until you resume it
  dovetail pause web batch --for 2h
  dovetail pause --all --until 2026-12-27T06:00:00Z
"""
_RESUME: Final = """\
Takes the pause off. A pool that halted by itself, because moved pods did not become ready, goes on as well.

examples:
  dovetail resume web
  dovetail resume --all
"""


def register(subparsers: Any) -> None:
    """Add both commands to the command line."""
    for name, what, epilog in (
        ("pause", "stop new commands in some pools, or in all", _PAUSE),
        ("resume", "let paused or halted pools go on", _RESUME),
    ):
        parser = add_pool_command(subparsers, name, what, epilog)
        if name == "pause":
            end = parser.add_mutually_exclusive_group()
            end.add_argument("--for", dest="length", metavar="D", help="how long, such as 30m or 2h")
            end.add_argument("--until", metavar="T", help="until when, such as 2026-03-14T15:30:00Z")
            parser.add_argument("--reason", metavar="TEXT", default="", help="shown by plan, explain and events")
        parser.set_defaults(run=run, pausing=name == "pause")


def run(args: argparse.Namespace) -> int:
    """Pause or resume, and print what was done; return 1 if something could not be changed."""
    from dovetail.live.holds import HoldTally
    from dovetail.live.pauses import pause, resume

    check_pools(args)
    until = pause_end(args.length, args.until, datetime.now(UTC)) if args.pausing else ""

    async def work(client: Any) -> HoldTally:
        pools = None if args.all else args.pools
        if args.pausing:
            return await pause(client, pools, until, args.reason)
        return await resume(client, pools)

    tally = change_pools(args, work)
    end = "" if until in ("", "true") else f" until {until}"
    done = "paused" if args.pausing else "resumed"
    names = ", ".join(tally.changed) or "nothing"
    print(f"{done} {names}{end}; {len(tally.kept)} left as they were, {len(tally.failed)} failed")
    return 1 if tally.failed else 0


def pause_end(length: str | None, until: str | None, now: datetime) -> str:
    """Return the annotation's value: true, or the time at which the pause ends."""
    if length is not None:
        from dovetail.model.timing.duration import parse_simple

        try:
            span = parse_simple(length, "smhd")
        except ValueError as problem:
            raise InputError(f"--for: {problem}") from None
        if span == 0:
            raise InputError(f'--for is "{length}"; write a longer time, such as 30m')
        try:
            return _stamp(now + timedelta(microseconds=span // 1000))
        except OverflowError:
            raise InputError(f'--for is "{length}"; leave it out to pause until you resume') from None
    if until is None:
        return "true"
    from dovetail.cli.inputs import check_now

    moment = check_now(until, option="--until")
    if moment is None or moment <= now:
        raise InputError(f'--until is "{until}"; write a time to come, such as {_stamp(now + timedelta(hours=2))}')
    return _stamp(moment)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
