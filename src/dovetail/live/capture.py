"""Captures what `plan` needs from a live cluster, and no more: an allow-list of fields, decoded and written again.

The structs of `model.objects` are the allow-list: what they don't name (env, args, commands, images, managed fields,
the last-applied annotation) is never kept. Only annotations that a rule reads are kept. On request every identifying
name, namespace and label is replaced with a made-up one (`live.anonymise`).
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from dovetail.api.reading.capture_document import capture_document
from dovetail.api.reading.decode import decode_item
from dovetail.live.anonymise import anonymise as anonymise_trees
from dovetail.live.kubernetes.client import ApiClient, ApiError, ListResponse
from dovetail.live.kubernetes.resources import ALL_RESOURCES, Resource
from dovetail.model import names
from dovetail.model.cluster import Cluster, cluster_of
from dovetail.model.objects import AnyObject, Pod
from dovetail.scheduling.pods.requests import resized_spec

# Annotations that some rule reads; all others may hold anything and are left out.
_ANNOTATIONS: Final = frozenset(
    {
        names.DO_NOT_DISRUPT,
        names.DISRUPTION_COST,
        names.POD_DELETION_COST,
        names.NODEPOOL_HASH,
        names.NODEPOOL_HASH_VERSION,
        names.POLICY_ANNOTATION,
        names.HOLD,
        names.ALWAYS_DO_NOT_DISRUPT,
        names.COMMAND,
        names.PAUSED,
        names.HALTED,
        names.RECENT_DISRUPTIONS,
        names.DISRUPTION_WINDOW,
        names.SURGE,
        names.DO_NOT_REPAIR,
        "storageclass.kubernetes.io/is-default-class",
        "kubernetes.io/config.mirror",
        "volume.kubernetes.io/selected-node",
    }
)


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
    for result in results:  # all have ended by now: what fails first by the clock decides nothing
        if isinstance(result, BaseException):
            raise result
        items, warning = result
        objects.extend(items)
        if warning:
            warnings.append(warning)
    return Captured(cluster_of(objects), warnings)


async def _kind(
    client: ApiClient, resource: Resource, progress: Callable[[str, int], None] | None
) -> tuple[list[AnyObject], str]:
    try:
        items, skipped = await _decoded(client, resource)
    except ApiError as error:
        if error.status in (403, 404) and resource.quiet:
            return [], ""
        if error.status in (403, 404) and not resource.essential:
            return [], f"{resource.plural} can't be listed: {resource.without}; add {resource.rule('get, list')}"
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
    return items, f"{skipped} {resource.plural} can't be read and are left out" if skipped else ""


async def _decoded(client: ApiClient, resource: Resource) -> tuple[list[AnyObject], int]:
    """Return the objects of a kind and how many can't be read, decoded page by page: their JSON is far bigger."""

    def decoded(page: ListResponse) -> list[AnyObject | None]:
        return [_decode(raw, resource.kind) for raw in page.items]

    found = await client.list_decoded(resource.path(), decoded)
    items = [item for item in found if item is not None]
    return items, len(found) - len(items)


def _decode(raw: msgspec.Raw, kind: str) -> AnyObject | None:
    try:
        return decode_item(raw, kind)
    except msgspec.DecodeError:
        return None


def dump(cluster: Cluster, *, anonymise: bool = False) -> bytes:
    """Return the cluster as one kubectl-like List in JSON."""
    trees = [_tree(item) for item in _objects(cluster)]
    if anonymise:
        trees = anonymise_trees(trees)
    if cluster.captured_at is not None:
        trees.insert(0, capture_document(cluster.captured_at))
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
    ):
        yield from column


_VERSIONS: Final = {resource.kind: resource.api_version for resource in ALL_RESOURCES}


def _tree(item: AnyObject) -> dict[str, Any]:
    if isinstance(item, Pod) and resized_spec(item) is item.spec:
        # Its kubelet says nothing new of its containers, as nearly always.
        status = msgspec.structs.replace(item.status, container_statuses=(), init_container_statuses=())
        item = msgspec.structs.replace(item, status=status)
    tree: dict[str, Any] = msgspec.to_builtins(item)
    tree["apiVersion"] = _VERSIONS[tree["kind"]]
    _cut(tree)
    return tree


_IN_TREE_VOLUMES: Final = ("awsElasticBlockStore", "gcePersistentDisk", "azureDisk", "local", "hostPath")


def _cut(tree: Any) -> None:
    """Remove annotations that no rule reads, messages and container names, everywhere in the object."""
    if isinstance(tree, dict):
        _cut_annotations(tree)
        for key in ("message", "generateName", "finalizers", "imageID"):
            if key in tree:
                del tree[key]
        for key in _IN_TREE_VOLUMES:
            if tree.get(key) is not None:
                tree[key] = {}  # that it is one is all that counts
        _cut_container_names(tree)
        for value in tree.values():
            _cut(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            _cut(value)


def _cut_container_names(tree: dict[str, Any]) -> None:
    """Drop the names of containers and claims; number containers whose statuses are kept, which are found by name."""
    spec, status = tree.get("spec"), tree.get("status")
    if not isinstance(spec, dict) or "containers" not in spec:
        return
    reported = isinstance(status, dict) and ("containerStatuses" in status or "initContainerStatuses" in status)
    for claim in spec.get("resourceClaims", ()):
        claim.pop("name", None)
    known: dict[str, str] = {}
    for key, letter in (("containers", "c"), ("initContainers", "i")):
        for number, container in enumerate(spec.get(key, ())):
            name = container.pop("name", "")
            if reported:
                known[name] = container["name"] = f"{letter}{number}"
            for claim in container.get("resources", {}).get("claims", ()):
                claim.pop("name", None)
    for key in ("containerStatuses", "initContainerStatuses"):
        for entry in status.get(key, ()) if isinstance(status, dict) else ():
            entry["name"] = known.get(entry.get("name", ""), "")


def _cut_annotations(tree: dict[str, Any]) -> None:
    annotations = tree.get("annotations")
    if isinstance(annotations, dict):
        kept = {key: value for key, value in annotations.items() if key in _ANNOTATIONS}
        if kept:
            tree["annotations"] = kept
        else:
            del tree["annotations"]
