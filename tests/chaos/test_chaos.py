"""The whole controller behind a proxy that breaks everything on purpose, on a real control plane.

Each seed draws troubles (slowness, 429, 5xx, 403 on one kind, HTML, garbage, cuts in mid-line, silence, SIGSTOP, token
rotation, clock steps) and deeds (drift, empty nodes, pods that must not be disrupted). Promises: nothing is written by
one that does not hold the Lease, nothing goes that is protected, nothing is launched twice, no mark stays, the process
lives, and afterwards all is done. A handful of seeds runs here; `make chaos SEEDS=0-99` runs as many as you like.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chaos.front import IDENTITY, Front, front_of
from tests.chaos.storm import KINDS, STORM_SECONDS, Plan, Trouble, draw
from tests.paths import ROOT
from tests.support.background import cloud_on
from tests.support.control_plane import Client, ControlPlane, conditions_of, eventually
from tests.support.controller import Process
from tests.support.e2e_world import Tree, World, claim, pod, pool, write_catalogue, write_settings
from tests.support.history import History, history_of

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/dovetail"
MERGE = "application/merge-patch+json"
PATIENCE = 400.0


def _seeds() -> list[int]:
    """Return the seeds in CHAOS_SEEDS: `7`, `0-99`, `1,5,9`."""
    found: list[int] = []
    for part in os.environ.get("CHAOS_SEEDS", "0-4").split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


class Chaotic(Process):
    """A controller whose wall clock can be set."""

    program = (sys.executable, "-m", "tests.chaos.stepped")


@pytest.fixture
def world(cluster: ControlPlane) -> Iterator[World]:
    """Yield the cluster, empty before and after."""
    with cluster.client() as client:
        found = World(client, cluster.wait_for_controllers)
        found.wipe()
        yield found
        found.wipe()


@contextlib.contextmanager
def _controller(cluster: ControlPlane, front: Front, folder: Path) -> Iterator[Chaotic]:
    token = folder / "token"
    token.write_text("first")
    front.tokens = {"first"}
    (folder / "offset").write_text("0")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": front.url}}],
        "users": [{"name": "u", "user": {"tokenFile": str(token)}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "config").write_text(json.dumps(config))
    settings = write_settings(
        folder,
        replacementTimeout="60s",
        leaseDuration="6s",
        renewDeadline="4s",
        retryPeriod="500ms",
        viewAgeMaximum="10s",
    )
    process = Chaotic(
        folder, "chaos", "--kubeconfig", str(folder / "config"), "--catalog", str(write_catalogue(folder)),
        "--settings", str(settings), "--identity", IDENTITY, before=[str(folder / "offset")], cwd=ROOT,
    )  # fmt: skip
    try:
        yield process
        assert process.process.poll() is None, f"it ended: {process.log_path.read_text()[-3000:]}"
    except BaseException:
        print(process.log_path.read_text()[-20_000:])  # noqa: T201 - pytest shows it where the test failed
        raise
    finally:
        process.process.send_signal(signal.SIGCONT)
        if process.process.poll() is None:
            process.stop()


def _scene(world: World) -> Tree:
    """Create a pool whose nodes only drift, one with a pod that must not move, and one that loses empty nodes."""
    web = world.pool(pool("web", consolidateAfter="Never"))
    batch = world.pool(pool("batch"))
    for name in ("web-1", "web-2", "web-3"):
        world.node(name, web)
    world.fill("app", ["web-1", "web-2"])
    guard = pod("guard", "guard", "web-3")
    guard["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    world.create(guard)
    world.wait_running("guard", 1)
    return {"web": web, "batch": batch}


class Deeds:
    """Changes that users and workloads make during the test, sent directly to the server."""

    def __init__(self, plane: ControlPlane, pools: Tree) -> None:
        self._plane, self._pools = plane, pools
        self._count = 0
        self.guards: dict[str, str] = {"guard": "web-3"}
        self.born: dict[str, int] = {}
        """The server's count at which each later guard came."""
        self.drifted = False

    def do(self, what: str) -> None:
        self._count += 1
        name = f"{what}-{self._count}"
        with self._plane.client() as api:
            world = World(api)
            if what == "drift":
                self.drifted = True
                world.patch(self._pools["web"], {"spec": {"template": {"metadata": {"labels": {"generation": name}}}}})
                return
            if what == "late-guard":
                self._guard_an_empty_one(world, name)
                return
            world.create(claim(name, self._pools["batch"]))
            if what == "guard":
                with contextlib.suppress(AssertionError):
                    eventually(lambda: name in world.nodes(), seconds_max=10)
                    self._protect(world, name)

    def _guard_an_empty_one(self, world: World, name: str) -> None:
        """Bind a pod that must not be disrupted to a node that is empty at the moment."""
        for node, tree in world.nodes().items():
            if tree["metadata"]["labels"].get("pool") == "batch" and node not in self.guards.values():
                self._protect(world, node, f"pod-of-{name}")
                return

    def _protect(self, world: World, node: str, name: str = "") -> None:
        tree = pod(name or f"pod-of-{node}", "guard", node)
        tree["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
        status, made = world.api.create(tree)
        if status == 201:
            self.guards[tree["metadata"]["name"]] = node
            self.born[tree["metadata"]["name"]] = int(made["metadata"]["resourceVersion"])

    def in_time(self, history: History) -> set[str]:
        """Return the guards that came before their node's NodeClaim began to leave; nothing can help the others."""
        late = set()
        for name, version in self.born.items():
            node = self.guards[name]
            left = history.first("NodeClaim", lambda entry, node=node: entry.name == node and entry.is_leaving)
            if left is not None and left.version < version:
                late.add(name)
        return set(self.guards) - late


class Hands:
    """Faults that are not HTTP answers: signals, tokens, clocks."""

    def __init__(self, plane: ControlPlane, process: Chaotic, front: Front, folder: Path) -> None:
        self._plane, self._process, self._front, self._folder = plane, process, front, folder

    def begin(self, trouble: Trouble) -> None:
        if trouble.kind == "stopped":
            self._process.process.send_signal(signal.SIGSTOP)
        elif trouble.kind == "token":
            if trouble.share < 0.5:
                (self._folder / "token").write_bytes(b"\xff\x00")
            else:
                (self._folder / "token").write_text("second")
                self._front.tokens = {"second"}
        elif trouble.kind == "clock":
            (self._folder / "offset").write_text(str(trouble.amount))

    def end(self, trouble: Trouble) -> None:
        if trouble.kind == "stopped":
            self._process.process.send_signal(signal.SIGCONT)
        elif trouble.kind == "token":
            self._front.tokens = {"first", "second"}
            (self._folder / "token").write_text("second")
        elif trouble.kind == "clock":
            (self._folder / "offset").write_text("0")


def _steal(api: Client, stop: threading.Event) -> None:
    """Take the Lease whenever it has expired; give it back after a while."""
    seen, since = "", time.monotonic()
    while not stop.wait(0.2):
        lease = api.request("GET", LEASE)[1]
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") != IDENTITY or spec.get("renewTime") != seen:
            seen, since = spec.get("renewTime", ""), time.monotonic()
            continue
        if time.monotonic() - since < float(spec["leaseDurationSeconds"]):
            continue
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        patch = {"holderIdentity": "thief", "leaseDurationSeconds": 6, "renewTime": now, "acquireTime": now}
        version = {"resourceVersion": lease["metadata"]["resourceVersion"]}
        if api.request("PATCH", LEASE, {"metadata": version, "spec": patch}, kind=MERGE)[0] != 200:
            continue
        stop.wait(4.0)
        api.request("PATCH", LEASE, {"spec": {"holderIdentity": None, "leaseDurationSeconds": 1}}, kind=MERGE)


def _weather(plan: Plan, deeds: Deeds, hands: Hands, front: Front) -> None:
    """Inject every fault and make every change of the plan at its time."""
    moments: list[tuple[float, int, str, object]] = [
        *((deed.at, 1, "deed", deed.what) for deed in plan.deeds),
        *((trouble.begins, 0, "begin", trouble) for trouble in plan.troubles),
        *((_end(trouble), 2, "end", trouble) for trouble in plan.troubles),
    ]
    front.blow(plan)
    began = time.monotonic()
    for at, _, how, what in sorted(moments, key=lambda moment: moment[:3]):
        time.sleep(max(0.0, began + at - time.monotonic()))
        if how == "deed":
            deeds.do(str(what))
        elif isinstance(what, Trouble):
            (hands.begin if how == "begin" else hands.end)(what)
    time.sleep(max(0.0, began + STORM_SECONDS - time.monotonic()))
    front.calm()


def _end(trouble: Trouble) -> float:
    return trouble.begins + trouble.amount if trouble.kind == "stopped" else trouble.ends


def _launched_twice(history: History) -> list[str]:
    """Return replacements that were created for a node while another replacement for it existed and stayed."""
    history.catch_up()
    alive: dict[str, dict[str, None]] = {}
    found: list[str] = []
    of: dict[str, list[str]] = {}
    for entry in sorted((e for e in history.entries if e.kind == "NodeClaim"), key=lambda e: e.version):
        if entry.name not in of and (record := entry.annotations.get("dovetail.dev/command")):
            of[entry.name] = [each["node"] for each in json.loads(record)["nodes"]]
            siblings = json.loads(record).get("replacements") or []
            for node in of[entry.name]:
                others = [other for other in alive.get(node, {}) if other not in siblings]
                found += [f"{entry.name} and {other} for {node}" for other in others]
                alive.setdefault(node, {})[entry.name] = None
        if entry.type == "DELETED" or entry.is_leaving:
            for node in of.get(entry.name, ()):
                alive[node].pop(entry.name, None)
    return found


def _is_settled(world: World, deeds: Deeds) -> str:
    """Return what is still to be done; empty if everything is done."""
    if left := world.leftovers():
        return f"marks: {left}"
    claims = world.claims()
    if leaving := [name for name, tree in claims.items() if tree["metadata"].get("deletionTimestamp")]:
        return f"leaving: {leaving}"
    guarded = set(deeds.guards.values())
    old = [
        name for name, tree in claims.items() if name not in guarded and conditions_of(tree).get("Drifted") == "True"
    ]
    if old:
        return f"drifted: {old}"
    used = {each["spec"].get("nodeName") for each in world.pods()}
    empty = [
        name
        for name, tree in claims.items()
        if tree["metadata"]["labels"].get("pool") == "batch" and tree["status"].get("nodeName", name) not in used
    ]
    return f"empty: {empty}" if empty else ""


@pytest.mark.parametrize("seed", _seeds())
def test_promises_hold_whatever_happens(cluster: ControlPlane, world: World, tmp_path: Path, seed: int) -> None:
    """After a series of faults every promise was kept, and all work is done."""
    plan = draw(seed)
    print(plan)  # noqa: T201 - pytest shows it where the test failed
    with (
        cloud_on(cluster.kubeconfig, write_catalogue(tmp_path)),
        front_of(cluster.base_url, cluster.ca_path, cluster.token) as front,
        history_of(cluster) as history,
    ):
        pools = _scene(world)
        with _controller(cluster, front, tmp_path) as process, cluster.client() as thief:
            process.wait_for("leading")
            process.wait_for("in sync")
            stop = threading.Event()
            stealing = threading.Thread(target=_steal, args=(thief, stop), daemon=True)
            stealing.start()
            deeds = Deeds(cluster, pools)
            _weather(plan, deeds, Hands(cluster, process, front, tmp_path), front)
            stop.set()
            stealing.join(30)
            assert process.process.poll() is None, process.log_path.read_text()[-3000:]
            eventually(lambda: process.get("/readyz")[0] == 200, seconds_max=PATIENCE)
            eventually(lambda: process.metric("dovetail_leader") == 1, seconds_max=PATIENCE)
            deadline = time.monotonic() + PATIENCE
            while why := _is_settled(world, deeds):
                assert time.monotonic() < deadline, why
                time.sleep(0.5)
            world.wait_running("app", 2)
            guards = deeds.in_time(history)
            running = {each["metadata"]["name"] for each in world.wait_running("guard", len(guards))}
            assert running == guards, "a protected pod stays where it is"
            eventually(lambda: process.metric("dovetail_synced") == 1, seconds_max=PATIENCE)  # a silent watch ends late
        assert front.violations == []
        assert _launched_twice(history) == []


def test_a_seed_draws_the_same_plan_again() -> None:
    """The same seed repeats a failure."""
    for seed in range(50):
        assert draw(seed) == draw(seed)


def test_a_hundred_seeds_know_every_trouble() -> None:
    """Each kind of fault is drawn often, alone and with others."""
    drawn = [trouble.kind for seed in range(100) for trouble in draw(seed).troubles]
    assert all(drawn.count(kind) >= 15 for kind in KINDS)
