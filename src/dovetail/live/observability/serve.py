"""The controller's only open ports: metrics and probes, read-only."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from dovetail.live.server_log import SERVER_LOG


class PortError(Exception):
    """The port can't be used; one sentence for people."""


Address = tuple[str, int]
Check = Callable[[], str]


@contextlib.asynccontextmanager
async def serving(
    where: Address, registry: CollectorRegistry, *, alive: Check, ready: Check, probes: Address | None = None
) -> AsyncIterator[int]:
    """Serve /metrics, /healthz and /readyz; yield the port, which the system chooses if it is 0.

    An empty host means every address, IPv4 and IPv6. `alive` and `ready` return what is wrong, or nothing. With
    `probes` the probes are served there and nowhere else.
    """

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        return _probe(alive())

    async def readyz(_: web.Request) -> web.Response:
        return _probe(ready())

    counted = [web.get("/metrics", metrics)]
    probed = [web.get("/healthz", healthz), web.get("/readyz", readyz)]
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(_site(where, [*counted, *([] if probes else probed)]))
        if probes is not None:
            await stack.enter_async_context(_site(probes, probed))
        yield port


@contextlib.asynccontextmanager
async def _site(where: Address, routes: list[web.RouteDef]) -> AsyncIterator[int]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, logger=SERVER_LOG)
    await runner.setup()
    host, port = where
    try:
        try:
            await (web.TCPSite(runner, host, port) if host else web.SockSite(runner, _everywhere(port))).start()
        except OSError as error:
            reason = error.strerror or "no such address"
            raise PortError(f"{host}:{port} can't be listened on ({reason}); give another --listen") from None
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _probe(problem: str) -> web.Response:
    return web.Response(status=503, text=f"{problem}\n") if problem else web.Response(text="ok\n")


def _everywhere(port: int) -> socket.socket:
    """Return a socket that listens on every address of this machine, of both families where it has both."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv6 may be compiled in and switched off
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("0.0.0.0", port))  # noqa: S104 - asked for with :PORT
