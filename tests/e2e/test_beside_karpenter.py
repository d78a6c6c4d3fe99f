"""Beside the real Karpenter: it provisions and terminates, Dovetail decides, and neither undoes the other's work.

Runs where KARPENTER_BIN names a Karpenter v1.15 binary with the kwok provider (the main package `kwok` of its published
module); skips loudly elsewhere. That something does not happen is shown by what happens instead: Karpenter acting on
a node that it may take, or putting down what it found, in the very round that had the other node before it.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import controller
from tests.support.e2e_world import TAINT, Tree, World, replica_set
from tests.support.history import Entry, History, history_of
from tests.support.karpenter import (
    BINARY,
    ZONES,
    Beside,
    beside_karpenter,
    is_so,
    karpenters_own,
    kwok_pool,
    nodes_of,
    scale,
    spread,
    wait_nodes,
)

pytestmark = [
    pytest.mark.karpenter,
    pytest.mark.xdist_group("karpenter"),  # so that they don't queue behind the other tests with a server of their own
    pytest.mark.skipif(
        not BINARY, reason="NOT RUN beside the real Karpenter: KARPENTER_BIN names no Karpenter with the kwok provider"
    ),
]
NODES = 50
HELD = {"karpenter.sh/do-not-disrupt": "true", "dovetail.dev/hold": "true"}
KARPENTERS_TAINT = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}


@pytest.fixture
def beside(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> Iterator[Beside]:
    """Yield a control plane of its own with Karpenter on it."""
    with beside_karpenter(new_api_server(whole=True), tmp_path) as found:
        yield found


def _dovetail(plane: ControlPlane, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dovetail.cli.main", *words, "--kubeconfig", str(plane.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def _is_held(item: Tree) -> bool:
    return HELD.items() <= (item["metadata"].get("annotations") or {}).items()


def _all_held(world: World) -> bool:
    return all(_is_held(node) for node in world.nodes().values())


def _fifty_nodes_of_mixed_use(world: World) -> None:
    """Karpenter provisions a node for each pod that wants one; then most of those pods go and small ones stay."""
    world.create(kwok_pool("web", consolidateAfter="10s", budgets=[{"nodes": "20%"}]))
    world.create(spread("wide", NODES, "1500m"))
    world.wait_running("wide", NODES)
    wait_nodes(world, NODES)
    world.create(replica_set("small", NODES, "100m"))
    world.wait_running("small", NODES)


def _one_node(world: World, **disruption: str) -> tuple[Tree, str]:
    """Return a pool with one node and a pod that fills it: the pool and the node's NodeClaim."""
    web = kwok_pool("web", **disruption)
    world.create(web)
    world.create(spread("wide", 1, "1500m"))
    world.wait_running("wide", 1)
    wait_nodes(world, 1)
    (claim,) = world.claims()
    return web, claim


def _drift(world: World, web: Tree, generation: str) -> None:
    world.patch(web, {"spec": {"template": {"metadata": {"labels": {"generation": generation}}}}})


def _claims_deleted_by_others(history: History) -> list[str]:
    """Return nodes whose claims began to leave without Dovetail's taint on them: somebody else's doing."""
    found = []
    for entry in history.entries:
        if entry.kind == "NodeClaim" and entry.is_leaving and entry.type == "MODIFIED":
            node = (entry.object.get("status") or {}).get("nodeName", "")
            tainted = history.first("Node", lambda e, n=node: e.name == n and e.is_tainted)
            if tainted is None or tainted.version > entry.version:
                found.append(entry.name)
    return sorted(set(found))


def _lost_its_taint(history: History, node: str) -> list[int]:
    """Return the versions of a node without Dovetail's taint after it once had it."""
    first = history.first("Node", lambda entry: entry.name == node and entry.is_tainted)
    assert first is not None
    after = [e for e in history.entries if e.kind == "Node" and e.name == node and e.version > first.version]
    return [entry.version for entry in after if not entry.is_tainted]


def test_fifty_nodes_are_consolidated_while_karpenter_provisions(beside: Beside, tmp_path: Path) -> None:
    """Dovetail removes the nodes together; Karpenter launches, drains and provisions, and disrupts nothing itself."""
    world, karpenter = beside.world, beside.karpenter
    watched = history_of(beside.plane)  # from the start: a node may be empty before all of them are full
    with controller(tmp_path, "dovetail", *beside.flags(validationDelay="5s")) as process, watched as history:
        process.wait_for("leading")
        _fifty_nodes_of_mixed_use(world)
        eventually(lambda: _all_held(world))
        assert karpenter.disruptions() == []
        scale(world, "wide", NODES // 5)
        eventually(lambda: len(world.nodes()) <= NODES // 2, seconds_max=600)
        world.create(replica_set("late", 5, "1500m"))
        world.wait_running("late", 5)
        assert karpenter.disruptions() == []
        assert _claims_deleted_by_others(history) == []
        done = [line for line in process.lines() if line.get("phase") == "done"]
        assert {line["action"] for line in done} & {"deleteCost", "replaceCost", "deleteEmpty"}
        assert process.metric("dovetail_realised_savings_dollars_per_hour_total") > 0
        eventually(lambda: not world.leftovers())
    world.wait_running("small", NODES)


def _zones_in_order(history: History) -> list[str]:
    """Return the zones of the nodes in the order in which they were first tainted."""
    zones: dict[str, str] = {}
    for entry in history.entries:
        if entry.kind == "Node" and entry.is_tainted:
            zones.setdefault(entry.name, entry.object["metadata"]["labels"]["topology.kubernetes.io/zone"])
    return list(zones.values())


def test_zones_are_finished_in_order_through_a_change_of_leader(beside: Beside, tmp_path: Path) -> None:
    """A roll of three zones with a budget of one node changes zone twice, though its leader is killed in a zone.

    Design: topology-budgets.
    """
    world = beside.world
    sequential = {"nodes": "1", "topologyKey": "topology.kubernetes.io/zone", "sequential": True}
    web = kwok_pool("web", consolidateAfter="Never", budgets=[{"nodes": "100%"}, sequential])
    world.create(web)
    for zone in ZONES:
        world.create(spread(f"in-{zone}", 3, "1500m", nodeSelector={"topology.kubernetes.io/zone": zone}))
    wait_nodes(world, 9)
    flags = beside.flags(validationDelay="3s", leaseDuration="6s", renewDeadline="4s", retryPeriod="1s")

    def mark() -> str:
        annotations = (world.api.get(web) or {})["metadata"].get("annotations") or {}
        return str(json.loads(annotations.get("dovetail.dev/rolling-domain", "{}")).get("value", ""))

    with history_of(beside.plane) as history, controller(tmp_path, "first", *flags) as first:
        first.wait_for("leading")
        eventually(lambda: _all_held(world))
        _drift(world, web, "two")
        eventually(lambda: len(_zones_in_order(history)) == 2, seconds_max=300)
        begun = mark()
        assert begun == _zones_in_order(history)[0]
        first.kill()
        with controller(tmp_path, "second", *flags) as second:
            second.wait_for("leading")
            eventually(
                lambda: not any(is_so(claim, "Drifted") for claim in world.claims().values()) and mark() == "",
                seconds_max=600,
            )
            eventually(lambda: not world.leftovers())
        zones = _zones_in_order(history)
    assert sorted(zones) == sorted(3 * ZONES)
    assert sum(one != other for one, other in pairwise(zones)) == 2
    assert "dovetail.dev/rollout" not in ((world.api.get(web) or {})["metadata"].get("annotations") or {})
    assert beside.karpenter.disruptions() == []


def test_karpenter_leaves_held_nodes_alone_and_takes_them_after_a_release(beside: Beside) -> None:
    """Karpenter deletes empty nodes that are not held, and the held ones only after `release`."""
    world, karpenter = beside.world, beside.karpenter
    for name in ("held", "free"):
        world.create(kwok_pool(name, managed=False, consolidateAfter="5s"))
        world.create(spread(f"on-{name}", 2, "1500m", nodeSelector={"pool": name}))
    wait_nodes(world, 4)
    for name in ("held", "free"):
        world.wait_running(f"on-{name}", 2)
    assert _dovetail(beside.plane, "hold", "held").returncode == 0
    held = nodes_of(world, "held")
    scale(world, "on-held", 0)
    eventually(
        lambda: all(
            is_so(claim, "Consolidatable")
            for claim in world.claims().values()
            if claim["status"].get("nodeName") in held
        )
    )
    scale(world, "on-free", 0)
    eventually(lambda: not nodes_of(world, "free"))
    assert nodes_of(world, "held") == held
    assert karpenter.disruptions(), "it took the free ones"
    assert not [line for line in karpenter.disruptions() if any(name in line for name in held)]
    assert _dovetail(beside.plane, "release", "held").returncode == 0
    eventually(lambda: not world.nodes())
    assert all(any(name in line for line in karpenter.disruptions()) for name in held)


def test_the_quiet_way_needs_no_hold_and_makes_no_events(beside: Beside, tmp_path: Path) -> None:
    """With budgets of 0 for Karpenter and the policy in the annotation, Dovetail alone acts and no node is held."""
    world, karpenter = beside.world, beside.karpenter
    closed = [{"nodes": "0", "reasons": ["Empty", "Drifted", "Underutilized"]}]
    tree = kwok_pool("quiet", consolidateAfter="5s", budgets=closed)
    tree["metadata"]["annotations"] = {"dovetail.dev/disruption": json.dumps({"budgets": [{"nodes": "50%"}]})}
    world.create(tree)
    world.create(spread("on-quiet", 4, "1500m", nodeSelector={"pool": "quiet"}))
    wait_nodes(world, 4)
    world.wait_running("on-quiet", 4)
    scale(world, "on-quiet", 2)
    eventually(lambda: sum(is_so(claim, "Consolidatable") for claim in world.claims().values()) >= 2)
    with controller(tmp_path, "dovetail", *beside.flags(validationDelay="5s")) as process:
        process.wait_for("leading")
        eventually(lambda: len(world.nodes()) == 2)
        assert process.metric("dovetail_held_nodes") == 0
    assert karpenter.disruptions() == []
    assert not [
        node for node in world.nodes().values() if node["metadata"].get("annotations", {}).get("dovetail.dev/hold")
    ]
    blocked = [item for item in world.all("/api/v1/events") if "do-not-disrupt" in (item.get("message") or "")]
    assert blocked == []


def test_a_replacement_is_launched_by_karpenter_and_does_not_look_drifted(beside: Beside, tmp_path: Path) -> None:
    """Karpenter launches and initializes Dovetail's NodeClaim, which is held from the start and can drift."""
    world = beside.world
    # Karpenter judges drift and writes Consolidatable in one go: where the one is to be seen the other was looked at.
    web, old = _one_node(world, consolidateAfter="0s", consolidationPolicy="WhenEmpty")
    with history_of(beside.plane) as history, controller(tmp_path, "dovetail", *beside.flags()) as process:
        process.wait_for("leading")
        eventually(lambda: _all_held(world))
        _drift(world, web, "two")
        eventually(lambda: old not in world.claims())
        world.wait_running("wide", 1)
        eventually(lambda: not world.leftovers())
        eventually(lambda: all(is_so(claim, "Consolidatable") for claim in world.claims().values()))
        (new,) = world.claims().values()
        assert is_so(new, "Initialized")
        assert not is_so(new, "Drifted")
        assert history.created() == [new["metadata"]["name"]], "one replacement"
        came = history.first("NodeClaim", lambda entry: entry.type == "ADDED")
        assert came is not None
        assert _is_held(came.object)
        ready = history.first("Node", _initialized_on(new["status"]["nodeName"]))
        assert ready is not None
        assert _is_held(ready.object)
        _drift(world, web, "three")  # one whose hashes it can't read would never be drifted
        eventually(lambda: new["metadata"]["name"] not in world.claims())
        eventually(lambda: not world.leftovers())
        assert beside.karpenter.disruptions() == []


def test_nodes_that_drift_at_once_are_replaced_one_for_one(beside: Beside, tmp_path: Path) -> None:
    """Eight nodes with one pod each drift in the same second, budget 100 %: eight replacements, not 1 + 2 + ... + 8."""
    world, count = beside.world, 8
    web = kwok_pool("web", consolidateAfter="Never", budgets=[{"nodes": "100%"}])
    world.create(web)
    world.create(spread("wide", count, "1500m"))
    world.wait_running("wide", count)
    wait_nodes(world, count)
    old = set(world.claims())
    with history_of(beside.plane) as history, controller(tmp_path, "dovetail", *beside.flags()) as process:
        process.wait_for("leading")
        eventually(lambda: _all_held(world))
        _drift(world, web, "two")
        eventually(lambda: not old & set(world.claims()), seconds_max=600)
        world.wait_running("wide", count)
        eventually(lambda: not world.leftovers())
        assert len(history.created()) == count
        begun = [line for line in process.lines() if line.get("phase") == "tainting"]
        assert [(line["removes"], line["launches"]) for line in begun] == [(1, 1)] * count
        assert beside.karpenter.disruptions() == []


def test_consolidate_after_holds_though_karpenter_misses_the_event(beside: Beside, tmp_path: Path) -> None:
    """If Karpenter is down when a pod leaves, Dovetail still waits for consolidateAfter."""
    world, wait = beside.world, 40
    world.create(kwok_pool("web", consolidateAfter=f"{wait}s", consolidationPolicy="WhenEmpty"))
    world.create(spread("wide", 2, "1500m"))
    world.wait_running("wide", 2)
    wait_nodes(world, 2)
    with controller(tmp_path, "dovetail", *beside.flags(validationDelay="2s")) as process:
        process.wait_for("leading")
        eventually(lambda: all(is_so(claim, "Consolidatable") for claim in world.claims().values()))
        before = {name: claim["status"].get("lastPodEventTime") for name, claim in world.claims().items()}
        beside.karpenter.kill()
        went = time.monotonic()
        scale(world, "wide", 1)
        eventually(lambda: any(_taints(world, name) == [TAINT] for name in world.nodes()), seconds_max=300)
        assert time.monotonic() - went >= wait
        after = {name: claim["status"].get("lastPodEventTime") for name, claim in world.claims().items()}
        assert after == before, "nobody wrote it down"
        beside.karpenter.start()
        eventually(lambda: len(world.nodes()) == 1)


def _initialized_on(node: str) -> Callable[[Entry], bool]:
    return lambda e: e.name == node and e.object["metadata"]["labels"].get("karpenter.sh/initialized") == "true"


def test_karpenter_dies_twice_in_the_middle_of_a_command(beside: Beside, tmp_path: Path) -> None:
    """Down before the launch and again in the middle of the drain: it cleans up what is its own, and all gets done."""
    world, karpenter = beside.world, beside.karpenter
    web, old = _one_node(world, consolidateAfter="Never")
    (node,) = world.nodes()
    world.create(kwok_pool("other", managed=False, consolidateAfter="Never"))
    world.create(spread("beside", 1, "1500m", nodeSelector={"pool": "other"}))
    wait_nodes(world, 2)
    (bystander,) = nodes_of(world, "other")
    assert _dovetail(beside.plane, "hold", "web").returncode == 0
    _drift(world, web, "two")
    eventually(lambda: is_so(world.claims()[old], "Drifted"))
    karpenter.kill()
    with history_of(beside.plane) as history, controller(tmp_path, "dovetail", *beside.flags()) as process:
        eventually(lambda: len(world.claims()) == 3)
        eventually(lambda: any(t["key"] == TAINT for t in world.nodes()[node]["spec"].get("taints") or ()))
        _taint(world, bystander, KARPENTERS_TAINT)
        kept = _keep(world)
        beside.kubelets.is_on = False  # so that its rounds come before the new node
        karpenter.start()
        eventually(lambda: KARPENTERS_TAINT["key"] not in _taints(world, bystander))
        assert TAINT in _taints(world, node), "its own clean-up leaves ours alone"
        beside.kubelets.is_on = True
        eventually(lambda: "deletionTimestamp" in world.claims()[old]["metadata"])
        karpenter.kill()
        assert old in world.claims(), "a pod that does not end is in the way of the drain"
        world.patch(kept, {"metadata": {"finalizers": None}})
        karpenter.start()
        eventually(lambda: old not in world.claims())
        world.wait_running("wide", 1)
        eventually(lambda: not world.leftovers())
        assert len(history.created()) == 1, "one replacement"
        assert _lost_its_taint(history, node) == []
        process.wait_for("", phase="done")
        assert karpenter.disruptions() == []


def _taints(world: World, node: str) -> list[str]:
    return [taint["key"] for taint in world.nodes()[node]["spec"].get("taints") or ()]


def _taint(world: World, node: str, taint: Tree) -> None:
    tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    there = world.nodes()[node]["spec"].get("taints") or []
    world.patch(tree, {"spec": {"taints": [*there, taint]}})


def _keep(world: World) -> Tree:
    """Give the pod of `wide` a finalizer, so that its node's drain takes as long as the test wants."""
    (found,) = world.pods("wide")
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": found["metadata"]["name"], "namespace": "default"}}
    world.patch(tree, {"metadata": {"finalizers": ["example.com/kept"]}})
    return tree


def test_uninstalled_in_the_middle_of_a_command_it_leaves_all_to_karpenter(beside: Beside, tmp_path: Path) -> None:
    """After a controller is killed during a replacement, `release --all` removes all marks and Karpenter continues."""
    world, karpenter = beside.world, beside.karpenter
    web, old = _one_node(world, consolidateAfter="Never")
    (node,) = world.nodes()
    with controller(tmp_path, "dovetail", *beside.flags()) as process:
        process.wait_for("leading")
        eventually(lambda: _all_held(world))
        beside.kubelets.is_on = False  # the new node comes and does not get ready
        _drift(world, web, "two")
        eventually(lambda: len(world.nodes()) == 2 and world.leftovers())
        eventually(lambda: all(is_so(claim, "Registered") for claim in world.claims().values()))
        process.kill()
    assert karpenter.disruptions() == []
    world.patch(web, {"metadata": {"labels": {"dovetail.dev/manage": None}}})
    done = _dovetail(beside.plane, "release", "--all")
    assert done.returncode == 0, done.stderr
    assert "dovetail" not in json.dumps([_marks(each) for each in (*world.nodes().values(), *world.claims().values())])
    assert world.leftovers() == []
    beside.kubelets.is_on = True
    eventually(lambda: old not in world.claims())
    world.wait_running("wide", 1)
    assert any(node in line for line in karpenter.disruptions()), "Karpenter's own drift took it"


def _marks(item: Tree) -> list[object]:
    """Return where marks could be; not who wrote which field."""
    meta, spec = item["metadata"], item["spec"]
    return [meta.get("labels"), meta.get("annotations"), meta.get("finalizers"), spec.get("taints")]


def test_karpenters_own_crds_put_back(beside: Beside, tmp_path: Path) -> None:
    """Without Dovetail's fields in the CRD, the annotation expires a node gracefully, and Karpenter sees no drift."""
    world = beside.world
    world.api.install_crds(karpenters_own())
    web, old = _one_node(world, consolidateAfter="0s", consolidationPolicy="WhenEmpty")
    (node,) = world.nodes()
    with history_of(beside.plane) as history, controller(tmp_path, "dovetail", *beside.flags()) as process:
        process.wait_for("lacks Dovetail's fields")
        eventually(lambda: _all_held(world))
        world.patch(web, {"metadata": {"annotations": {"dovetail.dev/disruption": "expireAfter: 3s"}}})
        eventually(lambda: history.first("Node", lambda e: e.name == node and e.is_tainted))
        world.patch(web, {"metadata": {"annotations": {"dovetail.dev/disruption": None}}})
        eventually(lambda: old not in world.claims())
        world.wait_running("wide", 1)
        eventually(lambda: not world.leftovers())
        eventually(lambda: all(is_so(claim, "Consolidatable") for claim in world.claims().values()))
        assert not any(is_so(claim, "Drifted") for claim in world.claims().values())
        assert beside.karpenter.disruptions() == []
