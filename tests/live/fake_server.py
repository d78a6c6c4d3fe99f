"""An API server that says what a test tells it to: for what a real one does too rarely."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.credentials import Connection, TokenSource

Script = Callable[[web.Request, int], "web.StreamResponse | list[dict[str, Any]] | dict[str, Any]"]


@dataclass
class FakeServer:
    """`answer` is asked with each request and its number; a list is sent as the lines of a watch, which then ends."""

    answer: Script
    requests: list[web.Request] = field(default_factory=list)
    port: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        said = self.answer(request, len(self.requests))
        if isinstance(said, web.StreamResponse):
            return said
        if isinstance(said, dict):
            return web.json_response(said)
        response = web.StreamResponse()
        await response.prepare(request)
        for line in said:
            await response.write(json.dumps(line).encode() + b"\n")
        await response.write_eof()
        return response

    @property
    def watched_from(self) -> list[str]:
        """Return the versions from which watches were requested."""
        return [request.query["resourceVersion"] for request in self.requests if "watch" in request.query]


@contextlib.asynccontextmanager
async def talking_to(answer: Script, tokens: TokenSource | None = None) -> AsyncIterator[tuple[FakeServer, ApiClient]]:
    """Yield a server and a client of it."""
    server = FakeServer(answer)
    app = web.Application()

    async def handle(request: web.Request) -> web.StreamResponse:
        return await server.handle(request)  # looked up for each request: a test may replace it

    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    connection = Connection(
        server=f"http://127.0.0.1:{server.port}", ssl_context=None, tokens=tokens or TokenSource(fixed="t")
    )
    try:
        async with ApiClient(connection) as client:
            client.backoff = lambda attempt, most=30.0: 0.01  # type: ignore[method-assign]
            yield server, client
    finally:
        await runner.cleanup()


async def until(check: Callable[[], object]) -> None:
    """Wait until the condition is true."""
    async with asyncio.timeout(180):
        while not check():
            await asyncio.sleep(0.01)
