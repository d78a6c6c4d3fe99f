"""Pods that belong to their node although no DaemonSet owns them: they go with it and don't keep it.

Karpenter sees no difference between such a pod and any other. Where a setting names them, they are read as a node's own
pods are (mirror pods): they take room, they are no restart, and a node with nothing else is empty. Pure; the shells
apply it where pods come in. Sits in the model.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgspec

from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.labels.selectors import LabelSelector
from dovetail.model.objects import OwnerReference, Pod

_OWN_NODE: Final = OwnerReference(kind="Node", api_version="v1", name="daemon-like")


class DaemonLikePods(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods: of these namespaces (none named: of all), with these labels."""

    selector: LabelSelector
    namespaces: tuple[str, ...] = ()

    def select(self, pod: Pod) -> bool:
        """Return whether a pod is one of them."""
        meta = pod.metadata
        return (not self.namespaces or meta.namespace in self.namespaces) and self.selector.matches(meta.labels)


def as_daemon_like(pod: Pod, chosen: Iterable[DaemonLikePods]) -> Pod:
    """Return the pod as one of its node's own if it is chosen; its do-not-disrupt counts for nothing then."""
    if _OWN_NODE in pod.metadata.owner_references or not any(entry.select(pod) for entry in chosen):
        return pod
    meta = pod.metadata
    annotations = {key: value for key, value in meta.annotations.items() if key != names.DO_NOT_DISRUPT}
    owners = (*meta.owner_references, _OWN_NODE)
    meta = msgspec.structs.replace(meta, owner_references=owners, annotations=annotations)
    return msgspec.structs.replace(pod, metadata=meta)


def with_daemon_like(cluster: Cluster, chosen: tuple[DaemonLikePods, ...]) -> Cluster:
    """Return the cluster with the chosen pods as their nodes' own."""
    if not chosen:
        return cluster
    return replace(cluster, pods=tuple(as_daemon_like(pod, chosen) for pod in cluster.pods))
