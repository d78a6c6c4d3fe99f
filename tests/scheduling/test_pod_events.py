"""Pod events, as the engine, the simulated Karpenter and the built-in provider count them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dovetail.model.objects import ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus
from dovetail.scheduling.pods.pod import event_nodes

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(node: str = "", phase: str = "Running", owner: tuple[str, str] = ("apps/v1", "ReplicaSet"), **meta: Any) -> Pod:
    """Return a pod, bound to a node if one is named."""
    owners = (OwnerReference(api_version=owner[0], kind=owner[1], name="x"),)
    return Pod(
        metadata=ObjectMeta(name="p", namespace="default", uid=meta.pop("uid", "u"), owner_references=owners, **meta),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=phase),
    )


DAEMON, MIRROR = ("apps/v1", "DaemonSet"), ("v1", "Node")


@pytest.mark.parametrize(
    ("old", "new", "nodes"),
    [
        (None, pod(), ()),
        (None, pod("a"), ("a",)),
        (pod(), pod("a"), ("a",)),
        (pod("a"), pod("a"), ()),
        (pod("a"), pod("a", annotations={"x": "y"}), ()),
        (pod("a"), pod("a", "Succeeded"), ("a",)),
        (pod("a"), pod("a", "Failed"), ("a",)),
        (pod("a"), pod("a", deletion_timestamp=NOW), ("a",)),
        (pod("a", deletion_timestamp=NOW), pod("a", "Succeeded", deletion_timestamp=NOW), ()),
        (pod("a", "Succeeded"), None, ()),
        (pod("a", deletion_timestamp=NOW), None, ()),
        (pod("a"), None, ("a",)),
        (pod(), None, ()),
        (pod("a", uid="one"), pod("b", uid="two"), ("a", "b")),
        (pod("a", uid="one"), pod("a", uid="two"), ("a",)),
        (None, pod("a", owner=DAEMON), ()),
        (pod("a", owner=DAEMON), None, ()),
        (None, pod("a", owner=MIRROR), ()),
        (None, pod("a", "Succeeded"), ()),
        (pod("a", owner=DAEMON), pod("a"), ("a",)),
        (pod("a"), pod("a", owner=MIRROR), ("a",)),
        (pod("a", "Pending"), pod("a", "Running"), ()),
    ],
)
def test_pods_that_come_and_go(old: Pod | None, new: Pod | None, nodes: tuple[str, ...]) -> None:
    """Creation, completion, termination and deletion of a pod count once each (docs/rules.md#timers)."""
    assert event_nodes(old, new) == nodes
