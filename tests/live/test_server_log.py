"""What the HTTP servers log: a request that is no HTTP is the sender's fault, a handler that fails is ours."""

import asyncio
import logging

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from dovetail.live.observability.serve import serving
from dovetail.live.server_log import SERVER_LOG

NO_HTTP = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
]


async def _first_line(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    await writer.drain()
    line = await asyncio.wait_for(reader.readline(), 60)
    writer.close()
    return line


def test_a_request_that_is_no_http_is_answered_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever can reach the port gets a 400 and can't fill the controller's log with tracebacks."""

    async def send() -> list[bytes]:
        async with serving(("127.0.0.1", 0), CollectorRegistry(), alive=str, ready=str) as port:
            return [await _first_line(port, request) for request in NO_HTTP]

    with caplog.at_level(logging.INFO):
        answers = asyncio.run(send())
    assert [line.split()[1] for line in answers] == [b"400"] * len(NO_HTTP)
    assert caplog.records == []


def test_a_fault_of_ours_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A handler that fails is still seen."""

    async def fail(_: web.Request) -> web.Response:
        raise RuntimeError("ours")

    async def send() -> bytes:
        app = web.Application()
        app.add_routes([web.get("/", fail)])
        runner = web.AppRunner(app, access_log=None, logger=SERVER_LOG)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            return await _first_line(int(runner.addresses[0][1]), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        finally:
            await runner.cleanup()

    with caplog.at_level(logging.INFO):
        assert b" 500 " in asyncio.run(send())
    assert [record.exc_info and str(record.exc_info[1]) for record in caplog.records] == ["ours"]
