"""`dovetail ui` and `dovetail top` beside the real controller show its actions from the objects alone."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import Process
from tests.support.e2e_world import World, pool, write_catalogue

COMMAND = [sys.executable, "-m", "dovetail.cli.main"]


@pytest.fixture
def address(cluster: ControlPlane, tmp_path: Path) -> Iterator[str]:
    """Yield the address of a live view of the cluster."""
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(tmp_path))]
    history = ["--history", str(tmp_path / "history.sqlite")]
    process = subprocess.Popen(
        [*COMMAND, "ui", "--listen", "localhost:0", *flags, *history],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"open (http://\S+)", line)
        assert found, line
        yield found[1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _state(address: str) -> dict[str, Any] | None:
    with urllib.request.urlopen(f"{address}api/state", timeout=10) as answer:
        found = json.load(answer)["document"]
        assert found is None or isinstance(found, dict)
        return found


def test_the_live_view_follows_the_controller(world: World, running: Process, address: str) -> None:
    """A node appears, a command begins and ends, the node disappears, and the savings are counted."""
    web = world.pool(pool("web", consolidateAfter="Never"))
    world.node("idle", web)

    def shown() -> dict[str, Any] | None:
        state = _state(address)
        nodes = {} if state is None else state["plan"]["nodes"]
        known = dict(zip(nodes.get("name", ()), nodes.get("verdict", ()), strict=True))
        return state if known.get("idle") == "consolidate-after" else None

    state = eventually(shown)
    assert state["source"]["kind"] == "cluster"
    place = state["plan"]["nodes"]["name"].index("idle")
    assert state["plan"]["nodes"]["price"][place] == 0.1
    world.patch(web, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
    eventually(lambda: "idle" not in world.nodes())

    def ended() -> dict[str, Any] | None:
        state = _state(address)
        gone = state is not None and "idle" not in state["plan"]["nodes"]["name"]
        return state if gone else None

    state = eventually(ended)
    lives = state["lives"]
    place = lives["name"].index("idle")
    assert lives["ended"][place] >= 0
    told = [entry["text"] for entry in state["history"]["events"]]
    assert "idle is gone" in told
    if "delete empty of idle began" in told:  # a command may be faster than a look
        assert state["money"]["savedPerHour"] == 0.1
        assert lives["fate"][place] == "empty"


def test_one_look_in_the_terminal(world: World, running: Process, cluster: ControlPlane, tmp_path: Path) -> None:
    """`dovetail top --once` lists the node with its verdict."""
    web = world.pool(pool("web", consolidateAfter="Never"))
    world.node("idle", web)
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(tmp_path))]
    done = subprocess.run([*COMMAND, "top", "--once", *flags], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("idle"))
    assert "consolidate-after" in line
