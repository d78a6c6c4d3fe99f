"""Pods that are resized in place use Karpenter's size: spec, allocation and running containers."""

from typing import Any

import msgspec
import pytest

from dovetail.model.objects import DaemonSet, Pod
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.scheduling.pods.requests import pod_requests
from tests.support.scheduling_build import kind, node, placed, pod, pool, snapshot, without

DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
IN_PROGRESS = {"type": "PodResizeInProgress", "status": "True"}


def _pod(
    requests: dict[str, Any] | None = None,
    statuses: list[dict[str, Any]] | None = None,
    conditions: list[dict[str, str]] | None = None,
    **more: Any,
) -> Pod:
    containers = [{"name": "c", "resources": {"requests": requests or {}}}]
    tree = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": containers, **more.get("spec", {})},
        "status": {
            "conditions": conditions or [],
            "containerStatuses": statuses or [],
            "initContainerStatuses": more.get("init", []),
        },
    }
    return msgspec.convert(tree, Pod)


def _c(requests: dict[str, str] | None, allocated: dict[str, str] | None = None, name: str = "c") -> dict[str, Any]:
    status: dict[str, Any] = {"name": name}
    if requests is not None:
        status["resources"] = {"requests": requests, "limits": {"cpu": "64"}}
    if allocated is not None:
        status["allocatedResources"] = allocated
    return status


CASES = {
    "no status: the spec": (_pod({"cpu": "1"}), 1000),
    "settled": (_pod({"cpu": "1"}, [_c({"cpu": "1"}, {"cpu": "1"})]), 1000),
    "the same amount written otherwise": (_pod({"cpu": "1"}, [_c({"cpu": "1000m"})]), 1000),
    "shrunk, not yet actuated": (_pod({"cpu": "1"}, [_c({"cpu": "3"}, {"cpu": "1"})], [IN_PROGRESS]), 3000),
    "shrunk, still allocated": (_pod({"cpu": "1"}, [_c({"cpu": "1"}, {"cpu": "3"})]), 3000),
    "grown, not yet actuated": (_pod({"cpu": "4"}, [_c({"cpu": "1"}, {"cpu": "4"})], [IN_PROGRESS]), 4000),
    "growth deferred": (_pod({"cpu": "4"}, [_c({"cpu": "1"}, {"cpu": "1"})], [DEFERRED]), 4000),
    "growth infeasible: no spec": (
        _pod({"cpu": "4"}, [_c({"cpu": "1"}, {"cpu": "1"})], [INFEASIBLE]),
        1000,
    ),
    "infeasible, allocation larger": (_pod({"cpu": "4"}, [_c({"cpu": "1"}, {"cpu": "2"})], [INFEASIBLE]), 2000),
    "infeasible without status resources: the spec": (_pod({"cpu": "4"}, [_c(None, {"cpu": "1"})], [INFEASIBLE]), 4000),
    "allocatedResources alone is not looked at": (_pod({"cpu": "1"}, [_c(None, {"cpu": "3"})]), 1000),
    "another container's status": (_pod({"cpu": "1"}, [_c({"cpu": "3"}, name="other")]), 1000),
    "only the first PodResizePending counts": (
        _pod({"cpu": "4"}, [_c({"cpu": "1"})], [DEFERRED, INFEASIBLE]),
        4000,
    ),
    "and it is the first that says infeasible": (
        _pod({"cpu": "4"}, [_c({"cpu": "1"})], [INFEASIBLE, DEFERRED]),
        1000,
    ),
    "infeasible, nothing reported": (_pod({"cpu": "4"}, [_c({})], [INFEASIBLE]), 0),
    "per resource": (_pod({"cpu": "2", "memory": "1Gi"}, [_c({"cpu": "1", "memory": "2Gi"})]), 2000),
    "pod-level resources replace the sum, smaller or not": (
        _pod({"cpu": "1"}, [_c({"cpu": "3"})], spec={"resources": {"requests": {"cpu": "500m"}}}),
        500,
    ),
    "pod-level limits alone don't matter": (
        _pod({"cpu": "1"}, [_c({"cpu": "3"})], spec={"resources": {"limits": {"cpu": "8"}}}),
        3000,
    ),
    "overhead comes on top": (_pod({"cpu": "1"}, [_c({"cpu": "3"})], spec={"overhead": {"cpu": "250m"}}), 3250),
}


@pytest.mark.parametrize("case", CASES)
def test_what_counts(case: str) -> None:
    """Each state of a resize has Karpenter's number of CPUs."""
    given, milli = CASES[case]
    assert pod_requests(given).get("cpu", 0) == milli


def test_each_resource_has_its_own_largest() -> None:
    """A pod that shrinks in CPU while it grows in memory uses the larger of both."""
    given = _pod({"cpu": "2", "memory": "1Gi"}, [_c({"cpu": "1", "memory": "2Gi"})])
    assert pod_requests(given) == {"cpu": 2000, "memory": 2 * 2**30, "pods": 1}


INIT = {
    "a sidecar is read like a container": ("Always", {"cpu": "3"}, None, 4000),
    "an ordinary init container counts by its spec": (None, {"cpu": "3"}, None, 1000),
    "a sidecar's infeasible growth": ("Always", {"cpu": "500m"}, INFEASIBLE, 500),
}


@pytest.mark.parametrize("case", INIT)
def test_init_containers(case: str) -> None:
    """Only init containers that keep running are resized."""
    restart, reported, said, milli = INIT[case]
    init = {"name": "i", "resources": {"requests": {"cpu": "1"}}, **({"restartPolicy": restart} if restart else {})}
    given = _pod(
        {"cpu": "1"},
        [_c({"cpu": "0"})] if said else [],
        [said] if said else [],
        spec={"initContainers": [init]},
        init=[_c(reported, name="i")],
    )
    assert pod_requests(given)["cpu"] == milli


def _shrunk(name: str, on: str, *, spec: str, running: str) -> Pod:
    made = pod(name, spec, on=on)
    tree = msgspec.to_builtins(made)
    tree["status"]["containerStatuses"] = [_c({"cpu": running}, {"cpu": running})]
    return msgspec.convert(tree, Pod)


@pytest.mark.parametrize("settings", [DOVETAIL, KARPENTER_1_15])
def test_a_shrunk_pod_still_takes_its_room(settings: Settings) -> None:
    """A node whose pod has not returned its CPUs has no room for a pending pod."""
    objects = [pool(), *node("n", 4), _shrunk("held-0", "n", spec="1", running="3"), pod("wait-0", "2")]
    assert placed(*objects, settings=settings) == {"wait-0": "new p #1"}
    after = [pool(), *node("n", 4), pod("held-0", "1", on="n"), pod("wait-0", "2")]
    assert placed(*after, settings=settings) == {"wait-0": "n"}


def test_a_mover_moves_with_the_size_that_counts() -> None:
    """A pod that has to move uses the same size."""
    seen = snapshot(pool(), node("n", 4), node("o", 2), _shrunk("held-0", "n", spec="1", running="3"))
    result = without(seen, "n")
    assert [fresh.requests["cpu"] for fresh in result.new_nodes] == [3000]


def test_a_daemon_set_is_as_large_as_its_newest_pod() -> None:
    """A DaemonSet's overhead on new nodes is its newest pod's resized size, not its template's."""
    daemon = msgspec.convert(
        {
            "metadata": {"name": "d", "namespace": "kube-system", "uid": "d"},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}},
        },
        DaemonSet,
    )
    tree = msgspec.to_builtins(_shrunk("d-0", "n", spec="1", running="3"))
    tree["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    ]
    objects = [pool(), *node("n", 4), daemon, msgspec.convert(tree, Pod), pod("wait-0", "2")]
    kinds = (kind("c.4", 4, "0.2"), kind("c.8", 8, "0.4"))
    seen = snapshot(*objects, kinds=kinds)
    fresh = without(seen).new_nodes[0]
    assert [entry.name for entry in fresh.instance_types] == ["c.8"]


def test_it_is_read_again_when_the_kubelet_reports() -> None:
    """An incremental snapshot reads the new status of a pod."""
    before = snapshot(pool(), node("n", 4), _shrunk("held-0", "n", spec="1", running="3"), pod("wait-0", "2"))
    assert without(before).new_nodes
    after = snapshot(
        pool(), node("n", 4), _shrunk("held-0", "n", spec="1", running="1"), pod("wait-0", "2"), previous=before
    )
    assert not without(after).new_nodes
