"""Durations as integers of nanoseconds; ``None`` means Never.

Parses and writes durations: Go's whole syntax for annotations, and the few units of each CRD field. Knows
nothing of clocks. Sits at the bottom of the model.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

Duration: TypeAlias = int
"""A length of time in nanoseconds."""
Nillable: TypeAlias = int | None
"""A duration that may be Never, which is ``None``."""

NEVER = "Never"
MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
DURATION_MAX = 2**63 - 1
"""The longest duration that Go's integers hold, about 292 years."""

# Two code points stand for micro: the sign (U+00B5) and the Greek letter (U+03BC); Go reads both.
_GO_UNITS = {
    "ns": 1,
    "us": MICROSECOND,
    "\u00b5s": MICROSECOND,
    "\u03bcs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_SIMPLE_UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_GO_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")
_SIMPLE_PART = re.compile(r"([0-9]+)([a-z])")
_EXAMPLES = {"smh": "30s, 5m or 1h30m", "smhd": "90m, 720h or 30d", "mh": "30m, 8h or 1h30m"}


END_OF_TIME = datetime.max.replace(tzinfo=UTC)
"""The last moment that a datetime can hold; what would come later comes then."""


def later(at: datetime, span: Duration) -> datetime:
    """Return the moment a duration after another, rounded up to microseconds and capped at the largest datetime.

    A cluster may contain any time: a pod that "starts" in the year 9999 is protected until then, without an error.
    """
    try:
        return at + timedelta(microseconds=-(-span // 1000))
    except OverflowError:
        return END_OF_TIME


class DurationError(ValueError):
    """A text that is not a duration; the message says what to write instead."""

    def __init__(self, value: object, remedy: str) -> None:
        self.value = value
        self.remedy = remedy
        super().__init__(f"{value!r} is not a duration; {remedy}")


@lru_cache(maxsize=1 << 14)
def parse_go_duration(text: str) -> Duration:
    """Read what Go's ``time.ParseDuration`` reads: a sign, then numbers with units down to nanoseconds.

    A fraction of a nanosecond is dropped. A plain ``0`` needs no unit.
    """
    remedy = "write numbers with units such as 300ms, 45s, 5m or 1h30m"
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in {"-", "+"} else text
    if rest == "0":
        return 0
    if not rest:
        raise DurationError(text, remedy)
    total = position = 0
    for match in _GO_PART.finditer(rest):
        whole, part, unit = match.groups()
        if match.start() != position or unit not in _GO_UNITS or not (whole or part):
            raise DurationError(text, remedy)
        position = match.end()
        scale = _GO_UNITS[unit]
        total += int(whole or "0") * scale
        if part:
            total += int(part) * scale // 10 ** len(part)
    if position != len(rest):
        raise DurationError(text, remedy)
    # Go's integers reach one further below zero than above.
    if total > DURATION_MAX + negative:
        raise DurationError(text, "write at most 2562047h, which is about 292 years")
    return -total if negative else total


@lru_cache(maxsize=1 << 14)
def parse_simple(text: str, units: str = "smh") -> Duration:
    """Read whole numbers with the units named in ``units`` (of s, m, h, d), in any order, as the CRD patterns allow."""
    remedy = f"write whole numbers with the units {', '.join(units)}, such as {_EXAMPLES.get(units, '10' + units[0])}"
    total = position = 0
    for match in _SIMPLE_PART.finditer(text):
        if match.start() != position or match[2] not in units or match[2] not in _SIMPLE_UNITS:
            raise DurationError(text, remedy)
        position = match.end()
        total += int(match[1]) * _SIMPLE_UNITS[match[2]]
    if not text or position != len(text):
        raise DurationError(text, remedy)
    if total > DURATION_MAX:
        raise DurationError(text, "write at most 2562047h, which is about 292 years")
    return total


def parse_nillable(text: str, units: str = "smh") -> Nillable:
    """Read a duration in these units, or the word Never, which gives ``None``."""
    if text == NEVER:
        return None
    try:
        return parse_simple(text, units)
    except DurationError as refusal:
        raise DurationError(text, f"{refusal.remedy}, or {NEVER}") from None


def format_duration(duration: Nillable) -> str:
    """Write a duration in short form: ``1h30m``, ``15s``, ``0s``, and ``Never`` for ``None``; Go can read it."""
    if duration is None:
        return NEVER
    shown = go_format(duration)
    if shown.endswith("m0s"):
        shown = shown[:-2]
    return shown.removesuffix("0m") if shown.endswith("h0m") else shown


def go_format(duration: Duration) -> str:
    """Write a duration as Go's own ``String`` does: ``1h30m0s``, ``1.5s``, ``300ms``, ``0s``."""
    sign = "-" if duration < 0 else ""
    left = abs(duration)
    if left == 0:
        return "0s"
    for unit, scale, above in (("ns", 1, MICROSECOND), ("µs", MICROSECOND, MILLISECOND), ("ms", MILLISECOND, SECOND)):
        if left < above:
            return f"{sign}{_decimal(left, scale)}{unit}"
    minutes, seconds = divmod(left, MINUTE)
    hours, minutes = divmod(minutes, 60)
    shown = f"{_decimal(seconds, SECOND)}s"
    if hours or minutes:
        shown = f"{minutes}m{shown}"
    return f"{sign}{hours}h{shown}" if hours else f"{sign}{shown}"


def _decimal(amount: int, scale: int) -> str:
    whole, part = divmod(amount, scale)
    if not part:
        return str(whole)
    digits = len(str(scale)) - 1
    return f"{whole}.{part:0{digits}d}".rstrip("0")
