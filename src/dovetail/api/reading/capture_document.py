"""What a file says beside its objects: when and where it was captured, heartbeats of kubelets, where pods run.

`dovetail snapshot` writes one object of kind Capture: the time, the cluster, and the kinds that it listed. No decision
reads any of this. Sits in api, below decode.
"""

from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from dovetail.api.reading.documents import Document
from dovetail.model.cluster import CaptureOrigin
from dovetail.model.objects import Instant

T = TypeVar("T")
KIND: Final = "Capture"
API_VERSION: Final = "dovetail.dev/v1"


class CapturedCluster(msgspec.Struct, frozen=True):
    """Which cluster a snapshot is of."""

    name: str = ""
    uid: str = ""


class CaptureMark(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a snapshot says about itself."""

    captured_at: Instant
    cluster: CapturedCluster = CapturedCluster()
    kinds: tuple[str, ...] = ()

    @property
    def origin(self) -> CaptureOrigin:
        """Return which cluster it is of, and which kinds were listed."""
        return CaptureOrigin(name=self.cluster.name, uid=self.cluster.uid, kinds=self.kinds)


class WorkloadStatus(msgspec.Struct, rename="camel", frozen=True):
    """How many pods a workload has: ReplicaSets and StatefulSets count replicas, DaemonSets scheduled pods."""

    replicas: int = 0
    current_number_scheduled: int = 0

    @property
    def pods(self) -> int:
        """Return how many pods it has."""
        return max(self.replicas, self.current_number_scheduled)


COUNTED_KINDS: Final = ("DaemonSet", "ReplicaSet", "StatefulSet")


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Workload(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()
    status: WorkloadStatus | None = None


class _Heartbeat(msgspec.Struct, rename="camel", frozen=True):
    last_heartbeat_time: Instant | None = None


class StatusTimes(msgspec.Struct, frozen=True):
    """The heartbeats in the status of a Node."""

    conditions: list[_Heartbeat] | None = None


class _Node(msgspec.Struct, frozen=True):
    status: StatusTimes | None = None


def capture_document(at: datetime, origin: CaptureOrigin) -> dict[str, Any]:
    """Build the object that says when a snapshot was taken, of which cluster, and what it holds."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "capture"},
        "capturedAt": at.isoformat().replace("+00:00", "Z"),
        "cluster": {"name": origin.name, "uid": origin.uid},
        "kinds": list(origin.kinds),
    }


def read_capture(document: Document) -> CaptureMark | None:
    """Return what a Capture document says; None if the document is of another kind or can't be read."""
    if document.head.kind != KIND or document.head.api_version != API_VERSION:
        return None
    return _convert(document, CaptureMark)


def read_running(document: Document) -> tuple[str, str] | None:
    """Return the namespace of a workload that has pods, and a phrase that says so; None if it has none."""
    if document.head.kind not in COUNTED_KINDS:
        return None
    found = _convert(document, _Workload)
    if found is None or found.status is None or found.status.pods <= 0:
        return None
    return running(document.head.kind, found.metadata.namespace or "default", found.metadata.name, found.status.pods)


def running(kind: str, namespace: str, name: str, pods: int) -> tuple[str, str]:
    """Return a namespace, and the phrase that says which object shows that it has pods."""
    return namespace, f"{kind} {namespace}/{name} has {pods}"


def latest_heartbeat(document: Document) -> datetime | None:
    """Return the latest time at which the kubelet of a Node document reported."""
    node = _convert(document, _Node)
    return None if node is None else latest_time(node.status)


def latest_time(status: StatusTimes | None) -> datetime | None:
    """Return the latest time at which a kubelet reported, of a Node's status."""
    times = (entry.last_heartbeat_time for entry in (status.conditions if status is not None else None) or ())
    return max((at for at in times if at is not None), default=None)


def _convert(document: Document, kind: type[T]) -> T | None:
    try:
        if document.raw is not None:
            return msgspec.json.decode(document.raw, type=kind)
        return msgspec.convert(document.tree, kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
