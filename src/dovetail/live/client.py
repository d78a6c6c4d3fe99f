"""A thin HTTP client for the Kubernetes API: requests with honest errors, paged lists, watch streams.

Retries only what is safe to repeat (throttling, a server that restarts, a broken connection on a read). Anything else
comes back as an `ApiError` with the server's own reason. Decodes nothing: callers get bytes.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec
from multidict import CIMultiDict

from dovetail.live.credentials import Connection, CredentialsError, UnreachableError
from dovetail.live.sockets import Sockets
from dovetail.report.words import safe

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PAGE_SIZE: Final = 500
_TIMEOUT_SECONDS: Final = 60.0
_TRIES: Final = 5
_AWAY: Final = (500, 502, 503, 504)
_RETRY_AFTER_MOST: Final = 30.0
_REFUSAL_BYTES_MAX: Final = 64 << 10
_QUIET_SECONDS: Final = 150.0  # a watch without even a bookmark for so long may be dead: resume it


class ApiError(Exception):
    """The server said no. `status` is HTTP's, `reason` is Kubernetes' own word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = 0.0  # seconds, as the server asked
        self.renewed = False  # the token was refused, and another one can be had


class _Status(msgspec.Struct):
    message: str | None = ""
    reason: str | None = ""


class _ListMeta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The items of a list or of a page of it, each as its JSON, and the version to watch from."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str


class ApiClient:
    """One connection pool to one API server. `async with ApiClient(connection) as client:`."""

    def __init__(
        self, connection: Connection, *, user_agent: str = "dovetail", jitter: random.Random | None = None
    ) -> None:
        self.connection = connection
        self._user_agent = user_agent
        self._jitter = jitter or random.Random()  # noqa: S311 - spreads retries, protects nothing
        self._session: aiohttp.ClientSession | None = None
        self._sockets = Sockets()

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            ssl=self.connection.ssl_context or True, limit=64, ttl_dns_cache=60, socket_factory=self._sockets.make
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": self._user_agent, "Accept": JSON},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            read_bufsize=1 << 20,
            auto_decompress=True,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            await self._sockets.hang_up()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        params: Mapping[str, str] | None = None,
        tries: int = _TRIES,
    ) -> bytes:
        """The body of the answer. Writes are sent once unless the server did nothing and said so (429, old token)."""
        for attempt in range(1, tries + 1):
            wait = self.backoff(attempt)
            try:
                return await self._once(method, path, body, content_type, params)
            except ApiError as error:
                again = error.status == 429 or error.renewed or (error.status in _AWAY and method == "GET")
                if not again or attempt == tries:
                    raise
                wait = 0.0 if error.renewed else max(wait, min(error.retry_after, _RETRY_AFTER_MOST))
            except CredentialsError:
                raise
            except UnreachableError:
                if method != "GET" or attempt == tries:
                    raise
            await asyncio.sleep(wait)
        raise AssertionError("the loop returns or raises")

    def backoff(self, attempt: int, most: float = 30.0) -> float:
        """Seconds to wait before the next try: doubling, spread by half."""
        return min(most, 0.25 * 2.0**attempt) * (0.5 + self._jitter.random() / 2)

    async def pages(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[Listing]:
        """A collection page by page, so that no list is ever in memory as a whole; 410 where a page came too late."""
        token = ""
        while True:
            query = {"limit": str(PAGE_SIZE), **(params or {})}
            if token:
                query["continue"] = token
            page = msgspec.json.decode(await self.request("GET", path, params=query), type=_Page)
            token = page.metadata.continue_
            yield Listing(items=tuple(page.items or ()), resource_version=page.metadata.resource_version)
            if not token:
                return

    async def list_all(self, path: str, params: Mapping[str, str] | None = None) -> Listing:
        """Every item of a collection; starts over where a page's continuation has grown too old."""
        for attempt in range(1, _TRIES + 1):
            items: list[msgspec.Raw] = []
            version = ""
            try:
                async for page in self.pages(path, params):
                    items.extend(page.items)
                    version = page.resource_version
            except ApiError as error:
                if error.status != 410 or attempt == _TRIES:
                    raise
            else:
                return Listing(items=tuple(items), resource_version=version)
        raise AssertionError("the loop returns or raises")

    async def watch_lines(
        self, path: str, resource_version: str, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of a watch from that version on, bookmarks included, until the server or the network ends it."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(240 + int(self._jitter.random() * 120)),
            **(params or {}),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_QUIET_SECONDS)
        token = await self.connection.tokens.token()
        try:
            async with self._ask("GET", path, token, timeout=timeout, params=query) as answer:
                await self._raise_for(answer, token)
                pending = b""
                async for chunk in answer.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        if line:
                            yield line
        except aiohttp.SocketTimeoutError:
            return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_reason(error)) from None

    async def _once(
        self, method: str, path: str, body: bytes | None, content_type: str, params: Mapping[str, str] | None
    ) -> bytes:
        token = await self.connection.tokens.token()
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS, sock_connect=10)
        kind = content_type if body is not None else ""
        try:
            async with self._ask(method, path, token, timeout=timeout, params=params, body=body, kind=kind) as answer:
                await self._raise_for(answer, token)
                return await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_reason(error)) from None

    def _ask(
        self,
        method: str,
        path: str,
        token: str,
        *,
        timeout: aiohttp.ClientTimeout,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        kind: str = "",
    ) -> "contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]":
        whole: CIMultiDict[str] = CIMultiDict(self.connection.headers)
        if kind:
            whole["Content-Type"] = kind
        if token:
            whole["Authorization"] = f"Bearer {token}"
        return self._open_session().request(
            method,
            self.connection.server + path,
            data=body,
            params=params,
            headers=whole,
            timeout=timeout,
            proxy=self.connection.proxy,
            server_hostname=self.connection.server_name,
        )

    async def _raise_for(self, answer: aiohttp.ClientResponse, token: str) -> None:
        if answer.status < 400:
            return
        raw = b""
        async for chunk in answer.content.iter_any():  # a single read may give only a part
            raw += chunk
            if len(raw) >= _REFUSAL_BYTES_MAX:
                break
        try:
            status = msgspec.json.decode(raw, type=_Status)
        except msgspec.DecodeError:
            status = _Status(message=safe(raw[:200].decode("utf-8", "replace")))
        error = ApiError(answer.status, safe(status.reason or ""), safe(status.message or "", 1000))
        error.renewed = answer.status == 401 and self.connection.tokens.forget(token)
        hint = answer.headers.get("Retry-After", "")
        error.retry_after = float(hint) if hint.isdigit() else 0.0
        raise error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use the client inside `async with`")
        return self._session


def _reason(error: BaseException) -> str:
    """What went wrong with the connection, without the request (which may carry a token)."""
    return safe(str(error) or type(error).__name__)
