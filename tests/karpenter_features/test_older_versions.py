"""Dovetail reads and plans objects of older Karpenter versions."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main
from tests.support.captures import whole_capture

WHEN = "2026-05-01T00:00:00Z"
LABELS = {
    "karpenter.sh/nodepool": "web",
    "karpenter.sh/registered": "true",
    "karpenter.sh/initialized": "true",
    "karpenter.sh/capacity-type": "on-demand",
    "node.kubernetes.io/instance-type": "m5.large",
    "topology.kubernetes.io/zone": "us-east-1a",
    "kubernetes.io/hostname": "n",
}
CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
ROOM = {"cpu": "2", "memory": "7Gi", "pods": "29"}


def _objects(version: str, disruption: dict[str, Any], status: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an empty node, its claim and its pool in the format of a version."""
    spec: dict[str, Any] = {"requirements": [], "nodeClassRef": CLASS}
    pool_spec: dict[str, Any] = {"template": {"spec": spec}, "disruption": disruption}
    return [
        {"apiVersion": version, "kind": "NodePool", "metadata": {"name": "web"}, "spec": pool_spec},
        {
            "apiVersion": version,
            "kind": "NodeClaim",
            "metadata": {"name": "n", "labels": LABELS, "creationTimestamp": WHEN},
            "spec": spec,
            "status": {"nodeName": "n", "providerID": "aws:///n", **status},
        },
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n", "labels": LABELS, "creationTimestamp": WHEN},
            "spec": {"providerID": "aws:///n"},
            "status": {
                "allocatable": ROOM,
                "capacity": ROOM,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": WHEN}],
            },
        },
    ]


DONE = {"type": "Initialized", "status": "True", "lastTransitionTime": WHEN}
VERSIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "v1beta1, WhenUnderutilized": (
        "karpenter.sh/v1beta1",
        {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"},
        {"conditions": [DONE]},
    ),
    "v1.0": (
        "karpenter.sh/v1",
        {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"},
        {"conditions": [DONE]},
    ),
    "v1.6, with the time of the last pod event": (
        "karpenter.sh/v1",
        {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s", "budgets": [{"nodes": "10%"}]},
        {"conditions": [DONE, {"type": "Consolidatable", "status": "True"}], "lastPodEventTime": WHEN},
    ),
    "v1.14, Balanced": (
        "karpenter.sh/v1",
        {"consolidationPolicy": "Balanced", "consolidateAfter": "0s"},
        {"conditions": [DONE, {"type": "Consolidatable", "status": "True"}]},
    ),
    "v1.15, a budget for Unhealthy": (
        "karpenter.sh/v1",
        {"consolidateAfter": "0s", "budgets": [{"nodes": "50%"}, {"nodes": "1", "reasons": ["Unhealthy"]}]},
        {"conditions": [DONE]},
    ),
    "a version to come, with fields that nobody knows": (
        "karpenter.sh/v1",
        {"consolidateAfter": "0s", "consolidationMood": "calm"},
        {"conditions": [DONE], "mood": "calm"},
    ),
}


@pytest.mark.parametrize("profile", ["dovetail", "karpenter-1.15"])
@pytest.mark.parametrize("case", VERSIONS)
def test_it_is_read_and_planned(case: str, profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty node is deleted; in Karpenter's profile it waits for the condition Consolidatable."""
    version, disruption, status = VERSIONS[case]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": [whole_capture(), *_objects(version, disruption, status)]}))
    arguments = ["plan", "-f", str(file), "--catalog", "aws:us-east-1", "--profile", profile, "-o", "json"]
    assert main([*arguments, "--now", "2026-05-02T00:00:00Z"]) == 0
    found = json.loads(capsys.readouterr().out)
    said = any(entry["type"] == "Consolidatable" for entry in status["conditions"])
    goes = profile == "dovetail" or said
    assert [action["action"] for action in found["actions"]] == (["deleteEmpty"] if goes else [])
