"""The metric of money that gates hold back: the figures of `dovetail blockers`, by gate and pool.

Each figure costs a round or two on a changed copy of the input, so they are computed one at a time between two turns of
the engine, and the meter rests nineteen times as long as a step took: it uses at most a twentieth of the engine's
thread. All figures of a scrape are of one moment; a new series begins once a minute at most, if a round was computed
since.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Gauge

from dovetail.decide.held_back import GateSavings, held_back_by_gate
from dovetail.lifecycle.engine import Engine
from dovetail.model.money import as_float

EVERY_SECONDS: Final = 60.0
RESTS: Final = 19


@dataclass(slots=True, kw_only=True)
class HeldBackMeter:
    """Sets a gauge with the labels nodepool and gate. `clock`: a monotonic clock in seconds."""

    gauge: Gauge
    clock: Callable[[], float] = time.monotonic
    _steps: Iterator[GateSavings] | None = None
    _found: list[GateSavings] = field(default_factory=list)
    _rounds: int = 0
    _began_at: float | None = None
    _rests_until: float = 0.0

    def is_due(self, engine: Engine) -> bool:
        """Return whether there is something to compute now."""
        now = self.clock()
        if now < self._rests_until or not engine.is_synced or not (engine.acts or engine.observe):
            return False
        if self._steps is not None:
            return True
        is_early = self._began_at is not None and now - self._began_at < EVERY_SECONDS
        return not is_early and engine.rounds != self._rounds

    def step(self, engine: Engine) -> None:
        """Compute one figure; set the gauge after the last. Call it where the engine is not running."""
        began = self.clock()
        if self._steps is None:
            self._rounds, self._began_at, self._found = engine.rounds, began, []
            self._steps = held_back_by_gate(engine.question())
        entry = next(self._steps, None)
        if entry is None:
            self._show()
        else:
            self._found.append(entry)
        ended = self.clock()
        self._rests_until = ended + RESTS * (ended - began)

    def _show(self) -> None:
        self._steps = None
        self.gauge.clear()
        for entry in self._found:
            self.gauge.labels(entry.lift.node_pool, entry.lift.gate.value).set(as_float(entry.savings))
