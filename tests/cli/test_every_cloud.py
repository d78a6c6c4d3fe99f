"""The five commands of a new user's first hour, on a captured cluster of each cloud, without a flag for the cloud."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main

pytestmark = pytest.mark.usefixtures("one_core")

CLOUDS: dict[str, dict[str, Any]] = {
    "aws": {
        "region": "eu-west-1",
        "zone": "eu-west-1a",
        "types": ("m5.2xlarge", "m5.large"),
        "price": "0.428",
        "provider": "aws:///eu-west-1a/i-0{number:016d}",
        "class": ("karpenter.k8s.aws", "EC2NodeClass"),
    },
    "azure": {
        "region": "westeurope",
        "zone": "westeurope-1",
        "types": ("Standard_D8s_v5", "Standard_D2s_v5"),
        "price": "0.46",
        "provider": "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm-{number}",
        "class": ("karpenter.azure.com", "AKSNodeClass"),
    },
    "gcp": {
        "region": "europe-west1",
        "zone": "europe-west1-b",
        "types": ("n2-standard-8", "n2-standard-2"),
        "price": "0.427336",
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
    """Return a small cluster as kubectl prints it: an empty node, two barely used ones, and one that a PDB blocks."""
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


@pytest.fixture
def price(request: pytest.FixtureRequest) -> Decimal:
    """Return the hourly price of each of the four nodes from the cloud's price list of that region."""
    return Decimal(CLOUDS[request.node.callspec.params["capture"]]["price"])


def _json(arguments: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    assert main([*arguments, "-o", "json"]) == 0
    return json.loads(capsysbinary.readouterr().out)


def test_plan_to_end(capture: list[str], price: Decimal, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The empty node is deleted first, then the two barely used ones; the totals use the region's prices."""
    plan = _json(["plan", *capture, "--to-end"], capsysbinary)
    taken = [(action["action"], action["nodes"]) for step in plan["steps"] for action in step["actions"]]
    assert taken == [("deleteEmpty", ["node-0"]), ("deleteCost", ["node-1", "node-2"])]
    assert [Decimal(step["costPerHour"]) for step in plan["steps"]] == [3 * price, price]
    assert [Decimal(step["savedPerHour"]) for step in plan["steps"]] == [price, 3 * price]
    assert (plan["end"]["nodes"], plan["end"]["podsMoved"], plan["end"]["commands"]) == (1, 2, 2)


def test_plan_compare(capture: list[str], price: Decimal, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """With a threshold that no move reaches, Dovetail keeps all nodes; Karpenter has no threshold and removes two."""
    file = Path(capture[1])
    cluster = json.loads(file.read_text())
    cluster["items"][0]["spec"]["disruption"]["consolidationSavingsThreshold"] = 5
    empty = [item for item in cluster["items"] if item["kind"] != "Pod" and item["metadata"]["name"].endswith("-0")]
    cluster["items"] = [item for item in cluster["items"] if item not in empty]
    file.write_text(json.dumps(cluster))
    plan = _json(["plan", *capture, "--compare", "karpenter-1.15"], capsysbinary)
    assert plan["actions"] == []
    compared = plan["compare"]
    assert compared["profile"] == "karpenter-1.15"
    (action,) = compared["actions"]
    assert action["action"] == "deleteCost"
    assert Decimal(action["savingsPerHour"]) == price * len(action["nodes"])
    for entry in compared["nodes"]:
        assert entry["verdict"] != entry["otherVerdict"]
        assert entry["why"]
    assert {*action["nodes"]} <= {entry["name"] for entry in compared["nodes"]}


def test_blockers(capture: list[str], price: Decimal, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """A PDB that can never allow an eviction is listed with what it holds back, its numbers and a remedy.

    With it all pods end on its node; without it they end on a machine of a quarter of the size.
    """
    (guard,) = _json(["blockers", *capture], capsysbinary)["blockers"]
    assert (guard["kind"], guard["name"], guard["gate"]) == ("PodDisruptionBudget", "default/db", "pdb")
    assert guard["impossible"]
    assert (guard["nodes"], guard["nodesHeldAlone"], guard["example"]) == (1, 1, "node-3")
    assert Decimal(guard["savingsPerHour"]) == price * 3 / 4
    assert "minAvailable 1 of 1 pod" in guard["why"]
    assert "maxUnavailable: 1" in guard["remedy"]


def test_explain(capture: list[str], price: Decimal, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The node has the region's price, and its pod fits on an existing node."""
    said = _json(["explain", "node/node-3", *capture], capsysbinary)
    assert said["verdict"] == "pdb"
    assert Decimal(str(said["price"])) == price
    (landing,) = said["landings"]
    assert (landing["pod"], landing["newNode"]) == ("default/db-0", None)
    assert landing["node"] in ("node-0", "node-1", "node-2")


def test_whatif(capture: list[str], price: Decimal, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The last hour is replayed under three policies, and the bill is above zero."""
    answer = _json(["whatif", *capture, "--set", "consolidateAfter=10m", "--for", "1h"], capsysbinary)
    assert answer["replayed"]["arrivals"] == 1
    assert [answer[key]["policy"] for key in ("baseline", "karpenter", "changed")][1] == "karpenter-1.15"
    for key in ("baseline", "karpenter", "changed"):
        hours = Decimal(str(answer[key]["nodeHours"]))
        assert 0 < hours <= 5
        assert abs(Decimal(answer[key]["cost"]) - hours * price) < Decimal("0.01"), "all nodes are of one type"
        assert answer[key]["violations"] == []
    assert answer["patch"] == {"spec": {"disruption": {"consolidateAfter": "10m"}}}
