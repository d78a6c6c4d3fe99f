"""Writes a recording of a real cluster: what its watches deliver becomes lines in hourly files.

`take` is called on the event loop and only queues: a state that is not written yet is replaced by the next of the same
object, so the queue never holds more than a few entries per object, and a slow disk never delays the controller. The
writing itself happens in a thread, a piece at a time. A disk that fails costs recording only: the file is left as it
is, the fault is noted once, and a new file begins a minute later; the reader sees the gap. Time comes from the steady
clock, so that a clock that is set neither tears a file nor reorders its lines. What the lines mean is
`recordings.fold`'s.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Final

import msgspec

from dovetail import __version__
from dovetail.lifecycle.messages import Event, ObjectObserved, ObjectVanished
from dovetail.live import clocks
from dovetail.live.anonymise import renamed
from dovetail.live.clocks import WallSteps
from dovetail.live.kubernetes.client import ApiClient, ApiError
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.model.catalogue import Catalogue
from dovetail.model.objects import KINDS
from dovetail.recordings.fold import Fold, Key
from dovetail.recordings.lines import ClockLine, Line
from dovetail.recordings.store import HourFile, Limits, new_file, prune, write_manifest

if TYPE_CHECKING:
    from dovetail.live.run import Controller

_KINDS: Final = {struct: kind for kind, struct in KINDS.items()}
_PIECE: Final = 1000
_EVERY_SECONDS: Final = 1.0
_REST: Final = 4.0  # after a piece of writing the thread rests this many times as long as it took
_REST_MOST_SECONDS: Final = 0.5
_FLUSH_SECONDS: Final = 20.0
_RETRY_SECONDS: Final = 60.0
_STATES_MAX: Final = 3
Taken = tuple[ObjectObserved | ObjectVanished, datetime]


@dataclass(slots=True)
class SteadyTime:
    """The wall clock at the start, and from then on the steady one."""

    _anchor: datetime = field(default_factory=lambda: datetime.now(UTC))
    _steady: float = field(default_factory=clocks.steady)

    def __call__(self) -> datetime:
        """Return the time now."""
        return self._anchor + timedelta(seconds=clocks.steady() - self._steady)


@dataclass(slots=True, kw_only=True)
class ClusterRecorder:
    """Records one cluster. `run` writes until it is cancelled; `finish` closes the last file in order."""

    folder: Path
    fold: Fold
    limits: Limits = field(default_factory=Limits)
    note: Callable[[str], None] = lambda message: None
    missing: Callable[[], tuple[str, ...]] = lambda: ()
    clock: Callable[[], datetime] = field(default_factory=SteadyTime)
    lines: int = 0
    files: int = 0
    busy_seconds: float = 0.0
    fault: str = ""
    _queue: dict[Key, list[Taken]] = field(default_factory=dict)
    _closed_bytes: int = 0
    _is_whole: bool = False
    _file: HourFile | None = None
    _flushed: float = 0.0
    _retry_at: float = 0.0
    _steps: WallSteps = field(default_factory=WallSteps)

    @property
    def bytes_written(self) -> int:
        """Return how many bytes were written, compressed."""
        return self._closed_bytes + (self._file.packed_bytes if self._file is not None else 0)

    def _leave_file(self) -> None:
        if self._file is not None:
            self._closed_bytes += self._file.packed_bytes
            self._file = None

    def take(self, event: Event) -> None:
        """Queue what was observed; a state that still waits is replaced by the next."""
        if isinstance(event, ObjectObserved):
            meta = event.object.metadata
            key = (_KINDS[type(event.object)], meta.namespace, meta.name)
        elif isinstance(event, ObjectVanished):
            key = (event.kind, event.namespace, event.name)
        else:
            return
        waiting = self._queue.setdefault(key, [])
        is_newer_state = waiting and isinstance(event, ObjectObserved) and isinstance(waiting[-1][0], ObjectObserved)
        if is_newer_state and _created(waiting[-1][0]) == _created(event):
            waiting[-1] = (event, self.clock())
            return
        if len(waiting) >= _STATES_MAX:
            del waiting[1:-1]  # what came and went meanwhile; its first and its latest state stay
        waiting.append((event, self.clock()))

    async def run(self) -> None:
        """Write what is queued, a piece at a time, until cancelled."""
        while True:
            while True:
                before = self.busy_seconds
                await self._write_in_thread(self._next_piece())
                took = self.busy_seconds - before
                if not self._queue:
                    break
                await asyncio.sleep(min(_REST_MOST_SECONDS, max(0.01, _REST * took)))
            await asyncio.sleep(_EVERY_SECONDS)

    async def _write_in_thread(self, batch: list[tuple[Key, list[Taken]]]) -> None:
        """Write a piece in a thread. Cancelling waits for it, so that `finish` never runs beside it."""
        writing = asyncio.ensure_future(asyncio.to_thread(self._write, batch))
        cancelled: asyncio.CancelledError | None = None
        while not writing.done():
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError as error:
                cancelled = error  # whoever is in a hurry may cancel more than once
        if cancelled is not None:
            raise cancelled
        writing.result()

    def finish(self) -> None:
        """Write what is left and close the file in order."""
        while self._queue:
            self._write(self._next_piece())
        if self._file is None:
            return
        try:
            self._file.close(self.clock())
            self._write_manifest()
        except OSError as error:
            self._failed(error)
        self._leave_file()

    # ------------------------------------------------------------ in a thread

    def _next_piece(self) -> list[tuple[Key, list[Taken]]]:
        keys = list(islice(self._queue, _PIECE))
        return [(key, self._queue.pop(key)) for key in keys]

    def _write(self, batch: list[tuple[Key, list[Taken]]]) -> None:
        """Take a piece in and write it; what a failing disk refuses is known all the same."""
        began = time.thread_time()
        try:
            self._write_piece(batch)
        finally:
            self.busy_seconds += time.thread_time() - began

    def _write_piece(self, batch: list[tuple[Key, list[Taken]]]) -> None:
        now = self.clock()
        if not self._is_whole:
            self._learn(batch)
            batch = []
            if self._queue:
                return  # a file begins with everything that is there
            self._is_whole = True
        try:
            if self._file is None or _hour(now) != _hour(self._file.begins):
                self._next_file(now)
        except OSError as error:
            self._failed(error)
        lines = [line for _, states in batch for event, at in states for line in self._lines(event, at)]
        lines += self._clock_lines(now)
        try:
            self._add(lines)
            if self._file is not None and time.monotonic() - self._flushed >= _FLUSH_SECONDS:
                self._flushed = time.monotonic()
                self._file.flush()
        except OSError as error:
            self._failed(error)

    def _learn(self, batch: list[tuple[Key, list[Taken]]]) -> None:
        for (kind, namespace, name), states in batch:
            for event, at in states:
                if isinstance(event, ObjectObserved):
                    self.fold.learn(event.object, at)
                elif states[0][0] is not event:  # it came and went before there was a file
                    self.fold.vanish(kind, namespace, name, at)

    def _lines(self, event: ObjectObserved | ObjectVanished, at: datetime) -> list[Line]:
        if isinstance(event, ObjectObserved):
            return self.fold.observe(event.object, at)
        return self.fold.vanish(event.kind, event.namespace, event.name, at)

    def _clock_lines(self, now: datetime) -> list[Line]:
        if self._file is None:
            return []
        at = round((now - self._file.begins).total_seconds(), 1)
        return [ClockLine(at=at, seconds=step.by / 1e6) for step in self._steps.until(datetime.now(UTC))]

    def _add(self, lines: list[Line]) -> None:
        if self._file is not None and lines:
            self._file.write(lines)
            self.lines += len(lines)

    def _next_file(self, now: datetime) -> None:
        """Close the file of the hour before and begin one with everything that is known."""
        if self._file is None and time.monotonic() < self._retry_at:
            return  # nothing is written until the disk is tried again; states are kept
        if self._file is not None:
            self._file.close(now)
            self._leave_file()
        begins = now.replace(microsecond=0)
        lines = list(self.fold.begin(begins, missing=self.missing()))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = new_file(self.folder, begins)
        self.files += 1
        self._add(lines)
        self._file.flush()
        self._write_manifest()
        prune(self.folder, now, self.limits, writing=self._file.path)
        if self.fault:
            self.fault = ""
            self.note("recording again")

    def _write_manifest(self) -> None:
        fold = self.fold
        write_manifest(self.folder, fold.cluster, fold.catalogue, self.missing(), fold.recorder)

    def _failed(self, error: OSError) -> None:
        why = error.strerror or str(error)
        if self._file is not None:
            self._file.abandon()
            self._leave_file()
        if not self.fault:
            self.note(
                f"the recording in {self.folder} can't be written ({why}); it goes on when that is possible again"
            )
        self.fault, self._retry_at = why, time.monotonic() + _RETRY_SECONDS


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _created(event: ObjectObserved | ObjectVanished) -> object:
    return event.object.metadata.creation_timestamp if isinstance(event, ObjectObserved) else None


async def cluster_id(client: ApiClient) -> str:
    """Return what identifies the cluster: the uid of its namespace kube-system, else its address."""
    try:
        tree = msgspec.json.decode(await client.request("GET", "/api/v1/namespaces/kube-system"))
        return str(tree["metadata"]["uid"])
    except (ApiError, UnreachableError, KeyError, TypeError):
        return client.connection.server


def prices_of(catalogue: Catalogue | None) -> Callable[[str, str, str], str | None]:
    """Return a look-up of the price per hour of a type, zone and capacity type; None where it is unknown."""
    table = {
        (kind.name, offering.zone, offering.capacity_type): repr(offering.price_float)
        for kind in (catalogue.instance_types if catalogue is not None else ())
        for offering in kind.offerings
    }
    return lambda kind, zone, capacity_type: table.get((kind, zone, capacity_type))


def new_fold(cluster: str, catalogue: Catalogue | None, names_key: bytes | None = None) -> Fold:
    """Build the fold of a recording; with a key, every name is replaced by one that only the key can connect to it."""
    fold = Fold(
        cluster=cluster,
        recorder=f"dovetail {__version__}",
        catalogue=catalogue.source if catalogue is not None else "",
        price_of=prices_of(catalogue),
    )
    if names_key is not None:

        def made_up(sort: str, text: str) -> str:
            return f"{sort[0]}{blake2b(text.encode(), key=names_key, digest_size=6).hexdigest()}" if text else ""

        fold.cluster = made_up("cluster", cluster)
        fold.rename = lambda name: made_up("name", name)
        fold.rewrite = lambda tree: renamed(tree, made_up)
    return fold


def load_names_key(folder: Path) -> bytes:
    """Return the key of an anonymised recording, kept beside its folder so that a restart uses the same names."""
    path = folder.with_name(f"{folder.name}.key")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(token_bytes(32))
    return path.read_bytes()[:64]


def background_recording(path: str, keep: int) -> "Callable[[Controller], Awaitable[None]]":
    """Return the background task of a controller that records beside its work."""

    async def recording(controller: "Controller") -> None:
        catalogue = controller.engine.catalogue
        recorder = ClusterRecorder(
            folder=Path(path),
            fold=new_fold(await cluster_id(controller.client), catalogue),
            limits=Limits(keep=timedelta(microseconds=keep // 1000)),
            note=lambda message: controller.log.warning(message),
            missing=controller.missing_kinds,
        )
        controller.listeners.append(recorder.take)
        controller.metrics.recording_bytes.set_function(lambda: recorder.bytes_written)
        controller.metrics.recording_failing.set_function(lambda: 1.0 if recorder.fault else 0.0)
        while controller.why_unready():
            await asyncio.sleep(_EVERY_SECONDS)  # a file begins with everything that is there
        controller.log.info("recording", folder=path)
        try:
            await recorder.run()
        finally:
            recorder.finish()

    return recording
