"""Lists that are read in one go give what reading object by object gives."""

import json
from typing import Any

import pytest

from dovetail.api.findings import InputError
from dovetail.api.reading import decode
from dovetail.api.reading.decode import DecodedObjects, decode_objects, known
from dovetail.api.reading.whole_list import read_whole_list
from dovetail.model.objects import KINDS
from tests.paths import SHARED, needs_shared
from tests.support.api_versions import API_VERSIONS


def an(kind: str, version: str = "", **fields: Any) -> dict[str, Any]:
    """Build an object; its version is the kind's own unless it is given."""
    head = {"apiVersion": version or API_VERSIONS.get(kind, "v1"), "kind": kind, "metadata": {"name": "n"}}
    return {**head, **fields}


def beating(*times: str) -> dict[str, Any]:
    """Build the status of a Node whose kubelet reported at these times."""
    return {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": at} for at in times]}


CAPTURE = an("Capture", "dovetail.dev/v1", capturedAt="2026-03-14T15:30:00Z")
LATER = an("Capture", "dovetail.dev/v1", capturedAt="2026-03-14T16:30:00Z")
POD = an("Pod", metadata={"name": "a", "namespace": "x", "labels": {"app": "a"}}, spec={"nodeName": "one"})
ORDINARY: dict[str, list[dict[str, Any]]] = {
    "every kind, none with a namespace": [an(kind) for kind in KINDS],
    "pods of two namespaces": [POD, an("Pod", metadata={"name": "a", "namespace": "y"})],
    "the same pod twice": [POD, {**POD, "spec": {"nodeName": "two"}}],
    "a capture": [CAPTURE, POD],
    "two captures": [POD, LATER, CAPTURE],
    "heartbeats": [an("Node", status=beating("2026-03-14T15:30:00Z", "2026-03-14T15:31:00Z")), an("Node")],
    "a heartbeat of nobody": [an("Node", status={"conditions": [{"type": "Ready", "lastHeartbeatTime": None}]})],
    "kind after the rest": [dict(reversed(POD.items()))],
    "no version": [{"kind": "Pod", "metadata": {"name": "a"}}],
}
ODD: dict[str, list[Any]] = {
    "another kind": [POD, an("Job", "batch/v1")],
    "a known name of another group": [POD, an("Node", "storage.example.com/v1")],
    "a pod of another group": [POD, an("Pod", "example.com/v1")],
    "a pod of another version": [POD, an("Pod", "v2")],
    "a capture of another group": [POD, an("Capture", "example.com/v1", capturedAt="2026-03-14T15:30:00Z")],
    "Karpenter's older version": [an("NodePool", "karpenter.sh/v1beta1", spec={"disruption": {"expireAfter": "9h"}})],
    "null for a list": [an("Pod", spec={"tolerations": None})],
    "a null budget": [an("NodePool", spec={"disruption": {"budgets": [None]}})],
    "a pool's field of a wrong type": [an("NodePool", spec={"weight": "heavy"})],
    "an unreadable heartbeat": [an("Node", status=beating("yesterday"))],
    "a capture without a time": [POD, an("Capture", "dovetail.dev/v1")],
    "no objects": [],
    "a field of a wrong type": [an("Pod", spec={"nodeName": 5})],
    "no kind": [{"metadata": {"name": "a"}}],
    "no object": [POD, 5],
    "null": [POD, None],
}  # fmt: skip


def listed(items: list[Any], indent: int | None = None) -> bytes:
    """Write a List, as kubectl prints it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=indent).encode()


def read(data: bytes) -> DecodedObjects | str:
    """Decode an input; the complaint if it is refused."""
    try:
        return decode_objects(data)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("name", [*ORDINARY, *ODD])
@pytest.mark.parametrize("indent", [None, 4])
def test_one_go_reads_what_object_by_object_reads(name: str, indent: int | None, monkeypatch: Any) -> None:
    """Objects, counts, times and complaints are the same."""
    data = listed({**ORDINARY, **ODD}[name], indent)
    found = read(data)
    monkeypatch.setattr(decode, "read_whole_list", lambda *_: None)
    assert found == read(data)


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_lists_are_read_in_one_go(name: str) -> None:
    """None of them needs the slow way."""
    found = read_whole_list(listed(ORDINARY[name]), known)
    assert found is not None
    assert len(found.objects) == sum(item["kind"] != "Capture" for item in ORDINARY[name])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"kind: List\nitems: []\n",
        json.dumps(POD).encode(),
        json.dumps({"kind": "Pod", "items": [POD]}).encode(),
        json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": POD["metadata"]}]}).encode(),
        b'{"kind":"List","items":[{"kind":"Pod","metadata":{"name":"\xff"}}]}',
        b'{"kind":"List","items":' + b"[" * 100_000,
        listed([POD]) + listed([POD]),
        listed([POD])[:-5],
    ],
)
def test_what_is_no_list_of_known_objects_is_left_to_others(data: bytes) -> None:
    """It never raises."""
    assert read_whole_list(data, known) is None


@needs_shared
def test_bench_and_golden_clusters_are_read_in_one_go() -> None:
    """A capture of a real size needs no slow way."""
    from dovetail.api.reading.documents import read_input

    for path in (SHARED / "bench" / "mixed-100", SHARED / "golden" / "001"):
        assert read_whole_list(read_input(path / "cluster.json.gz"), known) is not None
