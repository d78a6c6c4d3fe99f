"""A real Prometheus and a real kube-state-metrics beside a real control plane: what is imported is what happened."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from dovetail.api.catalogue import load_catalogue
from dovetail.recordings.read import load_cluster_recording
from dovetail.sim.recorded import Reality, play_recorded, policy_of_today
from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import Process
from tests.support.e2e_world import Tree, World, pool, write_catalogue
from tests.support.fixtures import require
from tests.support.monitoring import monitoring

COURSE_SECONDS = 150.0
"""Long enough that the edges, which an import knows to a second or two, are within the 5 %."""


def _dovetail(*words: str) -> list[str]:
    return [sys.executable, "-m", "dovetail.cli.main", *words]


def test_an_import_agrees_with_a_recording(
    world: World, running: Process, cluster: ControlPlane, tmp_path: Path
) -> None:
    """The same minutes, recorded and imported: bills within 5 %, those of the replays within 20 %, the same restarts.

    In a course of two and a half minutes a few seconds of one machine are a tenth of a replay's bill.
    """
    require(("prometheus", "kube-state-metrics"))
    catalogue, imported = write_catalogue(tmp_path), tmp_path / "imported"
    where = ("--kubeconfig", str(cluster.kubeconfig))
    web = world.pool(pool("web", consolidateAfter="Never"))
    for name in ("one", "two", "three"):
        world.node(name, web)
    world.fill("app", ["one", "two"])
    with monitoring(cluster, tmp_path / "monitoring", every="1s") as url:
        eventually(lambda: _nodes_known(url) == 3)
        _record(cluster, world, web, tmp_path / "recorded", catalogue)
        capture = tmp_path / "capture.json.gz"
        subprocess.run(_dovetail("snapshot", *where, "-o", str(capture)), check=True)
        recorded = load_cluster_recording(tmp_path / "recorded")
        length = f"{int((recorded.ends - recorded.begins).total_seconds())}s"
        time.sleep(2)  # the last scrape
        which = ("--url", url, "--for", length, "--until", recorded.ends.isoformat(), "--step", "1s")
        found = subprocess.run(
            _dovetail(
                "import", "prometheus", *which, "-f", str(capture), "--catalog", str(catalogue), "-o", str(imported)
            ),
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stderr
    recordings = (recorded, load_cluster_recording(imported))
    real = [Reality(recording=each).figures() for each in recordings]
    assert real[1]["cost"] == pytest.approx(real[0]["cost"], rel=0.05)
    assert real[0]["podsDisrupted"] == real[1]["podsDisrupted"]
    assert {claim.node for claim in recordings[1].claims} == {"one", "two", "three"}
    offered = load_catalogue(catalogue)
    replayed = [
        play_recorded(each, offered, (policy_of_today(each),), seeds=1).calibration.simulated["cost"]
        for each in recordings
    ]
    assert replayed[1] == pytest.approx(replayed[0], rel=0.20)


def _nodes_known(url: str) -> int:
    """Return how many nodes Prometheus has scraped: before it has all, an import would miss their first seconds."""
    query = urllib.parse.urlencode({"query": "kube_node_info"})
    with urllib.request.urlopen(f"{url}/api/v1/query?{query}") as answer:
        return len(json.load(answer)["data"]["result"])


def _record(cluster: ControlPlane, world: World, web: Tree, folder: Path, catalogue: Path) -> None:
    """Record while the pool's nodes are consolidated."""
    recorder = subprocess.Popen(
        _dovetail("record", "-o", str(folder), "--kubeconfig", str(cluster.kubeconfig), "--catalog", str(catalogue)),
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert recorder.stderr is not None
    try:
        assert "recording into" in recorder.stderr.readline()
        began = time.monotonic()
        time.sleep(15)
        world.patch(web, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
        eventually(lambda: "three" not in world.nodes())
        time.sleep(max(0.0, COURSE_SECONDS - (time.monotonic() - began)))
        recorder.send_signal(signal.SIGTERM)
        said = recorder.stderr.read()
        assert recorder.wait(30) == 0, said
    finally:
        recorder.kill()
        recorder.stderr.close()
        recorder.wait()
