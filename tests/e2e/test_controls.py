"""The operators' controls on a real cluster: a pause, and a rate budget across a restart and a handover."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.api.control_plane import ControlPlane, eventually
from tests.e2e.controller import Process, controller
from tests.e2e.history import History
from tests.e2e.world import Tree, World, pool, write_catalogue, write_settings
from tests.live.background import Cloud, cloud_on


@pytest.fixture
def cloud(cluster: ControlPlane, tmp_path: Path) -> Iterator[Cloud]:
    """A cloud that lives on whatever happens to the controller."""
    with cloud_on(cluster.kubeconfig, write_catalogue(tmp_path)) as found:
        yield found


@contextlib.contextmanager
def started(cluster: ControlPlane, folder: Path, name: str) -> Iterator[Process]:
    """Run a controller under a name of its own."""
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(folder)), "--identity", name]
    settings = write_settings(folder, validationDelay="0s", leaseDuration="4s", renewDeadline="3s", retryPeriod="1s")
    with controller(folder, name, *flags, "--settings", str(settings)) as process:
        yield process


def gone(history: History) -> list[str]:
    """Return the claims whose deletion has begun."""
    return sorted({entry.name for entry in history.entries if entry.kind == "NodeClaim" and entry.is_leaving})


def noted(world: World, tree: Tree) -> list[Tree]:
    """Return the history on a pool."""
    _, found = world.api.request("GET", f"/apis/karpenter.sh/v1/nodepools/{tree['metadata']['name']}")
    annotations = found["metadata"].get("annotations") or {}
    entries: list[Tree] = json.loads(annotations.get("dovetail.dev/recent-disruptions", "[]"))
    return entries


def test_a_rate_budget_holds_across_a_restart_and_a_handover(
    cluster: ControlPlane, world: World, history: History, cloud: Cloud, tmp_path: Path
) -> None:
    """Two of five empty nodes go; neither the same controller started anew nor another one takes a third."""
    web = world.pool(pool("web", consolidateAfter="Never", budgets=[{"nodes": "2", "per": "1h"}]))
    for number in range(5):
        world.node(f"n{number}", web)
    world.patch(web, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
    with started(cluster, tmp_path, "first") as first:
        eventually(lambda: len(world.nodes()) == 3)
        assert sum(entry["nodes"] for entry in noted(world, web)) == 2
        first.process.kill()
        first.process.wait()
    for name in ("first", "second"):
        with started(cluster, tmp_path, name) as again:
            again.wait_for("leading")
            rounds = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count"
            eventually(lambda again=again, rounds=rounds: again.metric(rounds) >= 1)
            assert len(world.nodes()) == 3
            assert len(gone(history)) == 2
    world.patch(web, {"metadata": {"annotations": {"dovetail.dev/recent-disruptions": None}}})
    with started(cluster, tmp_path, "third"):
        eventually(lambda: len(world.nodes()) == 1)


def test_pause_and_resume(
    cluster: ControlPlane,
    world: World,
    history: History,
    cloud: Cloud,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A paused pool keeps its empty nodes, the other one does not; after resume they go."""
    held = world.pool(pool("held", consolidateAfter="Never", budgets=[{"nodes": "100%"}]))
    free = world.pool(pool("free", consolidateAfter="Never", budgets=[{"nodes": "100%"}]))
    world.node("h", held)
    world.node("f", free)
    config = ["--kubeconfig", str(cluster.kubeconfig)]
    assert main(["pause", "held", "--for", "2h", "--reason", "freeze", *config]) == 0
    assert "held until 2" in capsys.readouterr().out
    for tree in (held, free):
        world.patch(tree, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
    with started(cluster, tmp_path, "one"):
        eventually(lambda: set(world.nodes()) == {"h"})
        assert main(["pause", "held", "unknown", *config]) == 2
        assert "unknown" in capsys.readouterr().err
        assert main(["resume", "--all", *config]) == 0
        eventually(lambda: not world.nodes())
