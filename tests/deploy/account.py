"""The chart's service account on a real API server: installed, with a token, as a kubeconfig."""

import json
from pathlib import Path
from typing import Any

from tests.support.control_plane import Client, ControlPlane, eventually

Tree = dict[str, Any]
_CLUSTER_FIRST = ("Namespace", "ServiceAccount")
_NEEDS_NO_SERVER = ("ServiceMonitor", "PrometheusRule")  # kinds of an operator that test clusters don't have


def install(client: Client, trees: list[Tree], namespace: str) -> list[Tree]:
    """Apply a chart's objects as Helm would, without hooks, and return those that were applied."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    kept = [
        tree
        for tree in trees
        if "helm.sh/hook" not in (tree["metadata"].get("annotations") or {}) and tree["kind"] not in _NEEDS_NO_SERVER
    ]
    ordered = sorted(kept, key=lambda tree: tree["kind"] not in _CLUSTER_FIRST)
    for tree in (space, *ordered):
        client.apply(tree)
    return ordered


def uninstall(client: Client, applied: list[Tree]) -> None:
    """Delete what was applied, and wait until it is gone."""
    for tree in reversed(applied):
        assert client.delete(tree) in (200, 202, 404)
    for tree in applied:
        eventually(lambda tree=tree: client.get(tree) is None)


def token_of(client: Client, account: str, namespace: str) -> str:
    """Return a token for a service account, as the kubelet would get one for a pod."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    status, answer = client.request("POST", path, request)
    assert status == 201, answer
    return str(answer["status"]["token"])


def kubeconfig_for(plane: ControlPlane, token: str, path: Path, namespace: str = "default") -> Path:
    """Return a kubeconfig that uses a token."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "test", "cluster": {"server": plane.base_url, "certificate-authority": str(plane.ca_path)}}
        ],
        "users": [{"name": "account", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "account", "namespace": namespace}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


def may(account: Client, group: str, resource: str, verb: str, *, namespace: str = "", name: str = "") -> bool:
    """Return whether the API server would allow a request now."""
    plural, _, part = resource.partition("/")
    asked = {
        "group": group,
        "resource": plural,
        "subresource": part,
        "verb": verb,
        "namespace": namespace,
        "name": name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    status, answer = account.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert status == 201, answer
    return bool(answer["status"]["allowed"])
