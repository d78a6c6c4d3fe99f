"""Beside the real Karpenter: what changes while a replacement starts is seen before anything irreversible happens.

Runs where KARPENTER_BIN names a Karpenter with the kwok provider, as `test_beside_karpenter`. Karpenter is stopped
where a launch has to take long, and times are shortened by settings.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import Process, controller
from tests.support.e2e_world import Tree, World, pod, replica_set
from tests.support.karpenter import BINARY, Beside, beside_karpenter, is_so, kwok_pool, spread, wait_nodes

pytestmark = [
    pytest.mark.karpenter,
    pytest.mark.xdist_group("karpenter"),
    pytest.mark.skipif(
        not BINARY, reason="NOT RUN beside the real Karpenter: KARPENTER_BIN names no Karpenter with the kwok provider"
    ),
]
QUICK = {"validationDelay": "2s", "pollInterval": "2s", "drainPatience": "10s"}
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


@pytest.fixture
def beside(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> Iterator[Beside]:
    """Yield a control plane of its own with Karpenter on it."""
    with beside_karpenter(new_api_server(whole=True), tmp_path) as found:
        yield found


def _pdb(unavailable: int) -> Tree:
    spec = {"selector": {"matchLabels": {"app": "wide"}}, "maxUnavailable": unavailable}
    meta = {"name": "wide", "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}


def _two_nodes(world: World) -> Tree:
    """Return a pool of two nodes with a pod each, under a PDB that allows one disruption."""
    web = kwok_pool("web", consolidateAfter="Never", budgets=[{"nodes": "100%"}])
    world.create(web)
    world.create(spread("wide", 2, "1500m"))
    world.wait_running("wide", 2)
    wait_nodes(world, 2)
    world.create(_pdb(1))
    eventually(lambda: world.api.get(_pdb(1))["status"].get("disruptionsAllowed") == 1)
    return web


def _begin_to_roll(beside: Beside, process: Process) -> set[str]:
    """Let the pool's nodes drift; stop Karpenter before it can take up the replacements; return the nodes' claims."""
    world = beside.world
    web = _two_nodes(world)
    process.wait_for("leading")
    old = set(world.claims())
    world.patch(web, {"spec": {"template": {"metadata": {"labels": {"generation": "2"}}}}})
    eventually(lambda: len(_phase(process, "validating")) >= 2)
    beside.karpenter.kill()
    eventually(lambda: len(world.claims()) > 2)
    return old


def _named(kind: str, item: Tree) -> Tree:
    """Return an item of a list with its kind, which lists leave out."""
    return {"apiVersion": "v1", "kind": kind, **item}


def _leaving(world: World, claims: set[str]) -> list[str]:
    found = world.claims()
    return sorted(
        name for name in claims if name not in found or found[name]["metadata"].get("deletionTimestamp") is not None
    )


def _phase(process: Process, phase: str) -> list[dict[str, object]]:
    return [line for line in process.lines() if line.get("phase") == phase]


def test_a_pdb_that_closed_while_a_replacement_started_keeps_the_nodes(beside: Beside, tmp_path: Path) -> None:
    """No claim is deleted, the command waits, rolls back and backs off; when the PDB opens again the roll goes on."""
    world = beside.world
    with controller(tmp_path, "dovetail", *beside.flags(**QUICK)) as process:
        old = _begin_to_roll(beside, process)
        world.api.apply(_pdb(0))
        eventually(lambda: world.api.get(_pdb(0))["status"]["disruptionsAllowed"] == 0)
        beside.karpenter.start()
        eventually(lambda: _phase(process, "checking"))
        eventually(lambda: _phase(process, "failed"))
        assert _leaving(world, old) == []
        assert any("allows no disruption of pod default/wide" in str(line) for line in _phase(process, "failed"))
        process.wait_for("is left alone for 60 s")
        world.api.apply(_pdb(1))
        eventually(lambda: not set(world.claims()) & old)
        world.wait_running("wide", 2)
        eventually(lambda: world.leftovers() == [])


def test_a_karpenter_that_is_down_does_not_make_commands_fail(beside: Beside, tmp_path: Path) -> None:
    """Karpenter is away for three times the launch time-out; when it is back the roll ends without a rollback."""
    world = beside.world
    with controller(tmp_path, "dovetail", *beside.flags(**QUICK, launchTimeout="10s")) as process:
        old = _begin_to_roll(beside, process)
        time.sleep(30)
        beside.karpenter.start()
        eventually(lambda: not set(world.claims()) & old)
        assert _phase(process, "rolling-back") == []
        world.wait_running("wide", 2)


def test_an_undo_leaves_a_replacement_with_somebodys_pod(beside: Beside, tmp_path: Path) -> None:
    """A protected pod that landed on a ready replacement stays where it is when the command is rolled back."""
    world = beside.world
    with controller(tmp_path, "dovetail", *beside.flags(**QUICK)) as process:
        old = _begin_to_roll(beside, process)
        world.api.apply(_pdb(0))
        eventually(lambda: world.api.get(_pdb(0))["status"]["disruptionsAllowed"] == 0)
        beside.karpenter.start()

        def ready() -> Tree | None:
            fresh = [item for name, item in world.claims().items() if name not in old]
            return next((item for item in fresh if is_so(item, "Initialized")), None)

        replacement = eventually(ready)
        visitor = pod("visitor", "visitor", replacement["status"]["nodeName"], "100m")
        visitor["metadata"]["annotations"] = {DO_NOT_DISRUPT: "true"}
        world.create(visitor)
        eventually(lambda: _phase(process, "failed"))
        time.sleep(5)
        [found] = world.pods("visitor")
        assert "deletionTimestamp" not in found["metadata"]
        kept = world.claims()[replacement["metadata"]["name"]]
        assert "deletionTimestamp" not in kept["metadata"]
        assert "dovetail.dev/command" not in kept["metadata"]["annotations"]
        assert _leaving(world, old) == []


def test_protection_of_one_of_five_candidates_keeps_the_replacement(beside: Beside, tmp_path: Path) -> None:
    """Somebody protects a pod while five nodes go for one: either none of them goes, or the new node stays."""
    world = beside.world
    world.create(kwok_pool("web", consolidateAfter="5s", consolidationSavingsThreshold=0, budgets=[{"nodes": "100%"}]))
    world.create(spread("wide", 5, "3000m"))  # machines that are larger than what stays needs
    world.wait_running("wide", 5)
    wait_nodes(world, 5)
    world.create(replica_set("small", 5, "300m"))
    world.wait_running("small", 5)
    old = set(world.claims())
    with controller(tmp_path, "dovetail", *beside.flags(**QUICK)) as process:
        process.wait_for("leading")
        tree = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "wide", "namespace": "default"}}
        world.patch(tree, {"spec": {"replicas": 0}})
        eventually(lambda: _phase(process, "deleting") or _phase(process, "checking"))
        victim = world.pods("small")[-1]
        world.patch(_named("Pod", victim), {"metadata": {"annotations": {DO_NOT_DISRUPT: "true"}}})
        # A pod that was protected after its node's claim was deleted keeps that node draining, rightly.
        eventually(lambda: any(_phase(process, phase) for phase in ("failed", "done", "draining")))
        fresh = {name for line in _phase(process, "failed") for name in str(line.get("replacements", "")).split(",")}
        undone = _leaving(world, fresh - {""})  # at once: later it may go by a command of its own
        assert not (undone and _leaving(world, old)), "a replacement was undone although nodes went"
        time.sleep(10)
        running = world.wait_running("small", 5)
        assert len(running) == 5
        held = next(item for item in world.pods("small") if item["metadata"]["name"] == victim["metadata"]["name"])
        assert "deletionTimestamp" not in held["metadata"]


def test_a_successor_knows_what_was_evicted(beside: Beside, tmp_path: Path) -> None:
    """The controller dies in the middle of evictions in order; its successor keeps the node that pods moved to."""
    world = beside.world
    web = kwok_pool("web", consolidateAfter="5s", consolidationSavingsThreshold=0, budgets=[{"nodes": "100%"}])
    world.create(web)
    world.create(spread("wide", 1, "3000m"))
    world.wait_running("wide", 1)
    wait_nodes(world, 1)
    world.create(replica_set("small", 4, "100m"))
    world.wait_running("small", 4)
    (old,) = world.claims()
    settings = {**QUICK, "evictionsInOrder": True}
    with controller(tmp_path, "one", *beside.flags(**settings)) as process:
        process.wait_for("leading")
        tree = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "wide", "namespace": "default"}}
        world.patch(tree, {"spec": {"replicas": 0}})

        def evicted() -> Tree | None:
            node = world.nodes().get(world.claims()[old]["status"]["nodeName"]) if old in world.claims() else None
            text = "" if node is None else node["metadata"]["annotations"].get("dovetail.dev/command", "")
            return node if '"evicted":["default/small' in text else None

        node = eventually(evicted)
        process.kill()
        world.patch(_named("Node", node), {"metadata": {"annotations": {"dovetail.dev/do-not-disrupt": "true"}}})
        # What is in flight ends; no command of its own may take the kept node soon after.
        world.patch(web, {"metadata": {"annotations": {"dovetail.dev/paused": "true"}}})
    before = set(world.claims())
    with controller(tmp_path, "two", *beside.flags(**settings)) as process:
        process.wait_for("leading")
        eventually(lambda: world.leftovers() == [])
        time.sleep(10)
        gone = before - set(world.claims())
        assert gone <= {old}, "the replacement stays, whether or not the old node had begun to go"
        world.wait_running("small", 4)
