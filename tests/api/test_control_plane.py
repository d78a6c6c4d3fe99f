"""Check the test control plane that other tests rely on."""

from collections.abc import Callable
from typing import Any

from tests.support.control_plane import Client, ControlPlane, eventually
from tests.support.crd_rules import pool


def test_a_user_without_rights_is_refused(api_server: ControlPlane) -> None:
    """A known user may do only what a role grants; an unknown user is not authenticated."""
    with api_server.client("nobody") as client:
        assert client.request("GET", "/api/v1/nodes")[0] == 403
    stranger = Client(int(api_server.base_url.rsplit(":", 1)[1]), "made-up", api_server.ca_path)
    with stranger:
        assert stranger.request("GET", "/api/v1/nodes")[0] == 401


def test_a_restart_keeps_address_and_data(new_api_server: Callable[..., ControlPlane]) -> None:
    """Stored data is still there after the API server was killed and restarted."""
    plane = new_api_server()
    before = plane.base_url
    with plane.client() as client:
        client.apply(pool())
        plane.restart_apiserver()
        assert plane.base_url == before
        client.close()
        assert eventually(lambda: client.get(pool()))["metadata"]["name"] == "default"


def test_what_a_failed_test_broke_is_mended(new_api_server: Callable[..., ControlPlane]) -> None:
    """Stopped programs are restarted with the same data, and the controller manager sees new writes."""
    plane = new_api_server(whole=True)
    with plane.client() as client:
        client.apply(pool())
        client.close()
        for name in ("kube-apiserver", "kube-controller-manager"):
            plane._processes[name].kill()
            plane._processes[name].wait()
        assert plane.running() == ["etcd", "kube-scheduler"]
        plane.mend()
        assert plane.running() == ["etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"]
        assert client.get(pool()) is not None


def test_service_accounts_get_tokens(api_server: ControlPlane) -> None:
    """The server issues tokens for service accounts and accepts them."""
    with api_server.client() as client:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tried", "namespace": "default"}}
        client.apply(account)
        path = f"{client.path_of(account)}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = client.request("POST", path, request)[1]["status"]["token"]
    port = int(api_server.base_url.rsplit(":", 1)[1])
    with Client(port, token, api_server.ca_path) as account_client:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        who = account_client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)[1]
    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:default:tried"


def _deployment() -> dict[str, Any]:
    labels = {"app": "tried"}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "tried", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def test_the_whole_cluster_makes_and_places_pods(cluster: ControlPlane) -> None:
    """A Deployment's pods are made by the controller manager and bound by the scheduler."""
    with cluster.client() as client:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "tried"}}
        size = {"cpu": "4", "memory": "8Gi", "pods": "20"}
        ready = {"type": "Ready", "status": "True", "reason": "Tried", "message": ""}
        client.apply(node)
        status = {"status": {"capacity": size, "allocatable": size, "conditions": [ready]}}
        patched = client.request(
            "PATCH", f"{client.path_of(node)}/status", status, kind="application/strategic-merge-patch+json"
        )
        assert patched[0] == 200
        client.apply(_deployment())
        pods = "/api/v1/namespaces/default/pods"

        def bound() -> bool:
            items = client.request("GET", pods, labelSelector="app=tried")[1]["items"]
            return [pod["spec"].get("nodeName") for pod in items] == ["tried", "tried"]

        eventually(bound)
        assert cluster.running() == ["etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"]
        client.delete(_deployment())
        for pod in client.request("GET", pods, labelSelector="app=tried")[1]["items"]:
            client.request("DELETE", f"{pods}/{pod['metadata']['name']}", gracePeriodSeconds="0")
        client.delete(node)
