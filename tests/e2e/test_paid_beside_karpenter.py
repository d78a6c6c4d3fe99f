"""Commitments beside the real Karpenter: a node that they pay for stays, one that they don't cover goes.

Runs where KARPENTER_BIN names a Karpenter v1.15 binary with the kwok provider; skips loudly elsewhere.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import controller
from tests.support.e2e_world import Tree, World, replica_set
from tests.support.karpenter import BINARY, Beside, beside_karpenter, kwok_pool, scale, spread, wait_nodes

pytestmark = [
    pytest.mark.karpenter,
    pytest.mark.xdist_group("karpenter"),
    pytest.mark.skipif(
        not BINARY, reason="NOT RUN beside the real Karpenter: KARPENTER_BIN names no Karpenter with the kwok provider"
    ),
]
RESERVED = [{"name": "reserved", "kind": "ReservedInstances", "instanceTypes": ["small"], "count": 3}]


@pytest.fixture
def beside(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> Iterator[Beside]:
    """Yield a control plane of its own with Karpenter on it."""
    with beside_karpenter(new_api_server(whole=True), tmp_path) as found:
        yield found


def _types(world: World) -> list[str]:
    return sorted(node["metadata"]["labels"]["node.kubernetes.io/instance-type"] for node in world.nodes().values())


def _asked(beside: Beside, capsys: pytest.CaptureFixture[str], *words: str) -> Tree:
    where = ["--kubeconfig", str(beside.plane.kubeconfig), "--catalog", str(beside.folder / "catalogue.json")]
    capsys.readouterr()
    assert main([*words, "-o", "json", *where]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_covered_nodes_stay_and_the_others_go(
    beside: Beside, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of four nodes that hold little, the one that nobody has reserved goes; without reservations one is left."""
    world = beside.world
    world.create(kwok_pool("web"))
    with controller(tmp_path, "paid", *beside.flags(commitments=RESERVED)) as process:
        process.wait_for("leading")
        world.create(spread("wide", 3, "1500m"))
        world.create(spread("big", 1, "3500m"))
        wait_nodes(world, 4)
        assert _types(world) == ["medium", "small", "small", "small"]
        world.wait_running("wide", 3)
        world.wait_running("big", 1)
        world.create(replica_set("thin", 4, "400m"))  # one fits on each
        world.wait_running("thin", 4)
        covered = set(world.claims())
        scale(world, "wide", 0)
        scale(world, "big", 0)
        eventually(lambda: _types(world) == ["small"] * 3)
        eventually(lambda: len(world.claims()) == 3)
        assert set(world.claims()) < covered
        plan = _asked(beside, capsys, "plan")
        assert plan["actions"] == []
        assert (plan["bill"]["commitments"][0]["used"], plan["costPerHour"]) == (3, "0")
        node = min(world.nodes())
        told = _asked(beside, capsys, "explain", node)
        assert told["paid"]["perHour"] == "0"
        assert "covered by reserved: going saves $0.00/h of its $0.10/h" in told["paid"]["why"]
    with controller(tmp_path, "listed", *beside.flags()):
        eventually(lambda: len(world.nodes()) == 1)
