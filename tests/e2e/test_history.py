"""The tests' own watch continues after the server closes it, which happens after half an hour."""

from pathlib import Path

from tests.support.background import cloud_on
from tests.support.control_plane import ControlPlane
from tests.support.e2e_world import World, pool, write_catalogue
from tests.support.history import history_of


def test_nothing_is_missed_when_the_server_ends_a_watch(cluster: ControlPlane, world: World, tmp_path: Path) -> None:
    """Nodes that are created after the end of a watch are seen, and none twice."""
    with cloud_on(cluster.kubeconfig, write_catalogue(tmp_path)), history_of(cluster) as history:
        web = world.pool(pool("web", consolidateAfter="Never"))
        world.node("a", web)
        history.catch_up()
        for connection in history._connections.values():
            connection.sock.shutdown(0)  # no more to read: what an end of the answer looks like
        world.node("b", web)
        history.catch_up()
        assert sorted(history.created("Node")) == ["a", "b"]
