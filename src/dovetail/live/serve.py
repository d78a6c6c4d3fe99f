"""The controller's only open port: metrics and probes, read-only, nothing else."""

import contextlib
from collections.abc import AsyncIterator, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


class PortError(Exception):
    """The port can't be used; one sentence for people."""


@contextlib.asynccontextmanager
async def serving(
    host: str, port: int, registry: CollectorRegistry, *, alive: Callable[[], bool], ready: Callable[[], bool]
) -> AsyncIterator[int]:
    """Answers /metrics, /healthz and /readyz meanwhile; gives the port, which the system chooses where it is 0."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if alive() else web.Response(status=503, text="the engine has no turn\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if ready() else web.Response(status=503, text="not in sync yet\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            reason = error.strerror or "no such address"
            raise PortError(f"{host}:{port} can't be listened on ({reason}); give another --listen") from None
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
