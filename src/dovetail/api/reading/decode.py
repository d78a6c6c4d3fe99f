"""Decodes files, streams and API responses into the structs of `model.objects`.

Reads what `kubectl get -o json|yaml` prints. Every kind of contract.md becomes a struct, all others are counted.
Karpenter's v1beta1 objects are converted to v1. What Kubernetes accepts is accepted: unknown fields, null lists,
`PodList`s whose items don't name their kind. What it refuses is refused with the field, its value and what to write.
`api.policy` and `api.manifests.validate` check whether a NodePool's policy makes sense.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from dovetail.api.findings import InputError, shown
from dovetail.api.manifests.v1beta1 import as_v1
from dovetail.api.reading.capture_document import CaptureMark, latest_heartbeat, read_capture, read_running
from dovetail.api.reading.documents import (
    NOTHING_LISTED,
    NOTHING_THERE,
    Document,
    Head,
    NoObjectError,
    is_empty_list,
    read_input,
    split_documents,
)
from dovetail.api.reading.folders import files_of
from dovetail.api.reading.whole_list import read_whole_list
from dovetail.model.cluster import CaptureOrigin, Cluster, cluster_of
from dovetail.model.objects import KINDS, AnyObject
from dovetail.model.quantity import QuantityError, resource_amount

_GROUPS: Final[dict[str, str]] = {
    "Pod": "",
    "Node": "",
    "Namespace": "",
    "PersistentVolume": "",
    "PersistentVolumeClaim": "",
    "NodeClaim": "karpenter.sh",
    "NodePool": "karpenter.sh",
    "PodDisruptionBudget": "policy",
    "DaemonSet": "apps",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "StorageClass": "storage.k8s.io",
    "CSINode": "storage.k8s.io",
    "PriorityClass": "scheduling.k8s.io",
    "Deployment": "apps",
    "Service": "",
    "PodTemplate": "",
    "CapacityBuffer": "autoscaling.x-k8s.io",
    "NodeOverlay": "karpenter.sh",
    "VerticalPodAutoscaler": "autoscaling.k8s.io",
}
_NAMESPACED: Final = frozenset(
    {
        "Pod",
        "PodDisruptionBudget",
        "DaemonSet",
        "ReplicaSet",
        "StatefulSet",
        "PersistentVolumeClaim",
        "Deployment",
        "Service",
        "PodTemplate",
        "CapacityBuffer",
        "VerticalPodAutoscaler",
    }
)
_KIND_OF: Final[dict[type, str]] = {struct: kind for kind, struct in KINDS.items()}
_OLD: Final = "karpenter.sh/v1beta1"
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_UNREAD_MAX: Final = 32
_EXPECTED: Final = re.compile(r"Expected `([^`]+)`")


class DecodedObjects(msgspec.Struct):
    """The objects of an input, in its order, and what else it says.

    `unknown_kinds`: how many objects are of other kinds. `running`: namespaces of workloads that have pods, each with
    the phrase that says so. `passed_over`: files of a folder that hold no Kubernetes object.
    """

    objects: list[AnyObject] = []
    unknown_kinds: dict[str, int] = {}
    captures: list[CaptureMark] = []
    latest_heartbeat: datetime | None = None
    running: dict[str, str] = {}
    passed_over: list[str] = []

    @property
    def captured_at(self) -> datetime | None:
        """Return the latest time of capture."""
        return max((mark.captured_at for mark in self.captures), default=None)

    def add(self, other: "DecodedObjects") -> None:
        """Add the objects of another input."""
        self.objects += other.objects
        for kind, count in other.unknown_kinds.items():
            self.unknown_kinds[kind] = self.unknown_kinds.get(kind, 0) + count
        self.captures += other.captures
        self.latest_heartbeat = _later(self.latest_heartbeat, other.latest_heartbeat)
        self.running = other.running | self.running

    def cluster(self) -> Cluster:
        """Return the objects as a Cluster; if an object appears twice, the last one wins."""
        cluster = cluster_of(self.objects, dict(sorted(self.unknown_kinds.items())))
        origin = self.captures[-1].origin if self.captures else CaptureOrigin()
        at, beat = self.captured_at, self.latest_heartbeat
        return replace(cluster, captured_at=at, latest_heartbeat=beat, origin=origin)


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((at for at in (one, other) if at is not None), default=None)


def load_cluster(paths: Sequence[Path | str]) -> Cluster:
    """Read files and folders ("-": standard input) into one Cluster; if an object appears twice, the last one wins."""
    return decode_files(paths).cluster()


def decode_files(paths: Sequence[Path | str]) -> DecodedObjects:
    """Decode files and folders ("-": standard input); pass over a folder's files without any Kubernetes object."""
    if not paths:
        raise InputError("no input: give files with -f, or - for standard input")
    everything = DecodedObjects()
    for file in files_of(paths):
        name = "standard input" if file.path == "-" else file.path
        try:
            everything.add(decode_objects(read_input(file.path)))
        except NoObjectError as error:
            if not file.in_folder:
                raise InputError(f"{name}: {error}") from None
            everything.passed_over.append(name)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    if not everything.objects and not everything.unknown_kinds:
        raise InputError(f"{', '.join(map(str, paths))}: {NOTHING_LISTED}")
    return everything


def decode_objects(data: bytes) -> DecodedObjects:
    """Decode one input: a List, an object or many documents, JSON or YAML."""
    whole = read_whole_list(data, _is_of_today)
    if whole is not None and whole.objects:
        objects = whole.objects
        for at in whole.unplaced:
            kind = _KIND_OF[type(objects[at])]
            if kind in _NAMESPACED:
                objects[at] = _placed(objects[at], kind)
        return DecodedObjects(
            objects=objects,
            captures=whole.captures,
            latest_heartbeat=max(whole.heartbeats, default=None),
            running=whole.running,
        )
    found = DecodedObjects()
    try:
        seen = _decode_each(data, found)
    except NoObjectError as error:  # beside objects it is a mistake, not another kind of file
        raise InputError(str(error)) if found.objects or found.unknown_kinds else error from None
    if not seen and not is_empty_list(data):
        raise InputError(NOTHING_THERE)
    return found


def _decode_each(data: bytes, found: DecodedObjects) -> bool:
    """Decode document by document; return whether there was any."""
    seen = False
    for document in split_documents(data):
        seen = True
        mark = read_capture(document)
        if mark is not None:
            found.captures.append(mark)
            continue
        item = decode_document(document)
        kind = document.head.kind
        if kind == "Node":
            found.latest_heartbeat = _later(found.latest_heartbeat, latest_heartbeat(document))
        if item is None:
            found.unknown_kinds[kind] = found.unknown_kinds.get(kind, 0) + 1
            continue
        found.objects.append(item)
        if (peopled := read_running(document)) is not None:
            found.running.setdefault(*peopled)
    return seen


def unreadable_quantity(cluster: Cluster) -> str | None:
    """Return the first object with an invalid quantity, its field and what to write; None if there is none."""
    items: tuple[AnyObject, ...] = (*cluster.nodes, *cluster.node_claims, *cluster.pods, *cluster.daemon_sets)
    for item in items:
        for path, resource, text in _amounts(msgspec.to_builtins(item), ""):
            try:
                resource_amount(resource, text)
            except QuantityError as error:
                meta = item.metadata
                name = meta.key if meta.namespace else meta.name
                return f"{type(item).__name__} {name}: {path}: {error}"
    return None


_AMOUNTS: Final = ("allocatable", "capacity", "requests", "limits", "overhead", "allocatedResources")


def _amounts(tree: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """Return every amount in the tree, with its path and its resource."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    for key, inner in pairs:
        below = f"{path}[{key}]" if isinstance(key, int) else _join(path, key)
        if key in _AMOUNTS and isinstance(inner, dict):
            yield from ((f"{below}.{name}", name, text) for name, text in inner.items() if not isinstance(text, dict))
        else:
            yield from _amounts(inner, below)


@lru_cache(1024)
def known(head: Head) -> bool:
    """Return whether decisions need this kind of this API group."""
    group = _GROUPS.get(head.kind)
    if group is None:
        return False
    written, _, _ = head.api_version.rpartition("/")
    return not head.api_version or written == group


def _is_of_today(head: Head) -> bool:
    return known(head) and head.api_version != _OLD


@cache
def _decoder(kind: str) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(KINDS[kind])


def decode_document(document: Document) -> AnyObject | None:
    """Decode one object; None if its kind is not needed."""
    head = document.head
    if not known(head):
        return None
    if document.raw is not None and not head.api_version.endswith("v1beta1"):
        try:
            item = cast("AnyObject", _decoder(head.kind).decode(document.raw))
            return item if item.metadata.namespace else _placed(item, head.kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass  # nulls in place of lists, or an error that the slow path can describe better
    return _decode_slowly(document)


def decode_item(raw: bytes | msgspec.Raw, kind: str) -> AnyObject:
    """Decode one object of an API server's list or watch, whose items don't name their kind.

    As lenient as for files: null lists are empty, and a null budget allows nothing.
    """
    try:
        return cast("AnyObject", _decoder(kind).decode(raw))
    except msgspec.ValidationError:
        tree = msgspec.json.decode(raw)
        named = {"kind": kind, **tree} if isinstance(tree, dict) else tree
        return _converted(without_nulls(_null_budgets_closed(named)), kind)


def _decode_slowly(document: Document) -> AnyObject:
    kind = document.head.kind
    try:
        tree = without_nulls(_null_budgets_closed(document.as_tree()))
    except (InputError, RecursionError):
        raise InputError(_located(document, None, "it is nested too deep, or not readable as UTF-8 text")) from None
    if document.head.api_version == _OLD:
        tree = as_v1(tree)
    try:
        return _placed(_converted(tree, kind), kind)
    except msgspec.ValidationError as error:
        raise InputError(_located(document, tree, _field_problem(str(error), tree))) from None


def _converted(tree: Any, kind: str) -> AnyObject:
    """Build the struct of a tree. A NodePool's field of a wrong type is omitted, reported, and closes what it controls.

    One pool's typo is that pool's problem, not the whole input's (docs/rules.md#policy).
    """
    unread: list[list[str]] = []
    while True:
        try:
            return cast("AnyObject", msgspec.convert(tree, KINDS[kind]))
        except msgspec.ValidationError as error:
            path = _field_of(str(error)) if kind == "NodePool" and len(unread) < _UNREAD_MAX else ()
            if not path:
                raise
            unread.append([".".join(path), _field_problem(str(error), tree)])
            tree = {**_left_out(tree, path), "dovetail.dev/unread": unread}


def _field_of(message: str) -> tuple[str, ...]:
    """Return the path to the field of a pool's spec in a decoder's error; empty: the error is about something else."""
    place = message.rpartition(" - at `")[2].rstrip("`").removeprefix("$")
    names = tuple(name for name, _ in _STEP.findall(place.partition("[")[0]))
    deep = 4 if names[:2] == ("spec", "template") else 3 if names[:2] == ("spec", "disruption") else 2
    return names[:deep] if names[:1] == ("spec",) and len(names) > 1 else ()


def _left_out(tree: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Copy a tree without one field."""
    if len(path) == 1:
        return {key: value for key, value in tree.items() if key != path[0]}
    return {**tree, path[0]: _left_out(tree[path[0]], path[1:])}


def _placed(item: AnyObject, kind: str) -> AnyObject:
    """Put a namespaced object without a namespace into `default`, as kubectl would."""
    if not item.metadata.namespace and kind in _NAMESPACED:
        return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, namespace="default"))
    return item


def without_nulls(tree: Any) -> Any:
    """Copy a tree without null fields: to Kubernetes they are absent."""
    if isinstance(tree, dict):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [without_nulls(value) for value in tree if value is not None]
    return tree


def _null_budgets_closed(tree: Any) -> Any:
    """Copy a NodePool so that a null budget counts as unreadable, not as absent.

    Otherwise the list could become empty, which means no limit at all.
    """
    disruption = tree.get("spec", {}).get("disruption") if _is_pool(tree) else None
    budgets = disruption.get("budgets") if isinstance(disruption, dict) else None
    if disruption is None or not isinstance(budgets, list) or None not in budgets:
        return tree
    closed = [{"nodes": ""} if budget is None else budget for budget in budgets]
    return {**tree, "spec": {**tree["spec"], "disruption": {**disruption, "budgets": closed}}}


def _is_pool(tree: Any) -> bool:
    return isinstance(tree, dict) and tree.get("kind") == "NodePool" and isinstance(tree.get("spec"), dict)


def _located(document: Document, tree: Any, problem: str) -> str:
    meta = tree.get("metadata") if isinstance(tree, dict) else None
    name = meta.get("name", "") if isinstance(meta, dict) else ""
    what = f"{document.head.kind}/{name}" if name else document.head.kind
    return f"{document.where} ({what}): {problem}" if document.where else f"{what}: {problem}"


_WORDS: Final = {
    "str": "text (put it in quotes)",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a map",
    "datetime": "a time with its zone, such as 2026-03-14T15:30:00Z",
}


def _field_problem(message: str, tree: Any) -> str:
    """Turn a decoder's error into a field path, its value and what to write."""
    complaint, _, place = message.rpartition(" - at `")
    if not complaint:
        complaint, place = message, "$"
    expected = _EXPECTED.search(complaint)
    names = [name.strip() for name in expected.group(1).split("|")] if expected else []
    path, value = _walk(tree, place.rstrip("`").removeprefix("$"), names)
    if "missing required field" in complaint:
        wanted = complaint.rpartition("`")[0].rpartition("`")[2]
        return f"{_join(path, wanted)} is missing; write it"
    if expected is None:
        is_time = "RFC3339" in complaint or "timezone" in complaint
        return f"{path} is {shown(value)}; " + (f"write {_WORDS['datetime']}" if is_time else complaint)
    if {"bool", "str"} <= set(names):
        return f"{path} is {shown(value)}; write one value, not a list or a map"
    words = " or ".join(_WORDS.get(name, name) for name in names if name != "null")
    return f"{path or 'the object'} is {shown(value)}; write {words}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _walk(tree: Any, place: str, expected: Iterable[str]) -> tuple[str, Any]:
    """Follow a decoder's path; if it only says "some value of this map", find the first one that doesn't fit."""
    path, value = "", tree
    for name, index in _STEP.findall(place):
        if name:
            path, value = _join(path, name), value.get(name) if isinstance(value, dict) else None
        elif index == "...":
            key = next(_misfits(value, set(expected)), None)
            if key is None:
                return path, value
            path, value = f"{path}[{key}]", value[key]
        else:
            path = f"{path}[{index}]"
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
    return path, value


_PYTHON: Final = {"str": str, "int": int, "float": float, "bool": bool, "array": list, "object": dict}


def _misfits(value: Any, expected: set[str]) -> Iterator[str]:
    types = tuple(_PYTHON[name] for name in sorted(expected) if name in _PYTHON)
    for key, inner in value.items() if isinstance(value, dict) else ():
        if not isinstance(inner, types) or (isinstance(inner, bool) and "bool" not in expected):
            yield key
