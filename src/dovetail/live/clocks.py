"""Time for leader election, which must also count while the process is stopped or the machine sleeps.

Also finds out when the wall clock is set, so that the engine's waits don't end early.

The steady clock can't be set, and continues during SIGSTOP and suspend (CLOCK_BOOTTIME if available). The wall clock is
used as well, because the steady clock of a paused virtual machine may have stopped. The longer of both counts; setting
the wall clock back changes nothing.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dovetail.lifecycle.messages import ClockSet

_SMALLEST_STEP: Final = timedelta(seconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", None)


def steady() -> float:
    """Return seconds on a clock that never goes back and counts time spent asleep."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One point in time, on both clocks."""

    steady: float
    wall: float

    @property
    def age(self) -> float:
        """Return the seconds since then, by the clock that counted more."""
        return max(steady() - self.steady, time.time() - self.wall)


def now() -> Moment:
    """Return this moment."""
    return Moment(steady=steady(), wall=time.time())


@dataclass(slots=True)
class WallSteps:
    """Compares the wall clock with the steady one, each time with the last time."""

    _last: tuple[datetime, float] | None = None

    def until(self, wall: datetime) -> list[ClockSet]:
        """Return by how much the wall clock was set since the last call; nothing for less than a second."""
        now = steady()
        last, self._last = self._last, (wall, now)
        by = timedelta(0) if last is None else (wall - last[0]) - timedelta(seconds=now - last[1])
        return [ClockSet(by=by // _MICROSECOND)] if abs(by) >= _SMALLEST_STEP else []
