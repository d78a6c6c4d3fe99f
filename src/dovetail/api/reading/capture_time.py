"""When a cluster was captured: the time in the snapshot, else the latest time in its objects.

Times after the present are ignored: a capture can't be in the future, and a pod may claim to start in the year 9999.
Reads values only; each command decides which moment it uses.
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from dovetail.model.cluster import Cluster
from dovetail.model.objects import AnyObject


class CaptureTime(msgspec.Struct, frozen=True, kw_only=True):
    """A moment and where it comes from: the snapshot itself, or the latest time found in its objects."""

    at: datetime
    is_exact: bool


def capture_time(cluster: Cluster, present: datetime) -> CaptureTime | None:
    """Return when the cluster was captured; None if nothing in it has a time before `present`."""
    if cluster.captured_at is not None and cluster.captured_at <= present:
        return CaptureTime(at=cluster.captured_at, is_exact=True)
    if not cluster.nodes and not cluster.pods:
        return None  # manifests, not a capture
    latest = max((at for at in _times(cluster) if at <= present), default=None)
    return None if latest is None else CaptureTime(at=latest, is_exact=False)


def _times(cluster: Cluster) -> Iterator[datetime]:
    """Yield the times of past events: creations, starts, condition transitions, pod events. Not planned deletions."""
    if cluster.latest_heartbeat is not None:
        yield cluster.latest_heartbeat
    for pod in cluster.pods:
        if pod.metadata.creation_timestamp is not None:
            yield pod.metadata.creation_timestamp
        if pod.status.start_time is not None:
            yield pod.status.start_time
        yield from (entry.last_transition_time for entry in pod.status.conditions if entry.last_transition_time)
    for node in cluster.nodes:
        yield from (entry.last_transition_time for entry in node.status.conditions if entry.last_transition_time)
    for claim in cluster.node_claims:
        yield from (entry.last_transition_time for entry in claim.status.conditions if entry.last_transition_time)
        if claim.status.last_pod_event_time is not None:
            yield claim.status.last_pod_event_time
    objects: tuple[AnyObject, ...] = (
        *cluster.nodes,
        *cluster.node_claims,
        *cluster.node_pools,
        *cluster.replica_sets,
        *cluster.pdbs,
    )
    for item in objects:
        if item.metadata.creation_timestamp is not None:
            yield item.metadata.creation_timestamp
