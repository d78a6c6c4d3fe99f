"""The recommended policy beside the real Karpenter: steering, evictions in order, and either right missing.

Runs where KARPENTER_BIN names a Karpenter v1.15 binary with the kwok provider; skips loudly elsewhere. Steering leaves
young nodes alone, so the controller's clock is ten minutes ahead. Settings that hurry, else those that are recommended.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.model import names
from tests.paths import ROOT
from tests.support.background import Inside, running_inside
from tests.support.control_plane import ControlPlane, eventually
from tests.support.e2e_world import Tree, World, replica_set
from tests.support.history import history_of
from tests.support.karpenter import BINARY, Beside, beside_karpenter, kwok_pool, scale, spread, wait_nodes

pytestmark = [
    pytest.mark.karpenter,
    pytest.mark.xdist_group("karpenter"),
    pytest.mark.skipif(
        not BINARY, reason="NOT RUN beside the real Karpenter: KARPENTER_BIN names no Karpenter with the kwok provider"
    ),
]
CHART = list(yaml.safe_load_all((ROOT / "deploy" / "manifests" / "dovetail-acting.yaml").read_text()))
STEERING = ({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]},)
EVICTIONS = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
)


@pytest.fixture
def beside(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> Iterator[Beside]:
    """Yield a control plane of its own with Karpenter on it."""
    with beside_karpenter(new_api_server(whole=True), tmp_path) as found:
        yield found


def _limited(plane: ControlPlane, path: Path, *more: Tree) -> Path:
    """Give a user the rules of the chart's acting roles, and some more; return its kubeconfig."""
    roles = [tree for tree in CHART if tree["kind"] in ("ClusterRole", "Role")]
    kept = [tree for tree in roles if not tree["metadata"]["name"].endswith("-viewer")]
    rules = [*(rule for tree in kept for rule in tree["rules"]), *more]
    # The chart makes the Lease and the Secret, by name; here the controller does, in kube-system.
    made = {"apiGroups": ["", "coordination.k8s.io"], "resources": ["secrets", "leases"], "verbs": ["create"]}
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "User", "apiGroup": group, "name": "dovetail"}
    role: Tree = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "limited"},
        "rules": [*rules, made],
    }
    binding: Tree = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "limited"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "limited"},
        "subjects": [subject],
    }
    with plane.client() as api:
        api.apply(role)
        api.apply(binding)
    return plane.write_kubeconfig(path, user="dovetail")


def _inside(beside: Beside, kubeconfig: Path | None = None, **changes: Any) -> Inside:
    """Return a controller with the recommended settings, ten minutes ahead of everybody else."""
    settings = beside.folder / "recommended.json"
    settings.write_text(json.dumps({"base": "recommended", "validationDelay": "1s", "pollInterval": "1s", **changes}))
    return Inside(
        kubeconfig or beside.plane.kubeconfig,
        beside.folder / "catalogue.json",
        settings,
        clock=lambda: datetime.now(UTC) + timedelta(minutes=10),
    )


def _half_used(world: World, consolidate_after: str) -> None:
    """Build three nodes with a small pod each; on one of them a large pod is left as well."""
    world.create(kwok_pool("web", consolidateAfter=consolidate_after))
    world.create(spread("wide", 3, "1500m"))
    world.wait_running("wide", 3)
    wait_nodes(world, 3)
    world.fill("small", sorted(world.nodes()), "100m")


def _marked(world: World) -> list[str]:
    """Return the pods that carry our deletion cost."""
    found = []
    for pod in world.pods():
        notes = pod["metadata"].get("annotations") or {}
        if names.STEERING_MARK in notes:
            assert notes[names.POD_DELETION_COST] == notes[names.STEERING_MARK]
            found.append(pod["metadata"]["name"])
    return found


def _closing(world: World) -> list[str]:
    """Return the nodes that carry the soft taint."""
    taint = {"key": names.CLOSING_TAINT, "effect": "PreferNoSchedule"}
    return sorted(
        name
        for name, node in world.nodes().items()
        if any(taint.items() <= entry.items() for entry in node["spec"].get("taints") or ())
    )


def _release(plane: ControlPlane, *words: str) -> str:
    command = [sys.executable, "-m", "dovetail.cli.main", "release", *words, "--kubeconfig", str(plane.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("words", [("web",), ("--all",)], ids=["a pool", "all"])
def test_steering_marks_and_release_takes_the_marks_back(beside: Beside, words: tuple[str, ...]) -> None:
    """A closing node and one victim per ReplicaSet; a person's own cost stays; Karpenter opens nothing for it."""
    world = beside.world
    _half_used(world, "1h")
    (own, *_) = world.pods("wide")
    person = {"metadata": {"annotations": {names.POD_DELETION_COST: "7"}}}
    world.patch({"apiVersion": "v1", "kind": "Pod", "metadata": own["metadata"]}, person)
    with running_inside(_inside(beside)):
        scale(world, "wide", 1)
        eventually(lambda: _closing(world) and len(_marked(world)) == 1)
        (victim,) = _marked(world)
        assert victim.startswith("small-")
        homes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in world.pods("small")}
        assert homes[victim] in _closing(world)
        # A pod that comes is placed, on whatever node, and nobody opens one for it.
        before = set(world.claims())
        world.create(replica_set("late", 1, "200m"))
        world.wait_running("late", 1)
        scale(world, "small", 2)
        assert victim not in {pod["metadata"]["name"] for pod in world.pods("small")}, "the scale-down took it"
        assert set(world.claims()) == before
    world.patch(kwok_pool("web"), {"metadata": {"labels": {names.MANAGE: None}}})
    said = _release(beside.plane, *words)
    assert "Pod" in said or not _marked(world)
    assert _marked(world) == []
    assert _closing(world) == []
    assert "dovetail.dev" not in json.dumps(
        [[pod["metadata"].get("annotations")] for pod in world.pods()]
        + [[node["metadata"].get("annotations"), node["spec"].get("taints")] for node in world.nodes().values()]
    )
    kept = [pod for pod in world.pods("wide") if pod["metadata"]["name"] == own["metadata"]["name"]]
    assert all(pod["metadata"]["annotations"][names.POD_DELETION_COST] == "7" for pod in kept)
    assert beside.karpenter.disruptions() == [] or words == ("--all",)


def test_switching_it_off_takes_the_marks_back(beside: Beside) -> None:
    """The next controller has steering off: it takes back what the last one wrote."""
    world = beside.world
    _half_used(world, "1h")
    with running_inside(_inside(beside)):
        scale(world, "wide", 1)
        eventually(lambda: _closing(world) and _marked(world))
    with running_inside(_inside(beside, steering="Off")):
        eventually(lambda: not _closing(world) and not _marked(world))


def _refused_evictions(text: str) -> list[Tree]:
    """Return the warnings that the right to evict is missing."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if line.get("topic") == "right" and "rights.evictions" in line["message"]]


@pytest.mark.parametrize(
    ("rules", "evicts", "marks"),
    [((), False, False), (EVICTIONS, True, False), (STEERING, False, True)],
    ids=["neither right", "evictions only", "steering only"],
)
def test_with_the_chart_and_a_right_missing(
    beside: Beside, tmp_path: Path, rules: tuple[Tree, ...], evicts: bool, marks: bool
) -> None:
    """Under the chart's own rules: the drain does what may not be evicted, nodes close though no pod may be marked."""
    world = beside.world
    _half_used(world, "1h")
    config = _limited(beside.plane, tmp_path / "limited", *rules)
    inside = _inside(beside, config)
    with history_of(beside.plane) as history, running_inside(inside):
        scale(world, "wide", 1)
        eventually(lambda: _closing(world))
        if marks:
            eventually(lambda: _marked(world))
        else:
            eventually(lambda: '"id":"steer/pod/mark/' in inside.text.getvalue())
        assert bool(_marked(world)) == marks
        world.patch(kwok_pool("web"), {"spec": {"disruption": {"consolidateAfter": "0s"}}})
        eventually(lambda: len(world.nodes()) == 1, seconds_max=300)
        world.wait_running("small", 3)
        eventually(lambda: '"phase":"done"' in inside.text.getvalue())
        assert len(history.created()) == 0, "the room that was there was enough"
    refused = _refused_evictions(inside.text.getvalue())
    assert ('"phase":"evicting"' in inside.text.getvalue()) or not refused
    assert bool(refused) == (not evicts)
    assert len(refused) <= 1, "one warning is enough until the right is given"
    assert all(line["right"] == "rights.evictions" for line in refused)
    assert beside.karpenter.disruptions() == []
