"""A cluster on a real API server with pools and nodes as Karpenter creates them."""

from pathlib import Path
from typing import Any

from dovetail.api.catalogue import encode_catalogue
from dovetail.lifecycle.effects.node_claims import node_claim_tree
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Replacement
from dovetail.model.objects import SelectorRequirement
from tests.support.chart import Tree
from tests.support.control_plane import Client, eventually
from tests.support.crd_rules import NODE_CLASS
from tests.support.design_world import kind

MERGE = "application/merge-patch+json"


class World:
    """A cluster with a pool for each kind of action."""

    def __init__(self, admin: Client) -> None:
        self.admin = admin

    def pool(self, name: str, *, managed: bool = True, **disruption: Any) -> None:
        """Add a pool; managed: one that Dovetail manages."""
        policy = {"budgets": [{"nodes": "100%"}], "consolidationSavingsThreshold": 0, **disruption}
        only = {"key": names.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}
        template = {"spec": {"nodeClassRef": dict(NODE_CLASS), "requirements": [only], "expireAfter": "Never"}}
        self.admin.apply(
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": name, "labels": {names.MANAGE: "true"} if managed else {}},
                "spec": {"template": template, "disruption": policy},
            }
        )
        eventually(lambda: names.NODEPOOL_HASH in self.get("NodePool", name)["metadata"].get("annotations", {}))

    def node(self, pool: str, name: str, machine: str = "small", pod_cpu: str = "") -> None:
        """Create a node as Karpenter would, wait for it, and optionally put a pod on it."""
        wanted = Replacement(
            node_pool=pool,
            instance_types=(machine,),
            requirements=(SelectorRequirement(key=names.CAPACITY_TYPE, values=("on-demand",)),),
        )
        tree = node_claim_tree(name, wanted, self.get("NodePool", pool), {})
        self.admin.apply(tree)
        eventually(lambda: self.is_ready(name))
        if pod_cpu:
            container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": pod_cpu}}}
            spec = {"nodeName": name, "nodeSelector": {names.NODEPOOL: pool}, "containers": [container]}
            meta = {"name": f"pod-{name}", "namespace": "default"}
            self.admin.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def is_ready(self, name: str) -> bool:
        node = self.get("Node", name)
        if node is None:
            return False
        ready = {entry["type"]: entry["status"] for entry in node.get("status", {}).get("conditions", [])}
        return ready.get("Ready") == "True" and not node["spec"].get("taints")

    def drift(self, pool: str) -> None:
        """Change the pool's template, so that its nodes drift."""
        path = self.admin.path("karpenter.sh/v1", "NodePool", None, pool)
        patch = {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}}
        assert self.admin.request("PATCH", path, patch, kind=MERGE)[0] == 200

    def mark_drifted(self, claim: str) -> None:
        """Mark a claim as drifted, in place of Karpenter, which does not run here."""
        path = self.admin.path("karpenter.sh/v1", "NodeClaim", None, claim)
        conditions = list(self.get("NodeClaim", claim)["status"]["conditions"])
        since = conditions[0]["lastTransitionTime"]
        drifted = {"type": "Drifted", "status": "True", "reason": "Tried", "message": "", "lastTransitionTime": since}
        patch = {"status": {"conditions": [*conditions, drifted]}}
        assert self.admin.request("PATCH", f"{path}/status", patch, kind=MERGE)[0] == 200

    def get(self, kind_name: str, name: str) -> Any:
        version = "v1" if kind_name == "Node" else "karpenter.sh/v1"
        status, answer = self.admin.request("GET", self.admin.path(version, kind_name, None, name))
        return answer if status == 200 else None

    def all(self, kind_name: str) -> list[Tree]:
        version = "v1" if kind_name == "Node" else "karpenter.sh/v1"
        found: list[Tree] = self.admin.request("GET", self.admin.path(version, kind_name))[1]["items"]
        return found

    def traces(self) -> list[str]:
        """Return all of Dovetail's marks on any node, claim or pool."""
        found = []
        for kind_name in ("Node", "NodeClaim", "NodePool"):
            for item in self.all(kind_name):
                meta = item["metadata"]
                annotations = meta.get("annotations") or {}
                marks = [key for key in annotations if key in (names.HOLD, names.COMMAND, names.DO_NOT_DISRUPT)]
                marks += [each for each in meta.get("finalizers") or [] if "dovetail" in each]
                if kind_name == "Node":
                    taints = item["spec"].get("taints") or []
                    marks += [taint["key"] for taint in taints if taint["key"] == names.DISRUPTION_TAINT]
                if kind_name == "NodePool":
                    conditions = (item.get("status") or {}).get("conditions") or []
                    marks += [entry["type"] for entry in conditions if "Dovetail" in entry["type"]]
                found += [f"{kind_name} {meta['name']}: {mark}" for mark in marks]
        return found


def catalogue_file(folder: Path) -> Path:
    """Write a catalogue of two types."""
    types = (kind("big", "0.80", cpu=16, memory=64), kind("small", "0.10", cpu=4, memory=16))
    path = folder / "catalogue.json"
    path.write_bytes(encode_catalogue(Catalogue(instance_types=types, source="test", as_of="2026-11-01")))
    return path
