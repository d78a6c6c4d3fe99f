"""A thin HTTP client for the Kubernetes API: requests with precise errors, paged lists, watch streams.

Retries only what is safe to repeat (throttling, a server that restarts, a broken connection on a read). Anything else
is raised as an `ApiError` with the server's own reason. What a server or a proxy sends is untrusted: an unexpected
response is a `MalformedError`, counted, and retried like a broken connection. A write with a fence checks it before
every attempt, as late as possible. Callers get bytes that are known to be a JSON object.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self, TypeVar

import aiohttp
import msgspec
from multidict import CIMultiDict

from dovetail.live.kubernetes.credentials import Connection, CredentialsError, UnreachableError
from dovetail.live.kubernetes.sockets import Sockets
from dovetail.report.words import safe

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
PAGE_SIZE: Final = 500
_FIRST_PAGE_SIZE: Final = 50  # until it is known how large the objects are: a pod may have more than a megabyte
_PAGE_BYTES: Final = 32 << 20  # what a page of the usual size may take
_TIMEOUT_SECONDS: Final = 60.0
_TRIES: Final = 5
_AWAY: Final = (500, 502, 503, 504)
_RETRY_AFTER_MOST: Final = 30.0
_REFUSAL_BYTES_MAX: Final = 64 << 10
QUIET_SECONDS: Final = 30.0  # a watch that is silent for this long may be dead: it is opened again
_LINE_BYTES_MAX: Final = 64 << 20  # no object is this big: an endless line must not fill the memory
UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
Fence = Callable[[], bool]
T = TypeVar("T")


class ApiError(Exception):
    """The server refused. `status` is the HTTP status, `reason` is Kubernetes' own."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = 0.0  # seconds, as the server asked
        self.renewed = False  # the token was refused, and another one is available


class MalformedError(UnreachableError):
    """An unexpected response: a proxy's page, a truncated body, an object of another shape."""


class FencedError(UnreachableError):
    """The write was not sent: this process may no longer act."""


class QuietError(UnreachableError):
    """A watch was silent for a while: nothing has changed, or it is dead. Opening it again shows which."""


class _Status(msgspec.Struct):
    message: str | None = ""
    reason: str | None = ""


class _Object(msgspec.Struct):
    metadata: dict[str, Any] = {}


class _ListMeta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    """A list has both: a response without them is something else, and must not count as an empty list."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListResponse:
    """The items of a list or of a page of it, each as its JSON, and the version to watch from."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One HTTP request."""

    method: str
    path: str
    timeout: aiohttp.ClientTimeout
    params: Mapping[str, str] | None = None
    body: bytes | None = None
    content_type: str = ""
    fence: Fence | None = None


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
        self.on_malformed: Callable[[str, str], None] = lambda path, why: None
        self.server_time: datetime | None = None  # of the last answer, by the server's clock; None: it had no date

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
            trace_configs=[_fencing()],
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
        fence: Fence | None = None,
    ) -> bytes:
        """Return the body of the answer, a JSON object.

        Writes are sent once unless the server reports that it did nothing (429, old token). With a `fence`, no attempt
        is sent once it refuses: a retry may come long after the first attempt, when another process leads.
        """
        request = _Request(
            method=method,
            path=path,
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS, sock_connect=10),
            params=params,
            body=body,
            content_type=content_type,
            fence=fence,
        )
        for attempt in range(1, tries + 1):
            wait = self.backoff(attempt)
            try:
                answer = await self._send(request)
                self._check(path, answer)
            except ApiError as error:
                again = error.status == 429 or error.renewed or (error.status in _AWAY and method == "GET")
                if not again or attempt == tries:
                    raise
                wait = 0.0 if error.renewed else max(wait, min(error.retry_after, _RETRY_AFTER_MOST))
            except (CredentialsError, FencedError):
                raise
            except UnreachableError:
                if method != "GET" or attempt == tries:
                    raise
            else:
                return answer
            await asyncio.sleep(wait)
        raise AssertionError("the loop returns or raises")

    def malformed(self, path: str, why: str) -> MalformedError:
        """Count an answer that can't be used; return what to raise."""
        self.on_malformed(path, why)
        return MalformedError(f"a malformed answer: {why}")

    def _check(self, path: str, answer: bytes) -> None:
        """Raise unless an answer is a JSON object whose metadata, if it has any, is one too."""
        try:
            msgspec.json.decode(answer, type=_Object)
        except UNREADABLE as error:
            start = safe(answer[:60].decode("utf-8", "replace"))
            raise self.malformed(path, f"{_reason(error)}; it begins with {start!r}") from None

    def backoff(self, attempt: int, most: float = 30.0) -> float:
        """Return seconds to wait before the next try: doubling, spread by half."""
        return min(most, 0.25 * 2.0**attempt) * (0.5 + self._jitter.random() / 2)

    async def pages(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[ListResponse]:
        """Yield a collection page by page, so that no list is in memory as a whole; 410 if a page came too late.

        The next page is requested before this one is yielded: the server builds it while the caller reads.
        """
        size = _FIRST_PAGE_SIZE
        coming: asyncio.Task[_Page] | None = asyncio.create_task(self._page(path, params or {}, "", size))
        try:
            while coming is not None:
                page = await coming
                token = page.metadata.continue_
                if size == _FIRST_PAGE_SIZE and token and _has_small_objects(page):
                    size = PAGE_SIZE  # and start over: all pages of a list must have the same limit
                    coming = asyncio.create_task(self._page(path, params or {}, "", size))
                    continue
                coming = asyncio.create_task(self._page(path, params or {}, token, size)) if token else None
                await asyncio.sleep(0)  # lets it go out: the caller may not let go of the loop until it is through
                yield ListResponse(items=tuple(page.items or ()), resource_version=page.metadata.resource_version)
        finally:
            if coming is not None:  # the caller wants no more, or has failed
                coming.cancel()
                with contextlib.suppress(asyncio.CancelledError, ApiError, UnreachableError):
                    await coming

    async def _page(self, path: str, params: Mapping[str, str], token: str, size: int) -> _Page:
        query = {"limit": str(size), **params, **({"continue": token} if token else {})}
        answer = await self.request("GET", path, params=query)
        try:
            return msgspec.json.decode(answer, type=_Page)
        except UNREADABLE as error:
            raise self.malformed(path, f"no list: {_reason(error)}") from None

    async def list_all(self, path: str, params: Mapping[str, str] | None = None) -> ListResponse:
        """Return every item of a collection; start over if a page's continuation has expired."""
        version = ""

        def kept(page: ListResponse) -> tuple[msgspec.Raw, ...]:
            nonlocal version
            version = page.resource_version
            return page.items

        items = await self.list_decoded(path, kept, params)
        return ListResponse(items=tuple(items), resource_version=version)

    async def list_decoded(
        self, path: str, decoded: Callable[[ListResponse], Iterable[T]], params: Mapping[str, str] | None = None
    ) -> list[T]:
        """Return what `decoded` returns for each page of a collection; start over as `list_all` does."""
        for attempt in range(1, _TRIES + 1):
            found: list[T] = []
            try:
                async for page in self.pages(path, params):
                    found.extend(decoded(page))
            except ApiError as error:
                if error.status != 410 or attempt == _TRIES:
                    raise
            else:
                return found
        raise AssertionError("the loop returns or raises")

    async def watch_lines(
        self,
        path: str,
        resource_version: str,
        params: Mapping[str, str] | None = None,
        *,
        opened: Callable[[], None] = lambda: None,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> AsyncIterator[bytes]:
        """Yield the lines of a watch from that version on, bookmarks included, until the server or the network ends it.

        Raises QuietError if nothing comes for `quiet_seconds`. `opened` is called once the server has accepted the
        watch; changes since the version follow at once.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(240 + int(self._jitter.random() * 120)),
            **(params or {}),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=quiet_seconds)
        token = await self.connection.tokens.token()
        try:
            async with self._ask(_Request(method="GET", path=path, timeout=timeout, params=query), token) as answer:
                await self._raise_for(answer, token)
                opened()
                pending = b""
                async for chunk in answer.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield line
                    if len(pending) > _LINE_BYTES_MAX:
                        raise self.malformed(path, "a line of a watch without an end")
                if pending.strip():  # a server ends a watch at the end of a line; a network cuts it with an error
                    raise self.malformed(
                        path, f"a watch that ends with {safe(pending[:60].decode(errors='replace'))!r}"
                    )
        except aiohttp.SocketTimeoutError:
            raise QuietError(f"nothing was said for {quiet_seconds:g} s") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_reason(error)) from None

    async def _send(self, request: _Request) -> bytes:
        token = await self.connection.tokens.token()
        try:
            asked = self._ask(request, token)
            async with asked as answer:
                self.server_time = _date(answer.headers.get("Date", ""))
                await self._raise_for(answer, token)
                return await answer.read()
        except aiohttp.ClientConnectorCertificateError as error:
            raise _distrusted(error) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_reason(error)) from None

    def _ask(self, request: _Request, token: str) -> "contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]":
        whole: CIMultiDict[str] = CIMultiDict(self.connection.headers)
        if request.body is not None and request.content_type:
            whole["Content-Type"] = request.content_type
        if token:
            whole["Authorization"] = f"Bearer {token}"
        return self._open_session().request(
            request.method,
            self.connection.server + request.path,
            data=request.body,
            params=request.params,
            headers=whole,
            timeout=request.timeout,
            proxy=self.connection.proxy,
            server_hostname=self.connection.server_name,
            allow_redirects=False,
            trace_request_ctx=request.fence,
        )

    async def _raise_for(self, answer: aiohttp.ClientResponse, token: str) -> None:
        if 200 <= answer.status < 300:
            return
        if answer.status < 400:
            raise self.malformed(answer.url.path, f"status {answer.status}, which no API server answers with")
        raw = b""
        async for chunk in answer.content.iter_any():  # a single read may give only a part
            raw += chunk
            if len(raw) >= _REFUSAL_BYTES_MAX:
                break
        try:
            status = msgspec.json.decode(raw, type=_Status)
        except UNREADABLE:
            status = _Status(message=safe(raw[:200].decode("utf-8", "replace")))
        error = ApiError(answer.status, safe(status.reason or ""), safe(status.message or "", 1000))
        error.renewed = answer.status == 401 and self.connection.tokens.forget(token)
        hint = answer.headers.get("Retry-After", "")
        error.retry_after = float(hint) if hint.isascii() and hint.isdigit() else 0.0
        raise error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use the client inside `async with`")
        return self._session


def _has_small_objects(page: _Page) -> bool:
    """Return whether a full page of the usual size would not be too large."""
    items = page.items or ()
    taken = sum(memoryview(item).nbytes for item in items)
    return len(items) == _FIRST_PAGE_SIZE and taken * (PAGE_SIZE // _FIRST_PAGE_SIZE) <= _PAGE_BYTES


def _fencing() -> aiohttp.TraceConfig:
    """Build the hook that checks a request's fence at the last moment, when the headers are about to be sent."""

    async def ask(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        if context.trace_request_ctx is not None and not context.trace_request_ctx():
            raise FencedError("no longer leading")

    config = aiohttp.TraceConfig()
    config.on_request_start.append(ask)
    config.on_request_headers_sent.append(ask)
    return config


def _date(header: str) -> datetime | None:
    """Read the Date of an answer; None if it has none, or none that can be read."""
    try:
        return parsedate_to_datetime(header).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _distrusted(error: aiohttp.ClientConnectorCertificateError) -> CredentialsError:
    why = _reason(error)
    return CredentialsError(f"the API server's certificate is not trusted ({why}); check the kubeconfig's authority")


def _reason(error: BaseException) -> str:
    """Return what went wrong with the connection, without the request (which may carry a token)."""
    return safe(str(error) or type(error).__name__)
