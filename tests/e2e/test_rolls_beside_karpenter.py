"""Rolls beside the real Karpenter: `diff` predicts its drift, and both waiters hold through a crash and a full PDB.

Runs where KARPENTER_BIN names a Karpenter v1.15 binary with the kwok provider; skips loudly elsewhere.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main
from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.controller import controller
from tests.support.e2e_world import Tree, World
from tests.support.karpenter import BINARY, Beside, beside_karpenter, is_so, kwok_pool, spread, wait_nodes
from tests.support.kubectl import has_met, wait_for_roll

pytestmark = [
    pytest.mark.karpenter,
    pytest.mark.xdist_group("karpenter"),
    pytest.mark.skipif(
        not BINARY, reason="NOT RUN beside the real Karpenter: KARPENTER_BIN names no Karpenter with the kwok provider"
    ),
]
COMPLETE = "dovetail.dev/RolloutComplete"
TYPE = "node.kubernetes.io/instance-type"


@pytest.fixture
def beside(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> Iterator[Beside]:
    """Yield a control plane of its own with Karpenter on it."""
    with beside_karpenter(new_api_server(whole=True), tmp_path) as found:
        yield found


def _template(**spec: Any) -> Tree:
    return {"spec": {"template": {"spec": spec}}}


def _required(key: str, operator: str, *values: str) -> Tree:
    kept = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    added = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
    return _template(requirements=[kept, added])


CHANGES: dict[str, Tree] = {
    "label": {"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}},
    "annotation": {"spec": {"template": {"metadata": {"annotations": {"team": "a"}}}}},
    "taint": _template(taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
    "startup-taint": _template(startupTaints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
    "expire-after": _template(expireAfter="100h"),
    "same-expire-after": _template(expireAfter="720h0m0s"),
    "grace": _template(terminationGracePeriod="30m"),
    "node-class": _template(nodeClassRef={"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "other"}),
    "type-not-met": _required(TYPE, "In", "large"),
    "type-met": _required(TYPE, "In", "small", "medium"),
    "type-not-in": _required(TYPE, "NotIn", "small"),
    "new-key": _required("example.com/team", "In", "a"),
    "new-key-exists": _required("example.com/team", "Exists"),
    "new-key-not-in": _required("example.com/team", "NotIn", "a"),
    "budgets": {"spec": {"disruption": {"budgets": [{"nodes": "0"}, {"nodes": "0", "reasons": ["Drifted"]}]}}},
    "weight": {"spec": {"weight": 10}},
    "limits": {"spec": {"limits": {"cpu": "100"}}},
    "own-label": {"metadata": {"labels": {"team": "a"}}},
    "consolidate-after": {"spec": {"disruption": {"consolidateAfter": "5m"}}},
}


def _merge(tree: Tree, change: Tree) -> Tree:
    found = dict(tree)
    for key, value in change.items():
        found[key] = (
            _merge(found[key], value) if isinstance(value, dict) and isinstance(found.get(key), dict) else value
        )
    return found


def test_diff_predicts_what_karpenter_finds(beside: Beside, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For every kind of change, the nodes that `diff` names are those that Karpenter itself finds drifted."""
    world = beside.world
    other = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "other"}}
    world.create(other)
    pools = {
        name: kwok_pool(name, managed=False, consolidateAfter="Never", budgets=[{"nodes": "0"}]) for name in CHANGES
    }
    for name, tree in pools.items():
        world.create(tree)
        world.create(spread(name, 1, "500m", nodeSelector={"pool": name, TYPE: "small"}))
    wait_nodes(world, len(pools))

    def hashed() -> bool:
        claims = world.claims().values()
        return all("karpenter.sh/nodepool-hash" in (item["metadata"].get("annotations") or {}) for item in claims)

    eventually(hashed)
    folder = tmp_path / "changes"
    folder.mkdir()
    for name, tree in pools.items():
        (folder / f"{name}.json").write_text(json.dumps(_merge(tree, CHANGES[name])))
    where = ["--kubeconfig", str(beside.plane.kubeconfig), "--catalog", str(beside.folder / "catalogue.json")]
    capsys.readouterr()
    assert main(["diff", "--change", str(folder), "-o", "json", *where]) == 0
    predicted = {entry["nodePool"] for entry in json.loads(capsys.readouterr().out)["drifts"] if entry["nodes"]}
    for name, tree in pools.items():
        world.patch(tree, CHANGES[name])

    def found() -> set[str]:
        claims = world.claims().values()
        return {item["metadata"]["labels"]["karpenter.sh/nodepool"] for item in claims if is_so(item, "Drifted")}

    # A label that makes every pool drift in the end: Karpenter has looked at all of them after their change before.
    eventually(lambda: predicted <= found())
    world.patch(pools["weight"], {"spec": {"template": {"metadata": {"labels": {"last": "yes"}}}}})
    eventually(lambda: "weight" in found())
    time.sleep(10)
    assert found() - {"weight"} == predicted


def _state(world: World) -> str | None:
    found = world.api.get({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "web"}})
    return None if found is None else conditions_of(found).get(COMPLETE)


class Waiters:
    """`dovetail rollout status --wait` and `kubectl wait`, as processes."""

    def __init__(self, beside: Beside) -> None:
        where = ["--kubeconfig", str(beside.plane.kubeconfig), "--catalog", str(beside.folder / "catalogue.json")]
        command = [sys.executable, "-m", "dovetail.cli.main", "rollout", "status", "web", "--wait", "--timeout", "9m"]
        self._own = subprocess.Popen([*command, *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._kubectl = wait_for_roll("web", beside.plane.kubeconfig, beside.folder)

    @property
    def are_waiting(self) -> bool:
        """Return whether neither has returned."""
        return self._own.poll() is None and self._kubectl.poll() is None

    def join(self) -> None:
        """Check that both return because the roll is done."""
        assert self._own.wait(300) == 0
        assert has_met(self._kubectl)


def _status(beside: Beside, capsys: pytest.CaptureFixture[str]) -> Tree:
    where = ["--kubeconfig", str(beside.plane.kubeconfig), "--catalog", str(beside.folder / "catalogue.json")]
    capsys.readouterr()
    assert main(["rollout", "status", "web", "-o", "json", *where]) == 0
    (found,) = json.loads(capsys.readouterr().out)["rollouts"]
    return dict(found)


def test_both_waiters_hold_through_a_crash_and_a_full_pdb(
    beside: Beside, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A roll by request, then one by drift: nobody stops waiting before every node is another one."""
    world = beside.world
    web = kwok_pool("web", consolidateAfter="Never", budgets=[{"nodes": "1"}])
    world.create(web)
    world.create(spread("free", 2, "1500m"))
    world.create(spread("kept", 1, "1500m"))
    wait_nodes(world, 3)
    world.wait_running("kept", 1)
    guard = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    world.create(guard)
    flags = beside.flags(leaseDuration="4s", renewDeadline="3s", retryPeriod="1s")
    before = set(world.claims())
    where = ["--kubeconfig", str(beside.plane.kubeconfig)]
    with controller(tmp_path, "first", *flags) as first:
        eventually(lambda: _state(world) == "True")
        assert main(["roll", "web", "--reason", "tried", *where]) == 0
        waiters = Waiters(beside)
        eventually(lambda: len(before & set(world.claims())) == 2)
        first.process.kill()
        first.process.wait()
    with controller(tmp_path, "second", *flags):
        eventually(lambda: len(before & set(world.claims())) == 1)
        eventually(lambda: (found := _status(beside, capsys))["blocked"] == 1 and not found["inFlight"])
        found = _status(beside, capsys)
        assert (found["total"], found["replaced"], found["cause"]) == (3, 2, "request")
        assert found["expectedEnd"] is None
        assert found["why"] == "never, while PDB default/guard allows nothing"
        assert waiters.are_waiting
        world.api.request("DELETE", world.api.path_of(guard))
        waiters.join()
        again = set(world.claims())
        assert not before & again
        wait_nodes(world, 3)
        world.patch(web, {"spec": {"template": {"metadata": {"labels": {"generation": "2"}}}}})
        eventually(lambda: _state(world) == "False")
        by_drift = Waiters(beside)
        by_drift.join()
        assert not again & set(world.claims())
