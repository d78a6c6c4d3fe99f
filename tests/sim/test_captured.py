"""A captured cluster as the start of a simulation."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.sim.run import add_controllers
from dovetail.sim.scenarios.scenario import ScenarioError, load_scenario, parse_scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.whatif import WhatIf, what_if
from dovetail.sim.world.clock import HOUR
from dovetail.sim.world.world import World
from tests.paths import SHARED, needs_shared

SCENARIO = """\
name: captured
start: "2026-01-05T12:00:00Z"
until: 30m
warmUp: 1m
catalogue:
  - {name: a.large, cpu: 2, memory: 8Gi, price: 0.1}
cluster: FILE
policies:
  plain: {disruption: {consolidateAfter: 5m}}
"""


def capture() -> dict[str, object]:
    """Return one pool, one node with one pod of a ReplicaSet, one pending pod."""
    labels = {
        "karpenter.sh/nodepool": "default",
        "node.kubernetes.io/instance-type": "a.large",
        "topology.kubernetes.io/zone": "zone-a",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/registered": "true",
    }
    since = "2026-01-05T10:00:00Z"
    true = [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in ("Launched", "Registered")]
    true.append({"type": "Initialized", "status": "True", "lastTransitionTime": since})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs-1", "controller": True}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}]}
    meta = {"namespace": "default", "labels": {"app": "web"}, "ownerReferences": [owner], "creationTimestamp": since}
    return {
        "kind": "List",
        "apiVersion": "v1",
        "items": [
            {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {}},
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "metadata": {"name": "default-x1", "uid": "c-1", "labels": labels, "creationTimestamp": since},
                "spec": {"expireAfter": "2h20m"},
                "status": {"nodeName": "ip-1", "providerID": "p-1", "conditions": true},
            },
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "ip-1", "uid": "n-1", "labels": labels, "creationTimestamp": since},
                "spec": {"providerID": "p-1"},
                "status": {
                    "allocatable": {"cpu": "1900m", "memory": "7Gi", "pods": "29"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "web-a", "uid": "p-1", **meta},
                "spec": {"nodeName": "ip-1", **spec},
                "status": {"phase": "Running"},
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "web-b", "uid": "p-2", **meta},
                "spec": spec,
                "status": {"phase": "Pending"},
            },
        ],
    }


def staged(tmp_path: Path) -> Stage:
    """Return the scenario with the capture above."""
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(capture()))
    scenario = parse_scenario(SCENARIO.replace("FILE", str(file)), str(tmp_path / "mine.yaml"))
    return Stage(scenario, scenario.policies[0], 1)


def test_captured_cluster_lives_on(tmp_path: Path) -> None:
    """Pods stay on their nodes, pending ones are placed, the pool has the policy, machines have a price."""
    world = staged(tmp_path).build()
    world.run(30 * 10**9)
    assert {key: pod.spec.node_name for key, pod in world.store.pods.items()} == {
        "default/web-a": "ip-1",
        "default/web-b": "ip-1",
    }
    assert world.store.pools["default"].spec.disruption.consolidate_after == "5m"
    assert world.cloud.rate == 10**17


def test_captured_node_expires_in_its_time_and_its_pods_come_back(tmp_path: Path) -> None:
    """A node created at ten with expireAfter 2h20m ends twenty minutes into the run; its pods get a new node."""
    world = staged(tmp_path).build()
    world.run(19 * 60 * 10**9)
    assert "ip-1" in world.store.nodes
    world.run(25 * 60 * 10**9)
    assert "ip-1" not in world.store.nodes
    assert len(world.store.pods) == 2
    assert all(pod.status.phase == "Running" for pod in world.store.pods.values())


def test_capture_that_is_not_there_is_told() -> None:
    """A missing capture fails with one sentence that has the path."""
    scenario = parse_scenario(SCENARIO.replace("FILE", "none.json"), "mine.yaml")
    with pytest.raises(ScenarioError, match=r"none.json: there is no such file"):
        Stage(scenario, scenario.policies[0], 1).build()


@needs_shared
def test_large_capture_can_be_simulated() -> None:
    """A hundred nodes with all kinds of pods are simulated without a broken promise."""
    from dovetail.sim.run import run_scenario

    folder = SHARED / "bench" / "mixed-100"
    text = SCENARIO.replace("FILE", str(folder / "cluster.json.gz")).replace(
        "2026-01-05T12:00:00Z", "2026-05-13T15:30:00Z"
    )
    start, end = text.index("catalogue:"), text.index("cluster:")
    text = f"{text[:start]}catalogue: {folder / 'catalog.json.gz'}\n{text[end:]}"
    scenario = parse_scenario(text, "mine.yaml")
    result = run_scenario(scenario, scenario.policies[0], 1, until=10 * 60 * 10**9)
    assert result.violations == ()
    assert result.nodes_at_start > 50


def test_a_mark_on_one_pod_stays_on_that_pod(tmp_path: Path) -> None:
    """A captured pod that must not be disrupted does not keep the drain from evicting its siblings."""
    world = marked(tmp_path)
    world.run(10 * 10**9)
    world.karpenter.delete("ip-1")
    world.run(120 * 10**9)
    left = [key for key, pod in world.store.pods.items() if pod.spec.node_name == "ip-1"]
    assert left == ["default/web-a"]
    made = [pod for key, pod in world.store.pods.items() if key.startswith("default/web-") and key[-1].isdigit()]
    assert [dict(pod.metadata.annotations) for pod in made] == [{"team": "shop"}]


def test_nodes_that_join_get_the_captured_daemons(tmp_path: Path) -> None:
    """A node that is launched later runs the pods of the captured DaemonSets; captured nodes get no second one."""
    world = marked(tmp_path)
    world.run(10 * 10**9)
    world.karpenter.delete("ip-1")
    world.run(180 * 10**9)
    agents = {pod.spec.node_name for key, pod in world.store.pods.items() if key.startswith("default/agent")}
    assert agents == set(world.store.nodes) - {"ip-1"} != set()


def test_daemons_of_a_node_that_leaves_go_with_it(tmp_path: Path) -> None:
    """A captured DaemonSet pod of a node that is being deleted does not wait for another node for ever."""
    world = marked(tmp_path, leaving=True)
    world.run(120 * 10**9)
    assert "default/agent-x" not in world.store.pods
    assert all(pod.spec.node_name for pod in world.store.pods.values())


def marked(tmp_path: Path, *, leaving: bool = False) -> World:
    """Return the world of a capture whose first pod carries do-not-disrupt, and that has a DaemonSet."""
    tree: Any = capture()
    for item in tree["items"]:
        if item["kind"] == "Pod":
            item["metadata"]["annotations"] = {"team": "shop"}
            item["spec"]["nodeName"] = "ip-1"
            item["status"] = {"phase": "Running"}
        if item["metadata"]["name"] == "web-a":
            item["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] = "true"
    container = {"name": "c", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [container]}}
    agent = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "default"}}
    tree["items"].append({**agent, "spec": {"template": template}})
    if leaving:
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d-1", "controller": True}
        meta = {"name": "agent-x", "namespace": "default", "ownerReferences": [owner]}
        spec = {"nodeName": "ip-1", "containers": [container]}
        tree["items"].append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        for item in tree["items"]:
            if item["kind"] in ("Node", "NodeClaim"):
                item["metadata"]["deletionTimestamp"] = "2026-01-05T12:00:00Z"
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(tree))
    scenario = parse_scenario(SCENARIO.replace("FILE", str(file)), str(tmp_path / "mine.yaml"))
    return Stage(scenario, scenario.policies[0], 1).build()


@pytest.mark.parametrize(("name", "hours"), [("issue-7146", 3), ("spot-market", 4)])
def test_a_capture_of_a_settled_cluster_replays_to_its_own_bill(name: str, hours: int) -> None:
    """What Karpenter has settled stays as it is: the replay of today's policy ends within a tenth of the bill."""
    scenario = load_scenario(name)
    policy = scenario.policy("karpenter-1.15")
    world = Stage(scenario, policy, 7).build()
    world.run(scenario.warm_up)
    for host in add_controllers(world, policy)[1]:
        host.start()
    world.run(scenario.warm_up + hours * HOUR)
    asked = WhatIf(
        cluster=world.store.cluster(),
        catalogue=world.cloud.catalogue,
        now=world.clock.instant(),
        length=2 * HOUR,
        fields={"consolidateAfter": "10m"},
        seeds=1,
    )
    found = what_if(asked, workers=1).calibration
    assert found.reliable, found.why
