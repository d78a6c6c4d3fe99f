"""Turns of the engine: a round is the end of one, so that what it decided goes out before the next is worked out."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from dovetail.lifecycle.messages import ClockAdvanced, Event, Instruction, ObjectVanished
from dovetail.live.run import Controller
from tests.live.fake_server import until
from tests.live.test_supervision import calm, controlled

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class _Engine:
    """Decides at some events, as a big cluster's does at many of a batch: each round begins a command."""

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
    """Events that decide nothing are taken together; one that decides is the last of its turn."""
    assert _digested(set(), "a", "b", "c") == ["a", "b", "c"]
    assert _digested({"b"}, "a", "b", "c") == ["a", "b"]
    assert _digested({"a", "b"}, "a", "b", "c") == ["a"]


def test_nothing_is_lost_or_overtaken_between_turns() -> None:
    """What a turn left over comes next, before what has come since; each turn has the time of its own beginning."""

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
