"""What a controller asks of a real API server: lists once, watches that go on, no write twice, also after a restart."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from dovetail.lifecycle.conditions import POLICY_READABLE
from dovetail.model import names
from tests.support.background import Inside, cloud_on, running_inside
from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.e2e_world import World, pool, write_catalogue, write_settings
from tests.support.traffic import Recorder, Traffic

_ROUNDS = 3
_ONCE = (
    "/version",
    "/secrets/",
    "/leases/",
    "/capacitybuffers",
    "/nodeoverlays",
    "/verticalpodautoscalers",
    "/customresourcedefinitions/",
)
"""What is read apart from watched kinds and from objects that are written: versions, our own objects, absent kinds."""


def _traffic(recorder: Recorder, inside: Inside) -> Traffic:
    eventually(lambda: inside.controller is not None)
    assert inside.controller is not None
    return recorder.of(inside.controller.client)


def _went_on(traffic: Traffic) -> bool:
    """Return whether the server has ended the watch of every kind several times."""
    ended = traffic.ended()
    return bool(ended) and all(ended[watch.path] >= _ROUNDS for watch in traffic.watches)


_LOOKED_AT_AGAIN = ("/apis/policy/v1/poddisruptionbudgets",)
"""Read again before a claim is deleted."""


def _check_reads(traffic: Traffic) -> int:
    """Check that each kind was listed once, in pages, and that its watches went on where the last one ended.

    Return how often that was a bookmark: a server sends one before the end if anything changed since the last.
    """
    lists = traffic.lists()
    assert len(lists) > 10
    again = {path: count for path, count in lists.items() if count != 1 and path not in _LOOKED_AT_AGAIN}
    assert again == {}, f"listed again: {lists}"
    for method, path, query in traffic.requests:
        if "watch" in query:
            assert query["allowWatchBookmarks"] == "true", path
        elif method == "GET" and path in lists:
            assert query["limit"].isdigit(), path
    from_bookmarks = 0
    for path in lists:
        of_kind = [watch for watch in traffic.watches if watch.path == path]
        for before, after in pairwise(of_kind):
            assert after.began == before.reached, f"{path} does not go on where it was"
            from_bookmarks += bool(before.came) and before.came[-1][0] == "BOOKMARK"
    return from_bookmarks


def _check_objects_read(traffic: Traffic) -> None:
    """Check that single objects are read only before they are written, and the pods of a node before it is tainted."""
    written = Counter(write.path.removesuffix("/status") for write in traffic.writes)
    for path, count in traffic.objects_read().items():
        own, _, node = path.partition("?spec.nodeName=")
        if any(word in path for word in _ONCE):
            assert count <= 2, path
        elif node:
            assert count <= written[f"/api/v1/nodes/{node}"], path
        else:
            assert count <= 2 * written[own] + 1, path


def _is_marked(world: World) -> bool:
    """Return whether a pod of `soft` is marked as the next to go, and its node as closing."""
    marks = [names.STEERING_MARK in (pod["metadata"].get("annotations") or {}) for pod in world.pods("soft")]
    taints = [taint["key"] for node in world.nodes().values() for taint in node["spec"].get("taints") or ()]
    return any(marks) and names.CLOSING_TAINT in taints


def _is_said(world: World) -> bool:
    """Return whether the pool `odd` says that its policy can't be read."""
    odd = next(p for p in world.all("/apis/karpenter.sh/v1/nodepools") if p["metadata"]["name"] == "odd")
    return conditions_of(odd).get(POLICY_READABLE) == "False"


def test_lists_once_goes_on_from_bookmarks_and_writes_nothing_twice(
    cluster: ControlPlane, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes go, one is replaced, pods and a node are marked, a policy can't be read; then another controller starts."""
    recorder = Recorder(monkeypatch)
    catalogue = write_catalogue(tmp_path)
    settings = write_settings(tmp_path, base="recommended", validationDelay="0s")

    def controller() -> Inside:
        return Inside(cluster.kubeconfig, catalogue, settings, clock=lambda: datetime.now(UTC) + timedelta(minutes=10))

    with cloud_on(cluster.kubeconfig, catalogue):
        web = world.pool(pool("web", consolidateAfter="Never"))
        for name in ("idle-1", "idle-2", "roomy"):
            world.node(name, web, "medium")
        world.fill("app", ["roomy"])
        soft = world.pool(pool("soft", consolidateAfter="1h"))
        world.node("soft-1", soft)
        world.node("soft-2", soft)
        world.fill("soft", ["soft-1", "soft-2"], cpu="100m")
        odd = world.pool(pool("odd"))
        world.patch(odd, {"metadata": {"annotations": {names.POLICY_ANNOTATION: "{"}}})
        with running_inside(controller()) as inside:
            first = _traffic(recorder, inside)
            world.patch(web, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
            eventually(lambda: not {"idle-1", "idle-2", "roomy"} & set(world.nodes()))
            world.wait_running("app", 1)
            eventually(lambda: _is_marked(world) and _is_said(world))
            eventually(lambda: not world.leftovers())
            eventually(lambda: _went_on(first))
        with running_inside(controller()) as inside:
            second = _traffic(recorder, inside)
            eventually(lambda: _went_on(second))
            assert _is_marked(world)
    print(first.by_verb(), second.by_verb(), sep="\n")  # noqa: T201 - pytest shows it where the test fails
    assert _check_reads(first) > 0
    _check_reads(second)
    for traffic in (first, second):
        _check_objects_read(traffic)
    assert Traffic(writes=[*first.writes, *second.writes]).repeated() == []
    for kind in ("/api/v1/nodes/", "/pods/", "/nodeclaims", "/nodepools/", "/events"):
        assert any(kind in write.path for write in first.writes), f"nothing was written to {kind}"
    of_every_leader = ("/leases", "/events", "/configmaps/dovetail-state")
    assert [w for w in second.writes if not any(part in w.path for part in of_every_leader)] == []
