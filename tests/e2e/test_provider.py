"""The built-in provider: a cluster without Karpenter lives on its own. And the journal of what was decided on it."""

from pathlib import Path

from dovetail.lifecycle.journal import read, replay
from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import controller
from tests.support.e2e_world import World, pool, replica_set, write_catalogue, write_settings


def test_a_cluster_lives_on_its_own_and_can_be_replayed(cluster: ControlPlane, world: World, tmp_path: Path) -> None:
    """Pending pods get nodes, fields that Karpenter would write are written, nodes empty out; a replay is the same."""
    journal = tmp_path / "journal"
    flags = (
        "--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(tmp_path)), "--settings",
        str(write_settings(tmp_path)), "--provider", "simulated", "--journal", str(journal),
    )  # fmt: skip
    with controller(tmp_path, "dovetail", *flags) as process:
        process.wait_for("leading")
        world.create(pool("web", consolidateAfter="3s"))
        world.create(replica_set("app", 6, "1"))
        world.wait_running("app", 6)
        claims = world.claims()
        assert 1 <= len(claims) <= 4
        for name, item in claims.items():
            assert item["status"]["nodeName"] in world.nodes(), name
            assert item["metadata"]["annotations"]["karpenter.sh/nodepool-hash"]
        eventually(lambda: all("lastPodEventTime" in item["status"] for item in world.claims().values()))
        tree = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "app", "namespace": "default"}}
        world.patch(tree, {"spec": {"replicas": 0}})
        eventually(lambda: not world.nodes() and not world.claims())
        assert process.stop() == 0
    lines = journal.read_bytes().splitlines()
    assert [difference.number for difference in replay(lines)] == []
    assert sum(1 for _ in read(lines)) > 20


def test_settings_are_read_again(cluster: ControlPlane, world: World, tmp_path: Path) -> None:
    """A pool that is named in the changed settings file is managed from then on; a broken file changes nothing."""
    settings = write_settings(tmp_path)
    flags = (
        "--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(tmp_path)), "--settings",
        str(settings), "--provider", "simulated",
    )  # fmt: skip
    with controller(tmp_path, "dovetail", *flags) as process:
        process.wait_for("leading")
        world.node("idle", world.pool(pool("web", managed=False, consolidateAfter="0s")))
        settings.write_text("pools: [")
        process.wait_for("the settings file can't be used; the old settings stay")
        assert "idle" in world.nodes()
        write_settings(tmp_path, pools=["web"])
        process.wait_for("settings read again")
        eventually(lambda: "idle" not in world.nodes())
