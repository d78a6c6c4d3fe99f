"""The live view's own small web server: one page, one document, a stream that says when it is new. Read-only.

On localhost any user of this machine may look, but only under a name of this machine: a foreign page whose name points
here (DNS rebinding) is refused. Elsewhere a token is required. No request can change a cluster; all that
you can set is how fast the time of a simulation or a recording passes, and where a recording is.
"""

import asyncio
import contextlib
import hmac
import json
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from dovetail import __version__
from dovetail.live.server_log import SERVER_LOG
from dovetail.report import page as html
from dovetail.ui.watcher import Watcher

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_COOKIE: Final = "dovetail-token"
_HEARTBEAT_SECONDS: Final = 10.0
_RETRY_MILLISECONDS: Final = 1500
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine itself."""
    if host in LOOPBACK:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def live_page(title: str) -> str:
    """Return the page; its script asks for everything else."""
    return html.page(
        title,
        "",
        "",
        f"Dovetail {__version__}. Read-only: nothing here changes a cluster.",
        document={"kind": "connect", "title": title},
        connect="'self'",
    )


class Server:
    """Answers for one watcher."""

    def __init__(self, watcher: Watcher, title: str, token: str | None = None) -> None:
        self.watcher = watcher
        self._token = token
        self._page = live_page(title)
        self._changed = asyncio.Event()
        self._closing = False
        self._packed: tuple[int, bytes] = (-1, b"")

    def app(self) -> web.Application:
        """Return the application; call it inside the loop that will serve it."""
        loop = asyncio.get_running_loop()

        def notify() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._notify)

        self.watcher.listen(notify)
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/", self._home),
                web.get("/api/state", self._state),
                web.get("/api/events", self._events),
                web.get("/api/node", self._node),
                web.get("/api/blockers", self._blockers),
                web.post("/api/speed", self._speed),
                web.post("/api/time", self._time),
            ]
        )
        app.on_shutdown.append(self._close)
        return app

    async def _close(self, _: web.Application) -> None:
        self._closing = True
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # ------------------------------------------------------------ who may look

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            refused = self._refusal(request)
        except (ValueError, UnicodeError):  # a Host or Origin that is no address, text that is no UTF-8
            refused = web.HTTPBadRequest(text="the request can't be read\n", headers=_HEADERS)
        if refused is not None:
            raise refused
        response = await handler(request)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _refusal(self, request: web.Request) -> web.HTTPException | None:
        if self._token is None:
            host = urlsplit(f"//{request.host}").hostname or ""
            if not is_loopback(host):
                return web.HTTPForbidden(text="this server answers only under localhost\n", headers=_HEADERS)
        else:
            given = request.cookies.get(_COOKIE, "")
            header = request.headers.get("Authorization", "").removeprefix("Bearer ")
            asked = request.query.get("token", "")
            if not any(_same(text, self._token) for text in (given, header, asked)):
                return web.HTTPUnauthorized(text="a token is needed: open /?token=TOKEN\n", headers=_HEADERS)
        origin = request.headers.get("Origin")
        if request.method != "GET" and (origin is None or urlsplit(origin).netloc != request.host):
            return web.HTTPForbidden(text="not from another page\n", headers=_HEADERS)
        return None

    # ------------------------------------------------------------ what it answers

    async def _home(self, request: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": html.policy_of("'self'") + "; frame-ancestors 'none'"}
        if self._token is not None and "token" in request.query:
            found = web.HTTPFound("/")
            found.set_cookie(_COOKIE, self._token, httponly=True, samesite="Strict", path="/")
            raise found
        return web.Response(text=self._page, content_type="text/html", headers=headers)

    async def _state(self, request: web.Request) -> web.Response:
        version, document = self.watcher.version, self.watcher.document
        if self._packed[0] != version:
            shown = {"version": version, "problem": self.watcher.problem, "document": document}
            loop = asyncio.get_running_loop()
            self._packed = (version, await loop.run_in_executor(None, _encode, shown))
        response = web.Response(body=self._packed[1], content_type="application/json")
        response.enable_compression()
        return response

    async def _events(self, request: web.Request) -> web.StreamResponse:
        headers = {**_HEADERS, "Content-Type": "text/event-stream"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):  # the browser closed the page
            await self._tell(response)
        return response

    async def _tell(self, response: web.StreamResponse) -> None:
        """Say when there is something new, until the server ends."""
        await response.write(f"retry: {_RETRY_MILLISECONDS}\n\n".encode())
        said = -1
        while not self._closing:
            changed = self._changed
            version = self.watcher.version
            if version != said:
                said = version
                await response.write(f"id: {version}\ndata: {version}\n\n".encode())
            try:
                await asyncio.wait_for(changed.wait(), _HEARTBEAT_SECONDS)
            except TimeoutError:
                await response.write(b": still here\n\n")

    async def _node(self, request: web.Request) -> web.Response:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, self.watcher.node, request.query.get("name", ""))
        return web.json_response({"moves": None, "changes": [], "gone": True} if found is None else found)

    async def _blockers(self, request: web.Request) -> web.Response:
        loop = asyncio.get_running_loop()
        return web.json_response({"blockers": await loop.run_in_executor(None, self.watcher.blockers)})

    async def _speed(self, request: web.Request) -> web.Response:
        wanted = await _asked(request, "speed")
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not self.watcher.set_speed(wanted):
            return web.json_response({"set": False}, status=400)
        return web.json_response({"set": True})

    async def _time(self, request: web.Request) -> web.Response:
        wanted = await _asked(request, "seconds")
        if not isinstance(wanted, int | float) or isinstance(wanted, bool) or not 0 <= wanted < 1e12:
            return web.json_response({"set": False}, status=400)
        loop = asyncio.get_running_loop()
        moved = await loop.run_in_executor(None, self.watcher.go_to, float(wanted))
        return web.json_response({"set": moved}, status=200 if moved else 400)


async def _asked(request: web.Request, key: str) -> object:
    """Return a value of a request's JSON object; None if there is no such thing."""
    try:
        return (await request.json())[key]
    except (ValueError, KeyError, TypeError, RecursionError, LookupError):  # LookupError: an unknown charset
        return None


def _same(given: str, token: str) -> bool:
    """Return whether a text is the token, in a time that does not depend on it; headers need not be UTF-8."""
    return hmac.compare_digest(given.encode(errors="surrogateescape"), token.encode())


def _encode(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


async def serve(server: Server, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until cancelled; `ready` gets the port, which the system chooses if it is 0."""
    runner = web.AppRunner(server.app(), access_log=None, logger=SERVER_LOG, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        ready(int(runner.addresses[0][1]))
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
