"""The basis of end-to-end tests: manifests, a catalogue of three machines, and a clean cluster."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.support.control_plane import Client, conditions_of, eventually

Tree = dict[str, Any]
TAINT = "karpenter.sh/disruption"
NODEPOOL = "karpenter.sh/nodepool"
ZONES = ("zone-a", "zone-b", "zone-c")
PRICES = {"small": 0.10, "medium": 0.21, "large": 0.40}
CORES = {"small": 2, "medium": 4, "large": 8}
PODS = "/api/v1/namespaces/default/pods"
_MADE = (
    "/apis/karpenter.sh/v1/nodepools",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/replicasets",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/karpenter.sh/v1/nodeclaims",
    PODS,
    "/api/v1/nodes",
)
_SAID = (
    "/apis/events.k8s.io/v1/namespaces/default/events",
    # Ours only: the API server has one of its own there.
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?fieldSelector=metadata.name%3Ddovetail",
)
_AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


def catalogue(
    zones: Sequence[str] = ZONES,
    *,
    overhead: str = "100Mi",
    capacity: Mapping[str, str] = MappingProxyType({"pods": "50"}),
) -> Tree:
    """Return small, medium and large machines in these zones, on demand; `overhead`: of memory."""
    types = []
    for name, cores in CORES.items():
        requirements = {
            "node.kubernetes.io/instance-type": [name],
            "kubernetes.io/arch": ["amd64"],
            "kubernetes.io/os": ["linux"],
            "topology.kubernetes.io/zone": list(zones),
            "karpenter.sh/capacity-type": ["on-demand"],
        }
        types.append(
            {
                "name": name,
                "requirements": [{"key": k, "operator": "In", "values": v} for k, v in requirements.items()],
                "capacity": {"cpu": str(cores), "memory": f"{2 * cores}Gi", **capacity},
                "overhead": {"cpu": "100m", "memory": overhead},
                "offerings": [
                    {"capacityType": "on-demand", "zone": zone, "price": PRICES[name], "available": True}
                    for zone in zones
                ],
            }
        )
    return {"instanceTypes": types}


def write_catalogue(folder: Path) -> Path:
    """Write the catalogue to a file."""
    path = folder / "catalogue.json"
    path.write_text(json.dumps(catalogue()))
    return path


def write_settings(folder: Path, **changes: Any) -> Path:
    """Settings that hurry: no stabilization, one second between computing and carrying out."""
    none = dict.fromkeys(("empty", "expired", "drifted", "cost"), "0s")
    tree = {"validationDelay": "1s", "pollInterval": "1s", "stabilization": none, **changes}
    path = folder / "settings.json"
    path.write_text(json.dumps(tree))
    return path


def pool(name: str, *, managed: bool = True, labels: dict[str, str] | None = None, **disruption: Any) -> Tree:
    """Return a NodePool; by default it waits for nothing and allows everything."""
    rules = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}], **disruption}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "labels": {"dovetail.dev/manage": "true"} if managed else {}},
        "spec": {
            "disruption": rules,
            "template": {
                "metadata": {"labels": {"pool": name, **(labels or {})}},
                "spec": {
                    "expireAfter": "720h",
                    "nodeClassRef": {"group": "karpenter.test.sh", "kind": "TestNodeClass", "name": "default"},
                    "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
                },
            },
        },
    }


def claim(name: str, of: Tree, kind: str = "small", zone: str = "zone-a") -> Tree:
    """Return a NodeClaim of a pool as it is on the server, for one machine type in one zone."""
    meta, template = of["metadata"], of["spec"]["template"]
    hashes = {k: v for k, v in (meta.get("annotations") or {}).items() if k.startswith("karpenter.sh/nodepool-hash")}
    wanted = {
        "node.kubernetes.io/instance-type": [kind],
        "topology.kubernetes.io/zone": [zone],
        "karpenter.sh/capacity-type": ["on-demand"],
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "labels": {NODEPOOL: meta["name"], **template["metadata"]["labels"]},
            "annotations": hashes,
            "ownerReferences": [
                {
                    "apiVersion": "karpenter.sh/v1",
                    "kind": "NodePool",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "expireAfter": template["spec"].get("expireAfter", "Never"),
            "nodeClassRef": template["spec"]["nodeClassRef"],
            "requirements": [{"key": k, "operator": "In", "values": v} for k, v in wanted.items()],
        },
    }


def pod(name: str, app: str, node: str | None = None, cpu: str = "500m", **spec: Any) -> Tree:
    """Return a pod, bound to a node from the start where one is named."""
    tree: Tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}],
            "terminationGracePeriodSeconds": 1,
            **spec,
        },
    }
    if node is not None:
        tree["spec"]["nodeName"] = node
    return tree


def replica_set(app: str, replicas: int, cpu: str = "500m", **spec: Any) -> Tree:
    """Return a ReplicaSet that adopts the pods of its app."""
    template = pod("", app, cpu=cpu, **spec)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": app}},
            "template": {"metadata": {"labels": {"app": app}}, "spec": template["spec"]},
        },
    }


class World:
    """A cluster under test, through its API."""

    def __init__(self, api: Client, settle: Callable[[], None] = lambda: None) -> None:
        self.api = api
        self.settle = settle

    def all(self, path: str) -> list[Tree]:
        """Return all objects of a collection."""
        status, answer = self.api.request("GET", path)
        assert status == 200, answer
        return list(answer["items"])

    def nodes(self) -> dict[str, Tree]:
        return {item["metadata"]["name"]: item for item in self.all("/api/v1/nodes")}

    def claims(self) -> dict[str, Tree]:
        return {item["metadata"]["name"]: item for item in self.all("/apis/karpenter.sh/v1/nodeclaims")}

    def pods(self, app: str | None = None) -> list[Tree]:
        found = self.all(PODS)
        return [each for each in found if app is None or each["metadata"]["labels"].get("app") == app]

    def events(self, node: str | None = None) -> list[Tree]:
        """Return Dovetail's events, oldest first."""
        found = [
            item
            for item in self.all("/apis/events.k8s.io/v1/namespaces/default/events")
            if item.get("reportingController") == "dovetail.dev/controller"
            and (node is None or item["regarding"]["name"] == node)
        ]
        return sorted(found, key=lambda item: item["eventTime"])

    def create(self, tree: Tree) -> Tree:
        status, answer = self.api.create(tree)
        assert status == 201, answer
        return dict(answer)

    def patch(self, tree: Tree, change: Tree) -> Tree:
        status, answer = self.api.request("PATCH", self.api.path_of(tree), change, kind="application/merge-patch+json")
        assert status == 200, answer
        return dict(answer)

    def pool(self, tree: Tree) -> Tree:
        """Create a pool and wait until the provider has put its hash on it."""
        self.create(tree)

        def hashed() -> Tree | None:
            found = self.api.get(tree)
            return (
                found
                if found and "karpenter.sh/nodepool-hash" in (found["metadata"].get("annotations") or {})
                else None
            )

        return dict(eventually(hashed))

    def node(self, name: str, of: Tree, kind: str = "small", zone: str = "zone-a") -> Tree:
        """Create a NodeClaim and wait until its node is ready for pods."""
        self.create(claim(name, of, kind, zone))
        return self.wait_node(name)

    def wait_node(self, name: str) -> Tree:
        def ready() -> Tree | None:
            node = self.nodes().get(name)
            if node is None or any(t["key"].startswith("node.kubernetes.io/") for t in node["spec"].get("taints", [])):
                return None
            return node if node["metadata"]["labels"].get("karpenter.sh/initialized") == "true" else None

        return dict(eventually(ready))

    def fill(self, app: str, nodes: list[str], cpu: str = "500m", **spec: Any) -> None:
        """Create one pod for each named node, owned by a ReplicaSet from then on."""
        for index, node in enumerate(nodes):
            self.create(pod(f"{app}-{index}", app, node, cpu, **spec))
        self.create(replica_set(app, len(nodes), cpu, **spec))
        self.wait_running(app, len(nodes))

    def wait_running(self, app: str, count: int) -> list[Tree]:
        """Wait until this many pods of an app run."""

        def running() -> list[Tree] | None:
            found = [each for each in self.pods(app) if each["status"].get("phase") == "Running"]
            alive = [each for each in found if "deletionTimestamp" not in each["metadata"]]
            return alive if len(alive) == count else None

        return list(eventually(running))

    def leftovers(self) -> list[str]:
        """Return marks of commands that are still on objects."""
        found = []
        for kind, items in (("node", self.nodes()), ("claim", self.claims())):
            for name, item in items.items():
                if "dovetail.dev/command" in (item["metadata"].get("annotations") or {}):
                    found.append(f"{kind} {name} has a record")
                if kind == "node" and any(t["key"] == TAINT for t in item["spec"].get("taints") or []):
                    found.append(f"node {name} is tainted")
        return found

    def inventory(self) -> str:
        """Return everything that a test may have created, one line each."""
        lines = []
        for path in _MADE:
            for item in self.all(path):
                meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
                parts = {
                    "made": meta["creationTimestamp"],
                    "leaving": meta.get("deletionTimestamp"),
                    "finalizers": meta.get("finalizers"),
                    "owners": [owner["name"] + "/" + owner["uid"][:8] for owner in meta.get("ownerReferences") or ()],
                    "record": (meta.get("annotations") or {}).get("dovetail.dev/command"),
                    "node": spec.get("nodeName"),
                    "taints": [taint["key"] for taint in spec.get("taints") or ()],
                    "phase": status.get("phase"),
                    "conditions": conditions_of(item),
                }
                said = " ".join(f"{key}={value}" for key, value in parts.items() if value)
                lines.append(f"{path.rsplit('/', 1)[1]} {meta['name']}/{meta['uid'][:8]} {said}")
        return "\n".join(lines)

    def wipe(self) -> None:
        """Delete everything that a test may have created, and wait until nothing can recreate it."""
        self._delete_all()
        self.settle()
        eventually(self._is_empty)

    def _delete_all(self) -> None:
        for path in (*_MADE, *_SAID):
            status, answer = self.api.request("DELETE", path, _AT_ONCE)
            assert status == 200, answer

    def _is_empty(self) -> bool:
        """Return whether nothing is left; what is left is deleted once more, held back by whom it may."""
        left = False
        for path in _MADE:
            found = self.all(path)
            left = left or bool(found)
            for item in found:
                where = f"{path}/{item['metadata']['name']}"
                if item["metadata"].get("finalizers"):
                    change = {"metadata": {"finalizers": None}}
                    self.api.request("PATCH", where, change, kind="application/merge-patch+json")
                self.api.request("DELETE", where, _AT_ONCE)
        return not left
