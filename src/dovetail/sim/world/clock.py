"""Virtual time: a queue of actions in a fixed order, and the random streams of a run.

Of two actions that are due at the same instant, the one that was scheduled first runs first. Knows nothing of clusters.
Everything in `sim` gets its time and its random numbers from here, so that a seed alone repeats a run.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from msgspec import Struct

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
_SLOT: Final = 28
"""The length of a slot is two to the power of this in nanoseconds: about a quarter of a second."""
_MICROSECOND: Final = timedelta(microseconds=1)
_Entry = tuple[int, int, "Alarm"]


class Alarm(Struct, eq=False):
    """Something that will happen; `cancel` makes it not happen."""

    due: int
    action: Callable[..., None] | None
    arguments: tuple[Any, ...]

    def cancel(self) -> None:
        """Forget it; cancelling twice is fine."""
        self.action = None
        self.arguments = ()


class Clock:
    """Nanoseconds since `start`, and what is to happen when.

    Tens of thousands of actions may wait, so they wait in slots, unsorted; only those of the slot that time has reached
    are put in order (`_queue`, the last one is due first). Those that are scheduled within that slot are in `_soon`, a
    heap.
    """

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.now = 0
        self.happened = 0
        self._queue: list[_Entry] = []
        self._soon: list[_Entry] = []
        self._slot = 0
        self._slots: dict[int, list[_Entry]] = {}
        self._next_slots: list[int] = []
        self._asked = 0
        self._instant = start
        self._instant_at = 0

    def at(self, due: int, action: Callable[..., None], *arguments: Any) -> Alarm:
        """Schedule an action at a time; one in the past happens now."""
        return self.after(due - self.now, action, *arguments)

    def after(self, delay: int, action: Callable[..., None], *arguments: Any) -> Alarm:
        """Schedule an action some nanoseconds from now."""
        due = self.now + delay if delay > 0 else self.now
        timer = Alarm(due, action, arguments)
        self._asked += 1
        slot = due >> _SLOT
        if slot <= self._slot:
            heapq.heappush(self._soon, (due, self._asked, timer))
            return timer
        entries = self._slots.get(slot)
        if entries is None:
            entries = self._slots[slot] = []
            heapq.heappush(self._next_slots, slot)
        entries.append((due, self._asked, timer))
        return timer

    def instant(self) -> datetime:
        """Return the time as objects carry it."""
        if self._instant_at != self.now:
            self._instant_at = self.now
            self._instant = self.instant_of(self.now)
        return self._instant

    def instant_of(self, when: int) -> datetime:
        """Return nanoseconds since the start as a `datetime` (microseconds, rounded down)."""
        return self.start + _MICROSECOND * (when // 1000)

    def since_start(self, instant: datetime) -> int:
        """Return the inverse of `instant_of`."""
        passed = instant - self.start
        return ((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1000

    def run(self, until: int) -> None:
        """Run everything that falls due up to and including `until`."""
        soon = self._soon
        while self._queue or soon or self._reach_slot(until):
            queue = self._queue
            while queue or soon:
                is_soon = not queue or (soon and soon[0] < queue[-1])
                due, _, timer = soon[0] if is_soon else queue[-1]
                if due > until:
                    break
                if is_soon:
                    heapq.heappop(soon)
                else:
                    queue.pop()
                action = timer.action
                if action is None:
                    continue
                self.now = due
                self.happened += 1
                action(*timer.arguments)
                queue = self._queue  # the action may have run the clock into another slot
            if queue or soon:
                break
        self.now = max(self.now, until)

    def _reach_slot(self, until: int) -> bool:
        """Put the next slot in order, if it begins by then and there is one."""
        slots = self._next_slots
        if not slots or slots[0] << _SLOT > until:
            return False
        self._slot = heapq.heappop(slots)
        self._queue = self._slots.pop(self._slot)
        self._queue.sort(reverse=True)
        return True


class Dice:
    """One random stream per subsystem: what one draws never affects another.

    Policies are compared on one seed; streams that no policy touches (arrivals, curves, prices) then give every
    policy the same world.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, Random] = {}

    def stream(self, name: str) -> Random:
        """Return the stream of a subsystem."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = Random(f"{self.seed}/{name}")  # noqa: S311  chance for a simulation, no secret
        return found

    def of(self, name: str, key: str) -> Random:
        """Return the stream of one object, independent of what happened to others."""
        return Random(f"{self.seed}/{name}/{key}")  # noqa: S311  chance for a simulation, no secret


@dataclass(frozen=True, slots=True)
class Span:
    """A time that takes between `low` and `high` nanoseconds, evenly spread."""

    low: int
    high: int

    def draw(self, dice: Random) -> int:
        """Draw one time of the span."""
        if self.high <= self.low:
            return self.low
        times = self.high - self.low + 1
        bits = times.bit_length()
        drawn = dice.getrandbits(bits)
        while drawn >= times:  # as `randrange` draws, which takes three times as long
            drawn = dice.getrandbits(bits)
        return self.low + drawn


def seconds(low: float, high: float | None = None) -> Span:
    """Return a span of seconds."""
    return Span(int(low * SECOND), int((low if high is None else high) * SECOND))
