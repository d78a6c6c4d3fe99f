"""Install, upgrade, uninstall, from the rendered chart, on a real control plane, as the chart's own service account.

No kubelet runs pods here, so the controller runs as a process with the arguments of the Deployment's container and a
token of its account. The built-in provider plays Karpenter and the cloud, from outside and with rights of its own.
"""

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.catalogue import encode_catalogue
from dovetail.live.claims import node_claim_tree
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Action, Replacement
from dovetail.model.objects import SelectorRequirement
from tests.api.control_plane import Client, ControlPlane, eventually
from tests.api.rules import NODE_CLASS
from tests.deploy.account import install, kubeconfig_for, token_of, uninstall
from tests.deploy.chart import NAMESPACE, Tree, one, render
from tests.deploy.processes import COMMAND, Running, container_arguments, environment, running
from tests.designs.world import kind
from tests.live.background import cloud_on

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
QUICK = (
    "--set=observe=false",
    '--set-json=settings={"pollInterval": "1s", "validationDelay": "1s"}',
    '--set-json=settings.stabilization={"empty": "0s", "expired": "0s", "drifted": "0s", "cost": "0s"}',
)
MERGE = "application/merge-patch+json"


class World:
    """A cluster with a pool for each kind of action."""

    def __init__(self, admin: Client) -> None:
        self.admin = admin

    def pool(self, name: str, **disruption: Any) -> None:
        """Add a pool that is given to Dovetail."""
        policy = {"budgets": [{"nodes": "100%"}], "consolidationSavingsThreshold": 0, **disruption}
        only = {"key": names.CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}
        template = {"spec": {"nodeClassRef": dict(NODE_CLASS), "requirements": [only], "expireAfter": "Never"}}
        self.admin.apply(
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": name, "labels": {names.MANAGE: "true"}},
                "spec": {"template": template, "disruption": policy},
            }
        )
        eventually(lambda: names.NODEPOOL_HASH in self.get("NodePool", name)["metadata"].get("annotations", {}))

    def node(self, pool: str, name: str, machine: str = "small", pod_cpu: str = "") -> None:
        """Order a node as Karpenter would, wait for it, and put a pod on it where asked for."""
        wanted = Replacement(
            node_pool=pool,
            instance_types=(machine,),
            requirements=(SelectorRequirement(key=names.CAPACITY_TYPE, values=("on-demand",)),),
        )
        tree = node_claim_tree(name, wanted, self.get("NodePool", pool), "")
        for key in (names.DO_NOT_DISRUPT, names.HOLD, names.COMMAND):
            del tree["metadata"]["annotations"][key]
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
        """Change the pool's template, so that its nodes are no longer what it says."""
        path = self.admin.path("karpenter.sh/v1", "NodePool", None, pool)
        patch = {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}}
        assert self.admin.request("PATCH", path, patch, kind=MERGE)[0] == 200

    def mark_drifted(self, claim: str) -> None:
        """Say that a claim has drifted, in the stead of a Karpenter that is away."""
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
        """Whatever of ours is on any node, claim or pool."""
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


def _catalogue(folder: Path) -> Path:
    types = (kind("big", "0.80", cpu=16, memory=64), kind("small", "0.10", cpu=4, memory=16))
    path = folder / "catalogue.json"
    path.write_bytes(encode_catalogue(Catalogue(instance_types=types, source="test", as_of="2026-11-01")))
    return path


def _metrics(controller: Running) -> dict[str, float]:
    port = controller.wait_for(message="starting")["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def _refusals(controller: Running) -> list[dict[str, Any]]:
    words = ("forbidden", "not allowed", "can't be written")
    return [line for line in controller.lines() if any(word in json.dumps(line).lower() for word in words)]


def test_install_upgrade_uninstall(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> None:
    """Observe first, then all seven actions under the chart's account, then uninstall: nothing of ours is left."""
    plane = new_api_server(whole=True)
    catalogue = _catalogue(tmp_path)
    with (
        plane.client() as admin,
        cloud_on(plane.kubeconfig, catalogue) as cloud,
        contextlib.ExitStack() as stack,
    ):
        world = World(admin)
        applied = install(admin, render(), NAMESPACE)
        account = kubeconfig_for(plane, token_of(admin, "dovetail", NAMESPACE), tmp_path / "kubeconfig", NAMESPACE)
        here = [f"--kubeconfig={account}", f"--catalog={catalogue}", "--listen=127.0.0.1:0"]

        def start(name: str, trees: list[Tree], identity: str) -> Running:
            arguments = container_arguments(trees, "Deployment", tmp_path / name)
            return stack.enter_context(running([*arguments, *here, f"--identity={identity}"], tmp_path / f"{name}.log"))

        _populate(world)

        # Installed with its defaults it says what it would do, and touches nothing.
        watcher = start("first", render(), "first")
        watcher.wait_for(topic="proposal")
        assert world.traces() == []
        assert "holderIdentity" not in admin.get(one(applied, "Lease")).get("spec", {})
        assert _metrics(watcher)["dovetail_observe_only"] == 1
        assert watcher.stop() == 0

        # Upgraded to act, it carries out every action there is with the permissions of the chart alone.
        trees = render(*QUICK)
        applied = install(admin, trees, NAMESPACE)
        actor = start("second", trees, "second")
        world.drift("drift")
        for action in Action:
            actor.wait_for(topic="command", phase="done", action=action.value)
        eventually(lambda: "DovetailPolicyReadable" in " ".join(world.traces()))
        eventually(lambda: all(names.HOLD in item["metadata"]["annotations"] for item in world.all("Node")))
        assert _refusals(actor) == []
        counted = _metrics(actor)
        assert counted["dovetail_leader"] == 1
        assert counted["dovetail_held_nodes"] > 0
        assert [name for name in counted if "forbidden" in name or "refused" in name] == []

        # Upgraded in the middle of a command: the next one goes on with it, and launches nothing twice.
        cloud.is_on = False
        world.mark_drifted("flight-1")
        eventually(lambda: _tainted(world) == ["flight-1"])
        coming = eventually(lambda: _replacements(world, "flight"))
        heir = start("third", trees, "third")
        heir.wait_for(message="in sync")
        assert actor.stop() == 0
        heir.wait_for(message="leading")
        heir.wait_for(topic="command", phase="waiting")
        assert (_tainted(world), _replacements(world, "flight")) == (["flight-1"], coming)

        # Uninstalled while it acts: the hook's command, under the same account, and then Helm's deletion.
        hook = [*container_arguments(trees, "Job", tmp_path / "hook"), f"--kubeconfig={account}"]
        done = subprocess.run(
            [*COMMAND, *hook], capture_output=True, text=True, check=False, env=environment(), timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert "failed 0" in done.stdout
        heir.wait_for(message="no longer leading; another process may act")
        assert world.traces() == []
        uninstall(admin, applied)
        assert heir.stop() == 0
        assert world.traces() == []
        leases = admin.request("GET", "/apis/coordination.k8s.io/v1/leases")[1]["items"]
        assert [item["metadata"]["name"] for item in leases if "dovetail" in item["metadata"]["name"]] == []


def _populate(world: World) -> None:
    world.pool("empty", consolidateAfter="0s")
    world.pool("drift", consolidateAfter="Never")
    world.pool("flight", consolidateAfter="Never")
    world.pool("old", consolidateAfter="Never", expireAfter="20s")
    world.pool("merge", consolidateAfter="0s")
    world.pool("shrink", consolidateAfter="0s")
    broken = {"metadata": {"annotations": {names.POLICY_ANNOTATION: "budgets: [{nodes: many}]"}}}
    world.pool("broken", consolidateAfter="Never")
    path = world.admin.path("karpenter.sh/v1", "NodePool", None, "broken")
    assert world.admin.request("PATCH", path, broken, kind=MERGE)[0] == 200
    world.node("broken", "broken-1")
    for pool in ("drift", "old", "merge"):
        world.node(pool, f"{pool}-1", pod_cpu="1")
        world.node(pool, f"{pool}-2", pod_cpu="2")
    world.node("flight", "flight-1", pod_cpu="1")
    world.node("shrink", "shrink-1", machine="big", pod_cpu="1")
    world.node("empty", "empty-1")


def _tainted(world: World) -> list[str]:
    return sorted(
        item["metadata"]["name"]
        for item in world.all("Node")
        if any(taint["key"] == names.DISRUPTION_TAINT for taint in item["spec"].get("taints") or [])
        and item["metadata"]["labels"][names.NODEPOOL] == "flight"
    )


def _replacements(world: World, pool: str) -> list[str]:
    return sorted(
        item["metadata"]["name"]
        for item in world.all("NodeClaim")
        if item["metadata"]["labels"][names.NODEPOOL] == pool and not item["metadata"]["name"].endswith("-1")
    )
