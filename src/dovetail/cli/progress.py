"""Progress of long work on standard error: a bar with the time left for a person, a line now and then for a log.

Only telling; nothing here changes what is done.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from dovetail.report.words import span

Progress = Callable[[float], None]
_LINE_EVERY = 15.0
_KNOWN = 0.02
"""The share from which on the time left can be told."""


@contextmanager
def progress_bar(what: str) -> Iterator[Progress | None]:
    """Show progress from the first second on; the time left is computed from what is done."""
    if not sys.stderr.isatty():
        yield _Lines(what).update
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)


class _Lines:
    """A line every quarter of a minute, for logs."""

    def __init__(self, what: str) -> None:
        self._what, self._began = what, time.monotonic()
        self._said = self._began

    def update(self, share: float) -> None:
        now = time.monotonic()
        if share < _KNOWN or share >= 1 or now - self._said < _LINE_EVERY:
            return
        self._said = now
        left = (now - self._began) * (1 - share) / share
        print(f"{self._what}: {share:.0%}, about {span(max(1, left))} left", file=sys.stderr, flush=True)


class TimedProgress(Protocol):
    """Progress of work that knows how long it will still take, and that has something to say meanwhile."""

    def update(self, share: float, left: float | None) -> None:
        """Show which share is done, and how many seconds are left (None: not known yet)."""

    def say(self, text: str) -> None:
        """Print one line that stays."""


@contextmanager
def timed_progress(what: str) -> Iterator[TimedProgress]:
    """Show progress with the time left as the work itself estimates it."""
    if not sys.stderr.isatty():
        yield _TimedLines(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _TimedBar(bar, what)


class _TimedBar:
    """A bar for a person."""

    def __init__(self, bar: Any, what: str) -> None:
        self._bar = bar
        self._task = bar.add_task(what, total=1.0, left="")

    def update(self, share: float, left: float | None) -> None:
        text = "" if left is None else f"about {span(max(1, left))} left"
        self._bar.update(self._task, completed=share, left=text)

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


class _TimedLines:
    """Lines for a log."""

    def __init__(self, what: str) -> None:
        self._what, self._said = what, time.monotonic()

    def update(self, share: float, left: float | None) -> None:
        now = time.monotonic()
        if left is None or not 0 < share < 1 or now - self._said < _LINE_EVERY:
            return
        self._said = now
        self.say(f"{self._what}: {share:.0%}, about {span(max(1, left))} left")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
