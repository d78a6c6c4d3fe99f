"""An anonymised snapshot has the same plan and none of the names that it hides."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.reading.decode import load_cluster
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult, plan_round
from dovetail.live.anonymise import anonymise
from dovetail.live.capture import dump
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Pod
from dovetail.model.settings import DOVETAIL
from dovetail.recordings import trimmed
from tests.paths import SHARED, needs_shared
from tests.support.golden_cases import GoldenCase

CASES = sorted(path.name for path in (SHARED / "golden").glob("[0-9]*")) if SHARED.is_dir() else []


def _plan(cluster: Cluster, case: GoldenCase) -> RoundResult:
    question = Question(cluster=cluster, catalogue=case.catalogue, settings=DOVETAIL, now=case.now)
    return plan_round(question, every_method=True)


def _outline(result: RoundResult, rank: dict[str, int]) -> list[object]:
    """Return the content of a plan, with every node by its index in the order of names."""
    return [
        (
            command.action,
            [rank[name] for name in command.nodes],
            [(spec.instance_types, spec.zones, spec.capacity_types) for spec in command.replacements],
            [(rank[place.node], len(place.pods)) for place in command.placements],
            (command.savings, command.required_savings, command.disruption_cost, command.pods),
        )
        for command in result.commands
    ] + [(rank[verdict.node], verdict.verdict) for verdict in result.verdicts]


def _ranks(cluster: Cluster) -> dict[str, int]:
    return {name: at for at, name in enumerate(sorted(node.metadata.name for node in cluster.nodes))}


@needs_shared
@pytest.mark.parametrize("name", CASES)
def test_the_same_plan_results(name: str, tmp_path: Path) -> None:
    """Actions, nodes, numbers and verdicts are equal."""
    case = GoldenCase(name, SHARED / "golden" / name)
    path = tmp_path / "anonymous.json"
    path.write_bytes(dump(case.cluster, anonymise=True))
    other = load_cluster([str(path)])
    assert len(other.pods) == len(case.cluster.pods)
    assert _outline(_plan(other, case), _ranks(other)) == _outline(_plan(case.cluster, case), _ranks(case.cluster))


@needs_shared
def test_no_name_is_left(tmp_path: Path) -> None:
    """The file has no names of nodes, pods, pools and namespaces, no uids and no values of private labels."""
    case = GoldenCase(CASES[0], SHARED / "golden" / CASES[0])
    text = dump(case.cluster, anonymise=True).decode()
    hidden = {item.metadata.name for item in (*case.cluster.nodes, *case.cluster.pods, *case.cluster.node_pools)}
    hidden |= {item.metadata.uid for item in case.cluster.pods if item.metadata.uid}
    assert hidden
    found = set(json.dumps(json.loads(text)).replace('"', " ").split())
    assert not hidden & found


def test_ephemeral_volumes_and_policies_stay_tied() -> None:
    """Names that combine two names, or a label inside an annotation, still match each other."""
    trees = [
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0", "namespace": "shop"},
            "spec": {"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        },
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "db-0-data", "namespace": "shop"}},
        {
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {
                "name": "web",
                "annotations": {"dovetail.dev/disruption": "budgets: [{nodes: '1', topologyKey: acme.com/rack}]"},
            },
            "spec": {"template": {"metadata": {"labels": {"acme.com/rack": "r1"}}}},
        },
    ]  # fmt: skip
    path_free = json.dumps({"kind": "List", "apiVersion": "v1", "items": trees}).encode()
    from dovetail.api.reading.decode import decode_objects
    from dovetail.model.cluster import cluster_of

    cluster = cluster_of(decode_objects(path_free).objects)
    text = dump(cluster, anonymise=True).decode()
    items = json.loads(text)["items"]
    by_kind = {item["kind"]: item for item in items}
    volume = by_kind["Pod"]["spec"]["volumes"][0]
    assert volume["persistentVolumeClaim"]["claimName"] == by_kind["PersistentVolumeClaim"]["metadata"]["name"]
    policy = json.loads(by_kind["NodePool"]["metadata"]["annotations"]["dovetail.dev/disruption"])
    assert policy["budgets"][0]["topologyKey"] in by_kind["NodePool"]["spec"]["template"]["metadata"]["labels"]
    assert "acme" not in text
    assert "shop" not in text
    assert isinstance(cluster.pods[0], Pod)


SECRET = "ask jane@acme.example"


def _tree(kind: str, annotations: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "annotations": annotations}, **more}


@pytest.mark.parametrize("key", sorted(trimmed._ANNOTATIONS))
@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        json.dumps({"why": SECRET, "owners": [SECRET], "ready": [[SECRET, 1]], SECRET: SECRET}),
        f"['{SECRET}']",
    ],
    ids=["text", "map", "list"],
)
def test_no_free_text_of_an_annotation_is_left(key: str, text: str) -> None:
    """Whatever somebody wrote into an annotation that a rule reads, no text of it stays."""
    (made,) = anonymise([_tree("NodePool", {key: text})])
    assert "acme" not in json.dumps(made)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (names.DO_NOT_DISRUPT, "true"),
        (names.DO_NOT_DISRUPT, "1h30m"),
        (names.POD_DELETION_COST, "-100"),
        (names.PAUSED, "2026-03-14T15:30:00Z"),
        (names.DISRUPTION_WINDOW, "TZ=Europe/Berlin 0 22 * * *; 6h"),
        (names.NODEPOOL_HASH, "1234567890"),
        (names.NODEPOOL_HASH_VERSION, "v3"),
        (names.RECENT_DISRUPTIONS, '[{"at":"2026-03-14T15:30:00Z","nodes":1,"reason":"Empty","command":"ab12"}]'),
    ],
)
def test_what_a_rule_understands_stays(key: str, text: str) -> None:
    """Flags, durations, numbers, times and windows keep their value."""
    (made,) = anonymise([_tree("NodePool", {key: text})])
    assert made["metadata"]["annotations"] == {key: text}


def test_a_policy_keeps_what_it_means() -> None:
    """Known fields with values that Dovetail understands stay; comments, unknown fields and other texts don't."""
    policy = {
        "consolidationPolicy": "Balanced",
        "consolidateAfter": "5m",
        "budgets": [{"nodes": "10%", "schedule": "0 9 * * 1-5", "duration": "8h", "reasons": ["Drifted"]}],
        "owner": SECRET,
        "minNodeAge": SECRET,
    }
    (made,) = anonymise([_tree("NodePool", {names.POLICY_ANNOTATION: json.dumps(policy)})])
    found = json.loads(made["metadata"]["annotations"][names.POLICY_ANNOTATION])
    assert found["budgets"] == policy["budgets"]
    assert (found["consolidationPolicy"], found["consolidateAfter"]) == ("Balanced", "5m")
    assert found["minNodeAge"] == "unreadable"
    assert "acme" not in json.dumps(found)


def test_condition_reasons_and_host_addresses_are_made_up() -> None:
    """Reasons that no rule reads and addresses of a network don't stay; equal addresses stay equal."""
    ports = [{"hostPort": 80, "hostIP": ip} for ip in ("10.1.2.3", "10.1.2.3", "10.9.9.9", "0.0.0.0")]
    pod = _tree(
        "Pod",
        {},
        spec={"containers": [{"ports": ports}]},
        status={"conditions": [{"type": "A", "reason": "Unschedulable"}, {"type": "B", "reason": "AcmeSaysNo"}]},
    )
    (made,) = anonymise([pod])
    one, same, other, every = (port["hostIP"] for port in made["spec"]["containers"][0]["ports"])
    assert one == same != other
    assert every == "0.0.0.0"
    assert "10." not in one
    assert [entry["reason"] for entry in made["status"]["conditions"]] == ["Unschedulable", "Other"]


def test_the_domain_of_a_roll_stays_tied_to_its_label() -> None:
    """A domain under a private label is renamed like the label's values; one of a zone stays."""
    text = json.dumps({"key": "acme.com/rack", "value": "r1", "since": "2026-03-14T15:30:00Z"})
    rollout = json.dumps({"began": "2026-03-14T15:30:00Z", "turns": ["r1"], "leftBehind": []})
    node = _tree("Node", {})
    node["metadata"]["labels"] = {"acme.com/rack": "r1"}
    pool, node = anonymise([_tree("NodePool", {names.ROLLING_DOMAIN: text, names.ROLLOUT: rollout}), node])
    domain = json.loads(pool["metadata"]["annotations"][names.ROLLING_DOMAIN])
    assert node["metadata"]["labels"] == {domain["key"]: domain["value"]}
    assert json.loads(pool["metadata"]["annotations"][names.ROLLOUT])["turns"] == [domain["value"]]
