"""Reads a List of known kinds in one go: one short step per object in Python, which counts at 80,000 pods.

One pass reads the parts of all objects straight into the structs of `model.objects`, together with what those don't
hold: the API versions, and the times at which kubelets reported. Anything out of the ordinary (an unknown kind, a null
in place of a list, an old version, a fault) ends it: `decode` then reads object by object and can say where the fault
is. Sits in api, below decode.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache, reduce
from operator import attrgetter, or_
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from dovetail.api.reading.capture_document import (
    API_VERSION,
    COUNTED_KINDS,
    KIND,
    CapturedCluster,
    CaptureMark,
    WorkloadStatus,
    running,
)
from dovetail.api.reading.documents import Head
from dovetail.model.objects import KINDS, AnyObject, ApiStruct, Condition, Instant, Node, NodeStatus, Pod

_PodVersion = Literal["v1", ""]
_FAULTS: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _Front(ApiStruct, frozen=True, tag_field="kind"):
    """Which version an object is of; `_front` adds the fields of its kind."""

    api_version: str = ""


class _Capture(_Front, frozen=True, tag=KIND, kw_only=True):
    """The object that says when a snapshot was taken, and of which cluster."""

    captured_at: Instant
    cluster: CapturedCluster = CapturedCluster()
    kinds: tuple[str, ...] = ()


class _NodeCondition(Condition, frozen=True):
    """A condition of a Node, with the time at which its kubelet reported."""

    last_heartbeat_time: Instant | None = None


class _NodeStatus(NodeStatus, frozen=True):
    """The status of a Node, with those times."""

    conditions: tuple[_NodeCondition, ...] = ()


class WholeList(NamedTuple):
    """The objects of a List, in its order, and what else it says.

    `unplaced`: indexes of the objects without a namespace. `running`: namespaces of workloads that have pods, each with
    the phrase that says so.
    """

    objects: list[AnyObject]
    unplaced: list[int]
    captures: list[CaptureMark]
    heartbeats: list[datetime]
    running: dict[str, str]


def read_whole_list(data: bytes, known: Callable[[Head], bool]) -> WholeList | None:
    """Return the objects of a List; None if it is something else, or has other objects than those of `known` kinds."""
    try:
        found = _lists().decode(data)
    except _FAULTS:
        return None
    if not found.kind.endswith("List"):
        return None
    pod_front: Any = _front("Pod")
    node_front: Any = _front("Node")
    counted = tuple(map(_front, COUNTED_KINDS))
    whole = WholeList([], [], [], [], {})
    heads: dict[tuple[type, str], None] = {}
    add = whole.objects.append
    for item in found.items:
        if type(item) is pod_front:  # most are
            meta = item.metadata
            if not meta.namespace:
                whole.unplaced.append(len(whole.objects))
            add(Pod(metadata=meta, spec=item.spec, status=item.status))
            continue
        heads[type(item), item.api_version] = None
        if type(item) is _Capture:
            mark = CaptureMark(captured_at=item.captured_at, cluster=item.cluster, kinds=item.kinds)
            whole.captures.append(mark)
            continue
        if not item.metadata.namespace:
            whole.unplaced.append(len(whole.objects))
        if type(item) is node_front:
            beats = (entry.last_heartbeat_time for entry in item.status.conditions)
            whole.heartbeats.extend(at for at in beats if at is not None)
            add(Node(metadata=item.metadata, spec=item.spec, status=_without_beats(item.status)))
        else:
            add(_object(item))
            if type(item) in counted and item.status.pods > 0:
                kind, meta = item.__struct_config__.tag, item.metadata
                namespace, phrase = running(kind, meta.namespace or "default", meta.name, item.status.pods)
                whole.running.setdefault(namespace, phrase)
    return whole if all(map(known, _named(heads))) else None


def _named(heads: Iterable[tuple[Any, str]]) -> Iterator[Head]:
    """Yield kind and version of the objects; the time of a capture is known here."""
    for kind, version in heads:
        if kind is not _Capture or version != API_VERSION:
            yield Head(kind=kind.__struct_config__.tag, api_version=version)


def _without_beats(status: _NodeStatus) -> NodeStatus:
    conditions = tuple([Condition(*_values(entry)) for entry in status.conditions])
    return NodeStatus(capacity=status.capacity, allocatable=status.allocatable, conditions=conditions)


_values: Final = attrgetter(*Condition.__struct_fields__)


def _object(front: Any) -> AnyObject:
    kind: Any = KINDS[front.__struct_config__.tag]
    return cast("AnyObject", kind(*[getattr(front, name) for name in kind.__struct_fields__]))


@cache
def _front(kind: str) -> type:
    """Return the struct that holds the version and the parts of an object of this kind."""
    fields: list[tuple[str, Any, Any]] = []
    if kind == "Pod":  # there are too many to look at the version of each
        fields.append(("api_version", _PodVersion, msgspec.field(default="", name="apiVersion")))
    for entry in msgspec.structs.fields(KINDS[kind]):
        held = _NodeStatus if kind == "Node" and entry.name == "status" else entry.type
        default: Any = msgspec.field(default=entry.default, name=entry.encode_name)
        fields.append((entry.name, held, default))
    if kind in COUNTED_KINDS:
        fields.append(("status", WorkloadStatus, WorkloadStatus()))
    return msgspec.defstruct(f"_{kind}Front", fields, bases=(_Front,), tag=kind, frozen=True, kw_only=True, gc=False)


@cache
def _lists() -> "msgspec.json.Decoder[Any]":
    """Build the decoder of a List whose items are of these kinds."""
    items: Any = reduce(or_, [*map(_front, KINDS), _Capture])
    return msgspec.json.Decoder(msgspec.defstruct("_List", [("kind", str), ("items", list[items])]))
