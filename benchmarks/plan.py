"""Measure `dovetail plan --every-method`, from reading to printing, against Karpenter's decision time alone."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.clusters import BENCH, KARPENTER_PLAN, measured, there


def run() -> list[dict[str, Any]]:
    """Measure whole commands on every cluster."""
    rows = []
    for name in there():
        row = measured("benchmarks.plan", name)
        karpenter = KARPENTER_PLAN.get(name)
        row["karpenterDecisionSeconds"] = karpenter
        row["timesFaster"] = round(karpenter / row["cpuSeconds"], 1) if karpenter else None
        rows.append(row)
    return rows


def one(name: str) -> dict[str, Any]:
    """Run one command in its own process and return its time from start to end."""
    folder = BENCH / name
    about = json.loads((folder / "about.json").read_text())
    command = [
        sys.executable, "-m", "dovetail.cli.main", "plan", "-f", str(folder / "cluster.json.gz"),
        "--catalog", str(folder / "catalog.json.gz"), "--now", about["now"], "--profile", "karpenter-1.15",
        "--every-method", "-o", "json",
    ]  # fmt: skip
    subprocess.run(command, env=_as_installed(), capture_output=True, check=True)
    begin, before = time.perf_counter(), _cpu()
    done = subprocess.run(command, env=_as_installed(), capture_output=True, check=True)
    seconds, cpu = time.perf_counter() - begin, _cpu() - before
    tree = json.loads(done.stdout)
    return {
        "cluster": name,
        "nodes": len(tree["nodes"]),
        "seconds": round(seconds, 3),
        "cpuSeconds": round(cpu, 3),
        "memoryMib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
        "methodsWithActions": sum(1 for method in tree["methods"] if method["actions"]),
    }


def _as_installed() -> dict[str, str]:
    """Return an environment in which modules are compiled once, as in an installation."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "dovetail-benchmark-bytecode")}


def _cpu() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.dumps(one(sys.argv[1])))
