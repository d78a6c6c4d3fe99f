"""Install, upgrade, uninstall, from the rendered chart, on a real control plane, as the chart's own service account.

No kubelet runs pods here, so the controller runs as a process with the arguments of the Deployment's container and a
token of its account. The built-in provider plays Karpenter and the cloud, from outside and with rights of its own.
"""

import contextlib
import json
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dovetail.model import names
from dovetail.model.command import Action
from tests.deploy.account import install, kubeconfig_for, token_of, uninstall
from tests.deploy.world import MERGE, World, catalogue_file
from tests.support.background import cloud_on
from tests.support.chart import NAMESPACE, Tree, one, render
from tests.support.control_plane import ControlPlane, eventually
from tests.support.processes import COMMAND, Running, container_arguments, environment, running

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
SECRET = "very-secret-path"
QUICK = (
    "--set=observe=false",
    '--set-json=settings={"pollInterval": "1s", "validationDelay": "1s"}',
    '--set-json=settings.stabilization={"empty": "0s", "expired": "0s", "drifted": "0s", "cost": "0s"}',
)

ORDINARY = tuple(action for action in Action if not action.value.endswith("Unhealthy"))
"""The actions of pools that set no repair."""


@contextlib.contextmanager
def webhook(folder: Path) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Yield a receiver of notifications and the folder with its address."""
    told: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    folder.mkdir()
    (folder / "json").write_text(f"http://127.0.0.1:{server.server_port}/{SECRET}\n")
    try:
        yield folder, told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _phase(note: dict[str, Any]) -> str:
    return str(note["figures"].get("phase", ""))


def _metrics(controller: Running) -> dict[str, float]:
    port = controller.wait_for(message="starting")["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def _refusals(controller: Running) -> list[dict[str, Any]]:
    words = ("forbidden", "not allowed", "can't be written")
    return [line for line in controller.lines() if any(word in json.dumps(line).lower() for word in words)]


def test_install_upgrade_uninstall(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> None:
    """Observe, run all seven actions with the chart's account, uninstall: nothing of Dovetail is left."""
    plane = new_api_server(whole=True)
    catalogue = catalogue_file(tmp_path)
    with (
        plane.client() as admin,
        cloud_on(plane.kubeconfig, catalogue) as cloud,
        contextlib.ExitStack() as stack,
    ):
        world = World(admin)
        carried = (
            f"--set-file=catalogueFiles.own\\.json={catalogue}",
            "--set=catalogue=/etc/dovetail/catalogue/own.json",
        )
        first = render(*carried)
        applied = install(admin, first, NAMESPACE)
        account = kubeconfig_for(plane, token_of(admin, "dovetail", NAMESPACE), tmp_path / "kubeconfig", NAMESPACE)
        here = [f"--kubeconfig={account}", "--listen=127.0.0.1:0"]
        hooks, told = stack.enter_context(webhook(tmp_path / "hooks"))
        here.append(f"--notify={hooks}")

        def start(name: str, trees: list[Tree], identity: str) -> Running:
            arguments = container_arguments(trees, "Deployment", tmp_path / name)
            return stack.enter_context(running([*arguments, *here, f"--identity={identity}"], tmp_path / f"{name}.log"))

        _populate(world)

        # Installed with its defaults, it reports what it would do and changes nothing.
        watcher = start("first", first, "first")
        watcher.wait_for(topic="proposal")
        assert world.traces() == []
        assert "holderIdentity" not in admin.get(one(applied, "Lease")).get("spec", {})
        assert _metrics(watcher)["dovetail_observe_only"] == 1
        assert watcher.stop() == 0

        # Upgraded to act, it executes every action with the chart's permissions alone.
        trees = render(*carried, *QUICK)
        applied = install(admin, trees, NAMESPACE)
        actor = start("second", trees, "second")
        world.drift("drift")
        for action in ORDINARY:
            actor.wait_for(topic="command", phase="done", action=action.value)
        eventually(lambda: "DovetailPolicyReadable" in " ".join(world.traces()))
        eventually(lambda: all(names.HOLD in item["metadata"]["annotations"] for item in world.all("Node")))
        ended = {action.value for action in ORDINARY}
        eventually(lambda: ended <= {note["figures"].get("action") for note in told if _phase(note) == "done"})
        assert SECRET not in actor.text
        assert _refusals(actor) == []
        counted = _metrics(actor)
        assert counted["dovetail_leader"] == 1
        assert counted["dovetail_held_nodes"] > 0
        assert [name for name in counted if "forbidden" in name or "refused" in name] == []

        # Upgraded during a command: the next process continues the command and launches nothing twice.
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

        # Uninstalled while it acts: the hook's command with the hook's account, and then Helm's deletion.
        of_hook = [tree for tree in trees if "helm.sh/hook" in (tree["metadata"].get("annotations") or {})]
        for tree in of_hook:
            if tree["kind"] != "Job":
                admin.apply(tree)
                applied.append(tree)
        token = token_of(admin, "dovetail-release", NAMESPACE)
        releaser = kubeconfig_for(plane, token, tmp_path / "releaser", NAMESPACE)
        hook = [*container_arguments(trees, "Job", tmp_path / "hook"), f"--kubeconfig={releaser}"]
        done = subprocess.run(
            [*COMMAND, *hook], capture_output=True, text=True, check=False, env=environment(), timeout=300
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
