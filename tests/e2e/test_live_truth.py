"""`plan` beside a running controller says what the controller says; without its state the answer begins with that."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import Process, controller
from tests.support.e2e_world import Tree, World, pool, write_catalogue, write_settings

COMMAND = [sys.executable, "-m", "dovetail.cli.main"]
STATE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "dovetail-state", "namespace": "kube-system"},
}
IDLE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "idle"}}
KEPT = "example.com/kept"


def _plan(flags: list[str], *more: str) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, "plan", "-o", "json", *flags, *more], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _shown(process: Process, plan: dict[str, Any], pools: tuple[str, ...]) -> bool:
    """Return whether the controller's own metric counts the verdicts that the plan has."""
    counts = Counter((entry["nodePool"], entry["verdict"]) for entry in plan["nodes"] if entry["nodePool"] in pools)
    return all(
        process.metric("dovetail_node_verdicts", nodepool=name, gate=gate) == count
        for (name, gate), count in counts.items()
    )


def _in_flight(world: World, web: Tree) -> None:
    """Let the empty node go, but not quite: a finalizer keeps the command in progress."""
    found = world.api.get(IDLE)
    world.patch(IDLE, {"metadata": {"finalizers": [*found["metadata"].get("finalizers", []), KEPT]}})
    world.patch(web, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
    eventually(lambda: "deletionTimestamp" in world.nodes()["idle"]["metadata"])


def test_plan_says_what_the_controller_says(world: World, cluster: ControlPlane, tmp_path: Path) -> None:
    """Its settings, the pools that it manages and its command in progress count; a missing or old state is said."""
    world.api.delete(STATE)
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(tmp_path))]
    settings = write_settings(tmp_path, pools=["web"], stabilization={"cost": "20m"}, batchMaximum=7)
    with controller(tmp_path, "dovetail", *flags, "--settings", str(settings), "--provider", "simulated") as process:
        web = world.pool(pool("web", managed=False, consolidateAfter="Never"))
        other = world.pool(pool("other", managed=False, consolidateAfter="Never"))
        world.node("idle", web)
        world.node("strange", other)
        _in_flight(world, web)
        text = eventually(lambda: ((world.api.get(STATE) or {}).get("data") or {}).get("state.json"))
        state = json.loads(text)
        assert set(state["managedPools"]) <= {"web"}
        assert state["settings"]["batch_maximum"] == 7

        plan = _plan(flags)
        assert not [text for text in plan["warnings"] if "state" in text]
        assert [{**entry, "id": "", "since": ""} for entry in plan["inFlight"]] == [
            {"id": "", "action": "deleteEmpty", "nodes": ["idle"], "phase": "draining", "since": ""}
        ]
        verdicts = {entry["name"]: entry["verdict"] for entry in plan["nodes"]}
        assert verdicts["strange"] == "managed"
        eventually(lambda: _shown(process, _plan(flags), ("web",)))

        unread = _plan(flags, "--controller-namespace", "default")
        assert unread["warnings"][0].startswith("no controller has published its state")
        assert {entry["name"]: entry["verdict"] for entry in unread["nodes"]}["strange"] != "managed"
        world.patch(IDLE, {"metadata": {"finalizers": None}})
    old = _plan(flags)
    assert old["warnings"][0].startswith("the state of the controller is old")
    assert "no controller leads now" in old["warnings"][0]
    world.api.delete(STATE)
    assert _plan(flags)["warnings"][0].startswith("no controller has published its state")
