"""When a captured cluster is judged: at the time of its capture."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dovetail.api.reading.capture_time import capture_time
from dovetail.api.reading.decode import decode_objects, load_cluster
from dovetail.cli.main import main
from dovetail.live.capture import dump
from dovetail.model.cluster import Cluster, cluster_of

PRESENT = datetime(2026, 6, 1, tzinfo=UTC)


def node(**status: object) -> dict[str, object]:
    """Build a Node document."""
    meta = {"name": "a", "creationTimestamp": "2026-05-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


def pod(**status: object) -> dict[str, object]:
    """Build a Pod document."""
    meta = {"name": "p", "namespace": "d", "creationTimestamp": "2026-05-02T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": status}


def pool() -> dict[str, object]:
    """Build a NodePool document with a time."""
    meta = {"name": "x", "creationTimestamp": "2026-05-20T00:00:00Z"}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta, "spec": {}}


@pytest.mark.parametrize(
    ("documents", "at", "exact"),
    [
        ([node(), pod()], "2026-05-02T00:00:00Z", False),
        ([node(), pod(startTime="2026-05-02T00:00:09Z")], "2026-05-02T00:00:09Z", False),
        ([node(), pod(startTime="9999-01-01T00:00:00Z")], "2026-05-02T00:00:00Z", False),
        (
            [node(conditions=[{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-05-09T00:00:00Z"}])],
            "2026-05-09T00:00:00Z",
            False,
        ),
        (
            [node(), {"apiVersion": "dovetail.dev/v1", "kind": "Capture", "capturedAt": "2026-05-03T04:05:06Z"}],
            "2026-05-03T04:05:06Z",
            True,
        ),
        ([pool()], None, False),
    ],
)
def test_the_time_of_a_capture(tmp_path: Path, documents: list[object], at: str | None, exact: bool) -> None:
    """The snapshot's own time counts, else the latest time before the present; manifests have none."""
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    found = capture_time(load_cluster([path]), PRESENT)
    if at is None:
        assert found is None
    else:
        assert found is not None
        assert (found.at, found.is_exact) == (datetime.fromisoformat(at), exact)


def test_a_snapshot_carries_its_time() -> None:
    """What `dovetail snapshot` writes is read back with the same time, and the Capture is no unknown kind."""
    taken = datetime(2026, 5, 3, 4, 5, 6, tzinfo=UTC)
    objects = decode_objects(json.dumps(node()).encode()).objects
    empty = cluster_of(objects)
    written = dump(Cluster(nodes=empty.nodes, captured_at=taken))
    again = decode_objects(written)
    assert again.captured_at == taken
    assert again.unknown_kinds == {}


def test_plan_says_which_time_it_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --now, `plan` looks from the time of the capture and says so; `--now now` is the present."""
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node(), pod()]}))
    arguments = ["plan", "-f", str(path), "--catalog", "aws:us-east-1", "-o", "json"]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["now"] == "2026-05-02T00:00:00Z"
    assert "the latest time found in it" in shown.err
    assert main([*arguments, "--now", "now"]) == 0
    assert not json.loads(capsys.readouterr().out)["now"].startswith("2026-05-02")
