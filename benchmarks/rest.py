"""The controller at rest on a real API server: memory, CPU and the time from a change to a decision.

Fills an API server of its own (`make assets`) with nodes that are well used, runs `dovetail run` on it as a process,
and looks from outside: /proc for memory and CPU, the log for times. Nothing outlives the run. Where KARPENTER_BIN names
a Karpenter with the kwok provider its process is measured beside ours, on the same objects.
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.e2e_world import ZONES, claim, pod, write_catalogue
from tests.support.karpenter import BINARY, Karpenter, kwok_pool, prepare

from benchmarks.processes import Watched, at_of, lines_of, wait_for
from dovetail.api.crds.definitions import crds
from dovetail.live.kubernetes.client import MERGE_PATCH, ApiClient
from dovetail.live.kubernetes.credentials import connect
from dovetail.live.kubernetes.resources import BY_KIND

Tree = dict[str, Any]
NODES = int(os.environ.get("DOVETAIL_BENCH_NODES", "1000"))
PODS_PER_NODE = 15
SIZES = (("default poll interval", "10s"), ("poll interval of 1 s", "1s"))
_AT_ONCE = 24
_CALM_SECONDS = 30.0
_CHURN_SECONDS = 30.0
_CHURN_PER_SECOND = 20
_PROBES = 5
_OVER = ("done", "failed", "refused")
_WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")


def run() -> list[Tree]:
    """Return one row per poll interval, and one for Karpenter if it can run."""
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as name:
        folder = Path(name)
        with control_plane(folder) as plane:
            with plane.client() as client:
                client.install_crds(crds())
            began = time.monotonic()
            asyncio.run(_fill(plane))
            _say(f"filled in {time.monotonic() - began:.0f} s")
            rows = [_measure(plane, folder, what, poll) for what, poll in SIZES]
            if BINARY:
                rows.append(_karpenter(plane, folder))
            return rows


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- filling the cluster


async def _fill(plane: ControlPlane) -> None:
    async with ApiClient(connect(str(plane.kubeconfig)), user_agent="benchmark") as api:
        pools = {}
        for name, rules in (("bench", {"consolidateAfter": "0s"}), ("probe", {"consolidateAfter": "0s"})):
            path = BY_KIND["NodePool"].path()
            made = await api.request("POST", path, body=msgspec.json.encode(kwok_pool(name, **rules)))
            pools[name] = msgspec.json.decode(made)
            await _patch(api, f"{path}/{name}/status", {"status": {"conditions": _true("Ready")}})
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(number: int) -> None:
            async with slots:
                await _add_node(api, f"bench-{number:05d}", pools["bench"], PODS_PER_NODE)

        await asyncio.gather(*(one(number) for number in range(NODES)))


async def _add_node(api: ApiClient, name: str, of: Tree, pods: int) -> None:
    """Add a machine of eight cores that is so full that none of its pods fits elsewhere."""
    labels = {
        "karpenter.sh/nodepool": of["metadata"]["name"], "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true", "node.kubernetes.io/instance-type": "large",
        "topology.kubernetes.io/zone": f"zone-{'abc'[hash(name) % 3]}", "karpenter.sh/capacity-type": "on-demand",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
    }  # fmt: skip
    room = {"cpu": "7900m", "memory": "16284Mi", "pods": "50"}
    nodes, claims = BY_KIND["Node"].path(), BY_KIND["NodeClaim"].path()
    machine = claim(name, of, "large")
    machine["metadata"]["labels"] |= labels
    made = msgspec.json.decode(await api.request("POST", claims, body=msgspec.json.encode(machine)))
    meta = {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"providerID": f"kwok://{name}"}}
    await api.request("POST", nodes, body=msgspec.json.encode(node))
    await _patch(api, f"{nodes}/{name}", {"spec": {"taints": None}})
    status = {"capacity": room, "allocatable": room, "conditions": _true("Ready")}
    await _patch(api, f"{nodes}/{name}/status", {"status": status})
    for number in range(pods):
        await _add_pod(api, f"{name}-{number}", name)
    done = {
        "nodeName": name, "providerID": f"kwok://{name}", "capacity": room, "allocatable": room,
        "lastPodEventTime": "2026-01-01T00:00:00Z", "conditions": _true("Launched", "Registered", "Initialized"),
    }  # fmt: skip
    await _patch(api, f"{claims}/{made['metadata']['name']}/status", {"status": done})


async def _add_pod(api: ApiClient, name: str, node: str) -> None:
    tree = pod(name, "bench", node, "520m")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "bench", "uid": "u", "controller": True}
    tree["metadata"]["ownerReferences"] = [owner]
    path = BY_KIND["Pod"].path(namespace="default")
    await api.request("POST", path, body=msgspec.json.encode(tree))
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": _true("Ready", "PodScheduled")}
    await _patch(api, f"{path}/{name}/status", {"status": status})


async def _patch(api: ApiClient, path: str, tree: Tree) -> None:
    await api.request("PATCH", path, body=msgspec.json.encode(tree), content_type=MERGE_PATCH)


def _true(*kinds: str) -> list[Tree]:
    at = "2026-01-01T00:00:00Z"
    return [{"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at} for kind in kinds]


# ---------------------------------------------------------------- measuring


@contextlib.contextmanager
def _controller(plane: ControlPlane, folder: Path, poll: str) -> Iterator[tuple[Watched, Path]]:
    settings, log = folder / f"settings-{poll}.json", folder / f"dovetail-{poll}.log"
    settings.write_text(json.dumps({"pollInterval": poll, "validationDelay": "0s"}))
    command = [
        sys.executable, "-m", "dovetail.cli.main", "run", "--kubeconfig", str(plane.kubeconfig), "--catalog",
        str(write_catalogue(folder)), "--settings", str(settings), "--listen", "127.0.0.1:0", "--identity", "bench",
    ]  # fmt: skip
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield Watched(process.pid), log
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        if process.poll() is None:
            process.kill()
            process.wait()


def _said(log: Path, text: str) -> list[Tree]:
    return [line for line in lines_of(log) if text in line["message"]]


def _measure(plane: ControlPlane, folder: Path, what: str, poll: str) -> Tree:
    first = f"first-{poll}"
    _run(plane, lambda api: _come(api, first))
    with _controller(plane, folder, poll) as (process, log):
        start = wait_for(lambda: _said(log, "starting"), "start")[0]
        synced = wait_for(lambda: _said(log, "in sync"), "sync")[0]
        decided = wait_for(lambda: _decided(log, first), "first decision")[0]
        _run(plane, lambda api: _go(api, first))
        with plane.client() as api:
            path = "/api/v1/nodes?labelSelector=karpenter.sh/nodepool%3Dbench&limit=1000"
            wait_for(lambda: _all_held(api.request("GET", path)[1]["items"]), "holds")
        time.sleep(15)  # the first verdicts and events
        row: Tree = {
            "what": what,
            "nodes": NODES,
            "pods": NODES * PODS_PER_NODE,
            "seconds to sync": round((at_of(synced) - at_of(start)).total_seconds(), 2),
            "seconds from start to first decision": round((at_of(decided) - at_of(start)).total_seconds(), 2),
            **_at_rest(plane, process),
        }
        delays = sorted(_probe(plane, log, f"{poll}-{number}") for number in range(_PROBES))
        row |= {
            "seconds from change to decision, median": round(delays[len(delays) // 2], 3),
            "seconds from change to decision, worst": round(delays[-1], 3),
            "MiB after": process.mebibytes(),
        }
        _say(json.dumps(row))
        return row


def _at_rest(plane: ControlPlane, process: Watched) -> Tree:
    """Measure a process while nothing changes, then while pods change."""
    before = _asked(plane)
    calm = process.cores_over(_CALM_SECONDS)
    asked = _asked(plane)
    minutes = _CALM_SECONDS / 60
    return {
        "MiB steady": process.mebibytes(),
        "MiB peak": process.mebibytes("VmHWM"),
        "cores idle": calm,
        "API requests a minute, idle": round((asked["requests"] - before["requests"]) / minutes, 1),
        "of them writes": round((asked["writes"] - before["writes"]) / minutes, 1),
        f"cores at {_CHURN_PER_SECOND} pod changes a second": process.cores_over(
            _CHURN_SECONDS, lambda: _run(plane, _churn)
        ),
    }


def _all_held(items: list[Tree]) -> bool:
    return all("dovetail.dev/hold" in (item["metadata"].get("annotations") or {}) for item in items)


def _run(plane: ControlPlane, work: Callable[[ApiClient], Awaitable[None]]) -> None:
    async def session() -> None:
        async with ApiClient(connect(str(plane.kubeconfig)), user_agent="benchmark") as api:
            await work(api)

    asyncio.run(session())


async def _churn(api: ApiClient) -> None:
    """Change the labels of a few pods, as happens all day."""
    began = time.monotonic()
    for number in range(int(_CHURN_SECONDS * _CHURN_PER_SECOND)):
        await asyncio.sleep(max(0.0, began + number / _CHURN_PER_SECOND - time.monotonic()))
        if time.monotonic() - began > _CHURN_SECONDS:
            return
        name = f"bench-{(number * 37) % NODES:05d}-{number % PODS_PER_NODE}"
        path = BY_KIND["Pod"].path(name, "default")
        await _patch(api, path, {"metadata": {"labels": {"touched": f"at-{time.monotonic_ns()}"}}})


def _probe(plane: ControlPlane, log: Path, tag: str) -> float:
    """Return the time from the arrival of an empty machine to the decision to delete it."""
    name = f"probe-{tag}"
    changed = [datetime.now(UTC)]

    async def come(api: ApiClient) -> None:
        await _come(api, name)
        changed[0] = datetime.now(UTC)

    _run(plane, come)
    try:
        lines = wait_for(lambda: _decided(log, name), "decision")
        return (at_of(lines[0]) - changed[0]).total_seconds()
    finally:
        _run(plane, lambda api: _go(api, name))
        wait_for(lambda: _ended(log, name), "end")


def _ended(log: Path, node: str) -> list[Tree]:
    """Return the log lines that report the end of a command on a machine."""
    return [line for line in lines_of(log) if line.get("phase") in _OVER and line.get("nodes") == node]


async def _come(api: ApiClient, name: str) -> None:
    """Add an empty machine."""
    made = msgspec.json.decode(await api.request("GET", BY_KIND["NodePool"].path("probe")))
    await _add_node(api, name, made, 0)


async def _go(api: ApiClient, name: str) -> None:
    """Remove the machine again."""
    for kind in ("NodeClaim", "Node"):
        with contextlib.suppress(Exception):
            await api.request("DELETE", BY_KIND[kind].path(name))


def _decided(log: Path, node: str) -> list[Tree]:
    """Return the log lines that report the decision to delete a machine."""
    return [line for line in lines_of(log) if line.get("phase") == "validating" and line.get("nodes") == node]


def _asked(plane: ControlPlane) -> dict[str, float]:
    """Return how many requests other clients have sent to the API server so far, and how many of them are writes."""
    found = {"requests": 0.0, "writes": 0.0}
    with plane.client() as api:
        text = str(api.request("GET", "/metrics")[1])
    for labels, count in re.findall(r"^apiserver_request_total\{([^}]*)\} (\S+)$", text, re.MULTILINE):
        verb = re.search(r'verb="([A-Z]+)"', labels)
        found["requests"] += float(count)
        found["writes"] += float(count) if verb and verb[1] in _WRITES else 0.0
    return found


def _karpenter(plane: ControlPlane, folder: Path) -> Tree:
    """Measure Karpenter's own process on the same objects."""
    prepare(plane)
    karpenter = Karpenter(plane, folder, zones=ZONES, level="info")
    karpenter.start()
    try:
        time.sleep(60)
        karpenter.check()
        return {
            "what": "Karpenter's own process",
            "nodes": NODES,
            "pods": NODES * PODS_PER_NODE,
            **_at_rest(plane, Watched(karpenter.pid)),
        }
    finally:
        karpenter.stop()


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
