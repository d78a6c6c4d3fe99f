"""A wall clock that is set: the controller notices, and no wait of the engine ends early."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from dovetail.lifecycle.messages import ClockSet, Event
from dovetail.live import clocks
from dovetail.live.clocks import WallSteps
from tests.live.fake_server import until
from tests.live.test_malformed import _controller

NOW = datetime(2026, 3, 14, tzinfo=UTC)
_SECOND = 10**9


@pytest.mark.parametrize(
    ("passed", "shown", "by"),
    [
        (10.0, timedelta(seconds=10), None),
        (10.0, timedelta(seconds=10.9), None),
        (10.0, timedelta(seconds=9.1), None),
        (10.0, timedelta(seconds=11), 1_000_000),
        (10.0, timedelta(seconds=9), -1_000_000),
        (0.0, timedelta(hours=5), 5 * 3600 * 1_000_000),
        (30.0, timedelta(0), -30_000_000),
        (3600.0, timedelta(hours=1), None),  # the process slept: that time has passed
        (0.5, timedelta(days=-400), -(400 * 86400 * 1_000_000 + 500_000)),
    ],
)
def test_steps_of_the_wall_clock(
    passed: float, shown: timedelta, by: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is what the wall clock shows beyond the time that has passed; each is said once."""
    times = iter((100.0, 100.0 + passed, 101.0 + passed))
    monkeypatch.setattr(clocks, "steady", lambda: next(times))
    steps = WallSteps()
    assert steps.until(NOW) == []
    assert steps.until(NOW + shown) == ([] if by is None else [ClockSet(by=by)])
    assert steps.until(NOW + shown + timedelta(seconds=1)) == []


async def _set_by(step: timedelta) -> tuple[list[Event], int, float]:
    """Set a controller's clock while it runs; return its events, and the time by the engine and by the steady clock."""
    events: list[Event] = []
    began = clocks.steady()
    async with _controller(lambda _: None, pollInterval="1s") as scene:
        controller = scene.controller
        controller.journal = lambda at, event, instructions: events.append(event)
        await until(lambda: controller.why_unready() == "" and bool(events))
        controller.clock = lambda: datetime.now(UTC) + step
        await until(lambda: any(isinstance(event, ClockSet) for event in events))
        controller.clock = lambda: datetime.now(UTC)
        await until(lambda: sum(isinstance(event, ClockSet) for event in events) == 2)
        return events, controller.engine._state.elapsed, clocks.steady() - began


@pytest.mark.parametrize("step", [timedelta(hours=2), timedelta(hours=-2), timedelta(minutes=1)], ids=str)
def test_the_engine_counts_only_time_that_has_passed(step: timedelta) -> None:
    """A step there and a step back move no wait; without notice, one of them would end waits a minute early."""
    events, elapsed, passed = asyncio.run(_set_by(step))
    there, back = (event.by for event in events if isinstance(event, ClockSet))
    assert abs(timedelta(microseconds=there) - step) < timedelta(seconds=20)
    assert abs(timedelta(microseconds=back) + step) < timedelta(seconds=20)
    assert 0 < elapsed <= (passed + 1) * _SECOND
