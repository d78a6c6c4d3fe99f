"""`dovetail doctor` on a real API server: each check in the states that people meet."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.crds.definitions import crds
from dovetail.cli.main import main
from dovetail.live.doctor import CHECKS
from tests.deploy.account import kubeconfig_for, token_of
from tests.support.control_plane import Client, ControlPlane

MERGE = "application/merge-patch+json"
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "web"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
            }
        },
    },
}
LABELS = {
    "karpenter.sh/nodepool": "web",
    "node.kubernetes.io/instance-type": "m5.large",
    "topology.kubernetes.io/region": "eu-west-1",
    "topology.kubernetes.io/zone": "eu-west-1a",
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "one", "labels": LABELS, "annotations": {"dovetail.dev/hold": "true"}},
    "spec": {"providerID": "aws:///eu-west-1a/i-1"},
}
CONTROLLER = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "dovetail", "namespace": "default", "labels": {"app.kubernetes.io/name": "dovetail"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "controller", "image": "dovetail", "args": ["run"]}]},
        },
    },
}
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "dovetail", "namespace": "default"},
}


class Doctor:
    """Asks with one kubeconfig and returns the checks by name, with the exit status."""

    def __init__(self, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._kubeconfig, self._capsys = kubeconfig, capsys

    def __call__(self) -> tuple[int, dict[str, dict[str, str]]]:
        status = main(["doctor", "--kubeconfig", str(self._kubeconfig), "-o", "json"])
        document = json.loads(self._capsys.readouterr().out)
        assert document.keys() == {"checks"}
        assert [check["name"] for check in document["checks"]] == ["dovetail", *CHECKS]
        for check in document["checks"]:
            assert check.keys() == {"name", "state", "why", "remedy"}
            assert check["state"] in ("ok", "warn", "fail", "unknown")
            assert check["state"] not in ("warn", "fail") or check["remedy"], check
        return status, {check["name"]: check for check in document["checks"]}


def _states(checks: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: check["state"] for name, check in checks.items()}


def test_a_cluster_from_nothing_to_running(
    new_api_server: Callable[..., ControlPlane], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without CRDs a check fails; each step that people take turns a check to ok, and each mishap turns it back."""
    plane = new_api_server(install=False)
    doctor = Doctor(plane.kubeconfig, capsys)
    with plane.client() as admin:
        status, checks = doctor()
        assert status == 1
        assert checks["crds"]["state"] == "fail"
        assert "dovetail crds" in checks["crds"]["remedy"]

        admin.install_crds(crds())
        admin.apply(POOL)
        admin.apply(NODE)
        status, checks = doctor()
        assert status == 0
        assert _states(checks) == {
            "dovetail": "ok", "cluster": "ok", "crds": "ok", "karpenter": "unknown", "reading": "ok", "writing": "ok",
            "controller": "warn", "pools": "ok", "policies": "ok", "holds": "warn", "prices": "ok",
        }  # fmt: skip
        assert "1 node held, and no controller runs" in checks["holds"]["why"]
        assert "aws:eu-west-1" in checks["prices"]["why"]

        admin.apply(CONTROLLER)
        status, checks = doctor()
        assert (status, checks["controller"]["state"]) == (1, "fail")
        _set_status(admin, {"replicas": 2, "readyReplicas": 2})
        assert doctor()[1]["controller"]["why"] == "default/dovetail runs, but no replica renews its Lease"
        renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        admin.apply({**LEASE, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 30, "renewTime": renewed}})
        status, checks = doctor()
        assert (status, checks["controller"]["state"], checks["holds"]["state"]) == (0, "ok", "ok")
        assert checks["pools"]["state"] == "warn"
        assert checks["pools"]["remedy"] == "kubectl label nodepool web dovetail.dev/manage=true"

        marks: dict[str, Any] = {"labels": {"dovetail.dev/manage": "true"}}
        _set_pool(admin, {**marks, "annotations": {"dovetail.dev/paused": "true"}})
        assert doctor()[1]["pools"]["remedy"] == "dovetail resume web"
        _set_pool(
            admin, {"annotations": {"dovetail.dev/paused": None, "dovetail.dev/disruption": "consolidateAfter: x"}}
        )
        status, checks = doctor()
        assert (status, checks["policies"]["state"]) == (1, "fail")
        assert checks["policies"]["why"].startswith("web: ")
        assert checks["pools"]["why"] == "1 of 1 pool managed: web"

        _set_pool(admin, {"annotations": {"dovetail.dev/disruption": None}})
        labels = {"node.kubernetes.io/instance-type": "odd.large"}
        assert admin.request("PATCH", "/api/v1/nodes/one", {"metadata": {"labels": labels}}, kind=MERGE)[0] == 200
        assert "no price for odd.large" in doctor()[1]["prices"]["why"]


def test_an_account_without_rights_sees_what_to_ask_for(
    api_server: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that may not be read is called ok, and the missing rule is in the remedy."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doctor"}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "guest", "namespace": "doctor"}}
    with api_server.client() as admin:
        admin.apply(space)
        admin.apply(account)
        path = kubeconfig_for(api_server, token_of(admin, "guest", "doctor"), tmp_path / "guest")
    status, checks = Doctor(path, capsys)()
    assert status == 1
    assert checks["reading"]["state"] == "fail"
    assert 'resources: ["nodepools"]' in checks["reading"]["remedy"]
    assert {checks[name]["state"] for name in ("controller", "pools", "policies", "holds", "prices", "karpenter")} == {
        "unknown"
    }
    assert "hold and pause don't" in checks["writing"]["why"]


def test_no_cluster_is_one_failed_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a cluster the answer is a failed check and what to do, not a traceback."""
    status, checks = Doctor(tmp_path / "missing", capsys)()
    assert status == 1
    assert checks["cluster"]["state"] == "fail"
    assert "--kubeconfig" in checks["cluster"]["remedy"]
    assert main(["doctor", "--kubeconfig", str(tmp_path / "missing")]) == 1
    shown = capsys.readouterr().out
    assert shown.count("\n") < 10
    assert all(len(line) <= 80 for line in shown.splitlines())


def _set_status(admin: Client, status: dict[str, Any]) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments/dovetail/status"
    assert admin.request("PATCH", path, {"status": status}, kind=MERGE)[0] == 200


def _set_pool(admin: Client, metadata: dict[str, Any]) -> None:
    path = "/apis/karpenter.sh/v1/nodepools/web"
    assert admin.request("PATCH", path, {"metadata": metadata}, kind=MERGE)[0] == 200
