"""What can't be read is refused in one sentence, and nothing half written is taken for whole."""

import gzip
import io
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dovetail.api.findings import InputError
from dovetail.cli.main import main
from dovetail.model.objects import Condition, ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus
from dovetail.recordings.fold import Fold
from dovetail.recordings.read import load_cluster_recording
from dovetail.recordings.store import Limits, files_of, new_file, prune, write_manifest

START = datetime(2026, 3, 1, 10, tzinfo=UTC)


def _pod(name: str, created: datetime = START, node: str = "n1") -> Pod:
    owner = OwnerReference(kind="ReplicaSet", name="web", controller=True)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="shop", creation_timestamp=created, owner_references=(owner,)),
        spec=PodSpec(node_name=node),
        status=PodStatus(conditions=(Condition(type="PodScheduled", status="True", last_transition_time=created),)),
    )


def _write(folder: Path, begins: datetime, *, cluster: str = "c1", pods: int = 50, ends: bool = True) -> Path:
    """Write one file with pods that come a minute apart."""
    fold = Fold(cluster=cluster)
    file = new_file(folder, begins)
    file.write(fold.begin(begins))
    for number in range(pods):
        at = begins + timedelta(minutes=number + 1)
        file.write(fold.observe(_pod(f"web-{number}", at), at))
        file.flush()
    if ends:
        file.close(begins + timedelta(hours=1))
    else:
        file.abandon()
    return file.path


def test_a_cut_file_counts_up_to_its_last_line(tmp_path: Path) -> None:
    """A crash loses what was not flushed; the time until the next file is a gap that says so."""
    first = _write(tmp_path, START, ends=False)
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) // 2])
    _write(tmp_path, START + timedelta(hours=2))
    read = load_cluster_recording(tmp_path)
    assert 10 < sum(pod.created < START + timedelta(hours=1) for pod in read.pods) < 50
    (gap,) = read.gaps
    assert gap.ends == START + timedelta(hours=2)
    assert gap.begins < START + timedelta(minutes=45)
    assert "cut off" in gap.why


def test_a_crash_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    """Every flushed line is read from a file that has no end, and the recording says that its end is missing."""
    path = _write(tmp_path, START, ends=False)
    read = load_cluster_recording(tmp_path)
    assert len(read.pods) == 50
    assert read.missing == (f"the end: {path.name} was cut off, or is being written",)


def test_commands_say_what_a_recording_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that only counts names the hours that nobody saw, and an end that was cut off, in a line each."""
    _write(tmp_path, START)
    last = _write(tmp_path, START + timedelta(hours=4), ends=False)
    assert main(["regret", str(tmp_path), "--no-advice"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert f"from {START + timedelta(hours=1):%F %R} to {START + timedelta(hours=4):%F %R}" in said[0]
    assert f"{last.name} was cut off" in said[1]


def test_missing_hours_are_gaps(tmp_path: Path) -> None:
    """Pods of before a gap that are not there after it end at its edge, with a reason that says that nobody saw it."""
    _write(tmp_path, START)
    _write(tmp_path, START + timedelta(hours=4))
    read = load_cluster_recording(tmp_path)
    assert [(gap.begins, gap.ends) for gap in read.gaps] == [(START + timedelta(hours=1), START + timedelta(hours=4))]
    before = [pod for pod in read.pods if pod.created < START + timedelta(hours=1)]
    assert all(pod.gone == START + timedelta(hours=4) and pod.why == "unseen" for pod in before)


def test_two_clusters_in_one_folder(tmp_path: Path) -> None:
    """Two clusters are never merged."""
    _write(tmp_path, START)
    _write(tmp_path, START + timedelta(hours=1), cluster="c2")
    with pytest.raises(InputError, match="two clusters, c1 and c2"):
        load_cluster_recording(tmp_path)


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """A file that begins long before the one before it ends is refused with what may have happened."""
    _write(tmp_path, START)
    _write(tmp_path, START + timedelta(minutes=20))
    with pytest.raises(InputError, match="two recorders wrote into one folder, or the clock was set back"):
        load_cluster_recording(tmp_path)


def test_a_later_version(tmp_path: Path) -> None:
    """A format that is not known yet is refused with what to do, even if its lines look different."""
    line = b'{"line":"header","version":7,"cluster":5,"since":"2026"}\n'
    (tmp_path / "20260301T100000Z.ndjson.gz").write_bytes(gzip.compress(line))
    with pytest.raises(InputError, match="format is version 7 and this dovetail reads up to 1; use a newer dovetail"):
        load_cluster_recording(tmp_path)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "there is not one whole line"),
        (gzip.compress(b"<html>"), "there is not one whole line"),
        (gzip.compress(b"<html>\n"), "line 1 is not a line of a recording"),
        (gzip.compress(b'{"line":"end","at":0}\n'), "first line is not the header"),
        (b"\x1f\x8bjunk", "is damaged"),
        (b"[" * 100_000 + b"\n", "line 1 is not a line of a recording"),
    ],
    ids=("nothing", "no newline", "html", "no header", "damaged", "deep"),
)
def test_files_that_are_none(tmp_path: Path, raw: bytes, sentence: str) -> None:
    """Whatever else is found in a file, the answer is one sentence with its name."""
    path = tmp_path / "20260301T100000Z.ndjson.gz"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=sentence) as error:
        load_cluster_recording(tmp_path)
    assert "\n" not in str(error.value)


def test_an_empty_folder_and_an_odd_manifest(tmp_path: Path) -> None:
    """A folder without files says how to make some; a manifest of something else is named."""
    with pytest.raises(InputError, match="there is no recording in this folder"):
        load_cluster_recording(tmp_path)
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(InputError, match="not the manifest of a recording"):
        load_cluster_recording(tmp_path)


def test_an_archive_is_read_like_its_folder(tmp_path: Path) -> None:
    """A .tar.gz of the folder gives the same recording; half of one is refused."""
    folder = tmp_path / "rec"
    folder.mkdir()
    _write(folder, START)
    write_manifest(folder, "c1", "", (), "test")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder, arcname="rec")
    path = tmp_path / "rec.tar.gz"
    path.write_bytes(packed.getvalue())
    assert load_cluster_recording(path) == load_cluster_recording(folder)
    path.write_bytes(packed.getvalue()[: len(packed.getvalue()) // 2])
    with pytest.raises(InputError, match="not a whole"):
        load_cluster_recording(path)


def test_rotation_by_age_and_size(tmp_path: Path) -> None:
    """Old files go first, then the oldest until the rest is small enough; the one being written always stays."""
    paths = [_write(tmp_path, START + timedelta(hours=hour)) for hour in range(5)]
    now = START + timedelta(hours=5)
    assert prune(tmp_path, now, Limits(keep=timedelta(hours=2, minutes=30)), writing=paths[4]) == paths[:2]
    size = paths[4].stat().st_size
    assert prune(tmp_path, now, Limits(bytes_max=size + 10), writing=paths[4]) == paths[2:4]
    assert files_of(tmp_path) == [paths[4]]


def test_a_name_that_is_used_again(tmp_path: Path) -> None:
    """A pod of a StatefulSet that comes back under its name is another pod, though its end was never seen."""
    fold = Fold(cluster="c1")
    file = new_file(tmp_path, START)
    file.write(fold.begin(START))
    file.write(fold.observe(_pod("db-0"), START))
    later = START + timedelta(minutes=5)
    file.write(fold.observe(_pod("db-0", later, "n2"), later))
    file.close(START + timedelta(hours=1))
    first, second = load_cluster_recording(tmp_path).pods
    assert (first.gone, first.node) == (later, "n1")
    assert (second.gone, second.node) == (None, "n2")
