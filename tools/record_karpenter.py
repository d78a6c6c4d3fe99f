"""Records what the real Karpenter does: a control plane, Karpenter with its kwok provider, objects, scale steps.

Takes NodePool, Deployments and scale steps from a recording (or a file of the same form without what came of it) and
plays them again in real time; writes the same form: NodeClaims, commands, pods every two seconds. With --detail also
every change of pods, nodes and claims, Karpenter's log and its events. `dovetail.sim.scenarios.recording` reads what it writes.
With --settings, `dovetail run` with that file decides on the pool instead, beside Karpenter; the commands are then Dovetail's.

Run from the project root (programs as for the tests: KUBEBUILDER_ASSETS, else .assets; KARPENTER_BIN names Karpenter):
    PYTHONPATH=src:. .venv/bin/python tools/record_karpenter.py FROM --types TYPES --crds FOLDER... --out FILE
"""

import argparse
import contextlib
import gzip
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml
from tests.support.background import cloud_on
from tests.support.control_plane import Client, ControlPlane, control_plane
from tests.support.controller import Process
from tests.support.karpenter import prepare
from tests.support.monitoring import monitoring

from dovetail.api.catalogue import encode_catalogue
from dovetail.api.crds.definitions import crds
from dovetail.sim.scenarios.recording import load_kwok_types

Tree = dict[str, Any]
WATCHED = {
    "Pod": "/api/v1/namespaces/default/pods",
    "Node": "/api/v1/nodes",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
}
NODE_CONTROLLERS = ("node-lifecycle-controller", "taint-eviction-controller")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MANAGED = {"dovetail.dev/manage": "true"}
LOOK_SECONDS = 2.0
WRITE_SECONDS = 60.0


@dataclass(slots=True)
class Seen:
    """What the watches have told so far, with the second of each."""

    began: float
    pods: dict[str, str] = field(default_factory=dict)
    moved: dict[str, tuple[float, str]] = field(default_factory=dict)
    first: set[str] = field(default_factory=set)
    claims: dict[str, Tree] = field(default_factory=dict)
    changes: list[Tree] = field(default_factory=list)
    looks: list[Tree] = field(default_factory=list)
    first_pod: threading.Event = field(default_factory=threading.Event)

    def now(self) -> float:
        """Return seconds since the first pod."""
        return round(time.time() - self.began, 2)

    def take(self, kind: str, what: str, tree: Tree) -> None:
        """Record one change of one object."""
        name, gone = tree["metadata"]["name"], what == "DELETED"
        spec, status = tree.get("spec") or {}, tree.get("status") or {}
        leaving = "deletionTimestamp" in tree["metadata"]
        if kind == "Pod" and not self.first_pod.is_set():
            self.began = time.time()
            self.first_pod.set()
        entry: Tree = {"t": self.now(), "kind": kind, "name": name, "what": what, "leaving": leaving}
        if kind == "Pod":
            entry |= {"node": spec.get("nodeName", ""), "phase": status.get("phase", "")}
            if gone:
                self.pods.pop(name, None)
            else:
                self.pods[name] = spec.get("nodeName", "")
            if not self.moved:  # what comes later came for one that was moved, or by a step
                self.first.add(name)
            if "DisruptionTarget" in _true_conditions(status):  # the eviction API says so, a scale-down does not
                self.moved.setdefault(name, (entry["t"], entry["node"]))
            entry["victim"] = DELETION_COST in (tree["metadata"].get("annotations") or {})
        elif kind == "Node":
            entry["taints"] = [taint["key"] for taint in spec.get("taints") or ()]
        else:
            entry |= {"node": status.get("nodeName", ""), "true": _true_conditions(status)}
            self._claim(name, tree, entry, gone=gone)
        self.changes.append(entry)

    def _claim(self, name: str, tree: Tree, entry: Tree, *, gone: bool) -> None:
        labels = tree["metadata"].get("labels") or {}
        claim = self.claims.setdefault(name, {"name": name, "seen": entry["t"], "type": "", "zone": ""})
        claim["type"] = labels.get("node.kubernetes.io/instance-type", claim["type"])
        claim["zone"] = labels.get("topology.kubernetes.io/zone", claim["zone"])
        claim["node"] = entry["node"] or claim.get("node", "")
        is_ready = "Initialized" in entry["true"]
        for what, is_so in (("ready", is_ready), ("deleting", entry["leaving"]), ("gone", gone)):
            if is_so:
                claim.setdefault(what, entry["t"])

    def look(self) -> Tree:
        """Return how many pods there are, how many have no node, and how many nodes are in use."""
        nodes = list(self.pods.values())
        return {"t": self.now(), "count": len(nodes), "pending": nodes.count(""), "nodes": len(set(nodes) - {""})}


def _true_conditions(status: Tree) -> list[str]:
    return [entry["type"] for entry in status.get("conditions") or () if entry["status"] == "True"]


class Watching:
    """Hears of every change of one kind, in a thread; a watch that the server ends is begun again with a list."""

    def __init__(self, plane: ControlPlane, kind: str, seen: Seen) -> None:
        self._plane, self._kind, self._seen = plane, kind, seen
        self._connection: http.client.HTTPSConnection | None = None
        self._is_on = True
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._is_on = False
        sock = self._connection.sock if self._connection is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # a read that waits would keep `close` waiting

    def _run(self) -> None:
        known: dict[str, Tree] = {}
        while self._is_on:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException, AttributeError):
                self._watch(self._list(known), known)
            time.sleep(0.05)

    def _ask(self, **query: str) -> http.client.HTTPResponse:
        port = int(self._plane.base_url.rsplit(":", 1)[1])
        context = ssl.create_default_context(cafile=str(self._plane.ca_path))
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        path = WATCHED[self._kind] + ("?" + urlencode(query) if query else "")
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {self._plane.token}"})
        return self._connection.getresponse()

    def _list(self, known: dict[str, Tree]) -> str:
        tree = json.loads(self._ask().read())
        if "items" not in tree:
            raise ValueError(f"no list of {self._kind}: {tree.get('message')}")  # a server with too much to do says so
        there = {item["metadata"]["name"]: item for item in tree["items"]}
        for name in [name for name in known if name not in there]:
            self._seen.take(self._kind, "DELETED", known.pop(name))
        for name, item in there.items():
            if known.get(name, {}).get("metadata", {}).get("resourceVersion") != item["metadata"]["resourceVersion"]:
                self._seen.take(self._kind, "MODIFIED" if name in known else "ADDED", item)
                known[name] = item
        return str(tree["metadata"]["resourceVersion"])

    def _watch(self, version: str, known: dict[str, Tree]) -> None:
        response = self._ask(watch="1", resourceVersion=version)
        while line := response.readline():
            tree = json.loads(line)
            if tree["type"] not in ("ADDED", "MODIFIED", "DELETED"):
                return
            name = tree["object"]["metadata"]["name"]
            if tree["type"] == "DELETED":
                known.pop(name, None)
            else:
                known[name] = tree["object"]
            self._seen.take(self._kind, tree["type"], tree["object"])


@contextlib.contextmanager
def watching(plane: ControlPlane, seen: Seen) -> Iterator[None]:
    """Record every change for the duration of the context."""
    watches = [Watching(plane, kind, seen) for kind in WATCHED]
    try:
        yield
    finally:
        for watch in watches:
            watch.stop()


@contextlib.contextmanager
def karpenter(plane: ControlPlane, types: Path, log: Path, port: int) -> Iterator[None]:
    """Run Karpenter as its own process."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(plane.kubeconfig),
        "INSTANCE_TYPES_FILE_PATH": str(types.resolve()),
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": str(port),
        "HEALTH_PROBE_PORT": str(port + 1),
        "KARPENTER_SERVICE": "karpenter",
        "SYSTEM_NAMESPACE": "kube-system",
        "LOG_LEVEL": "debug",
    }
    command = ["setpriv", "--pdeathsig", "KILL", "--", os.environ["KARPENTER_BIN"]]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"Karpenter ended: {log.read_text()[-3000:]}")
    finally:
        process.kill()
        process.wait()


def commands(log: str, began: float) -> list[Tree]:
    """Return Karpenter's log entry for each disruption."""
    found = []
    for line in log.splitlines():
        entry = json.loads(line) if line.startswith("{") else {}
        if entry.get("message") != "disrupting node(s)":
            continue
        nodes = entry["disrupted-nodes"]
        found.append(
            {
                "t": round(_second(entry["time"]) - began, 1),
                "reason": entry["command"].partition("/")[0],
                "decision": entry["decision"],
                "nodeClaims": [node["NodeClaim"]["name"] for node in nodes],
                "types": [node["instance-type"] for node in nodes],
                "pods": entry["pod-count"],
                "replacements": entry["replacement-node-count"],
                "savings": _savings(entry["command"]),
            }
        )
    return found


def dovetails_commands(log: str, seen: Seen) -> list[Tree]:
    """Dovetail's own word on each command that it carried through; pods are those that were evicted from its nodes."""
    claims = {claim["node"]: claim for claim in seen.claims.values()}
    began: dict[str, float] = {}
    found = []
    for line in log.splitlines():
        entry = json.loads(line) if line.startswith("{") else {}
        if entry.get("phase") == "tainting":
            began[entry["command"]] = round(_second(entry["time"]) - seen.began, 1)
        if entry.get("phase") != "done":
            continue
        nodes = entry["nodes"].split(",")
        of = [claims[node] for node in nodes if node in claims]
        found.append(
            {
                "t": began.get(entry["command"], 0.0),
                "reason": entry["action"],
                "decision": "replace" if entry["launches"] else "delete",
                "nodeClaims": [claim["name"] for claim in of],
                "types": [claim["type"] for claim in of],
                "pods": sum(node in nodes for _, node in list(seen.moved.values())),
                "replacements": entry["launches"],
                "savings": entry.get("savings", 0.0),
            }
        )
    return found


def _savings(command: str) -> float:
    """Return dollars per hour, as the end of the command's text has it."""
    found = re.search(r"savings: \$(-?[0-9.]+)", command)
    return float(found[1]) if found else 0.0


def _second(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _crds(folders: list[Path]) -> list[Tree]:
    return [
        tree
        for folder in folders
        for file in sorted(folder.glob("*.yaml"))
        for tree in yaml.safe_load_all(file.read_text())
        if tree
    ]


def _scale(api: Client, deployment: str, replicas: int) -> None:
    path = f"/apis/apps/v1/namespaces/default/deployments/{deployment}"
    body = {"spec": {"replicas": replicas}}
    api.close()  # the server hangs up on those who say nothing for long
    status, answer = api.request("PATCH", path, body, kind="application/merge-patch+json")
    if status != 200:
        raise RuntimeError(f"scaling {deployment}: {answer}")


def _take(api: Client, step: Tree) -> None:
    """Scale a Deployment or patch a NodePool."""
    if "deployment" in step:
        _scale(api, step["deployment"], step["replicas"])
        return
    api.close()
    path = f"/apis/karpenter.sh/v1/nodepools/{step['nodePool']}"
    status, answer = api.request("PATCH", path, step["patch"], kind="application/merge-patch+json")
    if status != 200:
        raise RuntimeError(f"patching {step['nodePool']}: {answer}")


def _catalogue(types: Path) -> Tree:
    """Return the same machines as Dovetail reads them; kwok's nodes keep 100m and 10Mi for themselves."""
    kinds = []
    for entry in json.loads(types.read_text()):
        offerings = [{need["key"]: need["values"][0] for need in offer["Requirements"]} for offer in entry["offerings"]]
        wanted = {
            "node.kubernetes.io/instance-type": [entry["name"]],
            "kubernetes.io/arch": [entry["architecture"]],
            "kubernetes.io/os": entry["operatingSystems"],
            "topology.kubernetes.io/zone": sorted({given["topology.kubernetes.io/zone"] for given in offerings}),
            "karpenter.sh/capacity-type": sorted({given["karpenter.sh/capacity-type"] for given in offerings}),
            "karpenter.kwok.sh/instance-size": [str(entry["resources"]["cpu"])],
            "karpenter.kwok.sh/instance-family": [entry["name"].partition("-")[0]],
            "karpenter.kwok.sh/instance-cpu": [str(entry["resources"]["cpu"])],
            "karpenter.kwok.sh/instance-memory": [str(entry["resources"]["memory"])],
        }
        kinds.append(
            {
                "name": entry["name"],
                "requirements": [{"key": key, "operator": "In", "values": values} for key, values in wanted.items()],
                "capacity": {"pods": "110", **entry["resources"]},
                "overhead": {"cpu": "100m", "memory": "10Mi"},
                "offerings": [
                    {
                        "capacityType": given["karpenter.sh/capacity-type"],
                        "zone": given["topology.kubernetes.io/zone"],
                        "price": offer["Price"],
                        "available": offer.get("Available", True),
                    }
                    for given, offer in zip(offerings, entry["offerings"], strict=True)
                ],
            }
        )
    return {"instanceTypes": kinds}


@contextlib.contextmanager
def dovetail(plane: ControlPlane, args: argparse.Namespace, folder: Path) -> Iterator[Path | None]:
    """`dovetail run` as a process of its own, where settings are given; its log."""
    if args.settings is None:
        yield None
        return
    catalogue = folder / "types.json"
    catalogue.write_text(json.dumps(_catalogue(args.types)))
    flags = ("--kubeconfig", str(plane.kubeconfig), "--catalog", str(catalogue), "--settings", str(args.settings))
    process = Process(folder, "dovetail", *flags)
    try:
        yield process.log_path
        if process.process.poll() is not None:
            raise RuntimeError(f"Dovetail ended: {process.log_path.read_text()[-3000:]}")
    finally:
        process.stop()


def play(
    api: Client, plane: ControlPlane, wanted: Tree, seen: Seen, seconds: float, late: float, write: Callable[[], None]
) -> None:
    """Apply the objects, take the steps in their time, look every two seconds."""
    api.apply(wanted["nodePool"])
    for item in wanted.get("objects", ()):
        api.apply(item)
    for deployment in wanted["deployments"]:
        api.create(deployment)
    seen.first_pod.wait(120)
    steps = sorted([*wanted["scale"], *wanted.get("patches", ())], key=lambda step: float(step["t"]))
    next_look, next_write = 0.0, WRITE_SECONDS
    while seen.now() < seconds:
        now = seen.now()
        if late and now >= late:
            plane.start_controller_manager(f"--controllers={','.join(NODE_CONTROLLERS)}")
            late = 0.0
        while steps and steps[0]["t"] <= now:
            step = steps.pop(0)
            _take(api, step)
        if now >= next_look:
            seen.looks.append(seen.look())
            next_look += LOOK_SECONDS
        if now >= next_write:
            write()
            next_write += WRITE_SECONDS
        time.sleep(0.1)


def record(wanted: Tree, args: argparse.Namespace, folder: Path) -> None:
    """Make a whole recording."""
    log = folder / "karpenter.log"
    catalogue = folder / "catalogue.json"
    catalogue.write_text('{"instanceTypes": []}')  # the kubelets ask for one and don't look into it
    with control_plane(folder) as plane, plane.client() as api:
        api.install_crds(_crds(args.crds) or crds())
        if args.crds:
            api.apply(
                {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}
            )
        else:
            prepare(plane)
        plane.start_scheduler()
        if args.nodes_late:
            plane.start_controller_manager("--controllers=*," + ",".join(f"-{name}" for name in NODE_CONTROLLERS))
        else:
            plane.start_controller_manager()
        plane.wait_for_controllers()
        seen = Seen(began=time.time())
        kubelets = cloud_on(plane.kubeconfig, catalogue, only_kubelets=True, machines="kwok://")
        with (
            watching(plane, seen),
            kubelets,
            karpenter(plane, args.types, log, args.port),
            dovetail(plane, args, folder) as own,
            recorder(plane, args, folder),
            scraped(plane, args, folder),
        ):
            time.sleep(10)
            seconds = args.seconds or max(float(step["t"]) for step in wanted["scale"]) + 90

            def write() -> None:
                _write(wanted, args, seen, {"karpenter": log, "dovetail": own}, api)

            play(api, plane, wanted, seen, seconds, args.nodes_late, write)
            write()


@contextlib.contextmanager
def recorder(plane: ControlPlane, args: argparse.Namespace, folder: Path) -> Iterator[None]:
    """`dovetail record` beside the course, if it is asked for."""
    if args.record is None:
        yield
        return
    catalogue = folder / "recorded-types.json"
    catalogue.write_bytes(encode_catalogue(load_kwok_types(args.types)))
    command = [sys.executable, "-m", "dovetail.cli.main", "record", "-o", str(args.record)]
    process = subprocess.Popen([*command, "--kubeconfig", str(plane.kubeconfig), "--catalog", str(catalogue)])
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def scraped(plane: ControlPlane, args: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Scrape the same course and import it at its end, if that is asked for."""
    if args.scrape is None:
        yield
        return
    catalogue, capture = folder / "recorded-types.json", folder / "capture.json.gz"
    began = time.time()
    with monitoring(plane, folder / "monitoring", every="15s", karpenter_port=args.port) as url:
        yield
        dovetail = [sys.executable, "-m", "dovetail.cli.main"]
        subprocess.run([*dovetail, "snapshot", "--kubeconfig", str(plane.kubeconfig), "-o", str(capture)], check=True)
        length = ["--for", f"{int(time.time() - began)}s", "--step", "15s"]
        which = ["--url", url, *length, "-o", str(args.scrape), "-f", str(capture), "--catalog", str(catalogue)]
        subprocess.run([*dovetail, "import", "prometheus", *which], check=True)


def _write(wanted: Tree, args: argparse.Namespace, seen: Seen, logs: dict[str, Path | None], api: Client) -> None:
    """What there is so far; a run that is cut short leaves the part that it had."""
    now = seen.now()
    texts = {name: path.read_text(errors="replace") for name, path in logs.items() if path is not None}
    by_karpenter = commands(texts["karpenter"], seen.began)
    by_dovetail = dovetails_commands(texts["dovetail"], seen) if "dovetail" in texts else []
    found = {
        "about": args.about or wanted.get("about", ""),
        "nodePool": wanted["nodePool"],
        "deployments": wanted["deployments"],
        "scale": [step for step in wanted["scale"] if step["t"] <= now],
        "nodeClaims": sorted(seen.claims.values(), key=lambda claim: (claim["seen"], claim["name"])),
        "commands": sorted(by_karpenter + by_dovetail, key=lambda command: command["t"]),
        "pods": seen.looks,
        "podsMoved": len(seen.moved),
        "podsMovedAgain": sum(name not in seen.first for name in list(seen.moved)),
    }
    args.out.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
    if args.detail:
        api.close()
        events = api.request("GET", "/api/v1/events")[1]["items"]
        args.detail.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (args.detail / f"{name}.log").write_text(text)
        (args.detail / "changes.json").write_text("\n".join(json.dumps(change) for change in list(seen.changes)))
        (args.detail / "events.json").write_text(json.dumps([_event(event, seen.began) for event in events], indent=0))
        (args.detail / "began").write_text(str(seen.began))


def _event(event: Tree, began: float) -> Tree:
    last = event.get("lastTimestamp") or event.get("eventTime")
    t = round(_second(last) - began, 1) if last else None
    about = event.get("involvedObject") or {}
    return {
        "t": t,
        "of": about.get("name"),
        "kind": about.get("kind"),
        "why": event.get("reason"),
        "says": event.get("message"),
        "count": event.get("count"),
    }


def main() -> int:
    """Make one recording."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wanted", type=Path, metavar="FROM", help="nodePool, deployments, scale (JSON, plain or .gz)")
    parser.add_argument("--types", type=Path, required=True, help="instance types in kwok's form")
    parser.add_argument("--crds", type=Path, nargs="+", default=[], help="folders with Karpenter's CRDs (else ours)")
    parser.add_argument("--settings", type=Path, help="Dovetail's settings: it decides, not Karpenter")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--detail", type=Path, help="a folder for everything else that was seen")
    parser.add_argument("--record", type=Path, help="a folder for what `dovetail record` sees of the same course")
    parser.add_argument(
        "--scrape", type=Path, help="a folder for what `dovetail import prometheus` makes of the course"
    )
    parser.add_argument("--about", default="")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long (until 90 s after the last step)")
    parser.add_argument("--nodes-late", type=float, default=0.0, help="start the node controllers only then (seconds)")
    parser.add_argument("--port", type=int, default=14080, help="Karpenter's metrics; the next one for its health")
    args = parser.parse_args()
    raw = args.wanted.read_bytes()
    wanted = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    if args.settings is not None:
        wanted["nodePool"]["metadata"].setdefault("labels", {}).update(MANAGED)
    with tempfile.TemporaryDirectory() as folder:
        record(wanted, args, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
