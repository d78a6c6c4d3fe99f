"""`make soak`: an hour of real disruption on a real control plane, with memory, event-loop lag and promises watched.

A control plane, the built-in provider (or the real Karpenter, where KARPENTER_BIN names it) and `dovetail run` as a
process of its own. Workloads come and go, templates drift, pods that must not be disrupted land on nodes. A line every
half minute, a summary as JSON at the end; exit status 1 where a promise was broken or memory grows without end.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.chaos.test_chaos import _launched_twice
from tests.support.background import cloud_on
from tests.support.control_plane import ControlPlane, control_plane, eventually
from tests.support.controller import Process, controller
from tests.support.e2e_world import Tree, World, pod, pool, replica_set, write_catalogue, write_settings
from tests.support.fixtures import _install
from tests.support.history import history_of
from tests.support.karpenter import BINARY, beside_karpenter, kwok_pool

TAINTED_SECONDS_MAX = 300.0
LAG_SECONDS_MAX = 5.0
GROWTH_MAX = 1.3
ROOM_MIB = 40.0
APPS = ("red", "green", "blue")


@dataclass
class Seen:
    """What was measured, and which promises were broken."""

    seconds: float = 0.0
    memory_mib: list[float] = field(default_factory=list)
    lag_seconds: list[float] = field(default_factory=list)
    done: float = 0.0
    rolled_back: float = 0.0
    nodes_made: int = 0
    deeds: int = 0
    broken: list[str] = field(default_factory=list)
    tainted: dict[str, float] = field(default_factory=dict)
    guards: dict[str, str] = field(default_factory=dict)


class Soak:
    """One run."""

    def __init__(self, world: World, process: Process, pools: list[Tree], seed: int) -> None:
        self.world, self.process, self.pools = world, process, pools
        self.rng = random.Random(f"soak-{seed}")
        self.seen = Seen()

    def deed(self) -> None:
        """Make one change that is common in clusters."""
        self.seen.deeds += 1
        match self.rng.choice(("scale", "scale", "scale", "drift", "guard", "unguard")):
            case "scale":
                app = self.rng.choice(APPS)
                tree = {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "metadata": {"name": app, "namespace": "default"},
                }
                self.world.patch(tree, {"spec": {"replicas": self.rng.randint(0, 12)}})
            case "drift":
                label = {"generation": f"g{self.seen.deeds}"}
                template = {"template": {"metadata": {"labels": label}}}
                self.world.patch(self.rng.choice(self.pools), {"spec": template})
            case "guard":
                self._guard()
            case _ if self.seen.guards:
                name = self.rng.choice(sorted(self.seen.guards))
                del self.seen.guards[name]
                self.world.api.request("DELETE", f"/api/v1/namespaces/default/pods/{name}")

    def _guard(self) -> None:
        nodes = [
            name
            for name, tree in self.world.nodes().items()
            if not tree["metadata"].get("deletionTimestamp") and not tree["spec"].get("taints")
        ]
        if nodes:
            tree = pod(f"guard-{self.seen.deeds}", "guard", self.rng.choice(nodes), cpu="50m")
            tree["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
            status, made = self.world.api.create(tree)
            if status == 201:
                self.seen.guards[tree["metadata"]["name"]] = made["metadata"]["uid"]

    def look(self, now: float) -> None:
        """Measure the process and check the promises."""
        seen = self.seen
        if self.process.process.poll() is not None:
            seen.broken.append("the process ended")
            return
        status = Path(f"/proc/{self.process.process.pid}/status").read_text()
        rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        seen.memory_mib.append(round(int(rss.split()[1]) / 1024, 1))
        seen.lag_seconds.append(round(self.process.metric("dovetail_loop_lag_seconds"), 3))
        seen.done = self.process.metric("karpenter_voluntary_disruption_decisions_total")
        seen.rolled_back = self.process.metric("dovetail_commands_rolled_back_total")
        marked = {line for line in self.world.leftovers() if line.startswith("node")}
        seen.tainted = {line: seen.tainted.get(line, now) for line in marked}
        seen.broken += [f"{line} for too long" for line, at in seen.tainted.items() if now - at > TAINTED_SECONDS_MAX]
        there = {each["metadata"]["name"]: each for each in self.world.pods("guard")}
        for name, uid in list(seen.guards.items()):
            if name not in there or there[name]["metadata"]["uid"] != uid:
                seen.broken.append(f"protected pod {name} is gone")
                del seen.guards[name]

    def judge(self) -> None:
        """Check that memory and event-loop lag stayed within bounds."""
        seen, quarter = self.seen, max(1, len(self.seen.memory_mib) // 4)
        middle = sorted(seen.memory_mib[quarter : 2 * quarter] or seen.memory_mib)
        end = sorted(seen.memory_mib[-quarter:])
        before, after = middle[len(middle) // 2], end[len(end) // 2]
        if after > before * GROWTH_MAX + ROOM_MIB:
            seen.broken.append(f"memory grew from {before} to {after} MiB")
        late = sorted(seen.lag_seconds)[len(seen.lag_seconds) // 2]
        if late > LAG_SECONDS_MAX:
            seen.broken.append(f"the event loop is late: {late} s at the median")


@contextlib.contextmanager
def _surroundings(plane: ControlPlane, folder: Path) -> Iterator[tuple[list[Tree], tuple[str, ...]]]:
    """Run the provider of machines; yield the pools to create and the flags of `dovetail run`."""
    rules = {"consolidateAfter": "10s", "budgets": [{"nodes": "50%"}]}
    changes = {"validationDelay": "3s", "pollInterval": "2s"}
    if BINARY:
        with beside_karpenter(plane, folder) as beside:
            yield [kwok_pool(name, **rules) for name in ("web", "batch")], beside.flags(**changes)
        return
    catalogue, settings = write_catalogue(folder), write_settings(folder, **changes)
    flags = "--kubeconfig", str(plane.kubeconfig), "--catalog", str(catalogue), "--settings", str(settings)
    with cloud_on(plane.kubeconfig, catalogue):
        yield [pool(name, **rules) for name in ("web", "batch")], flags


def run(seconds: float, seed: int, folder: Path) -> Seen:
    """Run the soak test for a duration."""
    with (
        control_plane(folder / "plane", whole=True) as plane,
        contextlib.ExitStack() as stack,
        plane.client() as api,
    ):
        _install(plane)
        pools, flags = stack.enter_context(_surroundings(plane, folder))
        history = stack.enter_context(history_of(plane))
        world = World(api)
        for tree in pools:
            world.create(tree)
        for number, app in enumerate(APPS):
            wanted = {"nodeSelector": {"pool": "web"}} if number == 0 else {}
            world.create(replica_set(app, 6, ("300m", "700m", "1200m")[number], **wanted))
        process = stack.enter_context(controller(folder, "soak", *flags))
        process.wait_for("leading")
        soak = Soak(world, process, pools, seed)
        began = time.monotonic()
        next_look = 0.0
        while (passed := time.monotonic() - began) < seconds and not soak.seen.broken:
            soak.deed()
            if passed >= next_look:
                next_look = passed + 30.0
                soak.look(time.monotonic())
                _say(soak.seen, passed)
            time.sleep(soak.rng.uniform(2.0, 8.0))
        soak.seen.seconds = round(time.monotonic() - began)
        soak.seen.nodes_made = len(set(history.created()))
        soak.seen.broken += _launched_twice(history)
        if not soak.seen.broken:
            for name in list(soak.seen.guards):
                api.request("DELETE", f"/api/v1/namespaces/default/pods/{name}")
            soak.seen.guards.clear()
            eventually(lambda: not world.leftovers(), seconds_max=600)
            soak.look(time.monotonic())
            soak.judge()
        return soak.seen


def _say(seen: Seen, passed: float) -> None:
    line = {
        "seconds": round(passed), "memoryMiB": seen.memory_mib[-1], "lagSeconds": seen.lag_seconds[-1],
        "commands": seen.done, "rolledBack": seen.rolled_back, "guards": len(seen.guards), "tainted": len(seen.tainted),
    }  # fmt: skip
    print(json.dumps(line), file=sys.stderr, flush=True)  # noqa: T201 - what a person looks at meanwhile


def main() -> int:
    """Run the soak test with the given arguments."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = run(arguments.seconds, arguments.seed, Path(folder))
        if seen.broken:
            sys.stderr.write(next(Path(folder).glob("soak-*.log")).read_text()[-8000:])
    print(json.dumps(asdict(seen)))  # noqa: T201 - the answer
    return 1 if seen.broken else 0


if __name__ == "__main__":
    sys.exit(main())
