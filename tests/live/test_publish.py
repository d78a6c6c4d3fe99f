"""The leader's state in a ConfigMap: when it is written, and what a reader says about one that it can't trust."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from aiohttp import web

from dovetail.decide.question import CostHold
from dovetail.lifecycle.messages import AlertChanged
from dovetail.lifecycle.published import PublishedState, StateError, decode_state, encode_state, state_of
from dovetail.live.publish import KEY, NAME, StatePublisher, StateReading, read_state
from dovetail.model.settings import DOVETAIL, RECOMMENDED, AlertGate, Surcharge
from dovetail.model.waste import Wasted
from tests.live.fake_server import talking_to
from tests.support.lifecycle_world import CALM, Driver, World, engine_for

NOW = datetime(2026, 3, 14, 15, 30, tzinfo=UTC)
STATE = PublishedState(by="one", at=NOW, settings=RECOMMENDED, managed_pools=("web",))
Answer = Callable[[web.Request, int], Any]


def _no(status: int) -> web.Response:
    return web.Response(status=status, text=json.dumps({"message": "no", "reason": "No"}))


def _leading(request: web.Request, holder: str = "one", renewed: datetime = NOW) -> Any:
    if "leases" in request.path:
        return {"spec": {"holderIdentity": holder, "renewTime": renewed.isoformat(), "leaseDurationSeconds": 30}}
    return {"data": {KEY: encode_state(STATE).decode()}}


def _read(answer: Answer, namespace: str | None = "dovetail", now: datetime = NOW) -> tuple[StateReading, list[str]]:
    async def work() -> tuple[StateReading, list[str]]:
        async with talking_to(answer) as (server, client):
            reading = await read_state(client, namespace, now)
            return reading, [request.path for request in server.requests]

    return asyncio.run(work())


# ------------------------------------------------------------ the document


def test_what_is_written_is_what_is_read() -> None:
    """Settings with shares, holds and waste survive the document; the alert gate's address is not in it."""
    shares = replace(
        RECOMMENDED,
        discount=(("m5", Fraction(1, 3)),),
        surcharge=(Surcharge(node_class_kind="X", share=Fraction(1, 8)),),
    )
    state = PublishedState(
        by="one",
        at=NOW,
        settings=shares,
        settling={"web": CostHold(until=NOW + timedelta(minutes=5), after="a replacement")},
        waste={"n": Wasted(amount=10**16, rate=10**17, at=NOW)},
    )
    assert decode_state(encode_state(state)) == state
    gated = replace(CALM, alert_gate=AlertGate(url="http://user:password@prometheus", query="up"))
    engine = Driver(World(), engine_for(gated)).begin().engine
    assert b"password" not in encode_state(state_of(engine))


def test_the_document_is_bounded_and_names_what_it_leaves_out() -> None:
    """A state that is too large loses the least important parts first; one that can't fit is refused."""
    waste = {f"node-{number:05}": Wasted(amount=1, rate=2, at=NOW) for number in range(1_000)}
    events = {f"node-{number:05}": NOW for number in range(1_000)}
    state = PublishedState(by="one", at=NOW, settings=DOVETAIL, waste=waste, pod_events=events)
    whole = len(encode_state(state, 1 << 20))
    cut = decode_state(encode_state(state, whole - 1))
    assert (cut.left_out, cut.pod_events, len(cut.waste)) == (("pod_events",), {}, 1_000)
    small = decode_state(encode_state(state, 10_000))
    assert small.left_out == ("pod_events", "waste")
    with pytest.raises(StateError, match="allowed"):
        encode_state(state, 100)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"version": 2}', '{"version": 1}', "[" * 5_000, "x" * 2_000_000]
)
def test_a_document_that_is_none_is_refused(text: str) -> None:
    """Whatever somebody writes into the ConfigMap: one error, no other exception."""
    with pytest.raises(StateError):
        decode_state(text)


def test_time_alone_is_no_news() -> None:
    """A later time, and waste that grew at the known rate, need no new document; another rate does."""
    wasted = Wasted(amount=5, rate=7, at=NOW)
    state = PublishedState(by="one", at=NOW, settings=DOVETAIL, waste={"n": wasted})
    later = NOW + timedelta(minutes=1)
    grown = {"n": Wasted(amount=9, rate=7, at=later)}
    assert PublishedState(by="one", at=later, settings=DOVETAIL, waste=grown).says_the_same(state)
    faster = {"n": Wasted(amount=9, rate=8, at=later)}
    assert not PublishedState(by="one", at=later, settings=DOVETAIL, waste=faster).says_the_same(state)
    assert not state.says_the_same(None)


# ------------------------------------------------------------ writing


def test_written_at_most_once_a_minute_and_only_if_it_changed() -> None:
    """The first look writes; then only a change does, and not before a minute has passed."""
    clock, leads = [0.0], True
    driver = Driver(World(), engine_for()).begin()
    publisher = StatePublisher(
        client=None,  # type: ignore[arg-type]
        namespace="ns",
        fence=lambda: leads,
        warn=lambda message: None,
        clock=lambda: clock[0],
    )
    assert publisher.due(driver.engine) is not None
    for clock[0] in (10.0, 59.0, 61.0, 200.0):
        assert publisher.due(driver.engine) is None
    driver.engine.handle(AlertChanged(why="The alert gate holds."), driver.engine._state.now)
    clock[0] = 205.0
    assert publisher.due(driver.engine) is None  # looked at a moment ago
    clock[0] = 211.0
    assert publisher.due(driver.engine) is not None
    driver.engine.handle(AlertChanged(why=""), driver.engine._state.now)
    clock[0] = 250.0
    assert publisher.due(driver.engine) is None
    clock[0] = 271.5
    assert publisher.due(driver.engine) is not None
    leads = False
    clock[0] = 900.0
    assert publisher.due(driver.engine) is None


def _write(answer: Answer) -> tuple[list[tuple[str, str]], list[str]]:
    async def work() -> tuple[list[tuple[str, str]], list[str]]:
        warned: list[str] = []
        async with talking_to(answer) as (server, client):
            publisher = StatePublisher(client=client, namespace="ns", fence=lambda: True, warn=warned.append)
            await publisher.write(b"{}")
            await publisher.write(b"{}")
            return [(request.method, request.path) for request in server.requests], warned

    return asyncio.run(work())


def test_it_is_made_where_it_is_missing() -> None:
    """The chart creates the ConfigMap; without the chart the first write does."""
    path = "/api/v1/namespaces/ns/configmaps"
    calls, warned = _write(lambda request, number: _no(404) if number == 1 else {})
    assert calls == [("PATCH", f"{path}/{NAME}"), ("POST", path), ("PATCH", f"{path}/{NAME}")]
    assert not warned


def test_a_missing_right_is_said_once() -> None:
    """The controller goes on without it, and names the rule to add; not for one refusal, as of a server that starts."""
    calls, warned = _write(lambda request, number: _no(403))
    assert len(calls) == 2
    assert len(warned) == 2
    assert "apiGroups" not in warned[0]
    assert 'resources: ["configmaps"], resourceNames: [dovetail-state], verbs: [patch]' in warned[1]


# ------------------------------------------------------------ reading


def test_a_fresh_state_needs_no_word() -> None:
    """The writer holds the Lease: the state is used, however long ago it was written, as nothing has changed since."""
    later = NOW + timedelta(hours=3)
    reading, _ = _read(lambda request, number: _leading(request, renewed=later), now=later)
    assert reading == StateReading(state=STATE)


@pytest.mark.parametrize(
    ("holder", "silent", "said"),
    [("two", 0, "two leads now"), ("one", 300, "has not renewed its Lease for 5m"), ("", 0, "no controller leads now")],
)
def test_an_old_state_is_used_and_said(holder: str, silent: int, said: str) -> None:
    """Another leader, a Lease that ran out, or none: the answer begins with that."""
    renewed = NOW - timedelta(seconds=silent)
    reading, _ = _read(lambda request, number: _leading(request, holder, renewed))
    assert reading.state == STATE
    assert reading.problem.startswith("the state of the controller is old")
    assert said in reading.problem


def test_without_a_state_the_answer_says_where_it_looked() -> None:
    """The usual namespaces are tried, no others: anybody can create such a ConfigMap in a namespace of their own."""
    reading, paths = _read(lambda request, number: _no(404), namespace=None)
    assert reading.state is None
    assert "dovetail or kube-system" in reading.problem
    assert "--controller-namespace" in reading.problem
    assert [path.split("/")[4] for path in paths] == ["dovetail", "kube-system"]


def test_a_right_that_is_missing_is_named() -> None:
    """A reader without the right gets the rule to add."""
    reading, _ = _read(lambda request, number: _no(403))
    assert reading.state is None
    assert 'resources: ["configmaps"], resourceNames: [dovetail-state], verbs: [get]' in reading.problem


@pytest.mark.parametrize("text", ["", "{", '{"version": 9}'])
def test_a_state_that_cannot_be_read_is_said(text: str) -> None:
    """An empty ConfigMap, a broken document and one of another version are not used."""
    reading, _ = _read(lambda request, number: {"data": {KEY: text}})
    assert reading.state is None
    assert f"dovetail/{NAME}" in reading.problem


def test_without_the_lease_the_age_counts() -> None:
    """If the Lease can't be read, a state of the last minutes is trusted and an older one called old."""

    def answer(request: web.Request, number: int) -> Any:
        return _no(403) if "leases" in request.path else _leading(request)

    assert not _read(answer, now=NOW + timedelta(minutes=5))[0].problem
    assert "its Lease can't be read" in _read(answer, now=NOW + timedelta(minutes=15))[0].problem
