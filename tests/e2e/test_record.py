"""`dovetail record` and the controller's own recording on a real API server: what happened is in the files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dovetail.recordings.read import load_cluster_recording
from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import Process, controller
from tests.support.e2e_world import World, pool, write_catalogue, write_settings


def _recorder(cluster: ControlPlane, folder: Path, catalogue: Path, *flags: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "dovetail.cli.main", "record", "-o", str(folder)),
            *("--kubeconfig", str(cluster.kubeconfig), "--catalog", str(catalogue), *flags),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def test_a_life_is_recorded(world: World, running: Process, cluster: ControlPlane, tmp_path: Path) -> None:
    """A node that the controller removes is in the recording from its launch to its end, with price and reason."""
    folder = tmp_path / "rec"
    process = _recorder(cluster, folder, write_catalogue(tmp_path))
    assert process.stderr is not None
    try:
        assert "recording into" in process.stderr.readline()
        web = world.pool(pool("web", consolidateAfter="Never"))
        world.node("idle", web)
        world.patch(web, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
        eventually(lambda: "idle" not in world.nodes())
        eventually(lambda: not world.claims())
        time.sleep(5)  # a recorder on a busy machine hears of it a little later
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        assert process.wait(30) == 0, said
    finally:
        process.kill()
        process.stderr.close()
        process.wait()
    assert "wrote 1 files" in said
    read = load_cluster_recording(folder)
    (claim,) = read.claims
    assert (claim.node_pool, claim.instance_type, claim.price, claim.reason) == ("web", "small", "0.1", "Empty")
    assert claim.gone is not None
    assert claim.deleting is not None
    pools = [change for change in read.changes if change.kind == "NodePool"]
    assert len(pools) >= 2  # as it was created, and as it was changed
    assert read.missing == () or "NodePool" not in read.missing


def test_regret_of_a_live_cluster(world: World, running: Process, cluster: ControlPlane, tmp_path: Path) -> None:
    """A node that comes and goes while `regret --live` watches is one that lived under 15 minutes."""
    web = world.pool(pool("web", consolidateAfter="Never"))
    flags = ("--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(tmp_path)), "--no-advice")
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail.cli.main", "regret", "--live", "--for", "10m", *flags, "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    try:
        assert "recording into" in process.stderr.readline()
        time.sleep(5)  # the node must be younger than the first file, on a busy machine too
        world.node("idle", web)
        world.patch(web, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
        eventually(lambda: not world.claims())
        time.sleep(5)  # a recorder on a busy machine hears of it a little later
        process.send_signal(signal.SIGTERM)
        shown, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.wait()
    (found,) = json.loads(shown)["pools"]
    assert (found["nodePool"], found["shortLivedNodes"], found["moves"]) == ("web", 1, 0)
    eventually(lambda: running.metric("dovetail_regret_short_lived_nodes", nodepool="web") >= 1)


def test_a_killed_recorder_leaves_what_it_had(world: World, cluster: ControlPlane, tmp_path: Path) -> None:
    """After SIGKILL the files that were flushed can be read, and a second recorder goes on in the same folder."""
    folder = tmp_path / "rec"
    world.pool(pool("web"))
    for _ in range(2):
        process = _recorder(cluster, folder, write_catalogue(tmp_path))
        assert process.stderr is not None
        try:
            assert "recording into" in process.stderr.readline()
            eventually(lambda: list(folder.glob("*.ndjson.gz")))
            eventually(lambda: (folder / "manifest.json").exists())
        finally:
            process.kill()
            process.stderr.close()
            process.wait()
    read = load_cluster_recording(folder)
    assert any(change.kind == "NodePool" and change.name == "web" for change in read.changes)


def test_the_controller_records_beside_its_work(world: World, cluster: ControlPlane, tmp_path: Path) -> None:
    """An observing controller with the setting `recordings` writes the same form, and counts its bytes."""
    folder = tmp_path / "rec"
    settings = write_settings(tmp_path, recordings={"path": str(folder), "keep": "14d"})
    flags = ("--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(tmp_path)))
    world.pool(pool("web"))
    with controller(tmp_path, "observer", *flags, "--settings", str(settings), "--observe") as process:
        process.wait_for("recording")
        eventually(lambda: process.metric("dovetail_recording_bytes") > 0)
    read = load_cluster_recording(folder)
    assert [change.name for change in read.changes if change.kind == "NodePool"] == ["web"]
    assert read.gaps == ()
