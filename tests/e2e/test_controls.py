"""The operators' controls on a real cluster: a pause, and a rate budget across a restart and a handover."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.support.background import Cloud, cloud_on
from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.controller import Process, controller
from tests.support.e2e_world import Tree, World, pod, pool, replica_set, write_catalogue, write_settings
from tests.support.history import History


@pytest.fixture
def cloud(cluster: ControlPlane, tmp_path: Path) -> Iterator[Cloud]:
    """Yield a cloud that lives on whatever happens to the controller."""
    with cloud_on(cluster.kubeconfig, write_catalogue(tmp_path)) as found:
        yield found


@contextlib.contextmanager
def started(cluster: ControlPlane, folder: Path, name: str) -> Iterator[Process]:
    """Run a controller with its own name."""
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
    """Two of five empty nodes are deleted; neither a restarted controller nor another one deletes a third."""
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
    assert noted(world, web)
    assert main(["release", "--all", "--kubeconfig", str(cluster.kubeconfig)]) == 0
    assert noted(world, web) == []


def test_pause_and_resume(
    cluster: ControlPlane,
    world: World,
    history: History,
    cloud: Cloud,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A paused pool keeps its empty nodes, the other one does not; after `resume` they are deleted."""
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


def deployment(app: str, replicas: int) -> Tree:
    """Build a Deployment that rolls without losing a pod and asks to be moved that way."""
    template = replica_set(app, replicas)["spec"]["template"]
    template["metadata"] = {"labels": {"app": app}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app, "namespace": "default", "annotations": {"dovetail.dev/surge": "true"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": app}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": template,
        },
    }


def is_ready(item: Tree) -> bool:
    """Return whether a pod is ready."""
    return conditions_of(item).get("Ready") == "True"


class Client:
    """Counts the ready pods of an app ten times a second."""

    def __init__(self, cluster: ControlPlane, app: str) -> None:
        self._cluster, self._app = cluster, app
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.counts: list[int] = []

    def _ask(self) -> None:
        with self._cluster.client() as api:
            found = World(api)
            while not self._over.wait(0.1):
                self.counts.append(sum(map(is_ready, found.pods(self._app))))

    def __enter__(self) -> "Client":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_one_replica_behind_a_pdb_moves_without_a_gap(
    cluster: ControlPlane, world: World, cloud: Cloud, tmp_path: Path
) -> None:
    """A drifted node with the only pod of a Deployment is replaced without a moment without a ready pod."""
    web = world.pool(pool("web", consolidateAfter="Never"))
    world.node("old", web)
    world.create(deployment("shop", 1))
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}}
    meta = {"name": "guard", "namespace": "default"}
    world.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})
    world.wait_running("shop", 1)
    eventually(lambda: any(map(is_ready, world.pods("shop"))))
    with Client(cluster, "shop") as client, started(cluster, tmp_path, "one"):
        world.patch(web, {"spec": {"template": {"metadata": {"labels": {"example.com/round": "two"}}}}})
        eventually(lambda: "old" not in world.nodes())
        world.wait_running("shop", 1)
        eventually(lambda: not world.leftovers())
    assert len(client.counts) > 10
    assert min(client.counts) >= 1


def test_a_node_whose_kubelet_died_is_repaired(
    cluster: ControlPlane, world: World, cloud: Cloud, tmp_path: Path
) -> None:
    """Its pods get a new node, and it goes, within the bounded drain."""
    rule = {"condition": "Ready", "status": "Unknown", "for": "1s", "drainFor": "0s"}
    web = world.pool(pool("web", consolidateAfter="Never", repair=[rule]))
    for name in ("sick", "well", "fine"):
        world.node(name, web)
    world.fill("app", ["sick", "well", "fine"])
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "sick"}}
    world.patch(node, {"metadata": {"annotations": {"dovetail.dev/stand-in-dead-kubelet": "true"}}})
    with started(cluster, tmp_path, "one") as process:
        eventually(lambda: "sick" not in world.nodes())
        world.wait_running("app", 3)
        assert process.said("", action="deleteUnhealthy") or process.said("", action="replaceUnhealthy")
    assert {"well", "fine"} <= set(world.nodes())


def test_a_roll_with_a_bad_image_stops_after_the_first_node(
    cluster: ControlPlane, world: World, cloud: Cloud, tmp_path: Path
) -> None:
    """If pods of the first node never become ready on the new one, the pool halts and the other nodes stay."""
    web = world.pool(
        pool("web", consolidateAfter="Never", budgets=[{"nodes": "1"}], health={"movedPodsReadyWithin": "2s"})
    )
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "app"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    for name in ("a", "b", "c"):
        world.node(name, web)
    world.fill("app", ["a", "b", "c"], affinity=affinity)
    bad = {"spec": {"template": {"metadata": {"labels": {"dovetail.dev/stand-in-bad-image": "true"}}}}}
    with started(cluster, tmp_path, "one") as process:
        world.patch(web, bad)

        def halted() -> bool:
            _, found = world.api.request("GET", "/apis/karpenter.sh/v1/nodepools/web")
            return "dovetail.dev/halted" in (found["metadata"].get("annotations") or {})

        eventually(halted)
        rounds = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count"
        before = process.metric(rounds)
        world.create(pod("poke", "poke", "b"))  # something changes, so that rounds go on
        eventually(lambda: process.metric(rounds) > before)
        assert len({"a", "b", "c"} & set(world.nodes())) == 2
