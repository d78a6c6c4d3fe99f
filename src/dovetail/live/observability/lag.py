"""Measures the lag of the event loop: a loop that lags can't renew the Lease or answer probes."""

import asyncio
import time
from collections import deque
from typing import Final

from dovetail.live.observability.metrics import Metrics

_STEP_SECONDS: Final = 0.5
_WINDOW: Final = 120


async def watch_lag(metrics: Metrics) -> None:
    """Measure for ever; show the most of the last minute."""
    late: deque[float] = deque(maxlen=_WINDOW)
    metrics.loop_lag.set_function(lambda: max(late, default=0.0))
    while True:
        due = time.monotonic() + _STEP_SECONDS
        await asyncio.sleep(_STEP_SECONDS)
        late.append(max(0.0, time.monotonic() - due))
