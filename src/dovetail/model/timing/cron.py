"""The fields of a cron schedule, read into bits, and its time zone.

Reads as Karpenter's library does (robfig/cron); `model.timing.schedule` puts the fields together.
"""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from typing import Final

import msgspec

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


_NUMBER = re.compile(r"\+?[0-9]{1,64}")


class ScheduleError(ValueError):
    """A text that is not a schedule; the message says which part is wrong and what to write instead."""

    def __init__(self, field: str, value: str, reason: str, remedy: str) -> None:
        self.field = field
        self.value = value
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{field} {value!r} {reason}; {remedy}")


class _Field(msgspec.Struct, frozen=True):
    """One of the five fields: its bounds, and the names of its values, from the lowest."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def error(self, value: str, reason: str) -> ScheduleError:
        named = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        remedy = f"write *, values from {self.low} to {self.high}{named}, ranges such as {self.low}-{self.high}, or */5"
        return ScheduleError(self.name, value, reason, remedy)


FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _WEEKDAYS),
)


def _number(field: _Field, text: str, item: str) -> int:
    if text.lower() in field.names:
        return field.low + field.names.index(text.lower())
    if not _NUMBER.fullmatch(text) or int(text) >= 2**63:
        raise field.error(item, "is not a value of this field")
    return int(text)


def _item(field: _Field, item: str) -> tuple[int, bool]:
    """Read one item of a list into the bits of its values, and whether it is an open star."""
    span, slash, step_text = item.partition("/")
    first, hyphen, last = span.partition("-")
    star = first in {"*", "?"}
    if star:  # text between a star and the step is ignored, as in the library
        start, end = field.low, field.high
    else:
        start = _number(field, first, item)
        end = _number(field, last, item) if hyphen else start
    step = 1
    if slash:
        if not _NUMBER.fullmatch(step_text) or not 0 < int(step_text) < 2**63:
            raise field.error(item, "has a step that is not a positive number")
        step = int(step_text)
        if not hyphen:  # 5/15 means from 5 on
            end = field.high
    if start < field.low or end > field.high:
        raise field.error(item, f"is outside {field.low} to {field.high}")
    if start > end:
        raise field.error(item, "runs backwards")
    bits = sum(1 << value for value in range(start, end + 1, min(step, 64)))
    return bits, star and step == 1


def read_field(field: _Field, text: str) -> tuple[int, bool]:
    """Read a field into the bits of its values, and whether it leaves the day open (a star without a step)."""
    items = [item for item in text.split(",") if item]
    if not items:
        raise field.error(text, "names no value")
    bits, star = 0, False
    for item in items:
        more, open_star = _item(field, item)
        bits |= more
        star = star or open_star
    return bits, star


def read_zone(name: str) -> tzinfo:
    """Return the time zone of an IANA name; raises `ScheduleError`."""
    if name in {"", "UTC"}:
        return UTC
    from zoneinfo import ZoneInfo  # few schedules need it

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # unknown, malformed, or a directory of the time zone database
        raise ScheduleError(
            "time zone",
            name,
            "is not known",
            "write one of the IANA names such as Europe/Berlin, America/New_York or UTC",
        ) from None
