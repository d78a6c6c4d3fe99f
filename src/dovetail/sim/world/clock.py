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

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE


class Alarm:
    """Something that will happen; `cancel` makes it not happen."""

    __slots__ = ("action", "arguments", "due")

    def __init__(self, due: int, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.due = due
        self.action: Callable[..., None] | None = action
        self.arguments = arguments

    def cancel(self) -> None:
        """Forget it; cancelling twice is fine."""
        self.action = None
        self.arguments = ()


class Clock:
    """Nanoseconds since `start`, and what is to happen when."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.now = 0
        self.happened = 0
        self._queue: list[tuple[int, int, Alarm]] = []
        self._asked = 0
        self._instant = start
        self._instant_at = 0

    def at(self, due: int, action: Callable[..., None], *arguments: Any) -> Alarm:
        """Schedule an action at a time; one in the past happens now."""
        return self._add(max(due, self.now), action, arguments)

    def after(self, delay: int, action: Callable[..., None], *arguments: Any) -> Alarm:
        """Schedule an action some nanoseconds from now."""
        return self._add(self.now + max(delay, 0), action, arguments)

    def _add(self, due: int, action: Callable[..., None], arguments: tuple[Any, ...]) -> Alarm:
        timer = Alarm(due, action, arguments)
        self._asked += 1
        heapq.heappush(self._queue, (due, self._asked, timer))
        return timer

    def instant(self) -> datetime:
        """Return the time as objects carry it."""
        if self._instant_at != self.now:
            self._instant_at = self.now
            self._instant = self.instant_of(self.now)
        return self._instant

    def instant_of(self, when: int) -> datetime:
        """Return nanoseconds since the start as a `datetime` (microseconds, rounded down)."""
        return self.start + timedelta(microseconds=when // 1000)

    def since_start(self, instant: datetime) -> int:
        """Return the inverse of `instant_of`."""
        passed = instant - self.start
        return ((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1000

    def run(self, until: int) -> None:
        """Run everything that falls due up to and including `until`."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            due, _, timer = heapq.heappop(queue)
            action = timer.action
            if action is None:
                continue
            self.now = due
            self.happened += 1
            action(*timer.arguments)
        self.now = max(self.now, until)


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
        return self.low if self.high <= self.low else dice.randrange(self.low, self.high + 1)


def seconds(low: float, high: float | None = None) -> Span:
    """Return a span of seconds."""
    return Span(int(low * SECOND), int((low if high is None else high) * SECOND))
