"""The simulated cloud on an API server: when its machines count as ready for pods."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.background import cloud_on
from tests.support.control_plane import Client, ControlPlane, eventually
from tests.support.e2e_world import World, pool, write_catalogue
from tests.support.e2e_world import claim as claim_of

NOT_READY = "node.kubernetes.io/not-ready"


def _conditions(client: Client, tree: dict[str, Any]) -> dict[str, str]:
    status = (client.get(tree) or {}).get("status") or {}
    return {each["type"]: each["status"] for each in status.get("conditions") or ()}


def test_a_machine_is_initialized_when_pods_can_go_there(
    new_api_server: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """While its node carries a taint of its start (here nobody takes it off) the claim is registered and no more.

    A command that took it for ready would evict pods that fit nowhere, and another machine would be opened for them.
    """
    plane = new_api_server()
    with plane.client() as client, cloud_on(plane.kubeconfig, write_catalogue(tmp_path)):
        web = World(client).pool(pool("web"))
        tree = claim_of("first", web)
        client.create(tree)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "first"}}
        eventually(lambda: _conditions(client, node).get("Ready") == "True")
        eventually(lambda: _conditions(client, tree).get("Registered") == "True")
        heartbeat = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/first"
        eventually(lambda: client.request("GET", heartbeat)[0] == 200)  # it has been round since
        time.sleep(1)
        found = client.get(node) or {}
        assert [taint["key"] for taint in found["spec"]["taints"]] == [NOT_READY]
        assert "Initialized" not in _conditions(client, tree)
        assert "karpenter.sh/initialized" not in found["metadata"]["labels"]
        change = {"spec": {"taints": None}}
        client.request("PATCH", client.path_of(node), change, kind="application/merge-patch+json")
        eventually(lambda: _conditions(client, tree).get("Initialized") == "True")
        assert (client.get(node) or {})["metadata"]["labels"]["karpenter.sh/initialized"] == "true"
