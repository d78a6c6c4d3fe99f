"""The alert gate: the meaning of an answer from Prometheus, and of no answer."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from dovetail.live.alert_gate import UNREACHABLE_AFTER, AlertError, AlertState, ask, read_answer
from dovetail.model.settings import AlertGate, WhenUnreachable

GATE = AlertGate(url="http://127.0.0.1:1", query="ALERTS")


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', []),
        (
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"alertname":"Down"},"value":[1,"1"]}]}}',
            ["Down"],
        ),
        (
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"0"]}]}}',
            ["the query"],
        ),
        (b'{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}', ["the query"]),
    ],
)
def test_any_sample_holds(raw: bytes, names: list[str]) -> None:
    """Every sample holds the gate, whatever its value; alerts are named."""
    assert read_answer(raw) == names


@pytest.mark.parametrize(
    "raw", [b"<html>", b"[]", b"{}", b"[" * 5000, b'{"status":"error","error":"bad query"}', b'{"status":"success"}']
)
def test_what_is_no_answer(raw: bytes) -> None:
    """HTML, errors and other documents are not answers."""
    with pytest.raises(AlertError):
        read_answer(raw)


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_until_the_first_answer_everything_is_held() -> None:
    """A controller that has just started does not act before the first answer."""
    state = AlertState(clock=Clock())
    assert "not been answered" in state.why
    state.answered([])
    assert state.why == ""


@pytest.mark.parametrize(("word", "holds"), [(WhenUnreachable.HOLD, True), (WhenUnreachable.PROCEED, False)])
def test_unreachable_for_over_two_minutes(word: WhenUnreachable, holds: bool) -> None:
    """The last answer is valid for two minutes; then the setting decides."""
    clock = Clock()
    gate = AlertGate(url="http://x", query="q", when_unreachable=word)
    for alerts in ([], ["Down"]):
        state = AlertState(clock=clock)
        state.answered(alerts)
        clock.now = 0.0
        state.failed(gate, "refused")
        clock.now = UNREACHABLE_AFTER
        state.failed(gate, "refused")
        assert bool(state.why) is bool(alerts)
        clock.now = UNREACHABLE_AFTER + 1
        state.failed(gate, "refused")
        assert bool(state.why) is holds
        state.answered([])
        assert state.why == ""


def served(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> list[str] | str:
    """Query a server that returns this; return the alerts or the problem."""

    async def run() -> list[str] | str:
        app = web.Application()
        app.router.add_get("/api/v1/query", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            async with aiohttp.ClientSession() as session:
                return await ask(session, AlertGate(url=f"http://127.0.0.1:{port}", query='ALERTS{a="b"}'))
        except AlertError as error:
            return str(error)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def test_the_query_reaches_prometheus_as_written() -> None:
    """Quotes and braces in the query are escaped in the URL."""

    async def handler(request: web.Request) -> web.Response:
        name = request.query["query"]
        result = [{"metric": {"alertname": name}, "value": [0, "1"]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    assert served(handler) == ['ALERTS{a="b"}']


def test_a_server_in_trouble_is_a_problem_not_an_answer() -> None:
    """A status of 503 without a document is a problem."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=503, text="busy")

    assert served(handler) == "status 503"


def test_nobody_there_is_a_problem() -> None:
    """A refused connection is one sentence."""

    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await ask(session, GATE)

    with pytest.raises(AlertError):
        asyncio.run(run())
