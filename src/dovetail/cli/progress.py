"""Progress of long work on standard error: a bar with the time left for a person, a line now and then for a log.

Only telling; nothing here changes what is done.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dovetail.report.words import span

Progress = Callable[[float], None]
_LINE_EVERY = 15.0


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
        if share <= 0 or share >= 1 or now - self._said < _LINE_EVERY:
            return
        self._said = now
        left = (now - self._began) * (1 - share) / share
        print(f"{self._what}: {share:.0%}, about {span(max(1, left))} left", file=sys.stderr, flush=True)
