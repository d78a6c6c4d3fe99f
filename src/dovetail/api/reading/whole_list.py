"""Reads a List of known kinds in one go: no step per object in Python, which counts at 80,000 pods.

A first pass reads which object is which (kind and API version, and the times that no struct holds), a second one reads
the objects, straight into the structs of `model.objects`. Anything out of the ordinary (an unknown kind, a null in
place of a list, an old version, a fault) ends it: `decode` then reads object by object and can say where the fault is.
Sits in api, below decode.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache, reduce
from operator import or_
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.api.reading.capture_document import API_VERSION, KIND, StatusTimes, latest_time
from dovetail.api.reading.documents import Head
from dovetail.model.objects import KINDS, AnyObject, Instant

_FAULTS: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _Front(msgspec.Struct, rename="camel", frozen=True, tag_field="kind", gc=False):
    """Which version an object is of."""

    api_version: str = ""


class _NodeFront(_Front, frozen=True, tag="Node", gc=False):
    """The same of a Node, with the times at which its kubelet reported."""

    status: StatusTimes | None = None


class _Capture(_Front, frozen=True, tag=KIND, gc=False, kw_only=True):
    """The object that says when a snapshot was taken."""

    captured_at: Instant


class WholeList(NamedTuple):
    """The objects of a List, in its order, and the times it names."""

    objects: list[AnyObject]
    captured_at: datetime | None
    latest_heartbeat: datetime | None


def read_whole_list(data: bytes, known: Callable[[Head], bool]) -> WholeList | None:
    """Return the objects of a List; None if it is something else, or has other objects than those of `known` kinds.

    Objects without a namespace are left without.
    """
    try:
        times = _times(data, known)
        if times is None:
            return None
        objects = _read(_objects(), data)[1]
    except _FAULTS:
        return None
    captured_at, latest_heartbeat = times
    if captured_at is not None:
        objects = [item for item in objects if type(item) is not _Capture]
    return WholeList(objects, captured_at, latest_heartbeat)


def _times(data: bytes, known: Callable[[Head], bool]) -> tuple[datetime | None, datetime | None] | None:
    """Return when a List was captured, and the latest heartbeat in it; None if not all of its objects are known."""
    kind, fronts = _read(_fronts(), data)
    if not kind.endswith("List") or not all(map(known, _heads(fronts))):
        return None
    captures = [front.captured_at for front in fronts if type(front) is _Capture]
    beats = [latest_time(front.status) for front in fronts if type(front) is _NodeFront]
    return max(captures, default=None), max((at for at in beats if at is not None), default=None)


def _heads(fronts: list[Any]) -> Iterator[Head]:
    """Yield kind and version of the objects, each pair once; the time of a capture is known here."""
    pairs = {(type(front), front.api_version): None for front in fronts}
    for kind, version in pairs:
        if kind is not _Capture or version != API_VERSION:
            yield Head(kind=kind.__struct_config__.tag, api_version=version)


def _read(decoder: "msgspec.json.Decoder[Any]", data: bytes) -> tuple[str, list[Any]]:
    found = decoder.decode(data)
    return found.kind, found.items


@cache
def _fronts() -> "msgspec.json.Decoder[Any]":
    own = {"Node": _NodeFront, KIND: _Capture}
    kinds = [
        own.get(kind) or msgspec.defstruct(f"_{kind}Front", [], bases=(_Front,), tag=kind, frozen=True, gc=False)
        for kind in (*KINDS, KIND)
    ]
    return _lists_of(kinds)


@cache
def _objects() -> "msgspec.json.Decoder[Any]":
    return _lists_of([*KINDS.values(), _Capture])


def _lists_of(kinds: Iterable[type]) -> "msgspec.json.Decoder[Any]":
    """Build the decoder of a List whose items are of these kinds."""
    items: Any = reduce(or_, kinds)
    return msgspec.json.Decoder(msgspec.defstruct("_List", [("kind", str), ("items", list[items])]))
