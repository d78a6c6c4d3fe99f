"""Forged annotations on a real cluster: the controller starts, acts elsewhere and reports them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.background import Cloud, cloud_on
from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import controller
from tests.support.e2e_world import Tree, World, pool, write_catalogue, write_settings

COMMAND = "dovetail.dev/command"


@pytest.fixture
def cloud(cluster: ControlPlane, tmp_path: Path) -> Iterator[Cloud]:
    """Yield a cloud that lives on whatever happens to the controller."""
    with cloud_on(cluster.kubeconfig, write_catalogue(tmp_path)) as found:
        yield found


def _lie(claims: dict[str, Tree], since: str) -> str:
    """Return a record, in every way but its seal, of a command that removes all these nodes."""
    nodes = [
        {"node": name, "claim": name, "uid": claim["metadata"]["uid"], "pool": "web"} for name, claim in claims.items()
    ]
    tree = {
        "v": 1, "id": "0123456789ab", "action": "deleteDrifted", "method": "drifted", "phase": "deleting",
        "since": since, "nodes": nodes, "replacements": [], "pools": [], "by": "dovetail",
    }  # fmt: skip
    return json.dumps(tree)


def test_a_hostile_annotation_ends_nothing(cluster: ControlPlane, world: World, cloud: Cloud, tmp_path: Path) -> None:
    """No zone, 5,000 levels and a lie about other nodes, on Nodes and on a NodeClaim: all reported, none obeyed."""
    web = world.pool(pool("web", consolidateAfter="1h"))
    now = world.pool(pool("now"))
    for name in ("one", "two", "three"):
        world.node(name, web)
    world.node("empty", now)
    claims = {name: claim for name, claim in world.claims().items() if name != "empty"}
    texts = {
        ("nodes", "one"): _lie(claims, "2026-01-01T00:00:00"),
        ("nodes", "two"): '{"nodes":' * 5000 + "1" + "}" * 5000,
        ("nodes", "three"): _lie(claims, "2026-01-01T00:00:00Z"),
        ("nodeclaims", "three"): _lie(claims, "2026-01-01T00:00:00Z"),
    }
    for (plural, name), text in texts.items():
        kind, version = {"nodes": ("Node", "v1"), "nodeclaims": ("NodeClaim", "karpenter.sh/v1")}[plural]
        tree = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
        world.patch(tree, {"metadata": {"annotations": {COMMAND: text}}})
    settings = write_settings(tmp_path)
    flags = [
        "--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(tmp_path)),
        "--settings", str(settings),
    ]  # fmt: skip
    with controller(tmp_path, "dovetail", *flags) as process:
        process.wait_for("leading")
        eventually(lambda: "empty" not in world.nodes())
        ignored = [line for line in process.lines() if line.get("topic") == "record-ignored"]
        assert sorted((line["kind"], line["name"]) for line in ignored) == [
            ("Node", "one"), ("Node", "three"), ("Node", "two"), ("NodeClaim", "three"),
        ]  # fmt: skip
        eventually(lambda: any(event["reason"] == "CommandRecordIgnored" for event in world.events("one")))
        assert set(world.nodes()) == {"one", "two", "three"}
        # The claim of the empty node may outlive it for a moment.
        left = {name: claim for name, claim in world.claims().items() if name != "empty"}
        assert {name: claim["metadata"].get("deletionTimestamp") for name, claim in left.items()} == dict.fromkeys(
            claims
        )
        assert all(not node["spec"].get("taints") for node in world.nodes().values())
        assert process.stop() == 0
