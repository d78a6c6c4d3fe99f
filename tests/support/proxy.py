"""A small proxy in front of an API server, on loopback, that breaks things on purpose.

Plain HTTP in, TLS out. `before` and `after` are asked for every request: `before` may answer in the server's stead,
`after` hears of what the server did before the client does. Watches can be cut while they stand.
"""

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

from dovetail.live.kubernetes.sockets import Sockets

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host", "content-encoding"}


@dataclass(frozen=True)
class Seen:
    """A request: what was asked for."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""

    @property
    def is_watch(self) -> bool:
        return "watch=1" in self.query

    @property
    def is_write(self) -> bool:
        return self.method != "GET"

    def acts(self) -> bool:
        """Return whether it changes a node, a claim or a pool; a Lease or an event does not count."""
        return self.is_write and re.search(r"/(nodes|nodeclaims|nodepools)(/|$)", self.path) is not None


@dataclass(frozen=True)
class Answer:
    """An answer in place of the server's."""

    status: int
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        tree = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.status, "reason": self.reason}
        tree["message"] = f"injected {self.reason}"
        return web.Response(
            status=self.status, text=json.dumps(tree), content_type="application/json", headers=self.headers
        )


Before = Callable[[Seen], Answer | web.Response | None]
After = Callable[[Seen, int], None]


@dataclass
class Proxy:
    """Runs in a thread of its own; `before` and `after` may be set at any time, `seen` holds all requests so far."""

    upstream: str
    ca_path: Path
    before: Before = lambda seen: None
    after: After = lambda seen, status: None
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _watches: set["asyncio.Task[None]"] = field(default_factory=set)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator["Proxy"]:
        """Serve for the duration of the context."""
        started = threading.Event()
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve(started)), daemon=True)
        thread.start()
        assert started.wait(60), "the proxy did not start"
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(60)
            assert not thread.is_alive(), "the proxy did not stop"
            self._loop.close()

    def cut_watches(self) -> int:
        """Break every open watch and return how many there were."""

        async def cut() -> int:
            count = len(self._watches)
            for task in tuple(self._watches):
                task.cancel()
            return count

        return asyncio.run_coroutine_threadsafe(cut(), self._loop).result(60)

    async def _serve(self, started: threading.Event) -> None:
        context = ssl.create_default_context(cafile=str(self.ca_path))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
        sockets = Sockets()
        connector = aiohttp.TCPConnector(ssl=context, limit=0, socket_factory=sockets.make)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as to:
            app = web.Application(client_max_size=64 << 20)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._handle(request, to)

            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            started.set()
            await self._stop.wait()
            for task in tuple(self._watches):
                task.cancel()
            await runner.cleanup()
        await sockets.hang_up()

    async def _handle(self, request: web.Request, to: aiohttp.ClientSession) -> web.StreamResponse:
        seen = Seen(request.method, request.path, request.query_string, await request.read())
        self.seen.append(seen)
        instead = await self._instead(request, seen, to)
        return instead if instead is not None else await self._forward(request, seen, to)

    async def _instead(self, request: web.Request, seen: Seen, to: aiohttp.ClientSession) -> web.Response | None:
        """Return the answer in place of the server's, or None."""
        answer = self.before(seen)
        return answer.response() if isinstance(answer, Answer) else answer

    def _headers(self, request: web.Request) -> dict[str, str]:
        """Return the headers to send upstream."""
        kept = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        return {**kept, "Accept-Encoding": "identity"}

    def _body(self, seen: Seen, body: bytes) -> bytes:
        """Return the body to send to the client."""
        return body

    async def _forward(self, request: web.Request, seen: Seen, to: aiohttp.ClientSession) -> web.StreamResponse:
        headers = self._headers(request)
        try:
            async with to.request(
                request.method, self.upstream + request.path_qs, data=seen.body or None, headers=headers
            ) as answer:
                kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
                if seen.is_watch and answer.status == 200:
                    return await self._stream(request, answer, kept)
                body = await answer.read()
                self.after(seen, answer.status)
                return web.Response(status=answer.status, body=self._body(seen, body), headers=kept)
        except aiohttp.ClientError:
            return Answer(503, "ServiceUnavailable").response()

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=200, headers=headers)
        await response.prepare(request)

        async def copy() -> None:
            async for chunk in answer.content.iter_any():
                await response.write(chunk)

        task = asyncio.create_task(copy())
        self._watches.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._watches.discard(task)
            task.cancel()
        if task.cancelled() or task.exception() is not None:
            if request.transport is not None:
                request.transport.abort()  # in the middle of things, as networks do
            return response
        await response.write_eof()
        return response


@contextmanager
def proxy_for(upstream: str, ca_path: Path) -> Iterator[Proxy]:
    """Yield a proxy in front of that server."""
    with Proxy(upstream=upstream, ca_path=ca_path).running() as proxy:
        yield proxy
