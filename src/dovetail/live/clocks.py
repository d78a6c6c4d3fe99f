"""Time for leader election, which must also count while the process is stopped or the machine sleeps.

The steady clock can't be set, and continues during SIGSTOP and suspend (CLOCK_BOOTTIME if available). The wall clock is
used as well, because the steady clock of a paused virtual machine may have stopped. The longer of both counts; setting
the wall clock back changes nothing.
"""

import time
from dataclasses import dataclass
from typing import Final

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
