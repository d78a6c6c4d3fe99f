"""The real Karpenter beside which Dovetail is tested: its process, which may die and come back, its pools, its words.

KARPENTER_BIN names the program: Karpenter with the kwok provider, v1.15 or older (docs/supported-versions.md). The
kubelets of its nodes are played by the built-in provider; nothing else of the cluster is.
"""

import contextlib
import copy
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.api.crds.definitions import crds
from tests.support.background import Cloud, cloud_on
from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.e2e_world import CORES, PRICES, Tree, World, catalogue, pool, replica_set, write_settings

BINARY = os.environ.get("KARPENTER_BIN", "")
ZONES = ("test-zone-a", "test-zone-b", "test-zone-c")
_PODS_AND_DISK = {"pods": "110", "ephemeral-storage": "20Gi"}
HELD = {"karpenter.sh/do-not-disrupt": "true", "dovetail.dev/hold": "true"}


def _kwok_types(zones: Sequence[str]) -> list[Tree]:
    """Return the machines as the kwok provider reads them."""
    return [
        {
            "name": name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": str(cores), "memory": f"{2 * cores}Gi", **_PODS_AND_DISK},
            "offerings": [
                {
                    "Price": PRICES[name],
                    "Available": True,
                    "Requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
                    ],
                }
                for zone in zones
            ],
        }
        for name, cores in CORES.items()
    ]


def kwok_catalogue() -> Tree:
    """Return the same machines as Dovetail reads them."""
    return catalogue(ZONES, overhead="10Mi", capacity=_PODS_AND_DISK)


def _open_crd(group: str, version: str, kind: str, plural: str, *, ready: bool = False, scope: str = "Cluster") -> Tree:
    """Return a CRD that takes anything; a node class of it is ready from the start."""
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
            "scope": scope,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version, "served": True, "storage": True,
                    "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }  # fmt: skip


def _nodeclass() -> Tree:
    return {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}


def prepare(plane: ControlPlane) -> None:
    """Create what Karpenter needs, beside NodePools and NodeClaims."""
    with plane.client() as api:
        api.install_crds(
            [
                _open_crd("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses", ready=True),
                _open_crd("karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays"),
                _open_crd("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer", "capacitybuffers", scope="Namespaced"),
            ]
        )
        api.apply(_nodeclass())


class Karpenter:
    """Karpenter as a process of its own; all that it says, in whichever life, goes to one log."""

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        *,
        zones: Sequence[str] = ZONES,
        level: str = "debug",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = folder / "karpenter.log"
        types = folder / "instance_types.json"
        types.write_text(json.dumps(_kwok_types(zones)))
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(plane.kubeconfig),
            "INSTANCE_TYPES_FILE_PATH": str(types),
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": "0",  # any that is free
            "HEALTH_PROBE_PORT": "0",
            "KARPENTER_SERVICE": "karpenter",
            "SYSTEM_NAMESPACE": "kube-system",
            "LOG_LEVEL": level,
            **(environment or {}),
        }

    def start(self) -> None:
        """Start the process."""
        command = [BINARY]
        if shutil.which("setpriv"):  # so that a killed test run leaves nothing behind
            command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
        with self.log.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=self._environment
            )

    def kill(self) -> None:
        """Kill it without a clean shutdown, as the kernel does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def check(self) -> None:
        """Check that it did not crash and found all kinds that it watches."""
        assert "no matches for kind" not in self.text(), self.text()[-3000:]
        assert self._process is None or self._process.poll() is None, self.text()[-3000:]

    def stop(self) -> None:
        """Stop it if it runs."""
        if self._process is not None:
            self.kill()

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def disruptions(self) -> list[str]:
        """Return the disruptions that it logged on its own decision, with the names of the nodes."""
        return [line for line in self.text().splitlines() if '"disrupting node' in line]


class Beside:
    """Both on one cluster: Karpenter, the kubelets of its nodes, and what `dovetail run` is started with."""

    def __init__(self, plane: ControlPlane, folder: Path, world: World, karpenter: Karpenter, kubelets: Cloud) -> None:
        self.plane, self.folder, self.world = plane, folder, world
        self.karpenter, self.kubelets = karpenter, kubelets

    def flags(self, **settings: Any) -> tuple[str, ...]:
        """Return the flags for `dovetail run`."""
        path = write_settings(self.folder, **settings)
        catalogue = self.folder / "catalogue.json"
        return "--kubeconfig", str(self.plane.kubeconfig), "--catalog", str(catalogue), "--settings", str(path)


@contextlib.contextmanager
def beside_karpenter(
    plane: ControlPlane, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Beside]:
    """Run Karpenter and kubelets for the duration of the context; `environment`: further variables of Karpenter."""
    catalogue = folder / "catalogue.json"
    catalogue.write_text(json.dumps(kwok_catalogue()))
    prepare(plane)
    karpenter = Karpenter(plane, folder, environment=environment)
    with (
        plane.client() as api,
        cloud_on(plane.kubeconfig, catalogue, only_kubelets=True, machines="kwok://") as kubelets,
    ):
        karpenter.start()
        try:
            yield Beside(plane, folder, World(api), karpenter, kubelets)
            karpenter.check()
        finally:
            karpenter.stop()


def kwok_pool(name: str, *, managed: bool = True, **disruption: Any) -> Tree:
    """Return a NodePool whose machines the kwok provider makes."""
    tree = pool(name, managed=managed, **disruption)
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    tree["spec"]["template"]["spec"]["nodeClassRef"] = reference
    return tree


def spread(app: str, replicas: int, cpu: str, **spec: Any) -> Tree:
    """Return pods that want a node each."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"spread": "yes"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tree = replica_set(app, replicas, cpu, affinity=anti, **spec)
    tree["spec"]["template"]["metadata"]["labels"]["spread"] = "yes"
    return tree


def scale(world: World, app: str, replicas: int) -> None:
    """Change how many pods an app has, and wait until the others are gone."""
    tree = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": app, "namespace": "default"}}
    world.patch(tree, {"spec": {"replicas": replicas}})
    eventually(lambda: len(world.pods(app)) == replicas)


def wait_nodes(world: World, count: int) -> None:
    """Wait until there are that many nodes, all ready for pods."""

    def ready() -> bool:
        nodes = world.nodes().values()
        return len(nodes) == count and all(
            node["metadata"]["labels"].get("karpenter.sh/initialized") == "true" for node in nodes
        )

    eventually(ready)


def nodes_of(world: World, name: str) -> list[str]:
    """Return the names of a pool's nodes."""
    return sorted(key for key, node in world.nodes().items() if node["metadata"]["labels"].get("pool") == name)


def is_so(item: Tree, condition: str) -> bool:
    """Return whether a condition of an object is True."""
    return conditions_of(item).get(condition) == "True"


def karpenters_own() -> list[Tree]:
    """Return the CRDs as Karpenter would restore them: without Dovetail's fields."""
    trees = copy.deepcopy(crds())
    for tree in trees:
        if tree["metadata"]["name"] != "nodepools.karpenter.sh":
            continue
        disruption = tree["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][
            "disruption"
        ]
        for name in ("consolidationGracePeriod", "consolidationSavingsThreshold", "expireAfter"):
            del disruption["properties"][name]
        budget = disruption["properties"]["budgets"]["items"]
        for name in ("topologyKey", "sequential"):
            del budget["properties"][name]
        for schema in (disruption, budget):
            kept = [
                rule
                for rule in schema.get("x-kubernetes-validations", [])
                if not any(
                    word in rule["rule"] for word in ("topologyKey", "sequential", "Grace", "Threshold", "expire")
                )
            ]
            schema["x-kubernetes-validations"] = kept
    return trees
