"""Measure the commands of a first hour: `plan --to-end` and `blockers` on mixed clusters, `whatif` on mixed-100."""

import json
import resource
import subprocess
import sys
import time
from typing import Any

from benchmarks.clusters import BENCH, there

COMMANDS = {
    "plan --to-end": ("plan", "--to-end"),
    "blockers": ("blockers",),
    "whatif --for 24h": ("whatif", "--set", "consolidateAfter=5m", "--for", "24h"),
}
WHERE = {"whatif --for 24h": ("mixed-100",)}


def run() -> list[dict[str, Any]]:
    """Return one row for every command and cluster."""
    return [
        one(label, words, name)
        for label, words in COMMANDS.items()
        for name in WHERE.get(label, ("mixed-100", "mixed-1000"))
        if name in there()
    ]


def inputs_of(name: str) -> tuple[str, ...]:
    """Return the options with which a command reads a cluster of the benchmark set."""
    folder = BENCH / name
    about = json.loads((folder / "about.json").read_text())
    return (
        "-f",
        str(folder / "cluster.json.gz"),
        "--catalog",
        str(folder / "catalog.json.gz"),
        "--now",
        about["now"],
    )


def one(label: str, words: tuple[str, ...], name: str) -> dict[str, Any]:
    """Run one command in its own process; return wall time and CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "dovetail.cli.main", *words, *inputs_of(name), "-o", "json"],
        capture_output=True,
        check=True,
    )
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"command": label, "cluster": name, "seconds": round(seconds, 2), "coreSeconds": round(spent, 2)}
