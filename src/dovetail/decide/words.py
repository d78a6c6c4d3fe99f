"""Figures in words: money, times and durations as they stand in reasons. Formats only, decides nothing."""

from datetime import datetime, timedelta
from fractions import Fraction

from dovetail.model.money import Money

_DOLLAR = 10**18


def dollars(amount: Money | Fraction, *, bare: bool = False) -> str:
    """Write money per hour: `$0.0512`, or `0.0512` bare; at least two digits, exact up to ten."""
    text = f"{round(Fraction(amount) * 10**10 / _DOLLAR):+d}"
    sign, digits = ("-" if text[0] == "-" else ""), text[1:].rjust(11, "0")
    whole, part = digits[:-10], digits[-10:].rstrip("0").ljust(2, "0")
    return f"{sign}{'' if bare else '$'}{whole}.{part}"


def seconds(span: timedelta) -> str:
    """Write a span as people do: `2h5m`, `14m`, `30s`."""
    total = max(0, -(-span // timedelta(seconds=1)))
    parts = ((total // 86400, "d"), (total // 3600 % 24, "h"), (total // 60 % 60, "m"), (total % 60, "s"))
    text = "".join(f"{amount}{unit}" for amount, unit in parts if amount)
    return text or "0s"


def nanoseconds(span: int) -> str:
    """Write a duration of nanoseconds as people do."""
    return seconds(timedelta(microseconds=span // 1000))


def clock(when: datetime) -> str:
    """Write an instant, in UTC, to the second."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
