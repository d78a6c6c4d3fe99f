"""Turns of the engine: a round ends a turn, so that its decisions are sent before the next round."""

import asyncio
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.lifecycle.messages import (
    ClockAdvanced,
    Event,
    Instruction,
    ObjectVanished,
    RoundTook,
    Synced,
    ViewGrewOld,
)
from dovetail.live.run import Controller
from tests.live.fake_server import until
from tests.live.test_supervision import calm, controlled

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class _Engine:
    """Decides at some events, as in a large cluster: each round begins a command."""

    def __init__(self, engine: Any, decides_at: set[str]) -> None:
        self._engine, self._decides_at = engine, decides_at
        self.rounds, self.handled = 0, list[tuple[str, datetime]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def handle(self, event: Event, now: datetime) -> list[Instruction]:
        if isinstance(event, ObjectVanished):
            self.handled.append((event.name, now))
            self.rounds += event.name in self._decides_at
        return []


def _gone(*names: str) -> list[Event]:
    return [ObjectVanished(kind="Pod", namespace="d", name=name) for name in names]


def _digested(decides_at: set[str], *names: str) -> list[str]:
    """Return the events of one turn."""
    engine = _Engine(SimpleNamespace(), decides_at)
    shell = SimpleNamespace(engine=engine)
    steps = Controller._digest(shell, _gone(*names), _BEGAN)  # type: ignore[arg-type]
    return [event.name for event, _ in steps if isinstance(event, ObjectVanished)]


def test_a_turn_ends_with_the_first_round() -> None:
    """Events without a decision share a turn; an event with a decision is the last of its turn."""
    assert _digested(set(), "a", "b", "c") == ["a", "b", "c"]
    assert _digested({"b"}, "a", "b", "c") == ["a", "b"]
    assert _digested({"a", "b"}, "a", "b", "c") == ["a"]


def test_nothing_is_lost_or_overtaken_between_turns() -> None:
    """Remaining events come first in the next turn; each turn has the time of its start."""

    async def context() -> None:
        async with controlled(calm) as scene:
            controller = scene.controller
            await until(lambda: controller.why_unready() == "")
            names = [f"p{number}" for number in range(300)]
            engine = _Engine(controller.engine, set(names[::7]))
            controller.engine = engine  # type: ignore[assignment]
            for event in _gone(*names):
                await controller.put(event)
            await controller.put(ClockAdvanced())
            await until(lambda: len(engine.handled) == len(names))
            assert [name for name, _ in engine.handled] == names
            assert len({now for _, now in engine.handled}) >= len(names[::7])

    asyncio.run(context())


@pytest.mark.parametrize(("seconds", "rounds", "rests"), [(0.5, 1, False), (40.0, 1, True), (40.0, 0, False)])
def test_the_engine_hears_first_of_all_how_long_a_long_round_took(seconds: float, rounds: int, rests: bool) -> None:
    """Otherwise a round that takes longer than the poll interval is due again at each of a thousand waiting events."""
    shell: Any = SimpleNamespace(
        engine=SimpleNamespace(rounds=rounds, rounds_skipped=1),
        _rounds_seen=(0, 0),
        _count_round=lambda seconds: None,
        _left=_gone("a", "b"),
    )
    Controller._after(shell, time.monotonic() - seconds)
    took = [event.nanoseconds for event in shell._left[:1] if isinstance(event, RoundTook)]
    assert [round(nanoseconds / 10**9) for nanoseconds in took] == [round(seconds)] * rests
    assert shell._left[-2:] == _gone("a", "b")


@pytest.mark.parametrize(
    ("unready", "in_view", "queued", "expected"),
    [
        pytest.param("", False, 0, ["a", "b", Synced()], id="fresh, everything seen"),
        pytest.param("", False, 1, ["a", "b"], id="fresh, and more is queued"),
        pytest.param("", True, 0, ["a", "b"], id="fresh as before"),
        pytest.param("old", False, 0, ["a", "b"], id="old as before"),
        pytest.param("old", True, 0, [ViewGrewOld(kinds=("Pod",)), "a", "b"], id="old now"),
        pytest.param("old", True, 1, [ViewGrewOld(kinds=("Pod",)), "a", "b"], id="old now, and more is queued"),
    ],
)
def test_the_view_is_fresh_once_all_that_was_seen_is_taken_in(
    unready: str, in_view: bool, queued: int, expected: list[Any]
) -> None:
    """The engine hears of objects before it hears that it has seen them all, and first of all of a view that is old.

    It used to hear that it was in sync first: a controller that took over then found no NodeClaim of a command under
    way, took its nodes for leaving ones and deleted them before their replacement was there.
    """
    queue: asyncio.Queue[Event] = asyncio.Queue()
    for event in _gone(*("later",) * queued):
        queue.put_nowait(event)
    silent = SimpleNamespace(info=lambda *_, **__: None, warning=lambda *_, **__: None)
    shell: Any = SimpleNamespace(
        why_unready=lambda: unready,
        blind_kinds=lambda: ("Pod",),
        log=silent,
        _in_view=in_view,
        _informers=[],
        _queue=queue,
    )
    batch = Controller._with_view_change(shell, _gone("a", "b"))
    assert [event.name if isinstance(event, ObjectVanished) else event for event in batch] == expected
    assert shell._in_view == (not unready and not queued if not in_view else not unready)
