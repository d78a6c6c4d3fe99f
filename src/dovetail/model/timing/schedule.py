"""Cron schedules: at which instants a schedule hits (docs/rules.md#budgets; docs/designs, budgets).

Knows nothing of budgets, and takes the time as a parameter. Sits in the model, above `model.timing.cron`, which reads
the fields; `model.timing.windows` builds windows from it.

Schedules are read as Karpenter's cron library reads them. A hit is every instant whose wall clock, in the schedule's
time zone, matches the fields. A local time that a clock change skips is never hit, and one that occurs twice is hit
twice. Internally, instants are whole seconds since 1970. A search goes by UTC days: on all but two a year the offset is
constant, so a hit is found by bisection in one sorted list of seconds. The library itself misses hits where the clock
changes by half an hour or at midnight, depending on where the search starts; Dovetail doesn't repeat that.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import Final

from dovetail.model.timing.cron import FIELDS, ScheduleError, read_field, read_zone
from dovetail.model.timing.duration import SECOND, DurationError, parse_go_duration

_DAY_SECONDS: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FOREVER: Final = datetime.max.replace(tzinfo=UTC)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_YEARS_AHEAD: Final = 5
HORIZON: Final = (_YEARS_AHEAD * 366 + 1) * _DAY_SECONDS
_LONGEST_MONTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S*)(?:\s+(.*))?", re.DOTALL)


def seconds_of(instant: datetime) -> int:
    """Return the whole seconds since 1970, rounded down."""
    return (instant - _EPOCH) // timedelta(seconds=1)


def instant_of(seconds: int) -> datetime:
    """Return the instant of a number of seconds since 1970."""
    return _EPOCH + timedelta(seconds=seconds)


class Schedule:
    """When something happens: an immutable value, equal if the text is equal.

    Either a wall-clock pattern in a time zone or, for ``@every``, a delay after the given instant.
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
            self._tz = read_zone(match[1])
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
            read_field(field, part) for field, part in zip(FIELDS, fields, strict=True)
        )
        self._times = tuple(
            hour * 3600 + minute * 60
            for hour in range(24)
            if hours[0] >> hour & 1
            for minute in range(60)
            if minutes[0] >> minute & 1
        )
        self._days, self._months, self._weekdays = days[0], months[0], weekdays[0]
        # If both day fields are restricted, one match is enough. If one is open, both must match, so the other one
        # decides.
        self._star = days[1] or weekdays[1]
        self._gap = max((later - earlier for earlier, later in pairwise(self._times)), default=0)
        self._possible = self._some_day_comes()

    @staticmethod
    def parse(text: str) -> Schedule:
        """Read a schedule; equal texts give the same value. Raises `ScheduleError`."""
        return _parsed(text)

    def possible(self) -> bool:
        """Return whether it ever hits: 30 February never does."""
        return self._possible

    def _some_day_comes(self) -> bool:
        if not self._star:
            return True
        return any(
            self._months >> month & 1 and self._days & ((2 << longest) - 2)
            for month, longest in enumerate(_LONGEST_MONTHS, start=1)
        )

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first hit strictly after an instant, in UTC; ``None`` if this year and the next five have none."""
        if self.every is not None:
            return instant_of(seconds_of(instant) + self.every)
        found = self.hit_from(seconds_of(instant) + 1)
        return None if found is None else instant_of(found)

    def prev_at_or_before(self, instant: datetime) -> datetime | None:
        """Return the last hit at or before an instant, in UTC; ``None`` for ``@every`` or if five years had none."""
        if self.every is not None:
            return None
        found = self.hit_until(seconds_of(instant))
        return None if found is None else instant_of(found)

    def hit_from(self, second: int) -> int | None:
        """Return the first hit at or after a second since 1970; the core of `next_after`."""
        if not self.possible():
            return None
        first = second // _DAY_SECONDS
        last_year = min(instant_of(second).astimezone(self._tz).year + _YEARS_AHEAD, FOREVER.year - 1)
        last = date(last_year, 12, 31).toordinal() - _EPOCH_ORDINAL + 1
        for day in range(first, last + 1):
            for base, times, low, high in self._pieces(day):
                index = bisect_left(times, second - base, low, high)
                if index < high:
                    found = base + times[index]
                    # In zones ahead of UTC, the last UTC day extends into the next year.
                    return found if day < last - 1 or instant_of(found).astimezone(self._tz).year <= last_year else None
        return None

    def hit_until(self, second: int) -> int | None:
        """Return the last hit at or before a second since 1970; the core of `prev_at_or_before`."""
        if not self.possible():
            return None
        first = second // _DAY_SECONDS
        for day in range(first, first - HORIZON // _DAY_SECONDS, -1):
            for base, times, low, high in reversed(self._pieces(day)):
                index = bisect_right(times, second - base, low, high)
                if index > low:
                    return base + times[index - 1]
        return None

    def last_of_run(self, hit: int, seconds: int) -> int:
        """Return the last hit of the same UTC day that is reachable in steps of at most `seconds`."""
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
        """Return whether hits obviously follow each other within `seconds` for ever."""
        every_day = self._star and self._months == 0x1FFE and self._days == 0xFFFFFFFE and self._weekdays == 0x7F
        return (
            every_day
            and self._tz is UTC
            and self._gap <= seconds
            and self._times[0] + _DAY_SECONDS - self._times[-1] <= seconds
        )

    def _pieces(self, day: int) -> list[tuple[int, Sequence[int], int, int]]:
        """Return the hits of a UTC day, in order, as slices of sorted lists: (offset to add, list, from, to)."""
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
        """Return the hits of a UTC day with a clock change, by checking each minute."""
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
        """Return how many seconds the wall clock is ahead of UTC."""
        shift = instant_of(second).astimezone(self._tz).utcoffset()
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
    """Read the schedule of a budget: as `Schedule.parse`, but refuse ``@every``, which has no fixed hits."""
    schedule = Schedule.parse(text)
    if schedule.every is not None:
        raise ScheduleError(
            "schedule",
            text,
            "has no fixed times to open a window at",
            "write @hourly, or five fields such as '0 */4 * * *'",
        )
    return schedule
