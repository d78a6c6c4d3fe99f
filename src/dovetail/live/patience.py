"""A start while the API server is away: waits for it and says so, instead of ending.

A server that comes up refuses requests until it has loaded its roles: what it refuses in its first half minute after
an outage is asked again. Wrong credentials and other mistakes of the configuration still end the start at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dovetail.live import clocks
from dovetail.live.kubernetes.client import ApiClient, ApiError
from dovetail.live.kubernetes.credentials import CredentialsError, UnreachableError
from dovetail.live.observability.logs import Log

_PAUSE_MOST_SECONDS: Final = 5.0
_SAY_EVERY_SECONDS: Final = 60.0
_SURE_SECONDS: Final = 30.0
_PASSING: Final = (429, 500, 502, 503, 504)
_NOT_YET: Final = (401, 403, 404)
T = TypeVar("T")


async def when_reachable(
    client: ApiClient,
    log: Log,
    work: Callable[[], Awaitable[T]],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """Return what `work` returns; while the API server does not answer, wait and try again."""
    wait = _Wait(client=client, log=log)
    while True:
        why = await wait.look()
        if not why:
            try:
                result = await work()
            except CredentialsError:
                raise
            except UnreachableError as error:
                why = str(error)
            except ApiError as error:
                if error.status not in _PASSING:
                    raise
                why = str(error)
            else:
                wait.end()
                return result
        wait.say(why)
        await pause(client.backoff(wait.attempts, _PAUSE_MOST_SECONDS))


@dataclass(slots=True, kw_only=True)
class _Wait:
    """One wait: how long it has lasted, and what was logged of it."""

    client: ApiClient
    log: Log
    attempts: int = 0
    _began: float = field(default_factory=lambda: clocks.steady())
    _said_at: float = 0.0
    _answered_at: float | None = None

    async def look(self) -> str:
        """Return why the server can't be used yet, or ""."""
        try:
            await self.client.request("GET", "/version", tries=1)
        except CredentialsError:
            raise
        except UnreachableError as error:
            self._answered_at = None
            return str(error)
        except ApiError as error:
            if error.status in _PASSING:
                self._answered_at = None
                return str(error)
            now = clocks.steady()
            self._answered_at = now if self._answered_at is None else self._answered_at
            is_early = self.attempts > 0 and now - self._answered_at < _SURE_SECONDS
            return str(error) if is_early and error.status in _NOT_YET else ""
        return ""

    def say(self, why: str) -> None:
        """Log the beginning of the wait, and then once a minute that it goes on."""
        now = clocks.steady()
        still = " still" if self.attempts else ""
        if not self.attempts or now - self._said_at >= _SAY_EVERY_SECONDS:
            self._said_at = now
            message = f"the API server{still} does not answer ({why}): waiting for it"
            self.log.warning(message, server=self.client.connection.server, seconds=round(now - self._began))
        self.attempts += 1

    def end(self) -> None:
        """Log how long the wait was, if there was one."""
        if self.attempts:
            seconds = round(clocks.steady() - self._began, 1)
            message = f"the API server answers after {seconds:g} s"
            self.log.info(message, seconds=seconds, attempts=self.attempts + 1)
