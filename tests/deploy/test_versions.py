"""CRDs from elsewhere: overwritten by Karpenter's chart, restored by Dovetail's, or of an unknown version."""

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.api.crds.definitions import crds
from tests.support.control_plane import Client, ControlPlane, eventually
from tests.support.crd_rules import pool
from tests.support.processes import COMMAND, environment, running

pytestmark = pytest.mark.slow
OURS = ("consolidationGracePeriod", "consolidationSavingsThreshold", "expireAfter")


def _karpenters_own() -> list[dict[str, Any]]:
    """Return the CRDs without Dovetail's fields, as Karpenter's chart would install them."""
    trees = copy.deepcopy(crds())
    disruption = trees[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][
        "disruption"
    ]["properties"]
    for name in OURS:
        del disruption[name]
    budget = disruption["budgets"]["items"]
    for name in ("topologyKey", "sequential"):
        del budget["properties"][name]
    kept = [rule for rule in budget.get("x-kubernetes-validations", ()) if "topologyKey" not in rule["rule"]]
    budget["x-kubernetes-validations"] = kept
    return trees


def _by_helm(client: Client, tree: dict[str, Any]) -> None:
    """Create or replace an object as Helm does: by update, as the owner of every field."""
    before = client.get(tree)
    if before is None:
        status, answer = client.request("POST", client.path_of(tree, collection=True), tree, fieldManager="helm")
    else:
        tree = {**tree, "metadata": {**tree["metadata"], "resourceVersion": before["metadata"]["resourceVersion"]}}
        status, answer = client.request("PUT", client.path_of(tree), tree, fieldManager="helm")
    assert status in (200, 201), answer


def _server_side(client: Client, tree: dict[str, Any], *, force: bool) -> int:
    """Apply as `kubectl apply --server-side [--force-conflicts]` does."""
    more = {"force": "true"} if force else {}
    kind = "application/apply-patch+yaml"
    return client.request("PATCH", client.path_of(tree), tree, kind=kind, fieldManager="kubectl", **more)[0]


def _grace(client: Client, name: str) -> str | None:
    found = client.get({**pool(), "metadata": {"name": name}})["spec"].get("disruption", {})
    value: str | None = found.get("consolidationGracePeriod")
    return value


def _printed() -> list[dict[str, Any]]:
    """Return the CRDs as the command prints them."""
    done = subprocess.run([*COMMAND, "crds"], capture_output=True, text=True, check=True, env=environment())
    return list(yaml.safe_load_all(done.stdout))


def test_karpenters_chart_puts_its_crd_back_and_ours_goes_over_it(
    new_api_server: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """Karpenter's chart removes the fields but not the annotation; --force-conflicts restores them."""
    plane = new_api_server(install=False)
    with plane.client() as client:
        for tree in _karpenters_own():
            _by_helm(client, tree)
        eventually(lambda: client.request("GET", "/apis/karpenter.sh/v1/nodepools")[0] == 200)
        ours = _printed()
        assert _server_side(client, ours[0], force=False) == 409, "Helm owns the schema"
        assert [_server_side(client, tree, force=True) for tree in ours] == [200, 200]
        for name in ("still", "touched"):
            tree = pool(disruption={"consolidationGracePeriod": "30m"})
            tree["metadata"] = {"name": name, "annotations": {"dovetail.dev/disruption": "expireAfter: 20d"}}
            eventually(
                lambda tree=tree: client.create(tree)[0] in (201, 409) and _grace(client, tree["metadata"]["name"])
            )
        arguments = ["run", "--observe", f"--kubeconfig={plane.kubeconfig}", "--catalog=aws:us-east-1"]
        with running([*arguments, "--listen=127.0.0.1:0"], tmp_path / "log") as controller:
            controller.wait_for(message="in sync")
            for tree in _karpenters_own():
                _by_helm(client, tree)
            eventually(lambda: _grace(client, "still") is None)
            path = client.path_of({**pool(), "metadata": {"name": "touched"}})
            labels = {"metadata": {"labels": {"written": "true"}}}
            assert client.request("PATCH", path, labels, kind="application/merge-patch+json")[0] == 200
            note = eventually(lambda: _line(controller.lines(), "lacks Dovetail's fields"))
            assert "consolidationGracePeriod" in note
            assert "dovetail crds | kubectl apply --server-side" in note
            assert [_server_side(client, tree, force=True) for tree in ours] == [200, 200]
            eventually(lambda: _line(controller.lines(), "has Dovetail's fields"))
        eventually(lambda: _grace(client, "still") == "30m")
        assert _grace(client, "touched") is None, "written meanwhile: lost, as the page says"


def _line(lines: list[dict[str, Any]], words: str) -> str | None:
    return next((line["message"] for line in lines if words in line["message"]), None)


def test_an_unknown_crd_version_means_observe_only(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> None:
    """If the NodePool CRD serves only v2, the controller starts, explains why it only observes, and takes no Lease."""
    plane = new_api_server(install=False)
    trees = copy.deepcopy(crds())
    trees[0]["spec"]["versions"][0]["name"] = "v2"
    with plane.client() as client:
        client.install_crds(trees)
        arguments = ["run", f"--kubeconfig={plane.kubeconfig}", "--catalog=aws:us-east-1", "--listen=127.0.0.1:0"]
        with running(arguments, tmp_path / "log") as controller:
            assert controller.wait_for(message="starting")["observe"] is True
            assert _line(controller.lines(), "serves v2, not v1: observing only")
            eventually(lambda: _line(controller.lines(), "the cluster has no nodepools.karpenter.sh in v1"))
            assert controller.stop() == 0
        leases = client.request("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")[1]["items"]
        assert [item for item in leases if item["metadata"]["name"] == "dovetail"] == []
    assert json.dumps(controller.lines())
