"""An allow-list of fields: an object with only what some rule reads, as JSON.

The structs of `model.objects` are the allow-list: what they don't name (env, args, commands, images, managed fields,
the last-applied annotation) is never kept. Only annotations that a rule reads are kept. Captures and recordings are
made of these.
"""

from typing import Any, Final

import msgspec

from dovetail.model import names
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
        names.ROLL,
        names.ROLLING_DOMAIN,
        names.ROLLOUT,
        names.DISRUPTION_WINDOW,
        names.SURGE,
        names.DO_NOT_REPAIR,
        "storageclass.kubernetes.io/is-default-class",
        "kubernetes.io/config.mirror",
        "volume.kubernetes.io/selected-node",
    }
)


def trimmed(item: AnyObject) -> dict[str, Any]:
    """Return the object as JSON with only what a rule reads."""
    if isinstance(item, Pod) and resized_spec(item) is item.spec:
        # Its kubelet says nothing new of its containers, as nearly always.
        status = msgspec.structs.replace(item.status, container_statuses=(), init_container_statuses=())
        item = msgspec.structs.replace(item, status=status)
    tree: dict[str, Any] = msgspec.to_builtins(item)
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
