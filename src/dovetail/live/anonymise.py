"""Replaces what could tell whose cluster it is by made-up names that sort in the same order.

Decisions break ties by name and uid, so a plan stays the same only if the order does: all strings of one sort (names,
label keys, label values, uids) are ranked, and each gets the number of its rank. Values of well-known labels (zones,
types, architectures) and plain numbers stay, since rules read them. Free text and command records are dropped.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from dovetail.model import names
from dovetail.model.labels import WELL_KNOWN

Tree = dict[str, Any]
_KEPT_NAMES: Final = frozenset(
    {"", "default", "kube-system", "kube-public", "kube-node-lease", "system-cluster-critical", "system-node-critical"}
)
_KEPT_DOMAINS: Final = ("kubernetes.io", "k8s.io", "karpenter.sh", "k8s.aws", "dovetail.dev", "azure.com", "gke.io")
_NAME_FIELDS: Final = frozenset(
    {
        "name", "namespace", "nodeName", "claimName", "volumeName", "storageClassName", "priorityClassName",
        "nominatedNodeName", "providerID", "volumeHandle", "schedulerName", "imageID", "generateName",
    }
)  # fmt: skip
_UNNAMED_PARTS: Final = frozenset({"containers", "initContainers", "volumes", "schedulingGates", "ports", "drivers"})
_DROPPED: Final = frozenset({"message", "imageID", "generateName", "finalizers"})


def anonymise(trees: list[Tree]) -> list[Tree]:
    """The same cluster under made-up names."""
    seen: dict[str, set[str]] = {"name": set(), "key": set(), "value": set(), "uid": set()}

    def note(sort: str, text: str) -> str:
        seen[sort].add(text)
        return text

    for tree in trees:
        _walk(tree, note)
    made = {sort: _ranked(sort, texts) for sort, texts in seen.items()}
    return [_walk(tree, lambda sort, text: made[sort][text]) for tree in trees]


def _ranked(sort: str, texts: Iterable[str]) -> dict[str, str]:
    ordered = sorted(texts)
    width = len(str(len(ordered)))
    made = {text: f"{sort[0]}{rank:0{width}d}" for rank, text in enumerate(ordered)}
    if sort == "name":
        made.update({text: text for text in ordered if text in _KEPT_NAMES})
    return made


def _walk(tree: Tree, rename: Callable[[str, str], str]) -> Tree:
    return {key: _member(key, value, rename) for key, value in tree.items() if key not in _DROPPED}


def _member(key: str, value: Any, rename: Callable[[str, str], str]) -> Any:
    if key in ("labels", "matchLabels", "nodeSelector") and isinstance(value, dict):
        return {_label_key(k, rename): _label_value(k, v, rename) for k, v in value.items()}
    if key == "annotations":
        return {k: v for k, v in value.items() if k != names.COMMAND}
    if key == "uid":
        return rename("uid", value)
    if key == "topologyKey":
        return _label_key(value, rename)
    if key in ("matchLabelKeys", "mismatchLabelKeys"):
        return [_label_key(entry, rename) for entry in value]
    if key == "namespaces":
        return [rename("name", entry) for entry in value]
    if key in _NAME_FIELDS and isinstance(value, str):
        return rename("name", value)
    if isinstance(value, dict):
        return _requirement(value, rename) if "key" in value else _walk(value, rename)
    if isinstance(value, list | tuple):
        return [_entry(key, entry, rename) for entry in value]
    return value


def _entry(key: str, entry: Any, rename: Callable[[str, str], str]) -> Any:
    if not isinstance(entry, dict):
        return entry
    if "key" in entry:
        return _requirement(entry, rename)
    if key in _UNNAMED_PARTS:  # parts of a pod: their names mean nothing to any rule
        entry = {k: v for k, v in entry.items() if k != "name" or key == "drivers"}
        kept = {"name": entry["name"]} if key == "drivers" and "name" in entry else {}
        return {**_walk({k: v for k, v in entry.items() if k != "name"}, rename), **kept}
    return _walk(entry, rename)


def _requirement(entry: Tree, rename: Callable[[str, str], str]) -> Tree:
    """A selector requirement, taint or toleration: key, and values that follow the key."""
    key = entry["key"]
    changed = dict(entry)
    changed["key"] = _label_key(key, rename)
    if "values" in entry:
        changed["values"] = [_label_value(key, value, rename) for value in entry["values"]]
    if entry.get("value"):
        changed["value"] = _label_value(key, entry["value"], rename)
    return changed


def _label_key(key: str, rename: Callable[[str, str], str]) -> str:
    domain = key.rpartition("/")[0]
    known = key in WELL_KNOWN or any(domain == kept or domain.endswith("." + kept) for kept in _KEPT_DOMAINS)
    return key if known or not key else rename("key", key)


def _label_value(key: str, value: str, rename: Callable[[str, str], str]) -> str:
    if key in (names.HOSTNAME, names.NODEPOOL):
        return rename("name", value)
    domain = key.rpartition("/")[0]
    if key in WELL_KNOWN or domain in ("karpenter.sh", "karpenter.kwok.sh", "karpenter.k8s.aws"):
        return value
    if value.lstrip("-").isdigit() or value in ("", "true", "false"):
        return value
    return rename("value", value)
