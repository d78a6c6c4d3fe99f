"""The rules that hold a whole pool: windows and health limits (docs/rules.md#windows and #health)."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from dovetail.decide.gates.pool_holds import (
    Waiting,
    could_run_on,
    health_hold,
    pending_times,
    stuck_pods,
    unschedulable_since,
    window_edges,
    window_hold,
)
from dovetail.model import names
from dovetail.model.objects import NodePool, Pod
from dovetail.model.policies.controls import AllowWindow, Health, PendingLimit
from dovetail.model.policies.policy import DisruptionPolicy, Reason
from dovetail.model.timing.windows import window
from tests.support.design_world import stamp
from tests.support.nodes import NOW, facts_of, minutes

HOUR = 3600 * 10**9
NOBODY = Waiting(pods=(), known_labels=frozenset())


def _allow(schedule: str | None, index: int = 0, **parts: Any) -> AllowWindow:
    return AllowWindow(index=index, window=None if schedule is None else window(schedule, HOUR), **parts)


OPEN, AT_16, AT_17, NEVER = _allow("0 15 * * *"), _allow("0 16 * * *"), _allow("0 17 * * *"), _allow("0 0 30 2 *")
BROKEN = _allow(None, index=1, problem="it is odd")
EMPTY_ONLY = _allow("0 15 * * *", reasons=(Reason.EMPTY,))


@pytest.mark.parametrize(
    ("windows", "said", "opens"),
    [
        ([], None, None),
        ([EMPTY_ONLY], None, None),
        ([OPEN], None, None),
        ([AT_16, OPEN], None, None),
        ([AT_17, AT_16, EMPTY_ONLY], "the next opens at 2026-05-13T16:00:00Z, in 30m.", "2026-05-13T16:00:00Z"),
        ([NEVER], "is open for Drifted: none opens again.", None),
        ([OPEN, BROKEN], "Window 2 of NodePool blue can't be read (it is odd): it opens nothing.", None),
    ],
)
def test_windows_that_allow(windows: list[AllowWindow], said: str | None, opens: str | None) -> None:
    """A reason with windows starts nothing outside them; an unreadable window never opens."""
    held = window_hold("blue", DisruptionPolicy(windows=tuple(windows)), Reason.DRIFTED, NOW)
    assert (held is None) is (said is None)
    if held is not None and said is not None:
        assert not held.passed
        assert held.why.endswith(said)
        assert (held.figures["nodePool"], held.figures["reason"]) == ("blue", "Drifted")
        assert held.figures.get("opensAt") == opens


def test_edges_of_windows() -> None:
    """The edges are the times at which each window opens or closes next."""
    policy = DisruptionPolicy(windows=(OPEN, AT_17, NEVER, BROKEN))
    assert list(window_edges(policy, NOW)) == [NOW + minutes(30), NOW + minutes(90)]


def _pool(name: str = "blue", *, halted: str | None = None, **spec: Any) -> NodePool:
    tree = {
        "metadata": {"name": name, "annotations": {} if halted is None else {names.HALTED: halted}},
        "spec": {"template": {"spec": spec}},
    }
    return msgspec.convert(tree, NodePool, strict=False)


def _pod(name: str, ago: int | None, *, reason: str = "Unschedulable", status: str = "False", **parts: Any) -> Pod:
    """Return a pod that has been unschedulable for this many minutes."""
    when = {} if ago is None else {"lastTransitionTime": stamp(NOW - minutes(ago))}
    said = [] if reason == "" else [{"type": "PodScheduled", "status": status, "reason": reason, **when}]
    tree = {
        "metadata": {"name": name, "namespace": "d", **parts.pop("metadata", {})},
        "spec": parts.pop("spec", {}),
        "status": {"phase": "Pending", "conditions": said, **parts},
    }
    return msgspec.convert(tree, Pod, strict=False)


def test_a_halt_holds() -> None:
    """A halt holds the pool with or without limits; the sentence names up to three owners."""
    halted = '{"why": "pods are not ready", "owners": ["a", "b", "c", "d"], "command": "x"}'
    held = health_hold(_pool(halted=halted), None, (), NOBODY, NOW)
    assert held is not None
    assert "pods are not ready (a, b, c)." in held.why
    assert held.figures == {"nodePool": "blue", "command": "x"}
    held = health_hold(_pool(halted='{"why": "so"}'), None, (), NOBODY, NOW)
    assert held is not None
    assert "NodePool blue has halted: so. It goes on" in held.why
    assert health_hold(_pool(), None, (), NOBODY, NOW) is None


def test_limits_that_cannot_be_read_hold() -> None:
    """A pool with unreadable limits starts nothing."""
    held = health_hold(_pool(), Health(problem="odd"), (), NOBODY, NOW)
    assert held is not None
    assert (held.figures, "(odd)" in held.why) == ({"nodePool": "blue"}, True)


@pytest.mark.parametrize(
    ("limit", "sick", "held"),
    [(None, 3, False), ("1", 0, False), ("1", 1, False), ("1", 2, True), ("34%", 2, False), ("33%", 2, True)],
)
def test_nodes_that_are_not_ready(limit: str | None, sick: int, held: bool) -> None:
    """As many unready nodes as the limit are allowed; the sentence names the first by name."""
    nodes = [facts_of(name=name, ready=at >= sick) for at, name in enumerate("cbad")]
    nodes = nodes if limit != "33%" else nodes[:3]
    found = health_hold(_pool(), Health(not_ready_nodes=limit), nodes, NOBODY, NOW)
    assert (found is not None) is held
    if found is not None:
        assert found.figures == {"nodePool": "blue", "notReady": 2, "allowed": 1, "node": "b"}
        assert found.why.startswith(f"2 of {len(nodes)} nodes of NodePool blue are not ready, such as b;")


@pytest.mark.parametrize(
    ("count", "minutes_", "held"), [(2, 10, True), (3, 10, False), (2, 11, False), (1, 12, True), (2, 9, True)]
)
def test_pods_that_wait(count: int, minutes_: int, held: bool) -> None:
    """A pool is held if enough suitable pods wait long enough: `z` for 12 minutes, `y` for 10."""
    limit = PendingLimit(count=count, lasting=minutes_ * 60 * 10**9)
    taint = {"spec": {"nodeSelector": {names.ARCH: "arm64"}}}
    pods = (_pod("z", 12), _pod("y", 10), _pod("x", 5), _pod("elsewhere", 60, **taint))
    pool = _pool(requirements=[{"key": names.ARCH, "operator": "In", "values": ["amd64"]}])
    found = health_hold(pool, Health(pending_pods=limit), (), Waiting(pods=pods, known_labels=frozenset()), NOW)
    assert (found is not None) is held
    if found is not None:
        stuck, first = (1, "d/z") if count == 1 else (2, "d/y")
        assert found.figures == {"nodePool": "blue", "pending": stuck, "limit": count, "pod": first}


def test_no_limit_on_pods() -> None:
    """Pending pods hold nothing if the pool sets no limit for them."""
    waiting = Waiting(pods=(_pod("p", 60),), known_labels=frozenset())
    assert health_hold(_pool(), Health(), (), waiting, NOW) is None


@pytest.mark.parametrize(
    ("pod", "since"),
    [
        (_pod("p", 5), NOW - minutes(5)),
        (_pod("p", None), None),
        (_pod("p", 5, status="True"), None),
        (_pod("p", 5, reason="SchedulingGated"), None),
        (_pod("p", 5, reason=""), None),
        (_pod("p", 5, spec={"nodeName": "n"}), None),
        (_pod("p", 5, phase="Failed"), None),
        (_pod("p", 5, metadata={"deletionTimestamp": stamp(NOW)}), None),
    ],
)
def test_since_when_a_pod_waits(pod: Pod, since: datetime | None) -> None:
    """A pod waits since the scheduler found no place; a bound, ended or untried pod does not wait."""
    assert unschedulable_since(pod) == since
    assert list(stuck_pods([pod], 5 * 60 * 10**9, NOW)) == ([] if since is None else [pod])
    limit = Health(pending_pods=PendingLimit(count=1, lasting=HOUR))
    assert list(pending_times(limit, [pod])) == ([] if since is None else [since + minutes(60)])
    assert list(pending_times(Health(), [pod])) == []
    assert list(pending_times(None, [pod])) == []


TAINTED = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
AMD = {"requirements": [{"key": names.ARCH, "operator": "In", "values": ["amd64"]}]}


def _affinity(kind: str, value: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": names.ARCH, "operator": "In", "values": [value]}]}
    if kind == "required":
        return {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            }
        }
    preferred = [{"weight": 1, "preference": term}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


@pytest.mark.parametrize(
    ("spec", "pool", "could"),
    [
        ({}, {}, True),
        ({}, TAINTED, False),
        ({"tolerations": [{"key": "k", "operator": "Exists"}]}, TAINTED, True),
        ({"nodeSelector": {names.ARCH: "amd64"}}, AMD, True),
        ({"nodeSelector": {names.ARCH: "arm64"}}, AMD, False),
        (_affinity("required", "amd64"), AMD, True),
        (_affinity("required", "arm64"), AMD, False),
        (_affinity("preferred", "arm64"), AMD, True),
        ({"nodeSelector": {"rack": "9"}}, {}, False),
        ({"nodeSelector": {"known": "9"}}, {}, True),
    ],
)
def test_where_a_pod_could_run(spec: dict[str, Any], pool: dict[str, Any], could: bool) -> None:
    """A pod could run in a pool if it tolerates its taints and meets its requirements, ignoring preferences."""
    assert could_run_on(_pod("p", 5, spec=spec), _pool(**pool), frozenset({"known"})) is could
