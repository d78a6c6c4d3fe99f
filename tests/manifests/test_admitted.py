"""Objects of a live cluster as decisions may use them: stripped, shared and bounded."""

import gzip
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.api.reading.admitted import WEIGHT_MAX, Shared, admit, is_read
from dovetail.api.reading.decode import decode_item
from dovetail.decide.facts.drainability import protection
from dovetail.model import names
from dovetail.model.objects import KINDS, AnyObject, Pod, PodDisruptionBudget
from dovetail.recordings import trimmed
from dovetail.scheduling.buffers import FAKE_POD
from tests.support.golden_cases import DATA
from tests.support.sizes import size

Tree = dict[str, Any]
NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


def _admitted(tree: Tree, kind: str = "Pod", shared: Shared | None = None) -> tuple[AnyObject, tuple[str, ...]]:
    return admit(msgspec.json.encode(tree), kind, shared or Shared())


def _pod(name: str = "a", **spec: Any) -> Tree:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "10m"}}}]
    return {
        "metadata": {"name": name, "namespace": "tenant", "uid": name, "labels": {"app": "a"}},
        "spec": {"nodeName": "n", "containers": containers, **spec},
        "status": {"phase": "Running", "startTime": "2026-03-01T00:00:00Z"},
    }


def _against(values: list[str], key: str = "topology.kubernetes.io/zone") -> Tree:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    term = {"topologyKey": key, "labelSelector": selector}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _many(count: int = 150_000, start: str = "v") -> list[str]:
    return [f"{start}{number:x}" for number in range(count)]


def test_annotations_that_no_rule_reads_are_dropped() -> None:
    """Only annotations of Karpenter, Kubernetes and Dovetail are kept, and not kubectl's copy of the object."""
    tree = _pod()
    tree["metadata"]["generateName"] = "a-"
    tree["metadata"]["annotations"] = {
        "example.com/config": "x" * 200_000,
        "plain": "x",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        names.DO_NOT_DISRUPT: "true",
        "notkarpenter.sh/x": "1",
    }
    item, problems = _admitted(tree)
    assert (item.metadata.annotations, problems) == ({names.DO_NOT_DISRUPT: "true"}, ())
    assert item.metadata.generate_name == ""


def test_every_annotation_of_a_rule_is_kept() -> None:
    """What captures keep, what buffers write and every name that `model.names` lists survives."""
    listed = {text for name, text in vars(names).items() if name.isupper() and "/" in text}
    for name in {*trimmed._ANNOTATIONS, FAKE_POD, *listed}:
        assert is_read(name), name


def test_long_messages_are_cut() -> None:
    """A condition's message of a megabyte is kept in part."""
    tree = _pod()
    tree["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "x" * 1_000_000}]
    item, problems = _admitted(tree)
    assert isinstance(item, Pod)
    assert (len(item.status.conditions[0].message or ""), problems) == (1024, ())


def test_golden_clusters_are_admitted_as_they_are() -> None:
    """Objects of ordinary clusters lose nothing but annotations that no rule reads, and none is over the bound."""
    shared = Shared()
    for case in sorted(DATA.iterdir())[: size(test=10, ci=40, long=400)]:
        tree = msgspec.json.decode(gzip.decompress((case / "cluster.json.gz").read_bytes()))
        for entry in tree["items"]:
            if entry["kind"] not in KINDS or entry["apiVersion"].endswith("v1beta1"):
                continue
            raw = msgspec.json.encode(entry)
            item, problems = admit(raw, entry["kind"], shared)
            plain = decode_item(raw, entry["kind"])
            meta = msgspec.structs.replace(plain.metadata, annotations=item.metadata.annotations, generate_name="")
            assert problems == ()
            assert item == msgspec.structs.replace(plain, metadata=meta)


def test_equal_affinities_are_shared() -> None:
    """Pods of one workload share one affinity and one spread; those of another have their own."""
    shared = Shared()
    spread = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}]
    made = [
        _admitted(_pod(name, affinity=_against([value]), topologySpreadConstraints=spread), shared=shared)[0]
        for name, value in (("a", "x"), ("b", "x"), ("c", "y"))
    ]
    one, two, other = (item for item in made if isinstance(item, Pod))
    assert one.spec.affinity is two.spec.affinity
    assert one.spec.topology_spread_constraints[0] is other.spec.topology_spread_constraints[0]
    assert other.spec.affinity != one.spec.affinity


def test_what_is_shared_is_bounded() -> None:
    """The table of shared parts forgets the oldest, so that short-lived pods can't fill it."""
    tracemalloc.start()
    try:
        shared = Shared()
        for number in range(400):
            _admitted(_pod(affinity=_against(_many(2000, f"p{number}x"))), shared=shared)
        assert tracemalloc.get_traced_memory()[0] < 60 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "part",
    [
        {"affinity": _against(_many())},
        {"tolerations": [{"key": value} for value in _many(20_000)]},
        {"nodeSelector": dict.fromkeys(_many(20_000), "x")},
        {"containers": [{"name": value} for value in _many(20_000)]},
        {"topologySpreadConstraints": [{"topologyKey": value} for value in _many(20_000)]},
    ],
    ids=["affinity", "tolerations", "nodeSelector", "containers", "spread"],
)
def test_a_pod_over_the_bound_holds_its_node(part: Tree) -> None:
    """It must not be disrupted, fits nowhere, and leaves no room on its node; a sentence says so."""
    item, problems = _admitted(_pod(**part))
    assert isinstance(item, Pod)
    assert len(msgspec.json.encode(item)) < 2000
    assert protection(item, NOW) is not None
    assert item.spec.containers[0].resources.requests == {"cpu": "1P"}
    assert (item.metadata.uid, item.spec.node_name, item.status.phase) == ("a", "n", "Running")
    assert item.metadata.labels == {"app": "a"}
    assert "more than 256, and counts as do-not-disrupt" in problems[0]


def test_its_anti_affinity_counts_against_everything() -> None:
    """Selectors that are too large to keep match every pod of every namespace, in the domains that they name."""
    item, _ = _admitted(_pod(affinity=_against(_many())))
    assert isinstance(item, Pod)
    assert item.spec.affinity is not None
    assert item.spec.affinity.pod_anti_affinity is not None
    (term,) = item.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    assert term.topology_key == "topology.kubernetes.io/zone"
    assert term.label_selector is not None
    assert term.namespace_selector is not None
    assert (term.label_selector.match_labels, term.label_selector.match_expressions) == ({}, ())


def test_a_terminal_pod_over_the_bound_stays_terminal() -> None:
    """A finished pod does not hold its node, however large it is."""
    tree = _pod(affinity=_against(_many()))
    tree["status"]["phase"] = "Succeeded"
    item, _ = _admitted(tree)
    assert isinstance(item, Pod)
    assert item.status.phase == "Succeeded"


def test_a_pdb_over_the_bound_closes_its_namespace() -> None:
    """A PDB whose selector is too large protects every pod of its namespace and allows nothing."""
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": _many()}]}
    tree = {
        "metadata": {"name": "p", "namespace": "tenant"},
        "spec": {"selector": selector, "maxUnavailable": 5},
        "status": {"disruptionsAllowed": 5},
    }
    item, problems = _admitted(tree, "PodDisruptionBudget")
    assert isinstance(item, PodDisruptionBudget)
    assert item.spec.selector is not None
    assert (item.spec.selector.match_expressions, item.status.disruptions_allowed) == ((), 0)
    assert "allows no disruption in its namespace" in problems[0]


@pytest.mark.parametrize(
    "kind",
    [
        "Pod",
        "PodDisruptionBudget",
        "DaemonSet",
        "ReplicaSet",
        "StatefulSet",
        "Deployment",
        "PodTemplate",
        "Service",
        "CapacityBuffer",
        "PersistentVolumeClaim",
        "Namespace",
        "Node",
    ],
)
@pytest.mark.parametrize("where", ["labels", "annotations", "ownerReferences"])
def test_no_kind_of_a_tenant_is_unbounded(kind: str, where: str) -> None:
    """Whatever part of its metadata is large, what is kept of an object is within the bound."""
    large: Any = dict.fromkeys((f"{value}.kubernetes.io/x" for value in _many(30_000)), "y")
    if where == "ownerReferences":
        large = [{"kind": value, "name": value, "uid": value} for value in _many(20_000)]
    tree = {"metadata": {"name": "a", "namespace": "tenant", where: large}}
    item, problems = _admitted(tree, kind)
    assert item.metadata.name == "a"
    assert len(problems) == 1
    assert len(msgspec.json.encode(item)) < WEIGHT_MAX


def test_many_pods_over_the_bound_cost_little() -> None:
    """Thirty pods with a megabyte of values each take less memory than one of them would as it is."""
    raws = [msgspec.json.encode(_pod(str(n), affinity=_against(_many(start=f"p{n}")))) for n in range(5)]
    tracemalloc.start()
    try:
        shared = Shared()
        kept = [admit(raw, "Pod", shared) for raw in raws for _ in range(6)]
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(kept) == 30
    assert taken < 1 << 20
