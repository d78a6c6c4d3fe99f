"""A recording as a source of the live view: its time runs as fast as you like, and you can go to any moment of it.

The cluster of each moment is the recording's own, so every part of the view works as on a cluster. Samples, events and
lives are known of the whole recording from the start (`sim.recorded_timeline`).
"""

import threading
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from dovetail.decide.question import Question
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.policies.managed import managed_pools
from dovetail.model.settings import Settings
from dovetail.recordings.read import ClusterRecording
from dovetail.sim.ledger import Result
from dovetail.sim.recorded_timeline import real_result
from dovetail.sim.timeline import STAYS
from dovetail.ui.command_bills import Worth
from dovetail.ui.commands import CommandNow, PassingCommands
from dovetail.ui.history import Happened, Sample, Saved, event_text
from dovetail.ui.lives import KEPT, NodeLife
from dovetail.ui.sources import SPEEDS, Status

_DOLLAR: Final = 10**18
_ENDINGS: Final = {"done": "is done", "undone": "was undone"}


class RecordingSource:
    """What `dovetail record` wrote, from its first moment on. Needs no thread: a look reads the clock."""

    def __init__(
        self, name: str, recording: ClusterRecording, catalogue: Catalogue, settings: Settings, speed: int = 60
    ) -> None:
        self._name = name
        self._recording = recording
        self._catalogue = catalogue
        self._settings = settings
        self._length = (recording.ends - recording.begins).total_seconds()
        self._lock = threading.Lock()
        self._speed = speed
        self._at = 0.0
        self._clock = time.monotonic()
        self._asked: Question | None = None
        self._passing = PassingCommands()
        self._noted = 0

    def start(self) -> None:
        """Let time pass from now on."""
        self._clock = time.monotonic()

    def stop(self) -> None:
        """Skip: nothing runs."""

    def question(self) -> Question | None:
        """Return the cluster of the moment that was reached."""
        with self._lock:
            self._pass()
            now = self._recording.begins + timedelta(seconds=self._at)
            if self._asked is None or self._asked.now != now:
                self._note(now)
                cluster = self._recording.cluster_at(now)
                self._asked = Question(
                    cluster=cluster,
                    catalogue=self._catalogue,
                    settings=self._settings,
                    now=now,
                    managed_pools=managed_pools(cluster.node_pools, self._settings) or None,
                )
            return self._asked

    def _pass(self) -> None:
        now = time.monotonic()
        self._at = min(self._length, self._at + (now - self._clock) * self._speed)
        self._clock = now

    def _note(self, now: datetime) -> None:
        """Note commands that began since the look before, also those that have ended."""
        changes = self._recording.changes
        while self._noted < len(changes) and changes[self._noted].at <= now:
            self._passing.observe(changes[self._noted].object)
            self._noted += 1

    def status(self) -> Status:
        """Return where it is."""
        with self._lock:
            return Status(
                kind="recording",
                name=self._name,
                speed=self._speed,
                ended=self._at >= self._length,
                position=round(self._at, 1),
                length=round(self._length, 1),
                seekable=True,
            )

    def passed(self) -> tuple[CommandNow, ...]:
        """Return the commands that were seen since the last call, ended ones included."""
        with self._lock:
            return self._passing.take()

    def set_speed(self, speed: int) -> bool:
        """Change how fast time passes; one of `SPEEDS`."""
        if speed not in SPEEDS:
            return False
        with self._lock:
            self._pass()
            self._speed = speed
        return True

    def go_to(self, seconds: float) -> bool:
        """Go to a moment of the recording; False if it has none such."""
        if not 0 <= seconds <= self._length:
            return False
        with self._lock:
            self._at, self._clock = float(seconds), time.monotonic()
            now = self._recording.begins + timedelta(seconds=self._at)
            self._noted = sum(change.at <= now for change in self._recording.changes)
            self._passing.take()
        return True


class RecordedHistory:
    """Samples and events of a whole recording: `take` only notes how far the reader is."""

    def __init__(self, recording: ClusterRecording, result: Result) -> None:
        self._begins = recording.begins.timestamp()
        self._samples = _samples(self._begins, result)
        self._events = sorted(_events(self._begins, result), key=lambda entry: entry.at, reverse=True)
        self._now = self._begins

    def take(
        self,
        sample: Sample,
        commands: tuple[CommandNow, ...],
        prices: Mapping[str, float],
        passed: tuple[CommandNow, ...] = (),
        worth: Mapping[str, Worth] = MappingProxyType({}),
    ) -> None:
        """Note the moment."""
        self._now = sample.at

    def samples(self) -> list[Sample]:
        """Return all samples, oldest first."""
        return self._samples

    def events(self) -> list[Happened]:
        """Return what had happened by the moment, newest first."""
        return [entry for entry in self._events if entry.at <= self._now]

    def saved(self, now: float) -> Saved | None:
        """Return None: a recording does not say what a command promised."""
        return None

    def close(self) -> None:
        """Skip: it has no file of its own."""


class RecordedLives:
    """The nodes of a whole recording: `take` changes nothing."""

    def __init__(self, recording: ClusterRecording, result: Result) -> None:
        self._lives = _lives(recording.begins.timestamp(), result)

    def take(
        self, now: datetime, cluster: Cluster, prices: Mapping[str, float], commands: Iterable[CommandNow]
    ) -> None:
        """Skip."""

    def lives(self) -> list[NodeLife]:
        """Return all lives."""
        return self._lives


def recorded_past(recording: ClusterRecording, catalogue: Catalogue) -> tuple[RecordedHistory, RecordedLives]:
    """Return what happened in a recording, as the live view shows it."""
    result = real_result(recording, catalogue)
    return RecordedHistory(recording, result), RecordedLives(recording, result)


def _samples(begins: float, result: Result) -> list[Sample]:
    series = result.series
    columns = zip(series.seconds, series.nodes, series.cost_per_hour, series.pods, series.pending, strict=True)
    return [
        Sample(at=begins + second, nodes=nodes, cost=cost, pods=pods, pending=pending, under_way=0)
        for second, nodes, cost, pods, pending in columns
    ]


def _events(begins: float, result: Result) -> Iterable[Happened]:
    for taken in result.timeline.commands:
        yield Happened(at=begins + taken.at, kind="began", text=event_text(taken.action, taken.nodes, "began"))
        if taken.ended != STAYS:
            how = _ENDINGS.get(taken.outcome, "has ended")
            yield Happened(at=begins + taken.ended, kind="ended", text=event_text(taken.action, taken.nodes, how))
    for machine in result.timeline.machines:
        if machine.started > 0:
            yield Happened(at=begins + machine.started, kind="came", text=f"{machine.name} came")
        if machine.ended != STAYS:
            yield Happened(at=begins + machine.ended, kind="went", text=f"{machine.name} is gone")


def _lives(begins: float, result: Result) -> list[NodeLife]:
    found = [
        NodeLife(
            name=machine.name,
            pool=machine.pool,
            zone=machine.zone,
            type=machine.type,
            capacity_type=machine.capacity_type,
            price=machine.price / _DOLLAR,
            started=begins + machine.started,
            leaving=None if machine.leaving == STAYS else begins + machine.leaving,
            ended=None if machine.ended == STAYS else begins + machine.ended,
            fate=machine.fate or KEPT,
        )
        for machine in result.timeline.machines
    ]
    stays = result.timeline.stays
    for place, ended, moved in sorted(zip(stays.machine, stays.ended, stays.moved, strict=True)):
        if moved and place >= 0 and ended != STAYS:
            found[place].moved.append(begins + ended)
    return found
