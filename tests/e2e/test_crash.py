"""Kill -9 at every step of a command, then a successor: finished or rolled back, nothing tainted, nothing doubled."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.background import Cloud, cloud_on
from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.controller import Process, controller
from tests.support.e2e_world import Tree, World, pool, write_catalogue, write_settings
from tests.support.history import History
from tests.support.proxy import Answer, Proxy, Seen, proxy_for

WRITES_OF_A_REPLACEMENT = 5  # taint, create, delete, clear the claim's record, clear its node's
WRITES_OF_A_ROLL_BACK = 4  # taint, create, untaint, delete the replacement


@pytest.fixture
def cloud(cluster: ControlPlane, tmp_path: Path) -> Iterator[Cloud]:
    """Yield a cloud that lives on whatever happens to the controller."""
    with cloud_on(cluster.kubeconfig, write_catalogue(tmp_path)) as found:
        yield found


@pytest.fixture
def proxy(cluster: ControlPlane) -> Iterator[Proxy]:
    """Yield the proxy between the controller and the server."""
    with proxy_for(cluster.base_url, cluster.ca_path) as found:
        yield found


def _through(proxy: Proxy, cluster: ControlPlane, folder: Path) -> Path:
    """Return a kubeconfig whose server is the proxy."""
    config = json.loads(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {"server": proxy.url}
    path = folder / "through-proxy"
    path.write_text(json.dumps(config))
    return path


def _flags(folder: Path, kubeconfig: Path, **settings: str) -> list[str]:
    """The same identity for all: a pod that starts again under its own name need not wait for its own Lease."""
    config = write_settings(folder, validationDelay="0s", **settings)
    return [
        "--kubeconfig", str(kubeconfig), "--catalog", str(write_catalogue(folder)), "--settings", str(config),
        "--identity", "the-same-pod",
    ]  # fmt: skip


def _is_a_step(seen: Seen) -> bool:
    """Return whether a write is a step of a command.

    Holds are not, nor is how far a roll is: that goes to the NodePool, beside the steps and in no fixed order.
    """
    only_a_hold = seen.method == "PATCH" and b"dovetail.dev/hold" in seen.body
    return seen.acts() and "/nodepools" not in seen.path and not only_a_hold


class Guillotine:
    """Kills a process at its n-th write to nodes and claims, before or after the server executes it."""

    def __init__(self, process: Process, at: int, *, after: bool) -> None:
        self.process, self.at, self.late = process, at, after
        self.writes: list[Seen] = []
        self.fell = False

    def before(self, seen: Seen) -> Answer | None:
        if self.fell:
            return Answer(503, "Dead")
        if _is_a_step(seen):
            self.writes.append(seen)
            if len(self.writes) == self.at and not self.late:
                self._fall()
                return Answer(503, "Dead")
        return None

    def after(self, seen: Seen, status: int) -> None:
        # The next write may be under way already: writes of one command go side by side. Of an object that has gone
        # meanwhile there is nothing left to write.
        done = status < 300 or status == 404
        if self.late and not self.fell and seen in self.writes[self.at - 1 : self.at] and done:
            self._fall()

    def _fall(self) -> None:
        self.fell = True
        self.process.kill()


def _drift(world: World, of: Tree, generation: int) -> None:
    world.patch(of, {"spec": {"template": {"metadata": {"labels": {"generation": f"g{generation}"}}}}})


def _moments(writes: int) -> list[tuple[int, bool]]:
    """Before the first write and after each: all states that a death can leave the cluster in."""
    return [(1, False), *((number, True) for number in range(1, writes + 1))]


def _most_at_once(history: History) -> int:
    """Return the largest number of claims that were there and not leaving at one time."""
    history.catch_up()
    alive: set[str] = set()
    most = 0
    for entry in sorted((e for e in history.entries if e.kind == "NodeClaim"), key=lambda e: e.version):
        if entry.type == "DELETED" or entry.is_leaving:
            alive.discard(entry.name)
        else:
            alive.add(entry.name)
        most = max(most, len(alive))
    return most


def test_killed_at_every_step_of_a_replacement(
    cluster: ControlPlane, world: World, history: History, cloud: Cloud, proxy: Proxy, tmp_path: Path
) -> None:
    """Whichever write it dies at, the successor ends with one new node, all pods and no mark."""
    web = world.pool(pool("web", consolidateAfter="Never"))
    world.node("first", web)
    world.fill("app", ["first", "first"])
    through = _through(proxy, cluster, tmp_path)
    steps = []
    for number, late in _moments(WRITES_OF_A_REPLACEMENT):
        (old,) = world.nodes()
        proxy.before, proxy.after = lambda seen: None, lambda seen, status: None
        with controller(tmp_path, f"victim-{number}-{late}", *_flags(tmp_path, through)) as victim:
            victim.wait_for("leading")
            eventually(lambda old=old: "dovetail.dev/hold" in world.nodes()[old]["metadata"]["annotations"])
            blade = Guillotine(victim, number, after=late)
            proxy.before, proxy.after = blade.before, blade.after
            _drift(world, web, 10 * number + late)
            eventually(lambda blade=blade: blade.fell)
        steps.append(blade.writes[number - 1].method)
        with controller(tmp_path, f"successor-{number}-{late}", *_flags(tmp_path, cluster.kubeconfig)):
            eventually(lambda old=old: old not in world.claims() and len(world.nodes()) == 1)
            eventually(lambda: not world.leftovers())
            world.wait_running("app", 2)
    assert steps == ["PATCH", "PATCH", "POST", "DELETE", "PATCH", "PATCH"]
    assert _most_at_once(history) == 2


def test_killed_at_every_step_of_a_roll_back(
    cluster: ControlPlane, world: World, history: History, cloud: Cloud, proxy: Proxy, tmp_path: Path
) -> None:
    """A replacement that never becomes ready is rolled back after any crash, and the node is released."""
    web = world.pool(pool("web", consolidateAfter="Never", budgets=[{"nodes": "0"}]))
    world.node("first", web)
    world.fill("app", ["first", "first"])
    through = _through(proxy, cluster, tmp_path)
    steps = []
    for number, late in _moments(WRITES_OF_A_ROLL_BACK):
        cloud.is_on = True
        proxy.before, proxy.after = lambda seen: None, lambda seen, status: None
        flags = _flags(tmp_path, through, replacementTimeout="2s")
        with controller(tmp_path, f"victim-{number}-{late}", *flags) as victim:
            victim.wait_for("leading")
            blade = Guillotine(victim, number, after=late)
            proxy.before, proxy.after = blade.before, blade.after
            _drift(world, web, 10 * number + late)
            eventually(lambda: conditions_of(world.claims()["first"]).get("Drifted") == "True")
            cloud.is_on = False
            world.patch(web, {"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}})
            eventually(lambda blade=blade: blade.fell)
        steps.append(blade.writes[number - 1].method)
        world.patch(web, {"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}})
        flags = _flags(tmp_path, cluster.kubeconfig, replacementTimeout="2s")
        with controller(tmp_path, f"successor-{number}-{late}", *flags) as successor:
            successor.wait_for("leading")
            eventually(lambda: not world.leftovers() and list(world.claims()) == ["first"])
    assert steps[:3] == ["PATCH", "PATCH", "POST"]
    assert sorted(steps[3:]) == ["DELETE", "PATCH"]
    assert len(world.wait_running("app", 2)) == 2
    assert _most_at_once(history) == 2
