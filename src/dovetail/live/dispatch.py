"""Executes the engine's instructions in order, and returns the answers.

Instructions of one command are executed in order: those of one kind that follow each other (the taints of a hundred
nodes) at the same time, those of the next kind after them. Different commands and holds don't wait for each other.
When the Lease is lost, pending instructions are dropped: the successor finds everything on the objects. Knows neither
what an instruction means (`live.actuate`) nor why it was issued.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from dovetail.lifecycle.messages import ClusterInstruction, Event, Failure, InstructionFailed, PublishEvent
from dovetail.live.actuate import Actuator, Answer
from dovetail.live.kubernetes.client import UNREADABLE
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics

_WRITES_AT_ONCE: Final = 16
_EVENTS_AT_ONCE: Final = 4
_ODD_SHAPES: Final = (*UNREADABLE, AttributeError, KeyError, IndexError, TypeError, ValueError)


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """One queue for each command with pending instructions."""

    actuator: Actuator
    log: Log
    metrics: Metrics
    spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]
    answer: Callable[[Event], Awaitable[None]]
    _lanes: dict[str, "deque[ClusterInstruction]"] = field(default_factory=dict)
    _acting: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _events_failed: dict[str, None] = field(default_factory=dict)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_WRITES_AT_ONCE))
    _event_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_EVENTS_AT_ONCE))

    def take(self, instruction: ClusterInstruction) -> None:
        """Queue an instruction behind those of its command."""
        lane = getattr(instruction, "command_id", "") or instruction.id
        if lane not in self._lanes:
            self._lanes[lane] = deque()
            self._acting[lane] = self.spawn(self._work(lane), f"act {lane}")
        self._lanes[lane].append(instruction)

    def drop_all(self) -> None:
        """Stop everything, and drop what has not started."""
        for task in self._acting.values():
            task.cancel()
        # A task that is cancelled before its first step never cleans up: its lane would take instructions for ever.
        self._acting.clear()
        self._lanes.clear()

    async def _work(self, lane: str) -> None:
        """Execute one command's instructions in order; return when there are no more."""
        queue = self._lanes[lane]
        try:
            while queue:
                alike = _next_alike(queue)
                if len(alike) == 1:
                    await self._act(alike[0])
                    continue
                async with asyncio.TaskGroup() as group:
                    for instruction in alike:
                        group.create_task(self._act(instruction))
        finally:
            if self._lanes.get(lane) is queue:
                del self._lanes[lane]
                del self._acting[lane]

    async def _act(self, instruction: ClusterInstruction) -> None:
        """Execute one instruction as soon as there is a slot, and return its answer."""
        # Thousands of events come at once where verdicts change: no command waits behind them.
        async with self._event_slots if isinstance(instruction, PublishEvent) else self._slots:
            if not self.actuator.may_act():
                return  # no longer the leader; the next one sees what was done and what was not
            answer = await self.carry_out(instruction)
        await self._answered(instruction, answer)

    async def carry_out(self, instruction: ClusterInstruction) -> Answer:
        """Execute one instruction."""
        try:
            return await self.actuator.carry_out(instruction)
        except _ODD_SHAPES as error:
            # An object of an unexpected shape. It is requested again, like a lost answer.
            why = f"an object of an unexpected shape: {type(error).__name__}: {error}"
            self.actuator.client.on_malformed(type(instruction).__name__, why)
            return InstructionFailed(id=instruction.id, failure=Failure.UNREACHABLE, detail=why)

    async def _answered(self, instruction: ClusterInstruction, answer: Answer) -> None:
        kind, command = type(instruction).__name__, getattr(instruction, "command_id", "")
        failed = isinstance(answer, InstructionFailed)
        outcome = answer.failure.value if isinstance(answer, InstructionFailed) else "done"
        self.metrics.actions.labels(kind, outcome).inc()
        if isinstance(instruction, PublishEvent) and failed:
            # Nothing depends on Kubernetes events; logged once for each cause, not once for each event.
            if outcome not in self._events_failed:
                self._events_failed[outcome] = None
                self.log.warning("events can't be written", why=getattr(answer, "detail", ""))
            return
        self.log.debug("carried out", command=command, instruction=kind, id=instruction.id, outcome=outcome)
        await self.answer(answer)


def _next_alike(queue: "deque[ClusterInstruction]") -> list[ClusterInstruction]:
    """Take the next instruction from a queue, with those right behind it that have its kind and other ids."""
    first = queue.popleft()
    found = {first.id: first}
    while queue and type(queue[0]) is type(first) and queue[0].id not in found:
        following = queue.popleft()
        found[following.id] = following
    return list(found.values())
