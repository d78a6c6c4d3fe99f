"""Beside the real Karpenter with its gates on: static pools, buffers, overlays, default spread, DRA pods, attribution.

Runs where KARPENTER_BIN names a Karpenter v1.15 binary with the kwok provider; skips loudly elsewhere.
"""

import contextlib
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import controller
from tests.support.e2e_world import Tree, World, replica_set, write_settings
from tests.support.history import history_of
from tests.support.karpenter import BINARY, Beside, beside_karpenter, is_so, kwok_pool, nodes_of, spread, wait_nodes

pytestmark = [
    pytest.mark.karpenter,
    pytest.mark.xdist_group("karpenter"),
    pytest.mark.skipif(
        not BINARY, reason="NOT RUN beside the real Karpenter: KARPENTER_BIN names no Karpenter with the kwok provider"
    ),
]
Start = Callable[..., contextlib.AbstractContextManager[Beside]]


@pytest.fixture
def start(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> Start:
    """Return what starts Karpenter with these variables on a control plane of its own."""

    @contextlib.contextmanager
    def started(**environment: str) -> Iterator[Beside]:
        with beside_karpenter(new_api_server(whole=True), tmp_path, environment) as found:
            yield found

    return started


def _plan(beside: Beside, **settings: Any) -> Tree:
    """Return what `dovetail plan` says of the live cluster."""
    file = write_settings(beside.folder, **settings)
    command = [sys.executable, "-m", "dovetail.cli.main", "plan", "-o", "json", "--every-method"]
    command += ["--kubeconfig", str(beside.plane.kubeconfig), "--catalog", str(beside.folder / "catalogue.json")]
    done = subprocess.run([*command, "--settings", str(file)], capture_output=True, text=True, timeout=300, check=True)
    found: Tree = json.loads(done.stdout)
    return found


def _verdicts(plan: Tree) -> dict[str, str]:
    return {entry["name"]: entry["verdict"] for entry in plan["nodes"]}


def _drift(world: World, tree: Tree) -> None:
    world.patch(tree, {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}})


def _condition(item: Tree, kind: str) -> Tree:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), {})


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def _samples(port: int, name: str) -> list[str]:
    """Return the lines of a metric that Karpenter serves."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return [line for line in lines if line.startswith(name)]


def test_evictions_name_the_true_reason_and_both_count_them(start: Start, tmp_path: Path) -> None:
    """Karpenter's own counter of drained pods says Drifted; ours has its labels and lower-case reasons."""
    port = _free_port()
    with start(METRICS_PORT=str(port)) as beside:
        world = beside.world
        web = kwok_pool("web", consolidateAfter="Never")
        web["spec"]["template"]["spec"]["terminationGracePeriod"] = "30m"
        world.create(web)
        world.create(spread("wide", 1, "1500m"))
        world.wait_running("wide", 1)
        wait_nodes(world, 1)
        (old,) = world.claims()
        # The drain waits for this budget, so that no pod is gone before it is said why.
        guard = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "wide"}}},
        }
        world.create(guard)
        with history_of(beside.plane) as history, controller(tmp_path, "dovetail", *beside.flags()) as process:
            process.wait_for("leading")
            _drift(world, web)
            eventually(lambda: _condition(world.claims()[old], "DisruptionReason"), seconds_max=300)
            world.api.delete(guard)
            eventually(lambda: old not in world.claims(), seconds_max=300)
            said = history.first(
                "NodeClaim",
                lambda entry: entry.name == old and bool(_condition(entry.object, "DisruptionReason")),
            )
            assert said is not None
            assert said.is_leaving, "only after the deletion"
            assert _condition(said.object, "DisruptionReason")["reason"] == "Drifted"
            eventually(
                lambda: any('reason="Drifted"' in line for line in _samples(port, "karpenter_pods_drained_total"))
            )
            text = "\n".join(_samples(port, "karpenter_pods_drained_total"))
            assert "Forceful" not in text
            labels = {"decision": "replace", "reason": "drifted", "consolidation_type": ""}
            assert process.metric("karpenter_voluntary_disruption_decisions_total", **labels) == 1
            eventually(lambda: not world.leftovers())


def test_a_static_pool_is_refilled_by_karpenter(start: Start, tmp_path: Path) -> None:
    """Drifted nodes go one by one; no claim beyond the replicas is ever created, and the pool ends full and new."""
    with start(FEATURE_GATES="StaticCapacity=true") as beside:
        world = beside.world
        fixed = kwok_pool("fixed", budgets=[{"nodes": "1"}])
        fixed["spec"]["replicas"] = 2
        # A static claim is the bare template; the kwok provider wants to be told the type.
        small = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["small"]}
        fixed["spec"]["template"]["spec"]["requirements"].append(small)
        world.create(fixed)
        wait_nodes(world, 2)
        old = set(world.claims())
        with history_of(beside.plane) as history, controller(tmp_path, "dovetail", *beside.flags()) as process:
            process.wait_for("leading")
            _drift(world, fixed)
            eventually(lambda: len(world.claims()) == 2 and not old & set(world.claims()), seconds_max=400)
            active: set[str] = set(old)
            most = len(active)
            for entry in history.entries:
                if entry.kind == "NodeClaim":
                    gone = entry.is_leaving or entry.type == "DELETED"
                    active = active - {entry.name} if gone else active | {entry.name}
                    most = max(most, len(active))
            assert most == 2, "never a third that Karpenter would delete at once"
            actions = {line["action"] for line in process.lines() if line.get("phase") == "done"}
            assert actions == {"deleteDrifted"}


def test_a_node_with_resource_claims_stays(start: Start, tmp_path: Path) -> None:
    """Of two drifted nodes the one with a DRA pod is left, by both; the other one is replaced."""
    with start() as beside:
        world = beside.world
        web = kwok_pool("web", consolidateAfter="Never")
        world.create(web)
        world.create(spread("wide", 2, "1500m"))
        world.wait_running("wide", 2)
        wait_nodes(world, 2)
        held = min(world.nodes())
        spec = {
            "nodeName": held,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "10m"}}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "missing"}],
        }
        meta = {"name": "dra", "namespace": "default"}
        world.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        other = next(name for name in world.nodes() if name != held)
        with controller(tmp_path, "dovetail", *beside.flags()) as process:
            process.wait_for("leading")
            _drift(world, web)
            eventually(lambda: other not in world.nodes(), seconds_max=300)
            eventually(lambda: not world.leftovers())
            assert held in world.nodes()
        entry = next(each for each in _plan(beside)["nodes"] if each["name"] == held)
        assert entry["verdict"] == "dynamic-resources"
        assert "default/dra" in entry["why"]


def test_a_shrunk_pod_keeps_its_room_until_it_is_actuated(start: Start) -> None:
    """After a resize in place the node has no room for the other's pod until the kubelet reports the new size."""
    with start() as beside:
        world = beside.world
        world.create(kwok_pool("web", consolidateAfter="1s", consolidationSavingsThreshold=0))
        world.create(spread("wide", 2, "1500m"))
        world.wait_running("wide", 2)
        wait_nodes(world, 2)
        command = [sys.executable, "-m", "dovetail.cli.main", "hold", "--all"]
        subprocess.run([*command, "--kubeconfig", str(beside.plane.kubeconfig)], check=True, timeout=120)
        world.api.delete(
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "wide", "namespace": "default"}}
        )
        eventually(lambda: not world.pods("wide"))
        first, second = sorted(world.nodes())
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1500m"}}}
        for name, node in (("one", first), ("two", second)):
            meta = {"name": name, "namespace": "default", "labels": {"app": "sized"}}
            spec = {"nodeName": node, "containers": [container]}
            world.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        eventually(lambda: all(pod["status"].get("phase") == "Running" for pod in world.pods("sized")))

        def resize(name: str, cpu: str) -> None:
            small = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
            path = f"/api/v1/namespaces/default/pods/{name}/resize"
            status, body = world.api.request("PATCH", path, small, kind="application/strategic-merge-patch+json")
            assert status == 200, body

        def report(name: str, cpu: str) -> None:
            given = {"name": "c", "image": "none", "imageID": "", "ready": True, "restartCount": 0}
            given |= {"resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
            path = f"/api/v1/namespaces/default/pods/{name}/status"
            patch = {"status": {"containerStatuses": [given]}}
            status, body = world.api.request("PATCH", path, patch, kind="application/strategic-merge-patch+json")
            assert status == 200, body

        for name in ("one", "two"):
            report(name, "1500m")
            resize(name, "100m")
        eventually(
            lambda: (
                {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in world.pods("sized")}
                == {"100m"}
            )
        )
        assert "eligible" not in _verdicts(_plan(beside)).values()
        for name in ("one", "two"):
            report(name, "100m")
        eventually(lambda: "eligible" in _verdicts(_plan(beside)).values(), seconds_max=120)


def test_overlays_are_seen_and_priced(start: Start) -> None:
    """Karpenter validates an overlay; that shows the gate, and the node costs what the overlay says."""
    with start(FEATURE_GATES="NodeOverlay=true") as beside:
        world = beside.world
        world.create(kwok_pool("web", consolidateAfter="0s"))
        requirements = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["small"]}]
        overlay = {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": "cheap"},
            "spec": {"requirements": requirements, "price": "0.01"},
        }
        world.create(overlay)
        eventually(lambda: is_so(world.api.get(overlay) or {}, "ValidationSucceeded"))
        world.create(spread("wide", 1, "1500m"))
        world.wait_running("wide", 1)
        wait_nodes(world, 1)
        found = _plan(beside)
        assert found["karpenter"]["featureGates"]["NodeOverlay"] is True
        prices = {entry["price"] for method in found["methods"] for entry in method["candidates"]}
        assert prices <= {0.01, "0.01"}
        assert prices


def test_a_node_for_a_buffer_is_not_empty(start: Start, tmp_path: Path) -> None:
    """Karpenter opens a node for a CapacityBuffer; Dovetail leaves it while the buffer is there, and takes it after."""
    with start(FEATURE_GATES="CapacityBuffer=true") as beside:
        world = beside.world
        world.create(kwok_pool("web", consolidateAfter="1s"))
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
        meta = {"name": "spare", "namespace": "default"}
        template = {"metadata": {"labels": {"app": "spare"}}, "spec": {"containers": [container]}}
        world.create({"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": template})
        buffer = {
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": meta,
            "spec": {"podTemplateRef": {"name": "spare"}, "replicas": 1},
        }
        world.create(buffer)
        wait_nodes(world, 1)
        (node,) = nodes_of(world, "web")
        eventually(lambda: _verdicts(_plan(beside)).get(node) == "capacity-buffer", seconds_max=180)
        found = _plan(beside)
        assert found["actions"] == []
        (row,) = found["karpenter"]["buffers"]
        assert (row["buffer"], row["carried"]) == ("default/spare", 1)
        world.api.delete(buffer)
        with controller(tmp_path, "dovetail", *beside.flags()) as process:
            process.wait_for("leading")
            eventually(lambda: node not in world.nodes(), seconds_max=300)


def test_default_spread_keeps_what_karpenter_spread(start: Start) -> None:
    """Karpenter spreads pods by its configuration; with the same settings Dovetail keeps their nodes apart."""
    constraint = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    config = {"podTopologySpread": {"defaultConstraints": [constraint]}}
    with start(SCHEDULER_CONFIG=json.dumps(config)) as beside:
        world = beside.world
        world.create(kwok_pool("web", consolidateAfter="0s", consolidationSavingsThreshold=0))
        meta = {"name": "app", "namespace": "default"}
        ports = [{"port": 80}]
        world.create(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": meta,
                "spec": {"selector": {"app": "app"}, "ports": ports},
            }
        )
        world.create(replica_set("app", 2, "100m"))
        world.wait_running("app", 2)
        # Karpenter counts one per host; kube-scheduler, without the same defaults, may still put both on one.
        eventually(lambda: len(world.nodes()) == 2, seconds_max=120)
        wait_nodes(world, 2)
        told = _plan(beside, karpenter={"schedulerConfig": config})
        alone = _plan(beside)
        busy = {pod["spec"]["nodeName"] for pod in world.pods("app")}
        if len(busy) == 2:
            moves = [action for action in told["actions"] if action["action"] == "deleteCost"]
            assert moves == []
            assert any(action["action"] == "deleteCost" for action in alone["actions"])
        assert any("default topology spread" in text for text in told["karpenter"]["assumed"])
