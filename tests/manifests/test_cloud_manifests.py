"""Real NodePools of every cloud: each requirement is met by what would be launched, or a warning names it."""

from pathlib import Path

import msgspec
import pytest

from dovetail.api.catalogue import load_catalogue
from dovetail.api.reading.decode import load_cluster
from dovetail.decide.question import Question
from dovetail.decide.round import plan_round
from dovetail.live.anonymise import anonymise
from dovetail.live.capture import dump
from dovetail.model.cluster import cluster_of
from dovetail.model.labels.clouds import asks_for_label
from dovetail.model.labels.requirements import Requirement
from dovetail.model.objects import NodePool
from dovetail.model.settings import DOVETAIL
from dovetail.scheduling.launch.machines import type_requirements
from dovetail.scheduling.simulate import place
from tests.paths import SHARED, needs_shared
from tests.support.scheduling_build import NOW, pod

CATALOGUES = {
    "eks.amazonaws.com": "aws:us-west-2",
    "karpenter.k8s.aws": "aws:us-west-2",
    "karpenter.azure.com": "azure:eastus",
    "karpenter.k8s.gcp": "gcp:us-central1",
}
FILES = sorted((SHARED / "manifests" / "docs").glob("*-nodepool-v1-valid*.yaml")) if SHARED.is_dir() else []
LAUNCHES = {"eks.amazonaws.com": 5, "karpenter.k8s.aws": 13, "karpenter.azure.com": 4, "karpenter.k8s.gcp": 1}
"""How many pools of each cloud launch a node, at least."""


def _pools(group: str) -> list[NodePool]:
    """Return the launching pools of a cloud among the manifests, without their limits."""
    found = [pool for file in FILES for pool in load_cluster([file]).node_pools]
    mine = [pool for pool in found if pool.spec.template.spec.node_class_ref.group == group]
    free = [msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, limits={})) for pool in mine]
    return [pool for pool in free if pool.spec.replicas is None]


@needs_shared
@pytest.mark.parametrize("group", CATALOGUES)
def test_every_requirement_is_honoured_or_named(group: str) -> None:
    """What a pool would launch meets each of its requirements; if nothing is launched, a warning says why."""
    catalogue = load_catalogue(CATALOGUES[group])
    launched = 0
    for pool in _pools(group):
        waiting = pod("a", "500m", tolerations=[{"operator": "Exists"}])
        question = Question(cluster=cluster_of([pool, waiting]), catalogue=catalogue, settings=DOVETAIL, now=NOW)
        new = place(question.snapshot()).new
        launched += len(new)
        said = " ".join(plan_round(question).warnings)
        for entry in pool.spec.template.spec.requirements:
            wanted = Requirement.from_spec(entry)
            met = bool(new) and all(
                (mine := type_requirements(kind).get(entry.key)) is not None and mine.has_intersection(wanted)
                for kind in new[0].instance_types
            )
            custom = "." not in entry.key.partition("/")[0]
            named = entry.key in said or "meets its requirements" in said
            assert met or named or custom or not asks_for_label(entry), (pool.metadata.name, entry)
        assert new or "no launch is planned" in said, pool.metadata.name
    assert launched >= LAUNCHES[group]


@needs_shared
@pytest.mark.parametrize("group", CATALOGUES)
def test_an_anonymous_pool_launches_the_same(group: str, tmp_path: Path) -> None:
    """Labels of the cloud keep their names and values under made-up names, so the same types are chosen."""
    catalogue = load_catalogue(CATALOGUES[group])
    for pool in _pools(group):
        cluster = cluster_of([pool, pod("a", "500m", tolerations=[{"operator": "Exists"}])])
        file = tmp_path / f"{pool.metadata.name}.json"
        file.write_bytes(dump(cluster, anonymise=True))
        found = [
            place(Question(cluster=one, catalogue=catalogue, settings=DOVETAIL, now=NOW).snapshot()).new
            for one in (cluster, load_cluster([file]))
        ]
        types = [[[kind.name for kind in node.instance_types] for node in nodes] for nodes in found]
        assert types[0] == types[1], pool.metadata.name


@pytest.mark.parametrize(
    ("key", "value", "stays"),
    [
        ("eks.amazonaws.com/instance-category", "c", True),
        ("eks.amazonaws.com/compute-type", "auto", True),
        ("eks.amazonaws.com/nodegroup", "secret-team", False),
        ("topology.k8s.aws/zone-id", "use1-az1", True),
        ("topology.k8s.gcp/zone-id", "us-central1-a", True),
        ("kubernetes.azure.com/mode", "user", True),
        ("kubernetes.azure.com/cluster", "secret-group", False),
        ("cloud.google.com/gke-accelerator", "nvidia-l4", True),
        ("cloud.google.com/gke-nodepool", "secret-pool", False),
        ("karpenter.azure.com/sku-family", "D", True),
        ("karpenter.k8s.aws/ec2nodeclass", "secret-class", False),
    ],
)
def test_a_label_of_the_cloud_keeps_its_key_and_what_it_sells(key: str, value: str, stays: bool) -> None:
    """Anonymised, a cloud's label is the same if it describes a machine; the names of people's things go."""
    tree = {"kind": "Node", "metadata": {"name": "a", "labels": {key: value}}}
    ((found, text),) = anonymise([tree])[0]["metadata"]["labels"].items()
    assert found == key
    assert (text == value) is stays
