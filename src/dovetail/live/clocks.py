"""Time as a leader must count it: also while the process is stopped or the machine sleeps.

The steady clock is not moved by people, and goes on during SIGSTOP and suspend (CLOCK_BOOTTIME where there is one). The
wall clock is asked as well, because a virtual machine that was paused may wake with a steady clock that stood still.
The longer of both counts; a wall clock that is set back changes nothing.
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
