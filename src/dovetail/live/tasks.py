"""The supervised tasks of a controller: one that fails, or ends unexpectedly, ends the process.

A dead task is worse than a dead process: nothing restarts it, and the probes stay green. Doesn't know what the tasks
do.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any


class TaskEndedError(RuntimeError):
    """A task that must run as long as the process has returned."""


@dataclass(slots=True, kw_only=True)
class Tasks:
    """Start tasks with `spawn`; `failed` is called with the name of each that dies."""

    failed: Callable[[str, BaseException], None]
    _running: set["asyncio.Task[None]"] = field(default_factory=set)
    _stopping: bool = False

    def spawn(self, work: Coroutine[Any, Any, None], name: str, *, forever: bool = False) -> "asyncio.Task[None]":
        """Start a task; with `forever`, its end is a failure like any exception."""
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, forever=forever))
        return task

    async def cancel(self) -> None:
        """Cancel all tasks and wait until they are gone."""
        self._stopping = True
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]", *, forever: bool) -> None:
        self._running.discard(task)
        if task.cancelled():
            if forever and not self._stopping:
                self.failed(task.get_name(), TaskEndedError("it was cancelled"))
            return
        fault = task.exception()
        if fault is None and forever and not self._stopping:
            fault = TaskEndedError("it ended, though it must run for as long as the process does")
        if fault is not None:
            self.failed(task.get_name(), fault)
