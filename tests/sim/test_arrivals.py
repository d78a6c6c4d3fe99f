"""Pods arrive in a simulation when those of a captured cluster did."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.reading.decode import load_cluster
from dovetail.live.capture import dump
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.arrivals import as_of, captured_at
from dovetail.sim.scenarios.scenario import ScenarioError, parse_scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import MINUTE
from dovetail.sim.world.world import World

SCENARIO = """\
name: again
until: 3h
warmUp: 10m
catalogue:
  - {name: a.large, cpu: 2, memory: 8Gi, price: 0.1}
cluster: FILE
arrivals: {window: 4h}
policies:
  plain: {disruption: {consolidateAfter: 5m}}
  karpenter-1.15: {profile: karpenter-1.15}
"""
# Captured at 18:00; replayed from 14:00.
LABELS = {
    "karpenter.sh/nodepool": "default",
    "node.kubernetes.io/instance-type": "a.large",
    "topology.kubernetes.io/zone": "zone-a",
    "karpenter.sh/capacity-type": "on-demand",
    "karpenter.sh/initialized": "true",
    "karpenter.sh/registered": "true",
}


def at(clock: str) -> str:
    """Return a time on the day of the capture."""
    return f"2026-03-02T{clock}:00Z"


def node(name: str, born: str) -> list[dict[str, Any]]:
    """Return a node with its NodeClaim."""
    true = [
        {"type": kind, "status": "True", "lastTransitionTime": at(born)}
        for kind in ("Launched", "Registered", "Initialized")
    ]
    meta = {"labels": LABELS, "creationTimestamp": at(born)}
    return [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": f"default-{name}", "uid": f"c-{name}", **meta},
            "spec": {},
            "status": {"nodeName": name, "providerID": name, "conditions": true, "lastPodEventTime": at("17:30")},
        },
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"n-{name}", **meta},
            "spec": {"providerID": name},
            "status": {
                "allocatable": {"cpu": "1900m", "memory": "7Gi", "pods": "29"},
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(born)}],
            },
        },
    ]


def pod(name: str, born: str, owner: tuple[str, str] | None, where: str, ended: str = "") -> dict[str, Any]:
    """Return a pod of a kind of owner, running or finished."""
    references = []
    if owner is not None:
        version = "batch/v1" if owner[0] == "Job" else "apps/v1"
        references = [{"apiVersion": version, "kind": owner[0], "name": owner[1], "uid": owner[1], "controller": True}]
    ready = {"type": "Ready", "status": "False" if ended else "True", "lastTransitionTime": at(ended or born)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": {"app": owner[1] if owner else name},
            "ownerReferences": references,
            "creationTimestamp": at(born),
        },
        "spec": {
            "nodeName": where,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "200m", "memory": "128Mi"}}}],
        },
        "status": {"phase": "Succeeded" if ended else "Running", "startTime": at(born), "conditions": [ready]},
    }


def capture() -> dict[str, Any]:
    """Return an old and a young node, a growing service, a finished job, a moved pod, and a pod without an owner."""
    web, db = ("ReplicaSet", "web"), ("StatefulSet", "db")
    return {
        "kind": "List",
        "apiVersion": "v1",
        "items": [
            {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {}},
            *node("old", "08:00"),
            *node("young", "16:30"),
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": "db", "namespace": "default", "uid": "db", "creationTimestamp": at("07:00")},
                "spec": {"replicas": 1},
            },
            pod("web-a", "09:00", web, "old"),
            pod("web-b", "15:00", web, "old"),
            pod("web-c", "16:00", web, "young"),
            pod("db-0", "17:00", db, "young"),
            pod("report-x", "15:30", ("Job", "report"), "old", ended="15:50"),
            pod("early-x", "13:00", ("Job", "early"), "old", ended="14:20"),
            pod("before-x", "12:00", ("Job", "before"), "old", ended="13:00"),
            pod("loner", "17:30", None, "young"),
            pod("last", "18:00", None, "young"),
        ],
    }


def written(tmp_path: Path, tree: dict[str, Any]) -> str:
    """Return a scenario on the capture."""
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(tree))
    return SCENARIO.replace("FILE", str(file))


def stage(tmp_path: Path, text: str = "") -> Stage:
    """Return the scenario, ready to build."""
    scenario = parse_scenario(text or written(tmp_path, capture()), str(tmp_path / "mine.yaml"))
    return Stage(scenario, scenario.policies[0], 1)


def owners(world: World) -> dict[str, int]:
    """Return the number of unfinished pods of each owner."""
    found: dict[str, int] = {}
    for entry in world.store.pods.values():
        if entry.status.phase not in ("Succeeded", "Failed"):
            name = entry.metadata.labels["app"]
            found[name] = found.get(name, 0) + 1
    return found


def until(world: World, clock: str) -> None:
    """Advance time to a time of that day, and a little more."""
    world.run(world.clock.since_start(datetime.fromisoformat(at(clock))) + MINUTE)


def test_capture_is_lived_again_from_the_beginning_of_its_window(tmp_path: Path) -> None:
    """The run starts with the pods and nodes of that time; each pod arrives at its time of day, and job pods end."""
    world = stage(tmp_path).build()
    assert world.clock.start == datetime(2026, 3, 2, 13, 50, tzinfo=UTC)
    assert owners(world) == {"web": 1, "db": 1, "early": 1}
    assert sorted(world.store.nodes) == ["old"]
    until(world, "14:00")
    assert all(entry.spec.node_name == "old" for entry in world.store.pods.values())
    until(world, "14:30")
    assert owners(world) == {"web": 1, "db": 1}
    until(world, "15:00")
    assert owners(world) == {"web": 2, "db": 1}
    until(world, "15:40")
    assert owners(world) == {"web": 2, "db": 1, "report": 1}
    until(world, "16:00")
    assert owners(world) == {"web": 3, "db": 1}
    until(world, "17:30")
    assert owners(world) == {"web": 3, "db": 1, "loner": 1}
    assert all(entry.status.phase == "Running" for entry in world.store.pods.values())


def test_moved_pod_of_a_stateful_set_was_always_there(tmp_path: Path) -> None:
    """A young pod of an old StatefulSet was moved: before that, it ran elsewhere."""
    world = stage(tmp_path).build()
    assert world.store.pods["default/db-0"].spec.node_name == ""
    until(world, "13:55")
    assert world.store.pods["default/db-0"].spec.node_name == "old"


def test_same_seed_same_run_under_every_policy(tmp_path: Path) -> None:
    """Arrivals come from the capture, so all policies have the same; the result depends only on its inputs."""
    scenario = parse_scenario(written(tmp_path, capture()), "mine.yaml")
    first, karpenter = (run_scenario(scenario, policy, 3) for policy in scenario.policies)
    assert run_scenario(scenario, scenario.policies[0], 3) == first
    assert first.series.pods[-1] == karpenter.series.pods[-1] == 4
    assert not first.violations
    assert not karpenter.violations


def test_short_form_lives_a_day_again(tmp_path: Path) -> None:
    """`arrivals: captured` replays the last 24 hours at the same time of day."""
    text = written(tmp_path, capture()).replace("arrivals: {window: 4h}", "arrivals: captured")
    world = stage(tmp_path, text).build()
    assert world.clock.start == datetime(2026, 3, 1, 17, 50, tzinfo=UTC)
    assert world.store.pods == {}
    assert world.store.nodes == {}
    until(world, "15:10")
    assert owners(world) == {"web": 2, "db": 1}


def test_snapshot_keeps_the_times_that_are_needed(tmp_path: Path) -> None:
    """A capture by `dovetail snapshot`, anonymised or not, is replayed like a dump of the cluster."""
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps(capture()))
    cluster = load_cluster([plain])
    for anonymise in (False, True):
        file = tmp_path / f"snapshot-{anonymise}.json"
        file.write_bytes(dump(cluster, anonymise=anonymise))
        again = load_cluster([file])
        assert captured_at(again) == captured_at(cluster)
        world = stage(tmp_path, SCENARIO.replace("FILE", str(file))).build()
        assert len(world.store.pods) == 3
        until(world, "17:30")
        assert len([entry for entry in world.store.pods.values() if entry.status.phase == "Running"]) == 5


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("arrivals: {window: 4h}", "arrivals: recorded", "mine.yaml:7: arrivals: 'recorded' is nowhere"),
        ("arrivals: {window: 4h}", "arrivals: {window: 4x}", "mine.yaml:7: arrivals.window: '4x' is not a duration"),
        ("arrivals: {window: 4h}", "arrivals: {window: 0s}", "mine.yaml:7: arrivals.window: nothing comes"),
        ("arrivals: {window: 4h}", "arrivals: {windw: 4h}", "mine.yaml:7: arrivals.windw: there is no such key"),
        ("arrivals: {window: 4h}", "arrivals: {window: 2h}", "mine.yaml:2: until: 3h is longer than the 2h"),
        ("until: 3h", "until: 3h\nstart: '2026-03-02T14:00:00Z'", "mine.yaml:3: start: the capture says when"),
        ("cluster: FILE\n", "pools: [{name: a}]\n", "mine.yaml:7: arrivals: there is no captured cluster"),
    ],
)
def test_mistakes_are_told_with_line_and_remedy(before: str, after: str, said: str) -> None:
    """A mistake is one sentence with file, line and what to write instead."""
    with pytest.raises(ScenarioError) as told:
        parse_scenario(SCENARIO.replace(before, after), "mine.yaml")
    assert str(told.value).startswith(said)
    assert "write" in str(told.value) or "leave" in str(told.value) or "did you mean" in str(told.value)


def test_capture_without_times_or_arrivals_is_told(tmp_path: Path) -> None:
    """A capture that can't be replayed is rejected with the reason and what to do."""
    tree = capture()
    for item in tree["items"]:
        if item["kind"] == "Pod":
            del item["metadata"]["creationTimestamp"]
    with pytest.raises(ScenarioError, match="no pod in it carries a creation time; capture the cluster with"):
        stage(tmp_path, written(tmp_path, tree))
    tree = capture()
    tree["items"] = [item for item in tree["items"] if item["kind"] != "Pod" or item["metadata"]["name"] == "web-a"]
    text = written(tmp_path, tree).replace("window: 4h", "window: 3h")
    with pytest.raises(ScenarioError, match=r"the last one came at 2026-03-02T09:00:00Z; write a longer `window`"):
        stage(tmp_path, text)


def test_what_happened_later_is_not_there_yet(tmp_path: Path) -> None:
    """A node's last pod event of the afternoon does not block it at noon; ReplicaSets have their earlier size."""
    tree = capture()
    meta = {"name": "web", "namespace": "default", "uid": "web", "creationTimestamp": at("07:00")}
    tree["items"].append({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": {"replicas": 3}})
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(tree))
    then = as_of(load_cluster([file]), datetime.fromisoformat(at("15:30")))
    assert [claim.status.last_pod_event_time for claim in then.node_claims] == [None]
    assert [item.spec.replicas for item in then.replica_sets] == [2]
    assert [item.metadata.name for item in then.pods] == ["db-0", "report-x", "web-a", "web-b"]
    assert {item.status.phase for item in then.pods} == {"Running"}
