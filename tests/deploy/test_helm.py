"""Helm on a real control plane: install, upgrade, and uninstall with its hook."""

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.model import names
from tests.deploy.account import kubeconfig_for, token_of
from tests.support.chart import CHART, NAMESPACE, tool
from tests.support.control_plane import Client, ControlPlane, eventually
from tests.support.processes import COMMAND, environment

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "dovetail", "namespace": NAMESPACE},
}
MERGE = "application/merge-patch+json"


class Helm:
    """Helm with its own kubeconfig and home folder."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self._common = ["--namespace", NAMESPACE, "--kubeconfig", str(plane.kubeconfig)]
        self._environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}

    def __call__(self, *arguments: str) -> str:
        command = [str(tool("helm")), *arguments, *self._common]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self._environment, timeout=400)
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_helm_installs_upgrades_and_removes_it(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> None:
    """The server accepts every object; an upgrade keeps the Lease's holder; the hook runs before the deletion."""
    plane = new_api_server(whole=True)
    helm = Helm(plane, tmp_path)
    with plane.client() as admin:
        said = helm("install", "dovetail", str(CHART), "--create-namespace")
        assert "Dovetail observes" in said
        assert _deployed(admin) == ["--observe"]
        assert admin.get(LEASE) is not None

        # A leader holds the Lease; Helm's merge must not remove the holder.
        spec = {"holderIdentity": "leader", "leaseDurationSeconds": 15, "renewTime": "2026-11-01T12:00:00.000000Z"}
        assert admin.request("PATCH", admin.path_of(LEASE), {"spec": spec}, kind=MERGE)[0] == 200
        said = helm("upgrade", "dovetail", str(CHART), "--set=observe=false", "--set=dashboard.enabled=true")
        assert "acts on the NodePools" in said
        assert _deployed(admin) == []
        assert admin.get(LEASE)["spec"]["holderIdentity"] == "leader"

        # Back to observing while nodes are still held: the hook has its own permission to release them.
        # The Job is Helm's; the test runs its pod, because there is no kubelet here.
        helm("upgrade", "dovetail", str(CHART), "--set=observe=true")
        assert _deployed(admin) == ["--observe"]
        annotations = {names.HOLD: "true", names.DO_NOT_DISRUPT: "true"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "held", "annotations": annotations}}
        admin.apply(node)
        removal = threading.Thread(target=helm, args=("uninstall", "dovetail", "--timeout=300s"))
        removal.start()
        try:
            pod = eventually(lambda: _hook_pod(admin))
            assert admin.get(LEASE) is not None, "the hook comes first"
            assert pod["spec"]["serviceAccountName"] == "dovetail-release"
            token = token_of(admin, pod["spec"]["serviceAccountName"], NAMESPACE)
            account = kubeconfig_for(plane, token, tmp_path / "account")
            done = subprocess.run(
                [*COMMAND, *pod["spec"]["containers"][0]["args"], f"--kubeconfig={account}"],
                capture_output=True,
                text=True,
                check=False,
                env=environment(),
            )
            assert done.returncode == 0, done.stderr
            assert names.HOLD not in admin.get(node)["metadata"].get("annotations", {})
            _succeed(admin, pod)
        finally:
            removal.join(420)
        assert not removal.is_alive()
        eventually(lambda: _left(admin) == [])


def _deployed(admin: Client) -> list[str]:
    path = admin.path("apps/v1", "Deployment", NAMESPACE, "dovetail")
    arguments = admin.request("GET", path)[1]["spec"]["template"]["spec"]["containers"][0]["args"]
    return [argument for argument in arguments if argument == "--observe"]


def _hook_pod(admin: Client) -> dict[str, Any] | None:
    pods = admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")[1]["items"]
    return next((pod for pod in pods if pod["metadata"]["name"].startswith("dovetail-release")), None)


def _succeed(admin: Client, pod: dict[str, Any]) -> None:
    """Act as a kubelet whose container has succeeded."""
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    status = {
        "phase": "Succeeded",
        "containerStatuses": [
            {"name": "release", "image": "x", "imageID": "x", "ready": False, "restartCount": 0, "state": ended}
        ],
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
    assert admin.request("PATCH", path, {"status": status}, kind=MERGE)[0] == 200


def _left(admin: Client) -> list[str]:
    """Return objects with Dovetail's name or label."""
    found = []
    for path in (
        f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
        f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
        f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps",
        f"/api/v1/namespaces/{NAMESPACE}/services",
        f"/api/v1/namespaces/{NAMESPACE}/secrets",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    ):
        items = admin.request("GET", path)[1]["items"]
        found += [
            f"{path} {item['metadata']['name']}" for item in items if "dovetail" in json.dumps(item["metadata"]["name"])
        ]
    return found
