"""A cluster as it was seen at one moment: its objects, by kind, in a stable order.

An immutable bag that any shell can fill: from files, from watches, from a simulated world. It indexes and decides
nothing; `scheduling.snapshot` makes the columnar form that decisions run on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dovetail.model.objects import (
    AnyObject,
    CapacityBuffer,
    CSINode,
    DaemonSet,
    Deployment,
    NamedPodTemplate,
    Namespace,
    Node,
    NodeClaim,
    NodeOverlay,
    NodePool,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    Service,
    StatefulSet,
    StorageClass,
    VerticalPodAutoscaler,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOrigin:
    """Which cluster a capture is of (name, and uid of its namespace kube-system), and which kinds were listed."""

    name: str = ""
    uid: str = ""
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All objects that decisions need, sorted by (namespace, name). Sequences never change: give tuples, not lists.

    `captured_at`: when the snapshot was taken, if it says so; `latest_heartbeat`: the latest time at which a kubelet
    reported, which no decision reads. `notes`: what an answer must say first, because the input may lack something.
    """

    node_pools: Sequence[NodePool] = ()
    node_claims: Sequence[NodeClaim] = ()
    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()
    pdbs: Sequence[PodDisruptionBudget] = ()
    daemon_sets: Sequence[DaemonSet] = ()
    pvcs: Sequence[PersistentVolumeClaim] = ()
    pvs: Sequence[PersistentVolume] = ()
    storage_classes: Sequence[StorageClass] = ()
    csi_nodes: Sequence[CSINode] = ()
    priority_classes: Sequence[PriorityClass] = ()
    namespaces: Sequence[Namespace] = ()
    replica_sets: Sequence[ReplicaSet] = ()
    stateful_sets: Sequence[StatefulSet] = ()
    deployments: Sequence[Deployment] = ()
    services: Sequence[Service] = ()
    pod_templates: Sequence[NamedPodTemplate] = ()
    capacity_buffers: Sequence[CapacityBuffer] = ()
    node_overlays: Sequence[NodeOverlay] = ()
    vpas: Sequence[VerticalPodAutoscaler] = ()
    unknown_kinds: dict[str, int] = field(default_factory=dict)
    captured_at: datetime | None = None
    latest_heartbeat: datetime | None = None
    origin: CaptureOrigin = CaptureOrigin()
    notes: tuple[str, ...] = ()


FIELD_OF: dict[type, str] = {
    NodePool: "node_pools",
    NodeClaim: "node_claims",
    Node: "nodes",
    Pod: "pods",
    PodDisruptionBudget: "pdbs",
    DaemonSet: "daemon_sets",
    PersistentVolumeClaim: "pvcs",
    PersistentVolume: "pvs",
    StorageClass: "storage_classes",
    CSINode: "csi_nodes",
    PriorityClass: "priority_classes",
    Namespace: "namespaces",
    ReplicaSet: "replica_sets",
    StatefulSet: "stateful_sets",
    Deployment: "deployments",
    Service: "services",
    NamedPodTemplate: "pod_templates",
    CapacityBuffer: "capacity_buffers",
    NodeOverlay: "node_overlays",
    VerticalPodAutoscaler: "vpas",
}


def cluster_of(objects: Iterable[AnyObject], unknown_kinds: dict[str, int] | None = None) -> Cluster:
    """Sort objects of any kind into a Cluster; if an object appears twice, the last one wins."""
    by_kind: dict[type, list[AnyObject]] = {kind: [] for kind in FIELD_OF}
    for item in objects:
        by_kind[type(item)].append(item)
    columns = {FIELD_OF[kind]: _in_order(items) for kind, items in by_kind.items() if items}
    return Cluster(**columns, unknown_kinds=unknown_kinds or {})  # type: ignore[arg-type]


def _in_order(items: list[AnyObject]) -> tuple[AnyObject, ...]:
    """Return objects of one kind by namespace, then name."""
    by_namespace: dict[str, dict[str, AnyObject]] = {}
    for item in items:
        meta = item.metadata
        found = by_namespace.get(meta.namespace)
        if found is None:
            found = by_namespace[meta.namespace] = {}
        found[meta.name] = item
    return tuple([found[name] for _, found in sorted(by_namespace.items()) for name in sorted(found)])
