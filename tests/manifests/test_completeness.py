"""What an input lacks: refused where the answer would be wrong, said where it may be."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.reading.completeness import Lacks, lacks_of
from dovetail.api.reading.decode import decode_files

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u-n"}, "spec": {"providerID": "aws:///1"}}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "shop", "uid": "u-p"},
    "spec": {"nodeName": "n"},
}
EVERY_KIND = ["NodePool", "NodeClaim", "Node", "Pod", "PodDisruptionBudget", "DaemonSet", "Namespace"]


def capture(**changes: Any) -> dict[str, Any]:
    """Build the object that a snapshot says about itself with."""
    return {
        "apiVersion": "dovetail.dev/v1",
        "kind": "Capture",
        "metadata": {"name": "capture"},
        "capturedAt": "2026-03-14T15:30:00Z",
        "cluster": {"name": "prod", "uid": "u-prod"},
        "kinds": EVERY_KIND,
        **changes,
    }


def workload(kind: str, namespace: str, **status: int) -> dict[str, Any]:
    """Build a workload with a status."""
    meta = {"name": kind.lower(), "namespace": namespace, "uid": f"u-{kind}-{namespace}"}
    version = "policy/v1" if kind == "PodDisruptionBudget" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": meta, "status": status}


def found(folder: Path, *inputs: list[Any], form: str = "list") -> Lacks:
    """Return what files with these objects lack; `form`: one List a file, or documents that are read one by one."""
    paths = []
    for number, objects in enumerate(inputs):
        path = folder / f"{number}.json"
        if form == "list":
            path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        else:
            path.write_text("\n---\n".join(json.dumps(item, indent=1) for item in objects))
        paths.append(path)
    decoded = decode_files(paths)
    return lacks_of(decoded, decoded.cluster())


def test_nodes_without_any_pod_are_refused(tmp_path: Path) -> None:
    """Every node of an input without pods would look empty."""
    lacks = found(tmp_path, [NODE])
    assert lacks.refusals == ("the input has 1 Node and no Pod at all, so every node looks empty",)


def test_a_snapshot_that_listed_pods_and_found_none_is_whole(tmp_path: Path) -> None:
    """What a snapshot of ours says that it listed is not missing."""
    assert found(tmp_path, [capture(), NODE]) == Lacks()


def test_manifests_alone_lack_nothing(tmp_path: Path) -> None:
    """An input without nodes and pods is no capture, so nothing is said about what it does not hold."""
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "web"}}
    assert found(tmp_path, [pool]) == Lacks()


@pytest.mark.parametrize("form", ["list", "documents"])
@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("ReplicaSet", {"replicas": 3}, "ReplicaSet data/replicaset has 3"),
        ("StatefulSet", {"replicas": 2}, "StatefulSet data/statefulset has 2"),
        ("DaemonSet", {"currentNumberScheduled": 7}, "DaemonSet data/daemonset has 7"),
        ("PodDisruptionBudget", {"expectedPods": 4}, "PodDisruptionBudget data/poddisruptionbudget expects 4"),
    ],
)
def test_pods_of_some_namespaces_only_are_refused(
    tmp_path: Path, form: str, kind: str, status: dict[str, int], said: str
) -> None:
    """The status of another object shows that a namespace has pods, and the input has none of it."""
    lacks = found(tmp_path, [NODE, POD, workload(kind, "data", **status)], form=form)
    assert lacks.refusals == (f"the input has pods of shop only and none of namespace data, which has some ({said})",)


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "DaemonSet", "PodDisruptionBudget"])
def test_a_workload_without_pods_shows_nothing(tmp_path: Path, kind: str) -> None:
    """A workload that was scaled to zero, or whose status is not there, does not say that its namespace has pods."""
    assert not found(tmp_path, [NODE, POD, workload(kind, "data")]).refusals
    assert not found(tmp_path, [NODE, POD, workload(kind, "data", replicas=0, expectedPods=0)]).refusals


def test_a_namespace_whose_pods_are_there_is_whole(tmp_path: Path) -> None:
    """A workload in a namespace with pods lacks nothing."""
    assert not found(tmp_path, [NODE, POD, workload("ReplicaSet", "shop", replicas=3)]).refusals


def moved(item: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """Return the object with other metadata."""
    return {**item, "metadata": {**item["metadata"], **meta}}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (moved(NODE, uid="u-2"), "Node n is there twice with different uids"),
        (
            moved(NODE, uid="u-n", creationTimestamp="2026-03-01T00:00:00Z"),
            "Node n is there twice with different times of creation",
        ),
        (
            {**moved(NODE, uid=""), "spec": {"providerID": "aws:///2"}},
            "Node n is there twice on different machines",
        ),
        ({**POD, "spec": {"nodeName": "m"}}, "Pod shop/p is there twice on different machines"),
    ],
)
def test_the_same_object_of_two_clusters_is_refused(tmp_path: Path, other: dict[str, Any], why: str) -> None:
    """Two objects of one name that can't be the same object come from two clusters."""
    node = moved(NODE, creationTimestamp="2026-02-01T00:00:00Z")
    lacks = found(tmp_path, [node, POD], [other])
    assert lacks.refusals == (f"{why}: these are objects of two clusters",)


def test_a_manifest_over_a_captured_object_is_no_second_cluster(tmp_path: Path) -> None:
    """A manifest names no uid and no time: it changes the captured object, as `plan -f capture -f manifests/` says."""
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "web", "uid": "u"}}
    changed = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "web"}, "spec": {"weight": 3}}
    assert not found(tmp_path, [NODE, POD, pool], [changed]).refusals


def test_snapshots_of_two_clusters_are_never_merged(tmp_path: Path) -> None:
    """Each snapshot names its cluster, so two clusters without a common object are still told apart."""
    elsewhere = capture(cluster={"name": "stage", "uid": "u-stage"})
    lacks = found(tmp_path, [capture(), NODE, POD], [elsewhere, moved(NODE, name="m", uid="u-m")])
    assert lacks.refusals == ("the input holds captures of 2 clusters (prod, stage)",)


def test_two_snapshots_of_one_cluster_are_said_to_be_of_two_moments(tmp_path: Path) -> None:
    """What left between two snapshots of one cluster would still count."""
    later = capture(capturedAt="2026-03-14T16:30:00Z")
    lacks = found(tmp_path, [capture(), NODE, POD], [later, NODE, POD])
    assert not lacks.refusals
    [warning] = lacks.warnings
    assert warning.startswith("the input was captured at 2 times, from 2026-03-14T15:30:00Z to 2026-03-14T16:30:00Z:")


def test_what_may_be_missing_is_said(tmp_path: Path) -> None:
    """A cluster may have no PDB, DaemonSet, Namespace or NodePool, so an input without them is only warned about."""
    lacks = found(tmp_path, [NODE, POD])
    assert not lacks.refusals
    assert [text.split()[1] for text in lacks.warnings] == ["PodDisruptionBudget", "DaemonSet", "Namespace", "NodePool"]


def test_a_snapshot_says_which_kinds_it_could_not_list(tmp_path: Path) -> None:
    """A kind that a snapshot does not name was not listed, so it is warned about."""
    lacks = found(tmp_path, [capture(kinds=[*EVERY_KIND[:-1]]), NODE, POD])
    assert [text.split()[1] for text in lacks.warnings] == ["Namespace"]
