"""How soon a controller decides after its start, on a real API server that holds a large cluster.

Fills an API server of its own (`make assets`) with a cluster of the benchmark set, dressed with what real objects carry
beside it, runs `dovetail run --observe` on it and looks from outside: /proc for memory and CPU, the log for times, the
API server's own metrics for requests and bytes. Nothing outlives the run.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.control_plane import ControlPlane, control_plane

from benchmarks.clusters import BENCH
from benchmarks.etcd_fill import fill, read_cluster
from benchmarks.processes import Watched, at_of, lines_of, wait_for
from dovetail.api.crds.definitions import crds

Tree = dict[str, Any]
CLUSTER = os.environ.get("DOVETAIL_BENCH_CLUSTER", "mixed-5000")
RUNS = 3
_SAMPLE = re.compile(r"^(apiserver_request_total|apiserver_response_sizes_sum)\{([^}]*)\} (\S+)$", re.MULTILINE)


def run() -> list[Tree]:
    """Return one row per start."""
    if not (BENCH / CLUSTER).is_dir():
        print(f"no cluster {CLUSTER} in {BENCH}: nothing to time", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as name, filled(Path(name)) as (plane, counts):
        return [_start(plane, Path(name), counts, number) for number in range(RUNS)]


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[tuple[ControlPlane, dict[str, int]]]:
    """Run an API server that holds the cluster and serves all of it."""
    with control_plane(folder) as plane, plane.client() as api:
        api.install_crds(crds())
        began = time.monotonic()
        counts = fill(plane.etcd_port, _with_namespaces(read_cluster(BENCH / CLUSTER, datetime.now(UTC))))
        wait_for(lambda: _is_seen(plane, counts), "the API server sees what etcd holds")
        print(f"filled in {time.monotonic() - began:.0f} s: {counts}", file=sys.stderr, flush=True)
        yield plane, counts


def _with_namespaces(items: list[Tree]) -> list[Tree]:
    names = sorted({item["metadata"].get("namespace", "default") for item in items} - {"default", "kube-system"})
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]},
         "status": {"phase": "Active"}}
        for name in names
    ]  # fmt: skip
    return [*made, *items]


def _is_seen(plane: ControlPlane, counts: dict[str, int]) -> bool:
    with plane.client() as api:
        for kind, path in (("Pod", "/api/v1/pods"), ("Node", "/api/v1/nodes")):
            status, page = api.request("GET", path, limit="1")
            if status != 200 or page["metadata"].get("remainingItemCount", 0) + len(page["items"]) < counts[kind]:
                return False
    return True


def _start(plane: ControlPlane, folder: Path, counts: dict[str, int], number: int) -> Tree:
    log = folder / f"dovetail-{number}.log"
    catalogue = BENCH / CLUSTER / "catalog.json.gz"
    command = [
        sys.executable, "-m", "dovetail.cli.main", "run", "--observe", "--kubeconfig", str(plane.kubeconfig),
        "--catalog", str(catalogue), "--listen", "127.0.0.1:0",
    ]  # fmt: skip
    asked = traffic(plane)
    began = datetime.now(UTC)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)
    try:
        watched = Watched(process.pid)
        wait_for(lambda: [line for line in lines_of(log) if line.get("topic") == "proposal"], "a decision")
        cpu, peak, now = watched.cpu_seconds(), watched.mebibytes("VmHWM"), traffic(plane)
        decided = next(line for line in lines_of(log) if line.get("topic") == "proposal")
        synced = next(line for line in lines_of(log) if line["message"] == "in sync")
        time.sleep(15)
        row = {
            "cluster": CLUSTER, "nodes": counts["Node"], "pods": counts["Pod"],
            "seconds to everything seen": round((at_of(synced) - began).total_seconds(), 1),
            "seconds to first decision": round((at_of(decided) - began).total_seconds(), 1),
            "CPU seconds": round(cpu, 1), "MiB peak": peak, "MiB 15 s later": watched.mebibytes(),
            "list pages": now["LIST"] - asked["LIST"], "other requests": now["other"] - asked["other"],
            "MB on the wire": round((now["bytes"] - asked["bytes"]) / 1e6, 1), "lines of log": len(lines_of(log)),
        }  # fmt: skip
        print(json.dumps(row), file=sys.stderr, flush=True)
        return row
    finally:
        process.terminate()
        process.wait()


def traffic(plane: ControlPlane) -> dict[str, int]:
    """Return how many lists and other requests the API server has answered so far, and the bytes of the answers.

    Its own are among them: a few a second, and no lists.
    """
    found = {"LIST": 0, "other": 0, "bytes": 0}
    with plane.client() as api:
        text = str(api.request("GET", "/metrics")[1])
    for name, labels, value in _SAMPLE.findall(text):
        if name == "apiserver_response_sizes_sum":
            found["bytes"] += int(float(value))
        else:
            found["LIST" if 'verb="LIST"' in labels else "other"] += int(float(value))
    return found


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
