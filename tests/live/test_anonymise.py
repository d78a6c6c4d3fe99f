"""An anonymised snapshot has the same plan and none of the names that it hides."""

import json
from pathlib import Path

import pytest

from dovetail.api.reading.decode import load_cluster
from dovetail.decide.outcome import RoundResult
from dovetail.decide.question import Question
from dovetail.decide.round import plan_round
from dovetail.live.capture import dump
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Pod
from dovetail.model.settings import DOVETAIL
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
