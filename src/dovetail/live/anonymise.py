"""Replaces everything that could identify a cluster with made-up names that sort in the same order.

Decisions break ties by name and uid, so a plan stays the same only if the order does: all strings of one sort (names,
label keys, label values, uids) are ranked, and each gets the number of its rank. Values of well-known labels (zones,
types, architectures) and plain numbers stay, since rules read them. Free text and command records are dropped.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from dovetail.live.anonymous_annotations import annotations
from dovetail.model import names
from dovetail.model.labels.clouds import COMPUTE_TYPE, aws_key, is_clouds_own
from dovetail.model.labels.syntax import WELL_KNOWN

Tree = dict[str, Any]
_KEPT_DOMAINS: Final = (
    "kubernetes.io", "k8s.io", "karpenter.sh", "k8s.aws", "k8s.gcp", "dovetail.dev", "azure.com", "gke.io",
)  # fmt: skip
_OF_MACHINES: Final = frozenset(
    {
        COMPUTE_TYPE, "topology.k8s.aws/zone-id", "topology.k8s.gcp/zone-id", "cloud.google.com/gke-accelerator",
        "kubernetes.azure.com/mode",
    }
)  # fmt: skip
"""Labels outside of Karpenter's domains of which catalogues speak, so that their values mean something."""
_NAME_FIELDS: Final = frozenset(
    {
        "name", "namespace", "nodeName", "claimName", "volumeName", "storageClassName", "priorityClassName",
        "nominatedNodeName", "providerID", "volumeHandle", "schedulerName", "imageID", "generateName",
    }
)  # fmt: skip
_CONTAINERS: Final = frozenset({"containers", "initContainers", "containerStatuses", "initContainerStatuses"})
_UNNAMED_PARTS: Final = _CONTAINERS | {"volumes", "schedulingGates", "ports", "drivers"}
_NUMBERED: Final = re.compile(r"[ci][0-9]+")
_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::", "127.0.0.1", "::1")  # noqa: S104 - names an address, binds none
_READ_REASONS: Final = frozenset(
    {
        "Unschedulable", "SchedulingGated", "Infeasible", "Deferred", "ProgressDeadlineExceeded", "RuntimeValidation",
        "Empty", "Expired", "Drifted", "Underutilized", "Unhealthy", "Interrupted", "Terminating", "Initialized",
        "Launched", "Launching", "LaunchFailed", "Registered", "NodePoolDrifted", "NodeClassDrifted",
        "RequirementsDrifted", "InstanceTypeNotFound", "KubeletReady", "KubeletNotReady", "NodeStatusUnknown",
        "AwaitingReconciliation", "InsufficientCapacity", "NodeClassNotReady", "NodeNotFound", "NodeNotReady",
        "StartupTaintsExist", "KnownEphemeralTaintsExist", "ResourceNotRegistered", "MinimumReplicasAvailable",
        "NewReplicaSetAvailable",
    }
)  # fmt: skip
_DROPPED: Final = frozenset({"message", "imageID", "generateName", "finalizers"})


def anonymise(trees: list[Tree]) -> list[Tree]:
    """Return the same cluster under made-up names."""
    seen: dict[str, set[str]] = {sort: set() for sort in ("name", "key", "value", "uid", "address")}

    def note(sort: str, text: str) -> str:
        seen[sort].add(text)
        return text

    trees = _with_named_claims(trees)
    for tree in trees:
        _walk(tree, note)
    made = {sort: _ranked(sort, texts) for sort, texts in seen.items()}
    return [_walk(tree, lambda sort, text: made[sort][text]) for tree in trees]


def renamed(tree: Tree, rename: Callable[[str, str], str]) -> Tree:
    """Return one object with every identifying name replaced: `rename(sort, text)`, a sort as in the module."""
    return _walk(tree, rename)


def _with_named_claims(trees: list[Tree]) -> list[Tree]:
    """Return pods with ephemeral volumes named by their claim: its name is made of two, which would no longer match."""
    claims = {
        (tree["metadata"].get("namespace", ""), tree["metadata"]["name"])
        for tree in trees
        if tree["kind"] == "PersistentVolumeClaim"
    }

    def named(pod: Tree, volume: Tree) -> Tree:
        name = f"{pod['metadata']['name']}-{volume.get('name', '')}"
        if "ephemeral" not in volume or (pod["metadata"].get("namespace", ""), name) not in claims:
            return volume
        return {"name": volume["name"], "persistentVolumeClaim": {"claimName": name}}

    return [
        {**tree, "spec": {**tree["spec"], "volumes": [named(tree, volume) for volume in tree["spec"]["volumes"]]}}
        if tree["kind"] == "Pod" and tree.get("spec", {}).get("volumes")
        else tree
        for tree in trees
    ]


def _ranked(sort: str, texts: Iterable[str]) -> dict[str, str]:
    ordered = sorted(texts)
    if sort == "address":  # 198.18.0.0/16 is nobody's
        return {
            text: f"198.{18 + rank // 65536 % 2}.{rank // 256 % 256}.{rank % 256}" for rank, text in enumerate(ordered)
        }
    width = len(str(len(ordered)))
    return {text: f"{sort[0]}{rank:0{width}d}" if text else "" for rank, text in enumerate(ordered)}


def _walk(tree: Tree, rename: Callable[[str, str], str]) -> Tree:
    return {key: _member(key, value, rename) for key, value in tree.items() if key not in _DROPPED}


def _member(key: str, value: Any, rename: Callable[[str, str], str]) -> Any:
    if _is_label_map(key, value):
        return {_label_key(k, rename): _label_value(k, v, rename) for k, v in value.items()}
    if key == "annotations":
        return annotations(value, rename, partial(_label_key, rename=rename), partial(_label_value, rename=rename))
    if key == "hostIP":
        return _host_address(value, rename)
    if key == "reason":
        return value if value in _READ_REASONS else "Other"
    if key == "uid":
        return rename("uid", value)
    if key == "topologyKey":
        return _label_key(value, rename)
    if key in ("matchLabelKeys", "mismatchLabelKeys"):
        return [_label_key(entry, rename) for entry in value]
    if key == "matchFields":
        return [_field_requirement(entry, rename) for entry in value]
    if key == "namespaces":
        return [rename("name", entry) for entry in value]
    if key in _NAME_FIELDS and isinstance(value, str):
        return rename("name", value)
    if isinstance(value, dict):
        return _requirement(value, rename) if "key" in value else _walk(value, rename)
    if isinstance(value, list | tuple):
        return [_entry(key, entry, rename) for entry in value]
    return value


def _is_label_map(key: str, value: Any) -> bool:
    """Return whether a member maps labels to values: of pods and nodes, of selectors, and a Service's selector."""
    if not isinstance(value, dict):
        return False
    plain = key == "selector" and all(isinstance(text, str) for text in value.values())
    return plain or key in ("labels", "matchLabels", "nodeSelector")


def _entry(key: str, entry: Any, rename: Callable[[str, str], str]) -> Any:
    if not isinstance(entry, dict):
        return entry
    if "key" in entry:
        return _requirement(entry, rename)
    if key in _UNNAMED_PARTS:  # parts of a pod: their names mean nothing to any rule
        kept = {"name": entry["name"]} if "name" in entry and _keeps_name(key, entry["name"]) else {}
        return {**_walk({k: v for k, v in entry.items() if k != "name"}, rename), **kept}
    return _walk(entry, rename)


def _keeps_name(key: str, name: str) -> bool:
    """Return whether a part keeps its name: drivers are known by theirs, containers may have been numbered."""
    return key == "drivers" or (key in _CONTAINERS and _NUMBERED.fullmatch(name) is not None)


def _requirement(entry: Tree, rename: Callable[[str, str], str]) -> Tree:
    """Return a selector requirement, taint or toleration: key, and values that follow the key."""
    key = entry["key"]
    changed = dict(entry)
    changed["key"] = _label_key(key, rename)
    if "values" in entry:
        changed["values"] = [_label_value(key, value, rename) for value in entry["values"]]
    if entry.get("value"):
        changed["value"] = _label_value(key, entry["value"], rename)
    return changed


def _field_requirement(entry: Tree, rename: Callable[[str, str], str]) -> Tree:
    """Return a field requirement with its node's name replaced; no other field can be asked for."""
    return {**entry, "values": [rename("name", value) for value in entry.get("values") or ()]}


def _host_address(address: str, rename: Callable[[str, str], str]) -> str:
    """Return a made-up address: only whether two are equal counts, and which mean every address."""
    return address if address in _EVERY_ADDRESS else rename("address", address)


def _label_key(key: str, rename: Callable[[str, str], str]) -> str:
    domain = key.rpartition("/")[0]
    kept = _is_providers(domain) or any(domain == each or domain.endswith("." + each) for each in _KEPT_DOMAINS)
    known = key in WELL_KNOWN or kept or is_clouds_own(key)
    return key if known or not key else rename("key", key)


def _is_providers(domain: str) -> bool:
    """Return whether labels of this domain come from Karpenter or its cloud: the catalogue speaks of them too."""
    return domain.startswith("karpenter.")


def _label_value(key: str, value: str, rename: Callable[[str, str], str]) -> str:
    if key in (names.HOSTNAME, names.NODEPOOL):
        return rename("name", value)
    domain = key.rpartition("/")[0]
    if key in WELL_KNOWN or key in _OF_MACHINES or aws_key(key) is not None:
        return value
    if _is_providers(domain) and not key.endswith("nodeclass"):
        return value
    if value.lstrip("-").isdigit() or value in ("", "true", "false"):
        return value
    return rename("value", value)
