"""A shutdown leaves no connection open, wherever a request was cancelled and whatever the server does."""

import asyncio
import contextlib
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.credentials import Connection, TokenSource
from tests.support.certificates import write_certificates

TURNS = 16
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextlib.contextmanager
def _mute_server(folder: Path, begun: threading.Event, *, shakes_hands: bool) -> Iterator[int]:
    """Yield a server that begins a watch, or not even that, and then neither sends nor reads."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def one(peer: socket.socket) -> None:
            kept.append(peer)
            if shakes_hands:
                with contextlib.suppress(OSError):
                    secure = context.wrap_socket(peer, server_side=True)
                    kept.append(secure)
                    secure.recv(4096)
                    secure.sendall(_HEAD)
            begun.set()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for peer in kept:
                peer.close()


async def _cancelled_after(turns: int, connection: Connection, begun: threading.Event) -> None:
    """Begin a watch, cancel it after this many turns of the loop, and close the client."""
    async with ApiClient(connection) as client:

        async def watch() -> None:
            async for _ in client.watch_lines("/api/v1/nodes", "1"):
                pass

        task = asyncio.create_task(watch())
        for _ in range(turns):
            await asyncio.sleep(0)
        if turns == TURNS:
            assert await asyncio.to_thread(begun.wait, 60)  # the watch is open
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("shakes_hands", [True, False])
def test_nothing_stays_open_after_an_orderly_end(tmp_path: Path, *, shakes_hands: bool) -> None:
    """Every socket is closed with the client, if a request was cancelled while connecting, in TLS or in a watch."""
    write_certificates(tmp_path)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    begun = threading.Event()
    with _mute_server(tmp_path, begun, shakes_hands=shakes_hands) as port:
        connection = Connection(server=f"https://127.0.0.1:{port}", ssl_context=context, tokens=TokenSource(fixed="t"))
        for turns in range(TURNS + 1):
            begun.clear()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                asyncio.run(_cancelled_after(turns, connection, begun))
                gc.collect()
            assert [str(each.message) for each in said] == [], f"after {turns} turns"
