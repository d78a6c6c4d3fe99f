"""The commands of the new user's page, in order, on a real API server."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.world import World
from tests.paths import ROOT
from tests.support.background import cloud_on
from tests.support.control_plane import ControlPlane
from tests.support.processes import running

PAGE = (ROOT / "docs" / "getting-started.md").read_text()
pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def _commands() -> list[str]:
    """Return every Dovetail command of the page, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("dovetail ")]


def test_the_page_can_be_followed(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> None:
    """Each command works as written, does what the page says, and changes nothing in the cluster."""
    plane = new_api_server(whole=True)
    home = tmp_path / "home"
    home.mkdir()
    with plane.client() as admin, cloud_on(plane.kubeconfig, Path("aws:us-east-1")):
        world = World(admin)
        world.pool("general", managed=False, consolidateAfter="0s")
        world.node("general", "node-1", machine="m5.2xlarge", pod_cpu="1")
        world.node("general", "node-2", machine="m5.large", pod_cpu="500m")
        shown = {
            command: _follow(command, plane, home) for command in _commands() if not command.startswith("dovetail run")
        }
        assert world.traces() == []
        _observe(plane, home)
        assert world.traces() == []
    plan = shown["dovetail plan"]
    assert re.search(r"^Now: \w+ .*node-", plan.stdout, re.MULTILINE), plan.stdout
    prices = r"Prices: built-in EC2 table of us-east-1, of 2026-08-22\. They are \d+ days old\."
    assert re.fullmatch(prices, plan.stdout.splitlines()[-1])
    assert "planning as if all were" in plan.stderr
    assert "Gates (" in shown["dovetail explain NODE"].stdout
    assert "general" in shown["dovetail budgets --days 7"].stdout
    assert (home / "plan.html").read_text().startswith("<!doctype html>")
    assert (home / "dovetail-demo.html").exists()
    assert (home / "cluster.json.gz").stat().st_mode & 0o077 == 0, "only its owner can read a snapshot"


def _surroundings(plane: ControlPlane, home: Path) -> dict[str, str]:
    """Return a new user's environment: the command on the path and a kubeconfig in its usual place."""
    (home / ".kube").mkdir(exist_ok=True)
    shutil.copy(plane.kubeconfig, home / ".kube" / "config")
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    return {"PATH": path, "HOME": str(home), "PYTHONWARNINGS": "error"}


def _follow(command: str, plane: ControlPlane, home: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command.replace("NODE", "node-1"),
        shell=True,
        cwd=home,
        env=_surroundings(plane, home),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def _observe(plane: ControlPlane, home: Path) -> None:
    """Run the last command until it is stopped, on a free port instead of its default."""
    command = next(line for line in _commands() if line.startswith("dovetail run"))
    arguments = [*command.split()[1:], "--listen=127.0.0.1:0", f"--kubeconfig={home / '.kube' / 'config'}"]
    with running(arguments, home / "log") as controller:
        assert controller.wait_for(message="starting")["observe"] is True
        controller.wait_for(message="in sync")
        assert controller.stop() == 0
        assert json.loads(controller.text.splitlines()[-1])["message"] == "stopped"
