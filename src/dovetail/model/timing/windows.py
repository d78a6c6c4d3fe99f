"""The windows that a schedule opens: the times within a duration after each of its hits.

Decides whether a window is open, and when that changes. Sits above `model.timing.schedule`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

from dovetail.model.timing.duration import SECOND
from dovetail.model.timing.schedule import FOREVER, HORIZON, Schedule, instant_of, seconds_of

_Stretch: TypeAlias = tuple[datetime, datetime, bool, datetime | None]
"""From when to when an answer holds, the answer, and the instant at which it changes."""


class Window:
    """The times within a duration after each hit of a schedule: the hit is inside, hit + duration outside.

    A value: equal if schedule and duration are equal. It caches the period around the last question in which the answer
    stays the same; this affects only speed.
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
        """Return when it opens or closes next; ``None`` if it doesn't in the next five years."""
        return self._stretch(now)[3]

    def never_hits(self) -> bool:
        """Return whether the schedule never hits.

        Karpenter treats such a window as always open; Dovetail as never open.
        """
        return not self.schedule.possible()

    def _stretch(self, now: datetime) -> _Stretch:
        known = self._known
        if known is None or not known[0] <= now < known[1]:
            self._known = known = self._measured(now)
        return known

    def _measured(self, now: datetime) -> _Stretch:
        length, second = self.duration_ns // SECOND, seconds_of(now)
        schedule = self.schedule
        if schedule.every is not None:  # counted from now - duration, so the window is always closed by now, or never
            return now, FOREVER, schedule.every <= length, None
        if not length or not schedule.possible():
            return now, FOREVER, False, None
        if schedule.endless(length):
            return now, FOREVER, True, None
        last = schedule.hit_until(second)
        active = last is not None and second < last + length
        if last is None:
            since = now
        else:
            since = instant_of(last if active else last + length)
        change = self._closing(last + length) if last is not None and active else schedule.hit_from(second + 1)
        if change is None:  # nothing for years; check again tomorrow
            return since, now + timedelta(days=1), active, None
        return since, instant_of(change), active, instant_of(change)

    def _closing(self, end: int) -> int | None:
        """Return the end of the open period that closes at ``end`` unless another hit comes by then."""
        length, horizon = self.duration_ns // SECOND, end + HORIZON
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
    """Return the window of a schedule and a duration; callers share one instance and its cache."""
    return Window(Schedule.parse(text), duration_ns)
