"""What a capture keeps of pods that are resized in place or have resource claims."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.api.reading.decode import decode_objects
from dovetail.live.capture import dump
from dovetail.model.cluster import CaptureOrigin, cluster_of
from dovetail.model.objects import KINDS, Pod, TopologySpreadConstraint
from dovetail.scheduling.buffers import virtual_pods
from dovetail.scheduling.pods.default_spread import DefaultSpread
from dovetail.scheduling.pods.requests import pod_requests, uses_resource_claims


def _pod(**status: Any) -> Pod:
    containers = [
        {"name": "secret-app", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "secret-gpu"}]}},
        {"name": "secret-proxy", "resources": {"requests": {"cpu": "1"}}},
    ]
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": containers, "resourceClaims": [{"name": "secret-gpu"}]},
            "status": status,
        },
        Pod,
    )


@pytest.mark.parametrize("anonymise", [False, True])
def test_a_resized_pod_counts_the_same_from_its_capture(anonymise: bool) -> None:
    """Statuses are matched to containers by name, and the names are not kept."""
    given = _pod(containerStatuses=[{"name": "secret-proxy", "resources": {"requests": {"cpu": "3"}}}])
    text = dump(cluster_of([given]), anonymise=anonymise)
    assert b"secret" not in text
    read = msgspec.convert(json.loads(text)["items"][0], Pod)
    assert pod_requests(read) == pod_requests(given) == {"cpu": 4000, "pods": 1}
    assert uses_resource_claims(read.spec)


def test_statuses_that_say_nothing_new_are_left_out() -> None:
    """Statuses that equal the spec are left out: since Kubernetes 1.33 every kubelet reports all resources."""
    given = _pod(containerStatuses=[{"name": "secret-proxy", "resources": {"requests": {"cpu": "1000m"}}}])
    tree = json.loads(dump(cluster_of([given])))["items"][0]
    assert "status" not in tree or "containerStatuses" not in tree["status"]
    assert all("name" not in container for container in tree["spec"]["containers"])


def _objects() -> list[Any]:
    meta = {"name": "secret-shop", "namespace": "secret-space"}
    labels = {"secret-app": "secret-shop"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    trees = [
        {"kind": "Service", "metadata": meta, "spec": {"selector": labels}},
        {"kind": "Deployment", "metadata": meta, "spec": {"replicas": 4, "template": template}},
        {"kind": "PodTemplate", "metadata": meta, "template": template},
        {
            "kind": "CapacityBuffer",
            "metadata": meta,
            "spec": {"scalableRef": {"kind": "Deployment", "name": "secret-shop"}, "percentage": 50},
        },
        {
            "kind": "NodeOverlay",
            "metadata": {"name": "secret-price"},
            "spec": {
                "requirements": [{"key": "secret-app", "operator": "In", "values": ["secret-shop"]}],
                "price": "1",
            },
        },
        {"kind": "Pod", "metadata": {**meta, "labels": labels}, "spec": {"containers": [{}]}},
    ]
    return [msgspec.convert(tree, KINDS[tree["kind"]]) for tree in trees]  # type: ignore[index]


@pytest.mark.parametrize("anonymise", [False, True])
def test_what_features_look_at_still_fits_together(anonymise: bool) -> None:
    """A buffer finds its Deployment and a Service its pods, and no original name is left."""
    text = dump(cluster_of(_objects()), anonymise=anonymise)
    assert (b"secret" in text) is not anonymise
    read = decode_objects(text)
    cluster = cluster_of(read.objects)
    assert not read.unknown_kinds
    assert len(virtual_pods(cluster)) == 2
    constraint = TopologySpreadConstraint(topology_key="kubernetes.io/hostname")
    spec = DefaultSpread((constraint,), cluster).counted_spec(cluster.pods[0])
    assert len(spec.topology_spread_constraints) == 1
    assert len(cluster.node_overlays) == 1


def test_a_snapshot_says_which_cluster_it_is_of_and_what_it_holds() -> None:
    """The name, the uid of kube-system and the kinds that were listed come back from the file."""
    origin = CaptureOrigin(name="prod", uid="1f0c", kinds=("Node", "Pod"))
    at = datetime(2026, 3, 14, 15, 30, tzinfo=UTC)
    cluster = replace(cluster_of([_pod()]), captured_at=at, origin=origin)
    assert decode_objects(dump(cluster)).cluster().origin == origin


def test_an_anonymised_snapshot_is_still_told_apart_from_others() -> None:
    """The name is left out and the uid replaced by a digest, which is the same for the same cluster only."""
    at = datetime(2026, 3, 14, 15, 30, tzinfo=UTC)
    found = []
    for uid in ("1f0c", "1f0c", "2f0c"):
        cluster = replace(cluster_of([_pod()]), captured_at=at, origin=CaptureOrigin(name="secret-prod", uid=uid))
        text = dump(cluster, anonymise=True)
        assert b"secret" not in text
        assert uid.encode() not in text
        found.append(decode_objects(text).cluster().origin)
    assert found[0].uid
    assert found[0] == found[1] != found[2]
