"""Captures what `plan` needs from a live cluster, and no more (`recordings.trimmed`), decoded and written again.

On request every identifying name, namespace and label is replaced with a made-up one (`live.anonymise`).
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from dovetail.api.reading.admitted import Shared, admit
from dovetail.api.reading.capture_document import capture_document
from dovetail.live.anonymise import anonymise as anonymise_trees
from dovetail.live.kubernetes.client import UNREADABLE, ApiClient, ApiError, ListResponse
from dovetail.live.kubernetes.resources import ALL_RESOURCES, Resource
from dovetail.model.cluster import CaptureOrigin, Cluster, cluster_of
from dovetail.model.objects import KINDS, AnyObject
from dovetail.recordings.trimmed import trimmed

_NAMED_MAX: Final = 5
_VERSIONS: Final = {KINDS[resource.kind]: resource.api_version for resource in ALL_RESOURCES}


class CaptureError(Exception):
    """The cluster can't be read; one sentence with the permission that is missing."""


@dataclass(slots=True)
class Captured:
    """The cluster, and what could not be read."""

    cluster: Cluster
    warnings: list[str] = field(default_factory=list)


async def capture(client: ApiClient, progress: Callable[[str, int], None] | None = None) -> Captured:
    """List every kind concurrently. A missing optional kind is a warning, a missing essential one an error."""
    results = await asyncio.gather(
        *(_kind(client, resource, progress) for resource in ALL_RESOURCES), return_exceptions=True
    )
    objects: list[AnyObject] = []
    warnings: list[str] = []
    listed: list[str] = []
    for resource, result in zip(ALL_RESOURCES, results, strict=True):
        if isinstance(result, BaseException):  # all have ended by now: what fails first by the clock decides nothing
            raise result
        items, said = result
        if items is not None:
            objects.extend(items)
            listed.append(resource.kind)
        warnings += said
    cluster = cluster_of(objects)
    system = next((item.metadata.uid for item in cluster.namespaces if item.metadata.name == "kube-system"), "")
    origin = CaptureOrigin(name=client.connection.name, uid=system, kinds=tuple(listed))
    return Captured(replace(cluster, origin=origin), warnings)


async def _kind(
    client: ApiClient, resource: Resource, progress: Callable[[str, int], None] | None
) -> tuple[list[AnyObject] | None, list[str]]:
    """Return the objects of a kind, or None if it can't be listed, and what to say about that."""
    try:
        items, problems = await _decoded(client, resource)
    except ApiError as error:
        if error.status in (403, 404) and resource.is_silent_at(error.status):
            return None, []
        if error.status in (403, 404) and not resource.essential:
            return None, [f"{resource.plural} can't be listed: {resource.without}; add {resource.rule('get, list')}"]
        if error.status == 403:
            raise CaptureError(
                f"not allowed to list {resource.plural}: add {resource.rule('get, list')} to your role"
            ) from None
        if error.status == 404:
            raise CaptureError(
                f"the cluster has no {resource.plural}.{resource.group}: install Karpenter's CRDs, or `dovetail crds`"
            ) from None
        raise
    if progress is not None:
        progress(resource.kind, len(items))
    return items, problems


async def _decoded(client: ApiClient, resource: Resource) -> tuple[list[AnyObject], list[str]]:
    """Return the objects of a kind and what is wrong with some, decoded page by page: their JSON is far bigger."""
    shared = Shared()
    problems: list[str] = []

    def decoded(page: ListResponse) -> list[AnyObject | None]:
        return [_decode(raw, resource.kind, shared, problems) for raw in page.items]

    found = await client.list_decoded(resource.path(), decoded)
    items = [item for item in found if item is not None]
    more = len(problems) - _NAMED_MAX
    said = [*problems[:_NAMED_MAX], *([f"{more} more {resource.plural} can't be used as they are"] if more > 0 else [])]
    if skipped := len(found) - len(items):
        said.append(f"{skipped} {resource.plural} can't be read and are left out")
    return items, said


def _decode(raw: msgspec.Raw, kind: str, shared: Shared, problems: list[str]) -> AnyObject | None:
    try:
        item, wrong = admit(raw, kind, shared)
    except UNREADABLE:
        return None
    if wrong:
        name = "/".join(part for part in (item.metadata.namespace, item.metadata.name) if part)
        problems.append(f"{kind} {name} can't be used as it is: {'; '.join(wrong)}")
    return item


def dump(cluster: Cluster, *, anonymise: bool = False) -> bytes:
    """Return the cluster as one kubectl-like List in JSON."""
    trees = [{**trimmed(item), "apiVersion": _VERSIONS[type(item)]} for item in _objects(cluster)]
    origin = cluster.origin
    if anonymise:
        trees = anonymise_trees(trees)
        digest = hashlib.sha256(origin.uid.encode()).hexdigest()[:32] if origin.uid else ""
        origin = replace(origin, name="", uid=digest)  # the same cluster is still known as the same
    if cluster.captured_at is not None:
        trees.insert(0, capture_document(cluster.captured_at, origin))
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": trees})


def _objects(cluster: Cluster) -> Iterable[AnyObject]:
    for column in (
        cluster.node_pools,
        cluster.node_claims,
        cluster.nodes,
        cluster.pods,
        cluster.pdbs,
        cluster.daemon_sets,
        cluster.pvcs,
        cluster.pvs,
        cluster.storage_classes,
        cluster.csi_nodes,
        cluster.priority_classes,
        cluster.namespaces,
        cluster.replica_sets,
        cluster.stateful_sets,
        cluster.deployments,
        cluster.services,
        cluster.pod_templates,
        cluster.capacity_buffers,
        cluster.node_overlays,
        cluster.vpas,
    ):
        yield from column
