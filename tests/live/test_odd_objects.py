"""Partly unreadable objects and extreme times: the controller continues, and their nodes stay."""

import asyncio
import socket
import urllib.request
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.catalogue import load_catalogue
from dovetail.api.reading.conservative import conservative, unreadable_pod
from dovetail.api.reading.decode import decode_item
from dovetail.decide.facts.drainability import protection
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.messages import (
    ClockAdvanced,
    DeleteNodeClaim,
    Instruction,
    LeadershipGained,
    ObjectObserved,
    Synced,
    TaintNode,
)
from dovetail.live.observability.serve import serving
from dovetail.model.objects import AnyObject, Pod
from dovetail.model.settings import DOVETAIL
from dovetail.model.timing.duration import END_OF_TIME, later
from tests.support.e2e_world import claim, pod, pool, write_catalogue

Tree = dict[str, Any]
NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
ODD = ["lots", "", "1e1.5", "0x10", "1 Gi", "٣", "NaN", "1KiB", "--1"]


def _item(tree: Tree, kind: str) -> AnyObject:
    return conservative(decode_item(msgspec.json.encode(tree), kind))[0]


def _objects() -> dict[str, Tree]:
    """Return one managed pool with an empty node and one with a pod; both could be deleted."""
    web = pool("web")
    web["metadata"] |= {"uid": "pool", "generation": 1}
    found: dict[str, Tree] = {"NodePool/web": web}
    for name in ("empty", "busy"):
        made = claim(name, web)
        made["metadata"] |= {"uid": f"claim-{name}", "creationTimestamp": "2026-03-01T00:00:00Z"}
        made["status"] = {
            "nodeName": name,
            "providerID": name,
            "capacity": {"cpu": "2"},
            "allocatable": {"cpu": "2"},
            "conditions": [{"type": kind, "status": "True"} for kind in ("Launched", "Registered", "Initialized")],
            "lastPodEventTime": "2026-03-01T00:00:00Z",
        }
        labels = {
            "karpenter.sh/nodepool": "web",
            "karpenter.sh/initialized": "true",
            "karpenter.sh/registered": "true",
            "karpenter.sh/capacity-type": "on-demand",
            "node.kubernetes.io/instance-type": "small",
            "topology.kubernetes.io/zone": "zone-a",
            "kubernetes.io/hostname": name,
        }
        node: Tree = {
            "metadata": {
                "name": name,
                "uid": f"node-{name}",
                "labels": labels,
                "creationTimestamp": "2026-03-01T00:00:00Z",
                "annotations": {"karpenter.sh/do-not-disrupt": "true", "dovetail.dev/hold": "true"},
            },
            "spec": {"providerID": name},
            "status": {
                "capacity": {"cpu": "2", "memory": "4Gi", "pods": "50"},
                "allocatable": {"cpu": "1900m", "memory": "3900Mi", "pods": "50"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        found[f"NodeClaim/{name}"], found[f"Node/{name}"] = made, node
    guest = pod("guest", "app", "busy", cpu="1800m")
    guest["status"] = {"phase": "Running", "startTime": "2026-03-01T00:00:00Z"}
    found["Pod/guest"] = guest
    daemon = pod("", "agent", cpu="10m")
    found["DaemonSet/agent"] = {
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {"metadata": {}, "spec": daemon["spec"]}},
    }
    return found


def _acts(objects: dict[str, Tree], folder: Any) -> list[Instruction]:
    """Run an engine on them for a minute."""
    engine = Engine(DOVETAIL, load_catalogue(str(write_catalogue(folder))))
    out: list[Instruction] = []
    for key, tree in objects.items():
        out += engine.handle(ObjectObserved(object=_item(tree, key.split("/")[0])), NOW)
    for second in range(0, 60, 5):
        now = NOW.replace(second=second)
        events = [Synced(), LeadershipGained()] if second == 0 else [ClockAdvanced()]
        for event in events:
            out += engine.handle(event, now)
    return out


def _taken(out: list[Instruction]) -> set[str]:
    return {item.node for item in out if isinstance(item, TaintNode)} | {
        item.node for item in out if isinstance(item, DeleteNodeClaim)
    }


def test_the_scene_itself_ends_in_a_deletion(tmp_path: Any) -> None:
    """Without odd objects the empty node is deleted, so that the other tests can fail."""
    assert "empty" in _taken(_acts(_objects(), tmp_path))


@pytest.mark.parametrize("amount", ODD)
@pytest.mark.parametrize(
    ("where", "path"),
    [
        ("Node/empty", ("status", "allocatable", "cpu")),
        ("Node/empty", ("status", "capacity", "memory")),
        ("NodeClaim/empty", ("status", "capacity", "cpu")),
        ("NodeClaim/empty", ("status", "allocatable", "cpu")),
        ("NodeClaim/empty", ("spec", "resources", "requests", "cpu")),
    ],
)
def test_a_node_with_an_unreadable_amount_stays(where: str, path: tuple[str, ...], amount: str, tmp_path: Any) -> None:
    """A node with an unreadable amount, on the node or its claim, is not touched."""
    objects = _objects()
    _set(objects[where], path, amount)
    assert "empty" not in _taken(_acts(objects, tmp_path))


@pytest.mark.parametrize("amount", ODD)
@pytest.mark.parametrize("field", ["requests", "limits"])
def test_a_pod_with_an_unreadable_amount_keeps_its_node(field: str, amount: str, tmp_path: Any) -> None:
    """A pod with an unreadable amount has an unknown size: its node is neither emptied nor filled."""
    objects = _objects()
    objects["Pod/guest"]["spec"]["containers"][0]["resources"] = {field: {"cpu": amount}}
    taken = _taken(_acts(objects, tmp_path))
    assert "busy" not in taken
    assert "empty" in taken


@pytest.mark.parametrize("amount", ODD)
@pytest.mark.parametrize(
    ("where", "path"),
    [
        ("DaemonSet/agent", ("spec", "template", "spec", "overhead", "cpu")),
        ("NodePool/web", ("spec", "limits", "cpu")),
        ("Pod/guest", ("spec", "overhead", "cpu")),
        ("Pod/guest", ("spec", "resources", "requests", "cpu")),
    ],
)
def test_nothing_ends_whatever_carries_it(where: str, path: tuple[str, ...], amount: str, tmp_path: Any) -> None:
    """An unreadable amount on any kind does not end the controller."""
    objects = _objects()
    _set(objects[where], path, amount)
    assert "busy" not in _taken(_acts(objects, tmp_path))


def test_what_is_odd_is_named() -> None:
    """The problem names the resource and the value."""
    tree = _objects()["Node/empty"]
    _set(tree, ("status", "allocatable", "cpu"), "lots")
    _, problems = conservative(decode_item(msgspec.json.encode(tree), "Node"))
    [problem] = problems
    assert "cpu" in problem
    assert "lots" in problem


def test_what_is_fine_is_the_very_same_object() -> None:
    """Objects without problems are not copied."""
    for key, tree in _objects().items():
        item = decode_item(msgspec.json.encode(tree), key.split("/")[0])
        assert conservative(item) == (item, ())
        assert conservative(item)[0] is item


@pytest.mark.parametrize(
    ("raw", "node"),
    [
        (b'{"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": "n", "priority": "x"}}', "n"),
        (b'{"metadata": {"name": "p", "namespace": "d", "labels": 7}, "spec": {"nodeName": "n"}}', "n"),
        (b'{"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": 7}}', None),
        (b'{"metadata": {"name": 7}, "spec": {}}', None),
        (b'{"metadata": {}, "spec": {}}', None),
        (b"[]", None),
        (b"\xff", None),
    ],
)
def test_a_stand_in_for_a_pod(raw: bytes, node: str | None) -> None:
    """A stand-in for a pod is on its node and protects it; without name or node there is none."""
    found = unreadable_pod(raw)
    assert (found.spec.node_name if found else None) == node
    if found:
        assert protection(found, NOW) is not None


@pytest.mark.parametrize("start", ["9999-12-31T23:59:59Z", "9999-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
@pytest.mark.parametrize("value", ["1h", "2540400h", "100h0m0s", "true", "292y"])
def test_a_pod_that_starts_at_the_end_of_time(start: str, value: str, tmp_path: Any) -> None:
    """With do-not-disrupt for some hours from the year 9999, a pod is protected without an error."""
    objects = _objects()
    guest = objects["Pod/guest"]
    guest["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": value}
    guest["status"]["startTime"] = start
    item = _item(guest, "Pod")
    assert isinstance(item, Pod)
    assert (protection(item, NOW) is not None) == (value != "292y")
    taken = _taken(_acts(objects, tmp_path))
    assert "empty" in taken


@pytest.mark.parametrize("stamp", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
@pytest.mark.parametrize(
    ("where", "path"),
    [
        ("NodeClaim/empty", ("metadata", "creationTimestamp")),
        ("NodeClaim/empty", ("status", "lastPodEventTime")),
        ("Node/empty", ("metadata", "creationTimestamp")),
        ("Pod/guest", ("metadata", "creationTimestamp")),
    ],
)
def test_times_at_both_ends(where: str, path: tuple[str, ...], stamp: str, tmp_path: Any) -> None:
    """Any time that the API server accepts can be read."""
    objects = _objects()
    _set(objects[where], path, stamp)
    _acts(objects, tmp_path)


def test_later_stops_at_the_end_of_time() -> None:
    """Sums of a time and a duration stop at the maximum, and round up."""
    assert later(NOW, 1) == NOW.replace(microsecond=1)
    assert later(END_OF_TIME, 1) == END_OF_TIME
    assert later(NOW, 2**63 - 1) < END_OF_TIME
    assert later(datetime(9990, 1, 1, tzinfo=UTC), 2**63 - 1) == END_OF_TIME


def _set(tree: Tree, path: tuple[str, ...], value: object) -> None:
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = value


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_every_address_is_of_both_families(address: str) -> None:
    """`--listen=:PORT` answers over IPv4 and IPv6."""
    if address == "[::1]" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")

    async def context() -> None:
        async with serving(("", 0), CollectorRegistry(), alive=lambda: "", ready=lambda: "not yet") as port:
            assert await asyncio.to_thread(_get, f"http://{address}:{port}/healthz") == (200, "ok\n")
            assert await asyncio.to_thread(_get, f"http://{address}:{port}/readyz") == (503, "not yet\n")

    asyncio.run(context())


def test_probes_may_have_a_port_of_their_own() -> None:
    """With a separate probe port, the metrics port has no probes and the probe port no metrics."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        other = free.getsockname()[1]

    async def context() -> None:
        async with serving(
            ("127.0.0.1", 0), CollectorRegistry(), alive=lambda: "", ready=lambda: "", probes=("", other)
        ) as port:
            asked = [f"http://127.0.0.1:{each}/{path}" for each in (port, other) for path in ("metrics", "healthz")]
            assert [(await asyncio.to_thread(_get, url))[0] for url in asked] == [200, 404, 404, 200]

    asyncio.run(context())


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
