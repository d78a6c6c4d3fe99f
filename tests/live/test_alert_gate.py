"""The alert gate: the meaning of an answer from Prometheus, and of no answer."""

import asyncio
import gzip
import json
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
    "raw",
    [
        b"<html>",
        b"[]",
        b"{}",
        b"",
        b"[" * 5000,
        b'{"status":"error","error":"bad query"}',
        b'{"status":"success"}',
        b'{"status":"success","data":{"resultType":"vector"}}',
        b'{"status":"success","data":{"resultType":"vector","result":{}}}',
        b'{"status":"success","data":{"result":[]}}',
        b'{"status":"success","data":{"resultType":["vector"],"result":[]}}',
        b'{"status":"success","data":{"resultType":"news","result":[]}}',
        b'{"status":"success","data":{"resultType":"vector","result":[]}}}',
        b'\xff\xfe{"status":"success"}',
    ],
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


def _firing(alerts: int) -> bytes:
    result = [
        {"metric": {"alertname": f"Down{number:04}", "pod": "x" * 200}, "value": [0, "1"]} for number in range(alerts)
    ]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_a_long_answer_is_read_to_its_end() -> None:
    """Four hundred alerts in one body, more than one piece of the network, all count."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=_firing(400), content_type="application/json")

    assert served(handler) == [f"Down{number:04}" for number in range(400)]


def test_an_answer_in_pieces_is_read_to_its_end() -> None:
    """A chunked answer counts as a whole, whatever the pauses between its pieces."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        raw = _firing(2)
        for at in range(0, len(raw), 100):
            await response.write(raw[at : at + 100])
            await asyncio.sleep(0.01)
        return response

    assert served(handler) == ["Down0000", "Down0001"]


def test_half_an_answer_is_no_answer() -> None:
    """A connection that breaks in the middle is a problem, also where the first half reads as a document."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"status":"success","data":{"resultType":"vector","result":[]}}')
        assert request.transport is not None
        request.transport.close()
        return response

    assert isinstance(served(handler), str)


def test_an_endless_answer_is_cut_off() -> None:
    """An answer over the limit is a problem, and the rest of it is not read."""
    written = [0]

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while written[0] < 400 << 20:
            await response.write(b" " * (1 << 20))
            written[0] += 1 << 20
        return response

    assert served(handler) == "the answer is longer than 8 MiB"
    assert written[0] < 100 << 20


def test_a_packed_answer_is_not_unpacked() -> None:
    """Dovetail asks for plain text, and a server that packs its answer all the same has not answered."""
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.headers["Accept-Encoding"])
        return web.Response(body=gzip.compress(b" " * (64 << 20)), headers={"Content-Encoding": "gzip"})

    assert served(handler) == "the answer is packed (gzip), though plain text was asked for"
    assert asked == ["identity"]


def test_a_redirect_is_not_followed() -> None:
    """A redirect is a problem, also to the same server."""
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path_qs)
        if "elsewhere" in request.query:
            return web.Response(body=_firing(0))
        return web.Response(status=307, headers={"Location": "/api/v1/query?elsewhere=1"})

    assert served(handler) == "status 307: redirects are not followed"
    assert len(asked) == 1


def test_an_error_status_is_never_an_answer() -> None:
    """A status other than 200 is a problem whatever its document says; Prometheus' own words are kept."""

    async def success(_: web.Request) -> web.Response:
        return web.Response(status=500, body=_firing(0))

    async def refusal(_: web.Request) -> web.Response:
        return web.json_response({"status": "error", "error": "parse error"}, status=400)

    assert served(success) == "status 500"
    assert served(refusal) == "Prometheus refused: parse error"


def test_an_answer_that_can_not_be_read_counts_as_unreachable() -> None:
    """With Hold the gate closes after two minutes of unreadable answers, and says why."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(text="<html>log in</html>")

    clock = Clock()
    state = AlertState(clock=clock)
    state.answered([])
    for now in (0.0, UNREACHABLE_AFTER + 1):
        clock.now = now
        state.failed(GATE, str(served(handler)))
    assert state.why == "The alert gate can't be asked (the answer is not JSON): nothing starts."
