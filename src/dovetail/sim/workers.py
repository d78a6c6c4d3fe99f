"""Worker processes for simulator runs: pipes carry tasks out and progress and results back, and all workers end.

Pipes only, no semaphores and no shared memory, so nothing is left behind whatever ends this process. Workers never see
Ctrl-C (SIGINT is blocked in them): this process alone decides, and takes them down with it. A worker whose pipe is
closed ends by itself. Knows nothing of scenarios.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final, TypeVar

from dovetail.api.findings import InputError

Progress = Callable[[float], None]
Heard = Callable[[int, float, Any], None]
"""Hears the index of a task, its share of progress, and what it has to say (None: nothing)."""
Task = TypeVar("Task")
Work = Callable[[Any, Progress], Any]
"""Does one task and reports its share of it, from 0 to 1. Module level, so that a worker can import it."""

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 0.5
_HELD: Final = (signal.SIGINT, signal.SIGTERM)


def run_in_workers(
    work: Work,
    tasks: Sequence[Any],
    workers: int,
    progress: Progress | None = None,
    done: Callable[[int, Any], None] | None = None,
    heard: Heard | None = None,
) -> list[Any]:
    """Run all tasks in `workers` processes and return the results in their order.

    `done` is called with each result as it comes, `heard` with what a task reports meanwhile.
    """
    crew: list[tuple[SpawnProcess, Connection]] = []
    try:
        # Starting the tracker lets signals through again, so it starts first: a worker that is still starting up must
        # not hear of Ctrl-C.
        resource_tracker.ensure_running()
        with _signals_held():
            crew.extend(_start(work) for _ in range(min(workers, len(tasks))))
        return _hand_out(tasks, [pipe for _, pipe in crew], progress, done, heard)
    finally:
        with _signals_held():  # a second Ctrl-C must not stop the cleaning up
            _end(crew)


def _start(work: Work) -> tuple[SpawnProcess, Connection]:
    context = multiprocessing.get_context("spawn")  # a fork would copy numpy's threads half
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _hand_out(
    tasks: Sequence[Any],
    pipes: Sequence[Connection],
    progress: Progress | None,
    done: Callable[[int, Any], None] | None,
    heard: Heard | None,
) -> list[Any]:
    """Send every idle worker the next task until all are done."""
    results: dict[int, Any] = {}
    shares = [0.0] * len(tasks)
    waiting = iter(range(len(tasks)))
    for pipe, index in zip(pipes, waiting, strict=False):
        pipe.send((index, tasks[index]))
    while len(results) < len(tasks):
        ready = wait(list(pipes), POLL_SECONDS)
        for pipe in (pipe for pipe in pipes if pipe in ready):
            try:
                kind, index, value = pipe.recv()
            except EOFError:
                raise InputError("a worker process ended in the middle of a run; is there enough memory?") from None
            if kind == "failed":
                raise value
            shares[index] = 1.0 if kind == "done" else value[0]
            if heard is not None:
                heard(index, shares[index], None if kind == "done" else value[1])
            if kind == "done":
                results[index] = value
                following = next(waiting, None)
                if following is not None:
                    pipe.send((following, tasks[following]))
                if done is not None:
                    done(index, value)
        if progress is not None:
            progress(sum(shares) / len(tasks))
    return [results[index] for index in range(len(tasks))]


def _end(crew: Sequence[tuple[SpawnProcess, Connection]]) -> None:
    """End the workers without waiting: whatever they are doing is no longer needed."""
    for process, pipe in crew:
        pipe.close()
        process.terminate()
    for process, _ in crew:
        process.join(PATIENCE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Keep SIGINT and SIGTERM waiting; processes that are started meanwhile inherit that.

    Blocking them is for the child processes. It does not help this one if another thread (numpy has some) gets a
    signal: Python still handles it in the main thread. So handlers that only record the signal are installed meanwhile.
    """
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {number: signal.signal(number, lambda which, _: came.append(which)) for number in _HELD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for found in dict.fromkeys(came):
            signal.raise_signal(found)


# ---------------------------------------------------------------- in a worker


def _serve(work: Work, pipe: Connection) -> None:
    """Run one task after the other until the pipe is closed."""
    if hasattr(signal, "pthread_sigmask"):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    with suppress(EOFError, OSError):
        while True:
            index, task = pipe.recv()
            try:
                answer = ("done", index, work(task, _Reporter(pipe, index)))
            except (EOFError, OSError):
                raise
            except Exception as error:  # sent to the parent, which reports it
                answer = ("failed", index, error)
            pipe.send(answer)
    os._exit(0)  # no teardown is needed, and the parent may be gone


class _Reporter:
    """Sends a task's share of progress, no more often than anyone could look."""

    def __init__(self, pipe: Connection, index: int) -> None:
        self._pipe, self._index, self._said = pipe, index, 0.0

    def __call__(self, share: float) -> None:
        self.note(share, None)

    def note(self, share: float, value: Any) -> None:
        """Send what the task has to say at this share of it, too."""
        if share - self._said >= 0.005 or share >= 1.0:
            self._said = share
            self._pipe.send(("share", self._index, (share, value)))
