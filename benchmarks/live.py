"""Dovetail beside the real Karpenter, and Karpenter alone: the same cluster, the same course of scale steps.

A whole control plane of its own (`make assets`), the Karpenter that KARPENTER_BIN names with its kwok provider, and
kubelets that are played. Each run begins with a cluster that is already there, takes the steps of `live_world` and looks
from outside: /proc for memory and CPU, the API server's audit log for requests and bytes, watches for what came of it.
Nobody may consolidate until the first step is complete: nodes are hours old, so whoever looks first would otherwise
consolidate the cluster as it was. Nothing outlives the run. DOVETAIL_BENCH_NODES names the sizes, such as
60,200; DOVETAIL_BENCH_WHO who decides: alone (Karpenter), default, recommended (Dovetail's settings).
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.background import cloud_on
from tests.support.control_plane import Client, ControlPlane, control_plane
from tests.support.controller import Process, controller
from tests.support.karpenter import BINARY, Karpenter, kwok_catalogue, prepare
from tools.record_karpenter import Seen, watching

from benchmarks.audit import audit_flags, audited
from benchmarks.live_world import SECONDS, STEPS, allow, dollars, has_settled, make_cluster, per_hour, take_step
from benchmarks.processes import Watched, at_of, busy_seconds, lines_of, wait_for
from dovetail.api.crds.definitions import crds

Tree = dict[str, Any]
SIZES = tuple(int(text) for text in os.environ.get("DOVETAIL_BENCH_NODES", "1000,3000").split(","))
WHO = tuple(os.environ.get("DOVETAIL_BENCH_WHO", "alone,default,recommended").split(","))
SHORT_LIFE_SECONDS = 15 * 60
_PATIENCE = 900.0
_QUICK = ("--kube-api-qps=1000", "--kube-api-burst=2000")
_CONTROLLERS = (
    "replicaset-controller",
    "disruption-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
)
_SETTLE_SECONDS = 15.0
_QUIET_BYTES = 40_000  # requests per second in the audit log: about ten
_KEEP = os.environ.get("DOVETAIL_BENCH_LOGS", "")


def run() -> list[Tree]:
    """Return a row for each size and each policy: Karpenter alone, or Dovetail next to it."""
    if not BINARY:
        print("KARPENTER_BIN names no Karpenter: nothing to measure", file=sys.stderr)
        return []
    return [_course(nodes, who) for nodes in SIZES for who in WHO]


def _course(nodes: int, who: str) -> Tree:
    with tempfile.TemporaryDirectory(prefix="dovetail-bench-") as name:
        folder = Path(name)
        flags = (*audit_flags(folder), "--max-requests-inflight=4000", "--max-mutating-requests-inflight=2000")
        with control_plane(folder, apiserver_flags=flags) as plane, plane.client() as api:
            api.install_crds(crds())
            prepare(plane)
            _let_in(api)
            counts = make_cluster(plane, nodes, managed=who != "alone")
            row = {
                "nodes": nodes,
                "pods": sum(counts.values()),
                "who": who,
            }
            try:
                with _running(plane, folder, nodes, who) as watched:
                    row |= _play(plane, folder, counts, watched)
            finally:
                _keep(folder, f"{nodes}-{who}")
        print(json.dumps(row), file=sys.stderr, flush=True)
        return row


def _let_in(api: Client) -> None:
    """Grant Dovetail's user all permissions: its role is not what this benchmark measures."""
    tree = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "dovetail-bench"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dovetail"}],
    }
    api.create(tree)


class Running:
    """The two controllers' processes and logs, and what the watches saw."""

    def __init__(self, seen: Seen, karpenter: Karpenter) -> None:
        self.seen = seen
        self.karpenter_log = karpenter.log
        self.dovetail: Process | None = None
        self.dovetail_log: Path | None = None
        self.seconds_to_hold = 0.0
        self.processes = {"karpenter": Watched(karpenter.pid)}


@contextlib.contextmanager
def _running(plane: ControlPlane, folder: Path, nodes: int, who: str) -> Iterator[Running]:
    """Start everything and wait until it is idle."""
    catalogue = folder / "catalogue.json"
    catalogue.write_text(json.dumps(kwok_catalogue()))
    plane.start_scheduler(*_QUICK)
    wanted = f"--controllers={','.join(_CONTROLLERS)}"
    plane.start_controller_manager(*_QUICK, wanted, "--node-monitor-grace-period=2h", "--node-startup-grace-period=2h")
    config = plane.write_kubeconfig(folder / "karpenter.kubeconfig", user="karpenter")
    karpenter = Karpenter(plane, folder, level="info", environment={"KUBECONFIG": str(config)})
    kubelets = cloud_on(plane.kubeconfig, catalogue, only_kubelets=True, machines="kwok://", lease_seconds=3600.0)
    seen = Seen(began=time.time())
    with contextlib.ExitStack() as stack, plane.client() as api:
        stack.enter_context(watching(plane, seen))
        stack.enter_context(kubelets)
        karpenter.start()
        stack.callback(karpenter.stop)
        running = Running(seen, karpenter)
        wait_for(lambda: "Starting workers" in karpenter.text() or len(karpenter.text()) > 2000, "Karpenter")
        wait_for(lambda: len(seen.claims) >= nodes, "the watches", _PATIENCE)
        if who != "alone":
            settings = folder / "settings.json"
            settings.write_text(json.dumps({"base": who} if who == "recommended" else {}))
            config = plane.write_kubeconfig(folder / "dovetail.kubeconfig", user="dovetail")
            process = stack.enter_context(
                controller(
                    folder,
                    "dovetail",
                    "--kubeconfig",
                    str(config),
                    "--catalog",
                    str(catalogue),
                    "--settings",
                    str(settings),
                )
            )
            running.dovetail, running.dovetail_log = process, process.log_path
            running.processes["dovetail"] = Watched(process.process.pid)
            began = time.monotonic()
            wait_for(lambda: _all_held(api, nodes), "every node held", _PATIENCE)
            running.seconds_to_hold = round(time.monotonic() - began, 1)
        _settle(folder / "audit.log")
        for name in plane.running():
            running.processes[name] = Watched(plane.pid(name))
        yield running
        karpenter.check()


def _settle(log: Path) -> None:
    """Wait until the controllers have finished the reads and writes of their start."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        before = log.stat().st_size
        time.sleep(_SETTLE_SECONDS)
        if log.stat().st_size - before < _QUIET_BYTES * _SETTLE_SECONDS:
            return


def _all_held(api: Client, nodes: int) -> bool:
    time.sleep(1.0)
    metadata = api.request("GET", "/api/v1/nodes?limit=10000")[1]["items"]
    held = sum("dovetail.dev/hold" in (item["metadata"].get("annotations") or {}) for item in metadata)
    return held >= nodes


def _play(plane: ControlPlane, folder: Path, counts: dict[str, int], running: Running) -> Tree:
    """Take the steps on schedule; return what they cost and what happened."""
    seen, watched = running.seen, running.processes
    with plane.client() as api:
        take_step(api, 0, counts)
    wait_for(lambda: has_settled(plane, 0, counts), "the pods of the first step", _PATIENCE)
    _check_start(running, len(seen.claims))
    watched["this benchmark and its kubelets"] = Watched(os.getpid())
    cpu = {name: process.cpu_seconds() for name, process in watched.items()}
    busy, rounds = busy_seconds(), _rounds(running)
    go, began = seen.now(), datetime.now(UTC)
    moved = len(seen.moved)
    taken: list[tuple[datetime, float]] = []
    with plane.client() as api:
        for number, (at, what, _) in enumerate(STEPS):
            time.sleep(max(0.0, go + at - seen.now()))
            print(f"{seen.now() - go:.0f} s: {what}; {seen.look()}", file=sys.stderr, flush=True)
            taken.append((datetime.now(UTC), seen.now()))
            api.close()
            if number:
                take_step(api, number, counts)
            else:
                allow(api)
    time.sleep(max(0.0, go + SECONDS - seen.now()))
    end, ended, look = seen.now(), datetime.now(UTC), seen.look()
    spent = {name: round(process.cpu_seconds() - cpu[name], 1) for name, process in watched.items()}
    others = busy_seconds() - busy - sum(spent.values())
    asked = audited(folder, began, ended)
    claims = list(seen.claims.values())
    launched = [each for each in claims if each["seen"] > go]
    short = [each for each in launched if "gone" in each and each["gone"] - each["seen"] < SHORT_LIFE_SECONDS]
    row: Tree = {
        "seconds": round(end - go),
        "dollars": dollars(claims, go, end),
        "dollars an hour before": per_hour(claims, go),
        "dollars an hour after": per_hour(claims, end),
        "nodes after": sum("gone" not in each for each in claims),
        "pods moved": len(seen.moved) - moved,
        "nodes launched": len(launched),
        "short lives": len(short),
        "pods waiting at the end": look["pending"],
        "seconds from step to decision": [
            _decided(running, *moment) for moment in zip(*_bounds(taken, ended), strict=True)
        ],
    }
    for name in ("karpenter", "dovetail"):
        if name in watched:
            row[name] = {
                "CPU seconds": spent[name], "MiB peak": watched[name].mebibytes("VmHWM"),
                "MiB at the end": watched[name].mebibytes(), **asked[name],
            }  # fmt: skip
    row["CPU seconds of the rest"] = {name: spent[name] for name in spent if name not in ("karpenter", "dovetail")}
    row["cores that others used"] = round(others / (end - go), 2)
    if running.dovetail_log is not None:
        made, took = (after - before for after, before in zip(_rounds(running), rounds, strict=True))
        row["rounds"], row["seconds of a round, mean"] = round(made), round(took / max(made, 1), 2)
        row["seconds until every node was held"] = running.seconds_to_hold
        row["commands"] = sum(line.get("phase") == "done" for line in lines_of(running.dovetail_log))
        row["lines of log"] = len(lines_of(running.dovetail_log))
    return row


def _rounds(running: Running) -> tuple[float, float]:
    """Return how many rounds Dovetail has made, and how many seconds they took."""
    if running.dovetail is None:
        return 0.0, 0.0
    name = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds"
    return running.dovetail.metric(f"{name}_count"), running.dovetail.metric(f"{name}_sum")


def _check_start(running: Running, nodes: int) -> None:
    """Raise if anybody has consolidated before it was allowed: a run that starts unfairly says nothing."""
    gone = sum("gone" in each for each in running.seen.claims.values())
    begun = [] if running.dovetail_log is None else [x for x in lines_of(running.dovetail_log) if x.get("phase")]
    if gone or begun:
        raise RuntimeError(f"{gone} of {nodes} nodes have gone, {len(begun)} commands began, before the first step")


def _bounds(taken: list[tuple[datetime, float]], ended: datetime) -> tuple[list[datetime], list[datetime]]:
    moments = [moment for moment, _ in taken]
    return moments, [*moments[1:], ended]


def _decided(running: Running, begin: datetime, end: datetime) -> Tree:
    """Return the time from a step to the first decided command, and to the first started command."""
    if running.dovetail_log is None:
        lines = lines_of(running.karpenter_log)
        begun = [line for line in lines if line.get("message") == "disrupting node(s)"]
        return {"begun": _first(begun, begin, end)}
    lines = lines_of(running.dovetail_log)
    return {
        "decided": _first([line for line in lines if line.get("phase") == "validating"], begin, end),
        "begun": _first([line for line in lines if line.get("phase") == "tainting"], begin, end),
    }


def _first(lines: list[Tree], begin: datetime, end: datetime) -> float | None:
    return next(
        (round((at_of(line) - begin).total_seconds(), 1) for line in lines if begin <= at_of(line) <= end), None
    )


def _keep(folder: Path, name: str) -> None:
    """Save the logs to the folder that DOVETAIL_BENCH_LOGS names, if any."""
    if _KEEP:
        to = Path(_KEEP) / name
        to.mkdir(parents=True, exist_ok=True)
        for log in (*folder.glob("*.log"), *folder.glob("*/*.log")):
            shutil.copy(log, to / log.name)


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
