"""Cron schedules and the windows that budgets open with them (spec section 7; S3, budgets).

Decides at which instants a schedule hits, whether a window is open at an instant, and when that changes next. Knows
nothing of budgets, and takes the time as a parameter. Sits in the model, above `model.timing.duration`.

Schedules are read as Karpenter's cron library reads them. A hit is every instant whose wall clock, in the schedule's
time zone, matches the fields: so a time that the clock skips doesn't happen, and one that comes twice happens at both
offsets. Instants are whole seconds since 1970 inside; the days of a search are UTC days, on which (but for two a year)
the offset stays the same, so that a hit is found by bisection in one sorted list of seconds. The library itself loses
hits where the clock changes by half an hour or at midnight, depending on where the search starts; that is not repeated.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from dovetail.model.timing.duration import SECOND, DurationError, parse_go_duration

_DAY_SECONDS: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FOREVER: Final = datetime.max.replace(tzinfo=UTC)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_YEARS_AHEAD: Final = 5
_HORIZON: Final = (_YEARS_AHEAD * 366 + 1) * _DAY_SECONDS
_LONGEST_MONTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NUMBER = re.compile(r"\+?[0-9]{1,64}")
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S*)(?:\s+(.*))?", re.DOTALL)


class ScheduleError(ValueError):
    """A text that is no schedule: which part, what stands there, what is wrong with it, what to write instead."""

    def __init__(self, field: str, value: str, reason: str, remedy: str) -> None:
        self.field = field
        self.value = value
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{field} {value!r} {reason}; {remedy}")


class _Field(msgspec.Struct, frozen=True):
    """One of the five fields: its bounds, and the names that stand for its values, from the lowest."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def error(self, value: str, reason: str) -> ScheduleError:
        named = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        remedy = f"write *, values from {self.low} to {self.high}{named}, ranges such as {self.low}-{self.high}, or */5"
        return ScheduleError(self.name, value, reason, remedy)


_FIELDS: Final = (
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
    if star:  # what follows a star up to the step is passed over, as the library does
        start, end = field.low, field.high
    else:
        start = _number(field, first, item)
        end = _number(field, last, item) if hyphen else start
    step = 1
    if slash:
        if not _NUMBER.fullmatch(step_text) or not 0 < int(step_text) < 2**63:
            raise field.error(item, "has a step that is no number above 0")
        step = int(step_text)
        if not hyphen:  # 5/15 means from 5 on
            end = field.high
    if start < field.low or end > field.high:
        raise field.error(item, f"is outside {field.low} to {field.high}")
    if start > end:
        raise field.error(item, "runs backwards")
    bits = sum(1 << value for value in range(start, end + 1, min(step, 64)))
    return bits, star and step == 1


def _field(field: _Field, text: str) -> tuple[int, bool]:
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


def _zone(name: str) -> tzinfo:
    if name in {"", "UTC"}:
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # unknown, badly written, or a folder of the database
        raise ScheduleError(
            "time zone",
            name,
            "is not known",
            "write one of the IANA names such as Europe/Berlin, America/New_York or UTC",
        ) from None


def _seconds(instant: datetime) -> int:
    """Whole seconds since 1970, rounded down."""
    return (instant - _EPOCH) // timedelta(seconds=1)


def _instant(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


class Schedule:
    """When something happens: an immutable value, equal where the text is equal.

    Either a wall-clock pattern in a time zone or, for ``@every``, a delay after whatever instant is asked about.
    """

    __slots__ = (
        "_days",
        "_gap",
        "_month_days",
        "_months",
        "_odd",
        "_possible",
        "_star",
        "_times",
        "_tz",
        "_weekdays",
        "every",
        "text",
        "zone",
    )

    def __init__(self, text: str) -> None:
        self.text = text
        self.zone = "UTC"
        self.every: int | None = None
        self._tz: tzinfo = UTC
        self._odd: dict[int, tuple[int, ...]] = {}
        self._month_days: dict[tuple[int, int], int] = {}
        rest = text.strip()
        if (match := _ZONE.fullmatch(rest)) is not None:
            self._tz = _zone(match[1])
            self.zone = match[1] or "UTC"
            rest = (match[2] or "").strip()
        if rest.startswith("@every "):
            self.every = _every(rest)
            rest = "* * * * *"
        fields = _DESCRIPTORS.get(rest, rest).split()
        if len(fields) != 5:
            raise ScheduleError(
                "schedule",
                text,
                "is not a cron schedule of five fields",
                f"write minute, hour, day of month, month and day of week such as '0 9 * * mon-fri', or one of "
                f"{', '.join(_DESCRIPTORS)}",
            )
        minutes, hours, days, months, weekdays = (
            _field(field, part) for field, part in zip(_FIELDS, fields, strict=True)
        )
        self._times = tuple(
            hour * 3600 + minute * 60
            for hour in range(24)
            if hours[0] >> hour & 1
            for minute in range(60)
            if minutes[0] >> minute & 1
        )
        self._days, self._months, self._weekdays = days[0], months[0], weekdays[0]
        # Both days restricted: either will do. One left open: both must match, so that the other decides.
        self._star = days[1] or weekdays[1]
        self._gap = max((later - earlier for earlier, later in pairwise(self._times)), default=0)
        self._possible = self._some_day_comes()

    @staticmethod
    def parse(text: str) -> Schedule:
        """Read a schedule; equal texts give the same value. Raises `ScheduleError`."""
        return _parsed(text)

    def possible(self) -> bool:
        """Return whether it ever hits: 30 February doesn't."""
        return self._possible

    def _some_day_comes(self) -> bool:
        if not self._star:
            return True
        return any(
            self._months >> month & 1 and self._days & ((2 << longest) - 2)
            for month, longest in enumerate(_LONGEST_MONTHS, start=1)
        )

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first hit strictly after an instant, in UTC; ``None`` if none comes this year or in five more."""
        if self.every is not None:
            return _instant(_seconds(instant) + self.every)
        found = self.hit_from(_seconds(instant) + 1)
        return None if found is None else _instant(found)

    def prev_at_or_before(self, instant: datetime) -> datetime | None:
        """Return the last hit at or before an instant, in UTC; ``None`` for ``@every``, or if five years saw none."""
        if self.every is not None:
            return None
        found = self.hit_until(_seconds(instant))
        return None if found is None else _instant(found)

    def hit_from(self, second: int) -> int | None:
        """Return the first hit at or after a second since 1970; what `next_after` is made of."""
        if not self.possible():
            return None
        first = second // _DAY_SECONDS
        last_year = min(_instant(second).astimezone(self._tz).year + _YEARS_AHEAD, _FOREVER.year - 1)
        last = date(last_year, 12, 31).toordinal() - _EPOCH_ORDINAL + 1
        for day in range(first, last + 1):
            for base, times, low, high in self._pieces(day):
                index = bisect_left(times, second - base, low, high)
                if index < high:
                    found = base + times[index]
                    # The last UTC day reaches into the year after in zones ahead of UTC.
                    return found if day < last - 1 or _instant(found).astimezone(self._tz).year <= last_year else None
        return None

    def hit_until(self, second: int) -> int | None:
        """Return the last hit at or before a second since 1970; what `prev_at_or_before` is made of."""
        if not self.possible():
            return None
        first = second // _DAY_SECONDS
        for day in range(first, first - _HORIZON // _DAY_SECONDS, -1):
            for base, times, low, high in reversed(self._pieces(day)):
                index = bisect_right(times, second - base, low, high)
                if index > low:
                    return base + times[index - 1]
        return None

    def last_of_run(self, hit: int, seconds: int) -> int:
        """Return the last hit of the same UTC day that is reached from one in steps of at most so many seconds."""
        for base, times, low, high in self._pieces(hit // _DAY_SECONDS):
            index = bisect_left(times, hit - base, low, high)
            if index < high and base + times[index] - hit <= seconds:
                if times is self._times and self._gap <= seconds:
                    index = high - 1
                while index + 1 < high and times[index + 1] - times[index] <= seconds:
                    index += 1
                hit = base + times[index]
        return hit

    def endless(self, seconds: int) -> bool:
        """Return whether hits follow each other within so many seconds for ever, where that is plain to see."""
        every_day = self._star and self._months == 0x1FFE and self._days == 0xFFFFFFFE and self._weekdays == 0x7F
        return (
            every_day
            and self._tz is UTC
            and self._gap <= seconds
            and self._times[0] + _DAY_SECONDS - self._times[-1] <= seconds
        )

    def _pieces(self, day: int) -> list[tuple[int, Sequence[int], int, int]]:
        """Return the hits of a UTC day, in order, as slices of sorted lists: (what to add, list, from, to)."""
        if self._tz is UTC:
            return [(day * _DAY_SECONDS, self._times, 0, len(self._times))] if self._matches_day(day) else []
        start = day * _DAY_SECONDS
        offset = self._offset(start)
        local, clock = divmod(start + offset, _DAY_SECONDS)
        today, tomorrow = self._matches_day(local), self._matches_day(local + 1)
        if offset != self._offset(start + _DAY_SECONDS):
            hits = self._odd_day(day)
            return [(0, hits, 0, len(hits))]
        split = bisect_left(self._times, clock)
        base = local * _DAY_SECONDS - offset
        pieces: list[tuple[int, Sequence[int], int, int]] = []
        if today and split < len(self._times):
            pieces.append((base, self._times, split, len(self._times)))
        if tomorrow and split:
            pieces.append((base + _DAY_SECONDS, self._times, 0, split))
        return pieces

    def _odd_day(self, day: int) -> tuple[int, ...]:
        """Return the hits of a UTC day on which the clock is changed, by looking at each of its minutes."""
        hits = self._odd.get(day)
        if hits is None:
            wanted = frozenset(self._times)
            start = day * _DAY_SECONDS
            found = []
            for second in range(start, start + _DAY_SECONDS, 60):
                local, clock = divmod(second + self._offset(second), _DAY_SECONDS)
                if clock in wanted and self._matches_day(local):
                    found.append(second)
            self._odd[day] = hits = tuple(found)
        return hits

    def _offset(self, second: int) -> int:
        """Seconds that the wall clock is ahead of UTC."""
        shift = _instant(second).astimezone(self._tz).utcoffset()
        assert shift is not None
        return shift // timedelta(seconds=1)

    def _matches_day(self, day: int) -> bool:
        """Return whether a local day, counted from 1970, is one of the schedule's."""
        today = date.fromordinal(day + _EPOCH_ORDINAL)
        key = (today.year, today.month)
        days = self._month_days.get(key)
        if days is None:
            self._month_days[key] = days = self._days_of(*key)
        return bool(days >> today.day & 1)

    def _days_of(self, year: int, month: int) -> int:
        """Return the bits of the days of a month on which the schedule hits."""
        if not self._months >> month & 1:
            return 0
        # Monday is 0 for a date and Sunday 0 for cron; day 1 of the month is bit 1.
        first_weekday = (date(year, month, 1).weekday() + 1) % 7
        by_weekday = sum(1 << day for day in range(1, 32) if self._weekdays >> (first_weekday + day - 1) % 7 & 1)
        return self._days & by_weekday if self._star else self._days | by_weekday

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Schedule({self.text!r})"


def _every(text: str) -> int:
    """Read ``@every 1h`` into whole seconds, at least one."""
    try:
        return max(1, parse_go_duration(text.removeprefix("@every ")) // SECOND)
    except DurationError as refusal:
        raise ScheduleError("schedule", text, "has no duration after @every", refusal.remedy) from None


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Schedule:
    return Schedule(text)


def parse_schedule(text: str) -> Schedule:
    """Read the schedule of a budget: as `Schedule.parse`, but ``@every``, which has no fixed hits, is refused."""
    schedule = Schedule.parse(text)
    if schedule.every is not None:
        raise ScheduleError(
            "schedule",
            text,
            "has no fixed times to open a window at",
            "write @hourly, or five fields such as '0 */4 * * *'",
        )
    return schedule


_Stretch: TypeAlias = tuple[datetime, datetime, bool, datetime | None]
"""From when to when an answer holds, the answer, and the instant at which it changes."""


class Window:
    """The times within a duration after each hit of a schedule: the hit is inside, hit + duration outside.

    A value: equal where schedule and duration are. It remembers the stretch of time around the last question in which
    the answer stays the same, which nobody can tell from outside but by the clock.
    """

    __slots__ = ("_known", "duration_ns", "schedule")

    def __init__(self, schedule: Schedule, duration_ns: int) -> None:
        self.schedule = schedule
        self.duration_ns = duration_ns
        self._known: _Stretch | None = None

    def active(self, now: datetime) -> bool:
        """Return whether the window is open."""
        return self._stretch(now)[2]

    def next_change(self, now: datetime) -> datetime | None:
        """Return when, after now, it opens or closes; ``None`` if it won't in the next five years."""
        return self._stretch(now)[3]

    def never_hits(self) -> bool:
        """Whether the schedule can't come true. Karpenter takes such a window for always open; here it never is."""
        return not self.schedule.possible()

    def _stretch(self, now: datetime) -> _Stretch:
        known = self._known
        if known is None or not known[0] <= now < known[1]:
            self._known = known = self._measured(now)
        return known

    def _measured(self, now: datetime) -> _Stretch:
        length, second = self.duration_ns // SECOND, _seconds(now)
        schedule = self.schedule
        if schedule.every is not None:  # counted from now - duration, so it is always over by now, or never
            return now, _FOREVER, schedule.every <= length, None
        if not length or not schedule.possible():
            return now, _FOREVER, False, None
        if schedule.endless(length):
            return now, _FOREVER, True, None
        last = schedule.hit_until(second)
        active = last is not None and second < last + length
        if last is None:
            since = now
        else:
            since = _instant(last if active else last + length)
        change = self._closing(last + length) if last is not None and active else schedule.hit_from(second + 1)
        if change is None:  # nothing for years; look again tomorrow
            return since, now + timedelta(days=1), active, None
        return since, _instant(change), active, _instant(change)

    def _closing(self, end: int) -> int | None:
        """Return the end of the stretch that closes at ``end`` unless a hit comes first or just then."""
        length, horizon = self.duration_ns // SECOND, end + _HORIZON
        while end < horizon:
            last = self.schedule.hit_until(end)
            assert last is not None
            later = self.schedule.last_of_run(last, length) + length
            if later <= end:
                return end
            end = later
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Window) and (self.schedule, self.duration_ns) == (other.schedule, other.duration_ns)

    def __hash__(self) -> int:
        return hash((self.schedule, self.duration_ns))

    def __repr__(self) -> str:
        return f"Window({self.schedule.text!r}, {self.duration_ns})"


@lru_cache(maxsize=1 << 14)
def window(text: str, duration_ns: int) -> Window:
    """Return the window of a schedule's text and a duration: one for all who ask, who so share what it remembers."""
    return Window(Schedule.parse(text), duration_ns)
