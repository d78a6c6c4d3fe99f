"""The document of a snapshot that says when it was taken, and the node heartbeats, which no decision reads.

`dovetail snapshot` writes one object of kind Capture with the time at which it was taken. Sits in api, below decode.
"""

from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from dovetail.api.reading.documents import Document
from dovetail.model.objects import Instant

T = TypeVar("T")
KIND: Final = "Capture"
API_VERSION: Final = "dovetail.dev/v1"


class _Capture(msgspec.Struct, rename="camel", frozen=True):
    captured_at: Instant


class _Heartbeat(msgspec.Struct, rename="camel", frozen=True):
    last_heartbeat_time: Instant | None = None


class StatusTimes(msgspec.Struct, frozen=True):
    """The heartbeats in the status of a Node."""

    conditions: list[_Heartbeat] | None = None


class _Node(msgspec.Struct, frozen=True):
    status: StatusTimes | None = None


def capture_document(at: datetime) -> dict[str, Any]:
    """Build the object that says when a snapshot was taken."""
    stamp = at.isoformat().replace("+00:00", "Z")
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "capture"}, "capturedAt": stamp}


def read_capture(document: Document) -> datetime | None:
    """Return the time in a Capture document; None if the document is of another kind or can't be read."""
    if document.head.kind != KIND or document.head.api_version != API_VERSION:
        return None
    found = _convert(document, _Capture)
    return None if found is None else found.captured_at


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
