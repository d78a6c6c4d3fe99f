"""The sockets of one HTTP session, so that none of them outlives it. Knows nothing of what is said over them."""

import asyncio
import contextlib
import socket
import weakref
from typing import Final

import aiohttp

_GOODBYE_SECONDS: Final = 5.0


class Sockets:
    """Return `make` to a connector as its socket factory; `hang_up` after the session was closed."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, where: aiohttp.AddrInfoType) -> socket.socket:
        """Make a socket for an address, and remember it."""
        family, kind, protocol, _, _ = where
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def hang_up(self) -> None:
        """Wait until every socket is closed, also those that the session no longer knows.

        A connection whose request was cancelled waits by itself for the server's goodbye, or goes on shaking hands: a
        loop that ends meanwhile would leave it open. Nothing more is wanted of it, so it is told that its line is dead.
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
