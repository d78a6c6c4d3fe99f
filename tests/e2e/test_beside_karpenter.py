"""Beside the real Karpenter: it provisions and terminates, Dovetail decides, and neither undoes the other's work.

Runs where KARPENTER_BIN names a Karpenter v1.15 binary with the kwok provider (the main package `kwok` of its published
module); skips loudly elsewhere. The kubelets of its nodes are played by the built-in provider.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.control_plane import ControlPlane, eventually
from tests.e2e.controller import controller
from tests.e2e.history import History, history_of
from tests.e2e.world import Tree, World, pool, replica_set, write_settings
from tests.live.background import cloud_on

BINARY = os.environ.get("KARPENTER_BIN", "")
pytestmark = [
    pytest.mark.karpenter,
    pytest.mark.skipif(
        not BINARY, reason="NOT RUN beside the real Karpenter: KARPENTER_BIN names no Karpenter with the kwok provider"
    ),
]
ZONES = ("test-zone-a", "test-zone-b", "test-zone-c")
CORES = {"small": 2, "medium": 4, "large": 8}
PRICES = {"small": 0.10, "medium": 0.21, "large": 0.40}
NODES = 50
HELD = {"karpenter.sh/do-not-disrupt": "true", "dovetail.dev/hold": "true"}


def _offerings() -> list[tuple[str, str]]:
    return [("on-demand", zone) for zone in ZONES]


def _kwok_types() -> list[Tree]:
    """The machines as the kwok provider reads them."""
    return [
        {
            "name": name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": str(cores), "memory": f"{2 * cores}Gi", "pods": "110", "ephemeral-storage": "20Gi"},
            "offerings": [
                {
                    "Price": PRICES[name],
                    "Available": True,
                    "Requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [kind]},
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
                    ],
                }
                for kind, zone in _offerings()
            ],
        }
        for name, cores in CORES.items()
    ]


def _catalogue() -> Tree:
    """The same machines as Dovetail reads them."""
    types = []
    for name, cores in CORES.items():
        wanted = {
            "node.kubernetes.io/instance-type": [name],
            "kubernetes.io/arch": ["amd64"],
            "kubernetes.io/os": ["linux"],
            "topology.kubernetes.io/zone": list(ZONES),
            "karpenter.sh/capacity-type": ["on-demand"],
        }
        types.append(
            {
                "name": name,
                "requirements": [{"key": k, "operator": "In", "values": v} for k, v in wanted.items()],
                "capacity": {
                    "cpu": str(cores), "memory": f"{2 * cores}Gi", "pods": "110", "ephemeral-storage": "20Gi",
                },
                "overhead": {"cpu": "100m", "memory": "10Mi"},
                "offerings": [
                    {"capacityType": kind, "zone": zone, "price": PRICES[name], "available": True}
                    for kind, zone in _offerings()
                ],
            }
        )  # fmt: skip
    return {"instanceTypes": types}


def _open_crd(group: str, version: str, kind: str, plural: str, *, ready: bool = False) -> Tree:
    """A CRD that takes anything; a node class of it is ready from the start."""
    status: Tree = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if ready:
        stamp = "2026-01-01T00:00:00Z"
        condition = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": stamp}
        status["default"] = {"conditions": [condition]}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "status": status},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version, "served": True, "storage": True,
                    "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _karpenter(plane: ControlPlane, folder: Path) -> Iterator[Path]:
    """Karpenter as a process of its own; gives its log."""
    types, log = folder / "instance_types.json", folder / "karpenter.log"
    types.write_text(json.dumps(_kwok_types()))
    environment = {
        **os.environ,
        "KUBECONFIG": str(plane.kubeconfig),
        "INSTANCE_TYPES_FILE_PATH": str(types),
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": str(_free_port()),
        "HEALTH_PROBE_PORT": str(_free_port()),
        "KARPENTER_SERVICE": "karpenter",
        "SYSTEM_NAMESPACE": "kube-system",
        "LOG_LEVEL": "debug",
    }
    with log.open("wb") as file:
        process = subprocess.Popen([BINARY], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)
    try:
        yield log
        assert process.poll() is None, log.read_text()[-3000:]
    finally:
        process.kill()
        process.wait()


def _kwok_pool(name: str, **disruption: Any) -> Tree:
    tree = pool(name, **disruption)
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    tree["spec"]["template"]["spec"]["nodeClassRef"] = reference
    return tree


def _own_disruptions(log: Path) -> list[str]:
    """What Karpenter says that it disrupts of its own will."""
    return [line for line in log.read_text(errors="replace").splitlines() if re.search(r'"disrupting node', line)]


@pytest.fixture
def plane(new_api_server: Callable[..., ControlPlane]) -> ControlPlane:
    """A control plane of its own, with what Karpenter wants to find."""
    found = new_api_server(whole=True)
    with found.client() as api:
        api.install_crds(
            [
                _open_crd("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses", ready=True),
                _open_crd("karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays"),
            ]
        )
        api.apply(
            {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}
        )
    return found


def _dovetail(plane: ControlPlane, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dovetail.cli.main", *words, "--kubeconfig", str(plane.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _spread(app: str, replicas: int, cpu: str) -> Tree:
    """Pods that want a node each: fifty nodes come, of mixed use."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"spread": "yes"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tree = replica_set(app, replicas, cpu, affinity=anti)
    tree["spec"]["template"]["metadata"]["labels"]["spread"] = "yes"
    return tree


def _wait_nodes(world: World, count: int) -> None:
    def ready() -> bool:
        nodes = world.nodes().values()
        return len(nodes) == count and all(
            node["metadata"]["labels"].get("karpenter.sh/initialized") == "true" for node in nodes
        )

    eventually(ready, seconds_max=240)


def _fifty_nodes_of_mixed_use(world: World) -> None:
    """Karpenter provisions a node for each pod that wants one; then most of those pods go and small ones stay."""
    world.create(_kwok_pool("web", consolidateAfter="10s", budgets=[{"nodes": "20%"}]))
    world.create(_spread("wide", NODES, "1500m"))
    world.wait_running("wide", NODES)
    _wait_nodes(world, NODES)
    world.create(replica_set("small", NODES, "100m"))
    world.wait_running("small", NODES)


def _shrink(world: World) -> None:
    tree = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "wide", "namespace": "default"}}
    world.patch(tree, {"spec": {"replicas": NODES // 5}})
    eventually(lambda: len(world.pods("wide")) == NODES // 5, seconds_max=120)


def _claims_deleted_by_others(history: History) -> list[str]:
    """Nodes whose claims began to leave without Dovetail's taint on them: somebody else's doing."""
    found = []
    for entry in history.entries:
        if entry.kind == "NodeClaim" and entry.is_leaving and entry.type == "MODIFIED":
            node = (entry.object.get("status") or {}).get("nodeName", "")
            tainted = history.first("Node", lambda e, n=node: e.name == n and e.is_tainted)
            if tainted is None or tainted.version > entry.version:
                found.append(entry.name)
    return sorted(set(found))


def test_fifty_nodes_are_consolidated_while_karpenter_provisions(plane: ControlPlane, tmp_path: Path) -> None:
    """Dovetail takes the nodes together, Karpenter launches, drains and provisions, and disrupts nothing itself."""
    catalogue = tmp_path / "catalogue.json"
    catalogue.write_text(json.dumps(_catalogue()))
    settings = write_settings(tmp_path, validationDelay="5s")
    flags = ("--kubeconfig", str(plane.kubeconfig), "--catalog", str(catalogue), "--settings", str(settings))
    kubelets = cloud_on(plane.kubeconfig, catalogue, only_kubelets=True, machines="kwok://")
    with plane.client() as api, kubelets, _karpenter(plane, tmp_path) as log:
        world = World(api)
        with controller(tmp_path, "dovetail", *flags) as process:
            process.wait_for("leading")
            _fifty_nodes_of_mixed_use(world)
            eventually(
                lambda: all(
                    HELD.items() <= (node["metadata"].get("annotations") or {}).items()
                    for node in world.nodes().values()
                ),
                seconds_max=60,
            )
            assert _own_disruptions(log) == []
            with history_of(plane) as history:
                _shrink(world)
                eventually(lambda: len(world.nodes()) <= NODES // 2, seconds_max=400)
                world.create(replica_set("late", 5, "1500m"))
                world.wait_running("late", 5)
                assert _own_disruptions(log) == []
                assert _claims_deleted_by_others(history) == []
            done = [line for line in process.lines() if line.get("phase") == "done"]
            assert {line["action"] for line in done} & {"deleteCost", "replaceCost", "deleteEmpty"}
            assert process.metric("dovetail_realised_savings_dollars_per_hour_total") > 0
            eventually(lambda: not world.leftovers(), seconds_max=120)
        world.wait_running("small", NODES)


def test_karpenter_leaves_held_nodes_alone_and_takes_them_after_a_release(plane: ControlPlane, tmp_path: Path) -> None:
    """Under a hold an empty node stays although Karpenter's own rules would delete it; after `release` it goes."""
    catalogue = tmp_path / "catalogue.json"
    catalogue.write_text(json.dumps(_catalogue()))
    kubelets = cloud_on(plane.kubeconfig, catalogue, only_kubelets=True, machines="kwok://")
    with plane.client() as api, kubelets, _karpenter(plane, tmp_path) as log:
        world = World(api)
        tree = _kwok_pool("web", consolidateAfter="5s")
        tree["metadata"]["labels"] = {}
        world.create(tree)
        world.create(_spread("wide", 3, "1500m"))
        world.wait_running("wide", 3)
        _wait_nodes(world, 3)
        assert _dovetail(plane, "hold", "web").returncode == 0
        world.patch(
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "wide", "namespace": "default"}},
            {"spec": {"replicas": 0}},
        )
        eventually(lambda: not world.pods("wide"), seconds_max=60)
        time.sleep(40)  # its loop comes round every ten seconds, its validation takes fifteen
        assert len(world.nodes()) == 3
        assert _own_disruptions(log) == []
        assert _dovetail(plane, "release", "web").returncode == 0
        eventually(lambda: not world.nodes(), seconds_max=120)
        assert _own_disruptions(log)


def test_a_replacement_is_launched_by_karpenter_and_does_not_look_drifted(plane: ControlPlane, tmp_path: Path) -> None:
    """A NodeClaim that Dovetail makes is launched and initialized by Karpenter, held from the start, and no drift."""
    catalogue = tmp_path / "catalogue.json"
    catalogue.write_text(json.dumps(_catalogue()))
    settings = write_settings(tmp_path)
    flags = ("--kubeconfig", str(plane.kubeconfig), "--catalog", str(catalogue), "--settings", str(settings))
    kubelets = cloud_on(plane.kubeconfig, catalogue, only_kubelets=True, machines="kwok://")
    with plane.client() as api, kubelets, _karpenter(plane, tmp_path) as log:
        world = World(api)
        web = _kwok_pool("web", consolidateAfter="Never")
        world.create(web)
        world.create(_spread("wide", 1, "1500m"))
        world.wait_running("wide", 1)
        _wait_nodes(world, 1)
        (old,) = world.claims()
        with history_of(plane) as history, controller(tmp_path, "dovetail", *flags) as process:
            process.wait_for("leading")
            eventually(
                lambda: all(HELD.items() <= n["metadata"]["annotations"].items() for n in world.nodes().values())
            )
            world.patch(web, {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}})
            eventually(lambda: old not in world.claims(), seconds_max=180)
            world.wait_running("wide", 1)
            eventually(lambda: not world.leftovers())
            assert len(history.created()) == 1, "one replacement"
            time.sleep(20)
            (new,) = world.claims().values()
            drifted = [c for c in new["status"]["conditions"] if c["type"] == "Drifted" and c["status"] == "True"]
            assert drifted == []
            assert _own_disruptions(log) == []
