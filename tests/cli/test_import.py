"""`dovetail import prometheus`: chunks, resuming, what is missing and guessed, and every bad answer in one sentence."""

import asyncio
import json
import shutil
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from dovetail.api.catalogue import load_catalogue
from dovetail.api.findings import InputError
from dovetail.cli.main import main
from dovetail.live.prometheus import ImportPlan, SeriesReader
from dovetail.recordings.read import ClusterRecording, load_cluster_recording
from dovetail.recordings.trimmed import trimmed
from dovetail.sim.recorded import Reality, play_recorded, policy_of_today
from tests.support.fake_prometheus import KARPENTER, RecordedSeries, fake_prometheus

DATA = Path(__file__).parents[1] / "recordings" / "data"
TYPES = DATA / "kwok-types.json.gz"


@pytest.fixture(scope="module")
def recording() -> ClusterRecording:
    """Return 26 minutes of the real Karpenter."""
    return load_cluster_recording(DATA / "off-peak")


@pytest.fixture(scope="module")
def capture(recording: ClusterRecording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cluster as it was in the middle of the recording, as a file."""
    path = tmp_path_factory.mktemp("capture") / "cluster.json"
    cluster = recording.cluster_at(recording.begins + timedelta(minutes=10))
    kinds = (cluster.node_pools, cluster.nodes, cluster.node_claims, cluster.pods, cluster.replica_sets)
    versions = {"NodePool": "karpenter.sh/v1", "NodeClaim": "karpenter.sh/v1", "ReplicaSet": "apps/v1"}
    trees = [trimmed(item) for kind in kinds for item in kind]
    items = [{"apiVersion": versions.get(tree["kind"], "v1"), **tree} for tree in trees]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def _words(url: str, recording: ClusterRecording, folder: Path, *more: str) -> list[str]:
    length = int((recording.ends - recording.begins).total_seconds())
    until = recording.ends.isoformat()
    fixed = ["--url", url, "--for", f"{length}s", "--until", until, "-o", str(folder), "--catalog", str(TYPES)]
    return ["import", "prometheus", *fixed, *([] if "--step" in more else ["--step", "1m"]), *more]


def _says(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


def test_an_address_without_an_answer_leaves_nothing_behind(
    recording: ClusterRecording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was read, so the same folder serves another address."""
    for port in (9, 10):
        assert "can't be reached" in _says(capsys, _words(f"http://127.0.0.1:{port}", recording, tmp_path))
    assert [*tmp_path.iterdir()] == []


def test_both_replays_agree(recording: ClusterRecording, capture: Path, tmp_path: Path) -> None:
    """What is imported has the bill, the restarts and the nodes of what was recorded, and so has its replay."""
    with fake_prometheus(RecordedSeries(recording)) as prometheus:
        assert main(_words(prometheus.url, recording, tmp_path / "rec", "-f", str(capture), "--step", "15s")) == 0
    imported = load_cluster_recording(tmp_path / "rec")
    real, found = Reality(recording=recording).figures(), Reality(recording=imported).figures()
    assert found["cost"] == pytest.approx(real["cost"], rel=0.05)
    assert found["podsDisrupted"] == pytest.approx(real["podsDisrupted"], rel=0.1)
    reasons = [sum(claim.reason == "Underutilized" for claim in each.claims) for each in (recording, imported)]
    assert reasons[0] == reasons[1]
    replays = [
        play_recorded(each, load_catalogue(TYPES), (policy_of_today(each),), seeds=1).calibration.simulated["cost"]
        for each in (recording, imported)
    ]
    assert replays[1] == pytest.approx(replays[0], rel=0.05)


def test_what_is_missing_and_guessed_is_said(
    recording: ClusterRecording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Karpenter's series and without a capture, types come from labels, and pools and reasons are guesses."""
    with fake_prometheus(RecordedSeries(recording, lacking=KARPENTER)) as prometheus:
        assert main(_words(prometheus.url, recording, tmp_path / "rec")) == 0
    said = capsys.readouterr().err
    assert "missing: pods that lived for less than 60 s" in said
    assert "guessed: NodePool default: Karpenter's defaults" in said
    assert "guessed: why nodes left" in said
    imported = load_cluster_recording(tmp_path / "rec")
    assert any("NodePool default" in text for text in imported.guessed)
    assert Reality(recording=imported).figures()["cost"] == pytest.approx(
        Reality(recording=recording).figures()["cost"], rel=0.05
    )


def test_an_import_goes_on_where_it_stopped(
    recording: ClusterRecording, capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second start asks only for what is missing, and gives the same bytes as one that was not interrupted."""
    folder = tmp_path / "rec"

    def broken(what: str, params: dict[str, str]) -> tuple[int, bytes] | None:
        late = what == "query_range" and float(params["start"]) > recording.begins.timestamp() + 600
        return (400, b'{"status": "error", "errorType": "bad_data", "error": "no"}') if late else None

    def short(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dovetail.live.prometheus._HOUR", 600.0)

    with pytest.MonkeyPatch.context() as patch:
        short(patch)
        with fake_prometheus(RecordedSeries(recording), broken) as prometheus:
            assert "refused: no" in _says(capsys, _words(prometheus.url, recording, folder, "-f", str(capture)))
            assert not (folder / "manifest.json").exists()
            first = prometheus.url
        with fake_prometheus(RecordedSeries(recording)) as prometheus:
            assert "holds an import of something else" in _says(capsys, _words(prometheus.url, recording, folder))
            plan = folder / ".importing" / "plan.json"
            plan.write_text(plan.read_text().replace(first, prometheus.url))
            assert main(_words(prometheus.url, recording, folder, "-f", str(capture))) == 0
            begins = {float(params["start"]) for what, params in prometheus.asked if what == "query_range"}
            assert min(begins) > recording.begins.timestamp() + 400
            assert main(_words(prometheus.url, recording, tmp_path / "whole", "-f", str(capture))) == 0
    files = [sorted(path.name for path in each.iterdir()) for each in (folder, tmp_path / "whole")]
    assert files[0] == files[1]
    assert ".importing" not in files[0]


def test_a_window_that_is_too_much_is_halved(recording: ClusterRecording, tmp_path: Path) -> None:
    """A server that times out on half an hour is asked for less at once."""

    def slow(what: str, params: dict[str, str]) -> tuple[int, bytes] | None:
        if what == "query_range" and float(params["end"]) - float(params["start"]) > 500:
            return 503, b'{"status": "error", "errorType": "timeout", "error": "query timed out"}'
        return None

    with fake_prometheus(RecordedSeries(recording), slow) as prometheus:
        assert main(_words(prometheus.url, recording, tmp_path / "rec")) == 0
    whole = Reality(recording=load_cluster_recording(tmp_path / "rec")).figures()
    assert whole["cost"] == pytest.approx(Reality(recording=recording).figures()["cost"], rel=0.05)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, b"<html><body>Sign in</body></html>"), "answers with a web page"),
        ((302, b""), "redirects"),
        ((401, b"no"), "refused the credentials (401); give --token-file"),
        ((200, b'{"hello": 1}'), "does not answer as Prometheus does"),
        ((400, b'{"status":"error","errorType":"bad_data","error":"parse error"}'), "refused: parse error"),
        ((504, b"gateway"), "can't answer"),
    ],
)
def test_bad_answers_are_one_sentence(
    answer: tuple[int, bytes],
    said: str,
    recording: ClusterRecording,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever a server answers that is not Prometheus' answer is named, and nothing is left that looks whole."""

    def respond(what: str, params: dict[str, str]) -> tuple[int, bytes]:
        return answer

    with fake_prometheus(RecordedSeries(recording), respond) as prometheus:
        assert said in _says(capsys, _words(prometheus.url, recording, tmp_path / "rec"))
    assert not list((tmp_path / "rec").glob("*.ndjson.gz"))


def test_a_prometheus_that_never_answers_is_one_sentence(recording: ClusterRecording, tmp_path: Path) -> None:
    """A server that takes the question and says nothing is given up, and nothing is left that looks whole."""
    answered = threading.Event()

    def silent(what: str, params: dict[str, str]) -> tuple[int, bytes]:
        answered.wait(60)
        return 500, b""

    ends = recording.ends.timestamp()
    with fake_prometheus(RecordedSeries(recording), silent) as prometheus:
        plan = ImportPlan(url=prometheus.url, match="", length=600.0, step=60.0, begins=ends - 600, ends=ends)
        reader = SeriesReader(plan=plan, folder=tmp_path, timeout=0.2)
        try:
            with pytest.raises(InputError, match=r"can't answer \(no answer within 0.2 s\); try again, or check --url"):
                asyncio.run(reader.read())
        finally:
            answered.set()
    assert list(tmp_path.iterdir()) == []


def test_series_that_lack_something_are_refused(
    recording: ClusterRecording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without kube-state-metrics, requests, sizes or types there is no recording; the words say what to change."""
    cases: dict[tuple[str, ...], str] = {
        ("kube_node_info",): "no series of kube-state-metrics",
        ("kube_pod_container_resource_requests",): "there are no requests of pods",
        ("kube_replicaset_spec_replicas",): "there are no sizes of ReplicaSets",
        (*KARPENTER, "kube_node_labels"): "--metric-labels-allowlist=nodes=[",
    }
    for number, (lacking, said) in enumerate(cases.items()):
        with fake_prometheus(RecordedSeries(recording, lacking=lacking)) as prometheus:
            assert said in _says(capsys, _words(prometheus.url, recording, tmp_path / f"rec{number}"))


def test_two_clusters_in_one_prometheus(
    recording: ClusterRecording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Prometheus that holds several clusters is refused until one is picked."""

    def two(what: str, params: dict[str, str]) -> tuple[int, bytes] | None:
        rows = [{"metric": {"cluster": name}, "value": [0, "1"]} for name in ("a", "b")]
        found = {"status": "success", "data": {"resultType": "vector", "result": rows}}
        return (200, json.dumps(found).encode()) if what == "query" and "cluster=" not in params["query"] else None

    with fake_prometheus(RecordedSeries(recording), two) as prometheus:
        assert "holds 2 clusters (a, b); pick one with --match" in _says(
            capsys, _words(prometheus.url, recording, tmp_path / "rec")
        )
        assert main(_words(prometheus.url, recording, tmp_path / "one", "--match", 'cluster="a"')) == 0


def test_hours_without_samples_are_a_gap(recording: ClusterRecording, tmp_path: Path) -> None:
    """A time in which Prometheus was down is a gap; what ran before and after it goes on."""
    down = (recording.begins + timedelta(minutes=8), recording.begins + timedelta(minutes=16))
    with fake_prometheus(RecordedSeries(recording, down=(down,))) as prometheus:
        assert main(_words(prometheus.url, recording, tmp_path / "rec")) == 0
    (gap,) = load_cluster_recording(tmp_path / "rec").gaps
    assert abs(gap.begins - down[0]) < timedelta(seconds=90)
    assert abs(gap.ends - down[1]) < timedelta(seconds=90)


def test_a_full_disk_leaves_nothing_that_looks_whole(
    recording: ClusterRecording, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up while files are written is one sentence, and the folder is not a recording."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    folder = tmp_path / "rec"
    with fake_prometheus(RecordedSeries(recording)) as prometheus:
        with monkeypatch.context() as patch:
            patch.setattr("dovetail.recordings.store.HourFile.write", full)
            said = _says(capsys, _words(prometheus.url, recording, folder))
        assert "can't be written (No space left on device)" in said
        assert not list(folder.glob("*.ndjson.gz"))
        assert main(_words(prometheus.url, recording, folder)) == 0
        assert "has a recording already" in _says(capsys, _words(prometheus.url, recording, folder))
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "localhost:9090", "--for", "1h"], "--url is localhost:9090"),
        (["--url", "http://127.0.0.1:1", "--for", "soon"], "--for is soon"),
        (["--url", "http://127.0.0.1:1", "--for", "1h", "--until", "later"], "--until is later"),
        (["--url", "http://127.0.0.1:1", "--for", "1h"], "can't be reached"),
        (["--url", "http://127.0.0.1:1", "--for", "1h", "--token-file", "/nowhere"], "--token-file /nowhere"),
    ],
)
def test_wrong_words(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every wrong flag is named."""
    assert said in _says(capsys, ["import", "prometheus", *words, "-o", str(tmp_path / "rec")])
