"""A bad hour: what the log says of an API server that goes away, and what a start does meanwhile."""

import asyncio
import json
from collections import Counter
from io import StringIO
from typing import Any

import pytest
from aiohttp import web

from dovetail.lifecycle.reports import InstructionNotDone
from dovetail.live import clocks, patience
from dovetail.live.kubernetes import watch
from dovetail.live.kubernetes.client import ApiError
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from dovetail.live.observability.outages import Outages
from dovetail.live.observability.telemetry import Telemetry
from dovetail.live.patience import when_reachable
from tests.live.fake_server import Script, talking_to, until
from tests.live.test_supervision import calm, controlled


def _refusal(status: int) -> web.Response:
    return web.json_response({"code": status, "reason": "R", "message": "not now"}, status=status)


def _lines(log: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


async def _through_an_outage(status: int) -> list[dict[str, Any]]:
    """Return what a controller logs from the beginning of an outage until a while after its end."""
    away = False

    def answer(request: web.Request, number: int) -> Any:
        return _refusal(status) if away else calm(request, number)

    async with controlled(answer) as scene:
        controller = scene.controller
        await until(lambda: controller.engine.acts and controller.is_ready)
        await until(lambda: all(informer._watched_once for informer in controller._informers))
        before, asked = len(_lines(scene.log)), len(scene.server.requests)
        away = True
        await until(lambda: len(scene.server.requests) > asked + 500 and not controller.engine.is_leader)
        away = False
        await until(lambda: "answers again" in scene.log.getvalue() and controller.engine.acts)
        return [line for line in _lines(scene.log)[before:] if line["level"] != "debug"]


def test_an_outage_has_one_line_for_each_kind_and_a_summary() -> None:
    """Hundreds of failed requests become one warning for each kind and one line at the end, with their number."""
    lines = asyncio.run(_through_an_outage(503))
    kinds = Counter(line["kind"] for line in lines if line["level"] == "warning" and "kind" in line)
    assert kinds["Pod"] == kinds["Node"] == kinds["Lease"] == 1
    assert set(kinds.values()) == {1}
    [summary] = [line for line in lines if "answers again" in line["message"]]
    assert summary["level"] == "info"
    assert sorted(kinds) == summary["kinds"].split(",")
    assert summary["attempts"] >= len(kinds)
    others = [line["message"] for line in lines if "kind" not in line and line["level"] == "warning"]
    assert len(others) <= 3, others  # that it is blind and leads no longer, and that once


def test_a_server_that_comes_up_asks_for_no_rights() -> None:
    """A server that refuses everything for a moment is not taken for one that lacks RBAC rules."""
    lines = asyncio.run(_through_an_outage(403))
    assert [line["message"] for line in lines if "apiGroups" in line["message"]] == []


def test_a_right_that_was_taken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind that stays forbidden is named once, with the rule to add."""
    monkeypatch.setattr(watch, "SURE_SECONDS", 0.2)
    taken = False

    def answer(request: web.Request, number: int) -> Any:
        return _refusal(403) if taken and request.path.endswith("/pods") else calm(request, number)

    async def context() -> None:
        nonlocal taken
        async with controlled(answer) as scene:
            await until(lambda: scene.controller.engine.acts)
            taken = True
            await until(lambda: 'resources: [\\"pods\\"]' in scene.log.getvalue())
            asked = len(scene.server.requests)
            await until(lambda: len(scene.server.requests) > asked + 100)
            assert scene.log.getvalue().count('resources: [\\"pods\\"]') == 1

    asyncio.run(context())


def test_an_outage_ends_when_the_last_kind_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind that works again is not announced while another still fails; the next outage starts afresh."""
    clock = [100.0]
    monkeypatch.setattr(clocks, "steady", lambda: clock[0])
    log = StringIO()
    outages = Outages(Log("info", log))
    outages.works("Pod")
    outages.failed("Pod", "no route")
    outages.failed("Node", "no route")
    outages.works("Pod")
    outages.failed("Pod", "no route")  # the same outage: said already
    clock[0] += 61.5
    outages.works("Node")
    outages.works("Pod")
    outages.works("Pod")
    outages.failed("Pod", "closed")
    messages = [line["message"] for line in _lines(log)]
    assert messages == [
        "no route",
        "no route",
        "the API server answers again: 2 kinds were affected for up to 61.5 s",
        "closed",
    ]
    assert _lines(log)[2] | {"time": ""} == {
        "time": "", "level": "info", "message": messages[2], "kinds": "Node,Pod", "attempts": 3, "seconds": 61.5,
    }  # fmt: skip


def test_instructions_that_fail_alike_are_told_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is a warning, the others count; after a minute the next one says how many were left out."""
    clock = [100.0]
    monkeypatch.setattr(clocks, "steady", lambda: clock[0])
    log = StringIO()
    telemetry = Telemetry(log=Log("info", log), metrics=Metrics())
    for number in range(50):
        telemetry.take(InstructionNotDone(command_id="", id=f"hold/n{number}", failure="unreachable", detail="gone"))
    telemetry.take(InstructionNotDone(command_id="c", id="c/taint/n", failure="unreachable", detail="gone"))
    clock[0] += 60
    telemetry.take(InstructionNotDone(command_id="", id="hold/n0", failure="unreachable", detail="gone"))
    assert [(line["id"], line.get("left_out")) for line in _lines(log)] == [
        ("hold/n0", None),
        ("c/taint/n", None),
        ("hold/n0", 49),
    ]


def _wait(answer: Script, monkeypatch: pytest.MonkeyPatch, fails: list[Exception]) -> tuple[str, list[dict[str, Any]]]:
    """Start something on a server, which raises each of `fails` once; return what came of it, and the log."""
    clock, log = [0.0], StringIO()
    monkeypatch.setattr(clocks, "steady", lambda: clock[0])

    async def work() -> str:
        if fails:
            raise fails.pop(0)
        return "started"

    async def pause(seconds: float) -> None:
        clock[0] += 5

    async def context() -> str:
        async with talking_to(answer) as (_, client):
            return await when_reachable(client, Log("info", log), work, pause)

    return asyncio.run(context()), _lines(log)


def test_a_start_waits_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so once, then once a minute, and how long it took; early refusals of a fresh server count as waiting."""

    def answer(request: web.Request, number: int) -> Any:
        if number <= 24:
            return _refusal(503)
        return _refusal(403) if number <= 27 else {"gitVersion": "v1.36.0"}

    found, lines = _wait(answer, monkeypatch, [ApiError(500, "", "etcd")])
    assert found == "started"
    messages = [line["message"] for line in lines]
    assert len(messages) == 4  # at the start, after one minute, after two, and the end
    assert "does not answer (503 R: not now): waiting for it" in messages[0]
    assert "still does not answer" in messages[1]
    assert (messages[-1], lines[-1]["level"]) == ("the API server answers after 140 s", "info")


def test_a_server_without_a_version_for_us_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /version is forbidden, nothing waits; after an outage it waits half a minute."""
    assert _wait(lambda request, number: _refusal(403), monkeypatch, []) == ("started", [])
    found, lines = _wait(lambda request, number: _refusal(403 if number > 1 else 503), monkeypatch, [])
    assert found == "started"
    assert lines[-1]["seconds"] == patience._SURE_SECONDS + 5


@pytest.mark.parametrize("status", [401, 403, 404, 409])
def test_what_waiting_does_not_mend_ends_the_start(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of what the start needs is raised at once."""
    with pytest.raises(ApiError):
        _wait(lambda request, number: {"gitVersion": "v1.36.0"}, monkeypatch, [ApiError(status, "", "no")])
