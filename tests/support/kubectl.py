"""kubectl itself, as a pipeline runs it."""

import subprocess
from pathlib import Path

from tests.support.chart import tool


def wait_for_roll(pool: str, kubeconfig: Path, folder: Path) -> "subprocess.Popen[str]":
    """Start `kubectl wait` for the end of a pool's roll; `folder`: for what it keeps of the server's answers."""
    command = [str(tool("kubectl")), "--kubeconfig", str(kubeconfig), "--cache-dir", str(folder / "kubectl")]
    what = ["wait", f"nodepool/{pool}", "--for=condition=dovetail.dev/RolloutComplete", "--timeout=9m"]
    return subprocess.Popen([*command, *what], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def has_met(process: "subprocess.Popen[str]") -> bool:
    """Return whether the wait ends because its condition is met."""
    said, _ = process.communicate(timeout=300)
    return process.returncode == 0 and "condition met" in said
