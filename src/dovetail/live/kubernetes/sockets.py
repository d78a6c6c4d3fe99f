"""Tracks the sockets of one HTTP session, so that none of them outlives it."""

import asyncio
import contextlib
import socket
import weakref
from typing import Final

import aiohttp

_GOODBYE_SECONDS: Final = 5.0


class Sockets:
    """Pass `make` to a connector as its socket factory; call `hang_up` after the session was closed."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, where: aiohttp.AddrInfoType) -> socket.socket:
        """Create a socket for an address, and remember it."""
        family, kind, protocol, _, _ = where
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def hang_up(self) -> None:
        """Wait until every socket is closed, also those that the session no longer knows.

        A connection whose request was cancelled still waits for the server's TLS shutdown, or continues its handshake:
        an event loop that ends meanwhile would leave it open. So such connections are aborted.
        """
        deadline = asyncio.get_running_loop().time() + _GOODBYE_SECONDS
        pause = 0.0
        while left := [each for each in self._made if each.fileno() >= 0]:
            if asyncio.get_running_loop().time() > deadline:
                return
            for each in left:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(pause)
            pause = min(pause + 0.001, 0.05)
