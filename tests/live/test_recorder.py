"""The recorder's queue, its files, and a disk that fails."""

import asyncio
import errno
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dovetail.lifecycle.messages import ClockSet, ObjectObserved, ObjectVanished
from dovetail.live import recorder as recorder_module
from dovetail.live.clocks import WallSteps
from dovetail.live.recorder import ClusterRecorder, Taken, load_names_key, new_fold
from dovetail.model.objects import Namespace, ObjectMeta, OwnerReference, Pod, PodSpec
from dovetail.recordings.fold import Key
from dovetail.recordings.read import load_cluster_recording
from dovetail.recordings.store import HourFile, files_of


class _Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 10, 59, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def _pod(name: str, node: str = "", created: datetime | None = None) -> ObjectObserved:
    owner = OwnerReference(kind="ReplicaSet", name="web", controller=True)
    created = created or datetime(2026, 3, 1, 10, tzinfo=UTC)
    meta = ObjectMeta(name=name, namespace="shop", creation_timestamp=created, owner_references=(owner,))
    return ObjectObserved(object=Pod(metadata=meta, spec=PodSpec(node_name=node)))


def _recorder(folder: Path, clock: _Clock, notes: list[str], key: bytes | None = None) -> ClusterRecorder:
    return ClusterRecorder(folder=folder, fold=new_fold("c1", None, key), clock=clock, note=notes.append)


def _write(recorder: ClusterRecorder) -> None:
    while recorder._queue:
        recorder._write(recorder._next_piece())
    recorder._write([])


def test_states_that_wait_are_replaced(tmp_path: Path) -> None:
    """However many changes of one object come before they are written, the queue holds a few; its life stays whole."""
    clock = _Clock()
    recorder = _recorder(tmp_path, clock, [])
    _write(recorder)
    for number in range(1000):
        recorder.take(_pod("web-1", f"n{number}"))
    assert sum(map(len, recorder._queue.values())) == 1
    recorder.take(ObjectVanished(kind="Pod", namespace="shop", name="web-1"))
    for number in range(50):
        recorder.take(_pod("web-1", "m", clock.now + timedelta(seconds=number)))
        recorder.take(ObjectVanished(kind="Pod", namespace="shop", name="web-1"))
    assert sum(map(len, recorder._queue.values())) <= 4
    recorder.finish()
    assert all(pod.gone is not None for pod in load_cluster_recording(tmp_path).pods)


def test_the_first_file_begins_with_everything(tmp_path: Path) -> None:
    """A recorder that starts again lists what is there at once, so nothing seems to end and to come back."""
    clock = _Clock()
    for _ in range(2):
        recorder = _recorder(tmp_path, clock, [])
        for number in range(1500):
            recorder.take(_pod(f"web-{number}", "n1"))
        recorder.take(ObjectObserved(object=Namespace(metadata=ObjectMeta(name="shop"))))
        _write(recorder)
        recorder.finish()
        clock.now += timedelta(seconds=20)
    read = load_cluster_recording(tmp_path)
    assert len(read.pods) == 1500
    assert all(pod.gone is None and pod.seen == read.begins for pod in read.pods)
    assert [change.object is not None for change in read.changes] == [True]


def test_a_new_hour_is_a_new_file(tmp_path: Path) -> None:
    """Each file can be read alone: the second begins with everything that is there."""
    clock = _Clock()
    recorder = _recorder(tmp_path, clock, [])
    recorder.take(_pod("web-1", "n1"))
    recorder.take(ObjectObserved(object=Namespace(metadata=ObjectMeta(name="shop"))))
    _write(recorder)
    clock.now += timedelta(minutes=1)
    recorder.take(_pod("web-2", "n1"))
    _write(recorder)
    recorder.finish()
    first, second = files_of(tmp_path)
    assert [pod.name for pod in load_cluster_recording(first).pods] == ["web-1"]
    alone = load_cluster_recording(second)
    assert [pod.name for pod in alone.pods] == ["web-1", "web-2"]
    assert [change.kind for change in alone.changes] == ["Namespace"]
    assert load_cluster_recording(tmp_path).gaps == ()


def test_a_full_disk_costs_recording_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails is noted once, tried again after a minute, and the gap can be seen."""
    clock, notes = _Clock(), []  # type: ignore[var-annotated]
    recorder = _recorder(tmp_path, clock, notes)
    recorder.take(_pod("web-1", "n1"))
    _write(recorder)

    def full(self: HourFile, packed: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(HourFile, "_put", full)
        clock.now += timedelta(hours=1)
        recorder.take(_pod("web-2", "n1"))
        _write(recorder)
        recorder.take(_pod("web-3", "n1"))
        _write(recorder)
    assert len(notes) == 1
    assert "No space left" in notes[0]
    assert recorder.fault
    monkeypatch.setattr(recorder_module, "_RETRY_SECONDS", 0.0)
    recorder._retry_at = 0.0
    clock.now += timedelta(minutes=5)
    recorder.take(_pod("web-4", "n1"))
    _write(recorder)
    recorder.finish()
    assert recorder.fault == ""
    read = load_cluster_recording(tmp_path)
    assert {pod.name for pod in read.pods} == {"web-1", "web-2", "web-3", "web-4"}
    assert len(read.gaps) == 1


def test_anonymised_names_are_the_same_after_a_restart(tmp_path: Path) -> None:
    """No real name is in the files, and one pod has one name through a restart of the recorder."""
    folder = tmp_path / "rec"
    clock = _Clock()
    for _ in range(2):
        recorder = _recorder(folder, clock, [], load_names_key(folder))
        recorder.take(_pod("secret-web-1", "secret-node"))
        _write(recorder)
        recorder.finish()
        clock.now += timedelta(minutes=1)
    read = load_cluster_recording(folder)
    assert [pod.gone for pod in read.pods] == [None]
    assert read.gaps == ()
    for path in files_of(folder):
        assert b"secret" not in path.read_bytes()
    assert "secret" not in str(read)
    assert "shop" not in str(read)
    assert (tmp_path / "rec.key").stat().st_mode & 0o777 == 0o600


def test_it_writes_while_the_loop_goes_on(tmp_path: Path) -> None:
    """Thousands of objects are written piece by piece, and cancelling loses none that were taken."""

    async def course() -> None:
        recorder = _recorder(tmp_path, _Clock(), [])
        for number in range(3500):
            recorder.take(_pod(f"web-{number}", "n1"))
        task = asyncio.create_task(recorder.run())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        recorder.finish()

    asyncio.run(course())
    assert len(load_cluster_recording(tmp_path).pods) == 3500


def test_cancelling_waits_for_the_piece_that_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder that is cancelled while a piece is written ends after it: `finish` runs alone, and nothing is lost."""
    entered, released, inside, beside = threading.Event(), threading.Event(), threading.Lock(), []
    write = ClusterRecorder._write

    def blocked(self: ClusterRecorder, batch: list[tuple[Key, list[Taken]]]) -> None:
        if not inside.acquire(blocking=False):
            beside.append(threading.current_thread().name)
            return
        try:
            entered.set()
            assert released.wait(60)
            write(self, batch)
        finally:
            inside.release()

    monkeypatch.setattr(ClusterRecorder, "_write", blocked)

    async def course() -> None:
        recorder = _recorder(tmp_path, _Clock(), [])
        for number in range(2500):
            recorder.take(_pod(f"web-{number}", "n1"))
        task = asyncio.create_task(recorder.run())
        await asyncio.to_thread(entered.wait, 60)
        for _ in range(3):  # once by the shutdown, again by somebody who does not want to wait
            task.cancel()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not task.done()
        released.set()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError)
        recorder.finish()

    asyncio.run(course())
    assert beside == []
    assert len(load_cluster_recording(tmp_path).pods) == 2500


def test_a_clock_that_is_set_tears_nothing(tmp_path: Path) -> None:
    """The wall clock jumps by an hour while it records: a line says so, and the file goes on in order without a gap."""
    clock = _Clock()
    clock.now = datetime(2026, 3, 1, 10, tzinfo=UTC)
    recorder = _recorder(tmp_path, clock, [])
    recorder._steps = wall = _Wall()
    _write(recorder)
    for number, ahead in enumerate((0, 0, 3600, 3600, 0, 0)):
        clock.now = datetime(2026, 3, 1, 10, tzinfo=UTC) + timedelta(seconds=30 * number)
        wall.ahead = timedelta(seconds=ahead)
        recorder.take(_pod(f"web-{number}", "n1", clock.now))
        _write(recorder)
    recorder.finish()
    read = load_cluster_recording(tmp_path)
    assert [seconds for _, seconds in read.clock_steps] == [3600.0, -3600.0]
    assert [pod.name for pod in read.pods] == [f"web-{number}" for number in range(6)]
    assert read.gaps == ()
    assert read.ends - read.begins < timedelta(minutes=5)


class _Wall(WallSteps):
    """A wall clock that is `ahead` of the steady one."""

    def __init__(self) -> None:
        self.ahead = self.known = timedelta(0)

    def until(self, wall: datetime) -> list[ClockSet]:
        by, self.known = self.ahead - self.known, self.ahead
        return [ClockSet(by=by // timedelta(microseconds=1))] if by else []
