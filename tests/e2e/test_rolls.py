"""`dovetail roll` on a real API server: requests, who takes them up, what can wait for them, what removes them."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.controller import Process
from tests.support.e2e_world import Tree, World, pool, write_catalogue
from tests.support.kubectl import has_met, wait_for_roll

ROLL = "dovetail.dev/roll"
COMPLETE = "dovetail.dev/RolloutComplete"
Command = Callable[..., int]


@pytest.fixture
def roll(cluster: ControlPlane) -> Iterator[Command]:
    """Return the command line of this cluster."""

    def call(*words: str) -> int:
        return main([*words, "--kubeconfig", str(cluster.kubeconfig)])

    return call


def annotations(world: World, tree: Tree) -> Tree:
    """Return the annotations of an object as it is now."""
    found = world.api.get(tree)
    assert found is not None
    return dict(found["metadata"].get("annotations") or {})


def state(world: World, tree: Tree) -> str | None:
    """Return the status of the condition that says whether a pool's roll is done."""
    found = world.api.get(tree)
    return None if found is None else conditions_of(found).get(COMPLETE)


def made(world: World, name: str, nodes: int, **disruption: object) -> Tree:
    """Return a managed pool with some nodes, each with a pod, whose condition says that nothing rolls."""
    tree = world.pool(pool(name, consolidateAfter="Never", **disruption))
    names = [f"{name}-{number}" for number in range(nodes)]
    for node in names:
        world.node(node, tree)
    world.fill(name, names, cpu="1500m", nodeSelector={"pool": name})
    eventually(lambda: state(world, tree) == "True")
    return tree


def test_a_roll_of_a_pool_is_asked_for_and_waited_for(
    cluster: ControlPlane,
    world: World,
    running: Process,
    roll: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`roll` returns when the condition is False; both waits return when every node is another one."""
    tree = made(world, "web", 2, budgets=[{"nodes": "1"}])
    before = set(world.claims())
    assert roll("roll", "nodepool/web", "--reason", "new kernel") == 0
    assert state(world, tree) == "False"
    asked = json.loads(annotations(world, tree)[ROLL])
    assert asked["reason"] == "new kernel"
    assert asked["before"] == asked["requested"]
    waiter = wait_for_roll("web", cluster.kubeconfig, tmp_path)
    prices = str(write_catalogue(tmp_path))
    assert roll("rollout", "status", "web", "--wait", "--timeout", "2m", "--catalog", prices) == 0
    assert has_met(waiter)
    assert not before & set(world.claims())
    assert ROLL not in annotations(world, tree)
    reasons = {item["reason"] for item in world.events("web")}
    assert {"RolloutStarted", "RolloutFinished"} <= reasons
    assert "2 of 2 nodes are older" in capsys.readouterr().out
    long_ago = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    assert roll("roll", "web", "--before", long_ago) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert ROLL not in annotations(world, tree)


def test_one_node_on_request_and_a_request_that_is_taken_back(
    world: World, running: Process, roll: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node is replaced alone; a request that is taken back before its turn rolls nothing."""
    tree = made(world, "single", 2)
    assert roll("roll", "single-1") == 0
    assert state(world, tree) == "False"
    eventually(lambda: "single-1" not in world.claims() and len(world.claims()) == 2)
    assert "single-0" in world.claims()
    eventually(lambda: state(world, tree) == "True")
    assert roll("pause", "single") == 0
    assert roll("roll", "single") == 0
    assert roll("roll", "single-0") == 0
    capsys.readouterr()
    assert roll("roll", "single", "--cancel") == 0
    assert "dovetail roll single-0 --cancel" in capsys.readouterr().out
    assert roll("roll", "single-0", "--cancel") == 0
    eventually(lambda: state(world, tree) == "True")
    assert roll("resume", "single") == 0
    assert "single-0" in world.claims()
    assert roll("roll", "single", "--cancel") == 0
    assert "no request" in capsys.readouterr().out


@pytest.mark.parametrize("taking_back", ["label", "release", "uninstall"])
def test_nothing_of_a_roll_stays_on_a_pool_that_is_taken_back(
    world: World, running: Process, roll: Command, taking_back: str
) -> None:
    """Un-labelling, `release` and `release --all` remove condition, requests and the domain at work."""
    zonal = {"nodes": "1", "topologyKey": "topology.kubernetes.io/zone", "sequential": True}
    tree = made(world, "back", 1, budgets=[zonal])
    claim = world.claims()["back-0"]
    assert roll("pause", "back") == 0
    assert roll("roll", "back") == 0
    assert roll("roll", "node/back-0") == 0
    domain = {"key": zonal["topologyKey"], "value": "zone-a", "since": "2026-01-01T00:00:00Z"}
    world.patch(tree, {"metadata": {"annotations": {"dovetail.dev/rolling-domain": json.dumps(domain)}}})
    world.patch(tree, {"metadata": {"labels": {"dovetail.dev/manage": None}}})
    if taking_back != "label":
        assert roll("release", "back" if taking_back == "release" else "--all") == 0
    else:
        eventually(lambda: state(world, tree) is None and ROLL not in annotations(world, claim))
        eventually(lambda: ROLL not in annotations(world, tree))
    left = annotations(world, tree)
    assert not [name for name in left if name in (ROLL, "dovetail.dev/rolling-domain", "dovetail.dev/rollout")]
    assert ROLL not in annotations(world, claim)
    assert state(world, tree) is None


def test_requests_that_cant_be_made(
    world: World, running: Process, roll: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each gets one sentence that says what to do, and writes nothing."""
    managed = made(world, "ours", 1)
    theirs = world.pool(pool("theirs", managed=False))
    ahead = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    for words, said in (
        (["no-such-pool"], "there is no NodePool or node of one 'no-such-pool'"),
        (["our"], "did you mean ours?"),
        (["theirs"], "kubectl label nodepool theirs dovetail.dev/manage=true"),
        (["ours", "theirs"], "kubectl label nodepool theirs"),
        (["ours", "--before", ahead], "in the future"),
        (["ours", "--before", "yesterday"], "write a time with its zone"),
        (["pod/ours"], "neither a NodePool nor a node"),
        (["ours", "--cancel", "--reason", "x"], "--cancel takes a request back"),
        (["ours", "--timeout", "soon"], "--timeout"),
    ):
        assert roll("roll", *words) == 2, words
        captured = capsys.readouterr()
        assert said in captured.err
        assert len(captured.err.strip().splitlines()) == 1
    assert all(ROLL not in annotations(world, tree) for tree in (managed, theirs))
