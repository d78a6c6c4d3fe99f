"""The five commands of a new user's first hour, on a captured cluster of each cloud: no flag says which cloud it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main

CLOUDS: dict[str, dict[str, Any]] = {
    "aws": {
        "region": "eu-west-1",
        "zone": "eu-west-1a",
        "types": ("m5.2xlarge", "m5.large"),
        "provider": "aws:///eu-west-1a/i-0{number:016d}",
        "class": ("karpenter.k8s.aws", "EC2NodeClass"),
    },
    "azure": {
        "region": "westeurope",
        "zone": "westeurope-1",
        "types": ("Standard_D8s_v5", "Standard_D2s_v5"),
        "provider": "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm-{number}",
        "class": ("karpenter.azure.com", "AKSNodeClass"),
    },
    "gcp": {
        "region": "europe-west1",
        "zone": "europe-west1-b",
        "types": ("n2-standard-8", "n2-standard-2"),
        "provider": "gce://project/europe-west1-b/vm-{number}",
        "class": ("karpenter.k8s.gcp", "GCENodeClass"),
    },
}
NOW = "2026-05-13T15:30:00Z"
OLD = "2026-05-01T00:00:00Z"
YOUNG = "2026-05-13T15:10:00Z"


def _node(cloud: dict[str, Any], number: int, kind: str) -> list[dict[str, Any]]:
    name = f"node-{number}"
    labels = {
        "karpenter.sh/nodepool": "web",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/registered": "true",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/region": cloud["region"],
        "topology.kubernetes.io/zone": cloud["zone"],
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
    }
    provider = cloud["provider"].format(number=number)
    room = {"cpu": "7500m", "memory": "28Gi", "pods": "58"}
    group, node_class = cloud["class"]
    conditions = [{"type": "Initialized", "status": "True", "lastTransitionTime": OLD}]
    conditions.append({"type": "Consolidatable", "status": "True", "lastTransitionTime": OLD})
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "creationTimestamp": OLD},
            "spec": {"providerID": provider},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": OLD}],
            },
        },
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": f"claim-{number}", "labels": labels, "creationTimestamp": OLD},
            "spec": {"nodeClassRef": {"group": group, "kind": node_class, "name": "default"}, "expireAfter": "Never"},
            "status": {
                "nodeName": name,
                "providerID": provider,
                "lastPodEventTime": OLD,
                "conditions": conditions,
            },
        },
    ]


def _pod(name: str, node: int, cpu: str, created: str = OLD, app: str = "web") -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": app},
            "creationTimestamp": created,
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": f"node-{node}",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}],
        },
        "status": {"phase": "Running", "startTime": created},
    }


@pytest.fixture(params=sorted(CLOUDS))
def capture(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """A small cluster: an empty node, two that hardly work, and one that a PDB holds; as kubectl would print it."""
    cloud = CLOUDS[request.param]
    group, node_class = cloud["class"]
    requirements = [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(cloud["types"])},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "web", "creationTimestamp": OLD},
        "spec": {
            "disruption": {"consolidateAfter": "1m", "budgets": [{"nodes": "100%"}]},
            "template": {
                "spec": {
                    "requirements": requirements,
                    "nodeClassRef": {"group": group, "kind": node_class, "name": "default"},
                    "expireAfter": "Never",
                }
            },
        },
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": OLD}]},
    }
    guard = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
        "status": {"expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0},
    }
    items: list[dict[str, Any]] = [pool, guard]
    for number in range(4):
        items += _node(cloud, number, cloud["types"][0])
    items += [_pod("web-1", 1, "300m"), _pod("web-2", 2, "300m", YOUNG), _pod("db-0", 3, "500m", app="db")]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    return ["-f", str(file), "--now", NOW]


def _json(arguments: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    assert main([*arguments, "-o", "json"]) == 0
    return json.loads(capsysbinary.readouterr().out)


def test_plan_to_end(capture: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The empty node goes first, then the ones that hardly work; every step saves real money."""
    plan = _json(["plan", *capture, "--to-end"], capsysbinary)
    assert plan["steps"][0]["actions"][0]["action"] == "deleteEmpty"
    assert plan["end"]["nodes"] < 4
    assert float(plan["end"]["savedPerHour"]) > 0
    assert float(plan["end"]["costPerHour"]) > 0


def test_plan_compare(capture: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Karpenter's answer stands beside ours."""
    compared = _json(["plan", *capture, "--compare", "karpenter-1.15"], capsysbinary)["compare"]
    assert compared["profile"] == "karpenter-1.15"
    assert compared["actions"]


def test_blockers(capture: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The PDB that can never allow an eviction is worth what its node costs."""
    found = _json(["blockers", *capture], capsysbinary)["blockers"]
    guard = next(entry for entry in found if entry["name"] == "default/db")
    assert guard["impossible"]
    assert float(guard["savingsPerHour"]) > 0


def test_explain(capture: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The price is known and the pod has somewhere to go."""
    said = _json(["explain", "node/node-3", *capture], capsysbinary)
    assert said["verdict"] == "pdb"
    assert said["price"] > 0
    assert said["landings"][0]["pod"] == "default/db-0"


def test_whatif(capture: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The last hour is replayed under three policies, and the bill is not nothing."""
    answer = _json(["whatif", *capture, "--set", "consolidateAfter=10m", "--for", "1h"], capsysbinary)
    assert answer["replayed"]["arrivals"] == 1
    for key in ("baseline", "karpenter", "changed"):
        assert float(answer[key]["cost"]) > 0
        assert answer[key]["violations"] == []
    assert answer["patch"] == {"spec": {"disruption": {"consolidateAfter": "10m"}}}
