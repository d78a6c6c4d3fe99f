"""How long several runs will still take: an estimate from what they took so far. Pure; the caller reads the clock.

A run's first hour may take as long as the ten after it, so its share of simulated time says little about its share of
the work. A run that is like a finished one is taken to need as long, at the same places; one that is like no finished
one goes on as fast as it went lately. Runs that have not started take as long as those that are like them.
"""

from collections.abc import Sequence
from statistics import mean
from typing import Final

LATELY: Final = 0.25
"""Which part of a run's time so far counts as lately."""


class TimeLeft:
    """Follows several runs on some workers. `kinds`: what each run is; runs of one kind are alike."""

    def __init__(self, kinds: Sequence[str], workers: int) -> None:
        self._kinds = kinds
        self._workers = max(1, workers)
        self._points: list[list[tuple[float, float]]] = [[] for _ in kinds]
        """For each run, its seconds and its share of progress, from its beginning."""
        self._began: list[float | None] = [None] * len(kinds)
        self._freed = 0.0

    def heard(self, index: int, share: float, seconds: float) -> None:
        """Note how far a run is, so many seconds after everything began."""
        began = self._began[index]
        if began is None:
            # No run reports its beginning: the first ones begin at once, each of the others when a worker is free.
            began = self._began[index] = 0.0 if index < self._workers else self._freed
        self._points[index].append((seconds - began, share))
        if share >= 1.0:
            self._freed = seconds

    def left(self) -> float | None:
        """Return how many seconds all runs will still take; None if nothing is known yet."""
        totals: dict[str, float] = {}
        rest = 0.0
        for kind, points in zip(self._kinds, self._points, strict=True):
            if points:
                remaining = self._remaining(kind, points)
                rest += remaining
                totals.setdefault(kind, points[-1][0] + remaining)
        if not totals:
            return None
        for kind, points in zip(self._kinds, self._points, strict=True):
            if not points:
                rest += totals.get(kind, mean(totals.values()))
        return rest / self._workers

    def _remaining(self, kind: str, points: list[tuple[float, float]]) -> float:
        now, share = points[-1]
        if share >= 1.0:
            return 0.0
        for other, known in zip(self._kinds, self._points, strict=True):
            if other == kind and known and known[-1][1] >= 1.0:
                there = next(at for at, reached in known if reached >= share)
                return (known[-1][0] - there) * (now / there if there > 0 else 1.0)
        since, before = next(((at, part) for at, part in reversed(points) if at <= now * (1 - LATELY)), (0.0, 0.0))
        return (1.0 - share) * (now - since) / max(share - before, 1e-6)
