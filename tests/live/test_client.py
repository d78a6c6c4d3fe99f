"""The client: retries, Retry-After, and tokens that are renewed."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dovetail.live.kubernetes.client import ApiError, ListResponse
from dovetail.live.kubernetes.credentials import TokenSource, UnreachableError
from tests.live.fake_server import talking_to, until


def _error(status: int, **headers: str) -> web.Response:
    return web.json_response({"code": status, "reason": "R", "message": "m\x1b[31m"}, status=status, headers=headers)


def test_reads_are_tried_again_writes_only_when_throttled() -> None:
    """Reads are retried on server errors; a write that may have been executed is not repeated."""

    def answer(request: web.Request, number: int) -> Any:
        if request.path == "/throttled":
            return _error(429) if number % 2 else {"ok": True}
        return _error(503) if number < 3 else {"ok": True}

    async def context() -> None:
        async with talking_to(answer) as (server, client):
            assert await client.request("GET", "/read") == b'{"ok": true}'
            assert len(server.requests) == 3
        async with talking_to(answer) as (server, client):
            with pytest.raises(ApiError, match="503"):
                await client.request("PATCH", "/write", body=b"{}")
            assert len(server.requests) == 1
        async with talking_to(answer) as (server, client):
            await client.request("POST", "/throttled", body=b"{}")
            assert len(server.requests) == 2

    asyncio.run(context())


def test_the_server_says_how_long_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry-After is honoured up to a limit."""
    waits: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await real(0)

    def answer(request: web.Request, number: int) -> Any:
        return _error(429, **{"Retry-After": "7" if number == 1 else "7000"}) if number < 3 else {"ok": True}

    async def context() -> None:
        async with talking_to(answer) as (_, client):
            monkeypatch.setattr("dovetail.live.kubernetes.client.asyncio.sleep", sleep)
            await client.request("GET", "/x")
            monkeypatch.undo()

    asyncio.run(context())
    assert [wait for wait in waits if wait > 1] == [7.0, 30.0]


def test_a_refused_token_is_renewed_and_the_request_repeated(tmp_path: Path) -> None:
    """After a refused token, a write is also repeated, because the server did not execute it."""
    file = tmp_path / "token"
    file.write_text("old")
    tokens = TokenSource(file=file)

    def answer(request: web.Request, number: int) -> Any:
        if request.headers["Authorization"] == "Bearer old":
            file.write_text("new")
            tokens._renewed_at -= 10
            return _error(401)
        return {"ok": True}

    async def context() -> None:
        async with talking_to(answer, tokens) as (server, client):
            assert await client.request("POST", "/x", body=b"{}") == b'{"ok": true}'
            assert len(server.requests) == 2

    asyncio.run(context())


def test_a_fixed_token_that_is_refused_is_an_answer() -> None:
    """A fixed token that is refused is not retried."""

    async def context() -> None:
        async with talking_to(lambda request, number: _error(401)) as (server, client):
            with pytest.raises(ApiError) as caught:
                await client.request("GET", "/x")
            assert caught.value.status == 401
            assert len(server.requests) == 1

    asyncio.run(context())


def test_errors_are_safe_to_show() -> None:
    """A server's message may contain a person's text: control characters are escaped, and no header is included."""

    async def context() -> None:
        async with talking_to(lambda request, number: _error(409)) as (_, client):
            with pytest.raises(ApiError) as caught:
                await client.request("PATCH", "/x", body=b"{}")
            assert "\x1b" not in str(caught.value)
            assert "Bearer" not in str(caught.value)
        async with talking_to(lambda request, number: {"ok": True}) as (_, client):
            client.connection.server = "http://127.0.0.1:9"
            with pytest.raises(UnreachableError) as lost:
                await client.request("PATCH", "/x", body=b"{}")
            assert "Bearer" not in str(lost.value)

    asyncio.run(context())


def test_a_list_starts_over_where_a_page_came_too_late() -> None:
    """An expired continuation token restarts the list."""

    def answer(request: web.Request, number: int) -> Any:
        if number == 2:
            return _error(410)
        more = "" if "continue" in request.query else "next"
        return {"metadata": {"resourceVersion": "1", "continue": more}, "items": [{"n": number}]}

    async def context() -> None:
        async with talking_to(answer) as (_, client):
            found = await client.list_all("/things")
            assert [bytes(item) for item in found.items] == [b'{"n": 3}', b'{"n": 4}']

    asyncio.run(context())


def _paged(request: web.Request, number: int) -> Any:
    more = "" if number == 3 else f"after-{number}"
    return {"metadata": {"resourceVersion": "1", "continue": more}, "items": [{"n": number}]}


def test_the_next_page_is_made_while_this_one_is_read() -> None:
    """The next page of a large list is requested while the reader still handles the last one."""

    async def context() -> None:
        async with talking_to(_paged) as (server, client):
            asked = []
            async for _ in client.pages("/things"):
                await until(lambda: len(server.requests) > min(len(asked) + 1, 2))
                asked.append(len(server.requests))
            assert asked == [2, 3, 3]
            tokens = [request.query.get("continue", "") for request in server.requests]
            assert tokens == ["", "after-1", "after-2"]

    asyncio.run(context())


def test_who_reads_no_further_leaves_nothing_behind() -> None:
    """A reader that stops early cancels the page in flight, even one that would fail."""

    def answer(request: web.Request, number: int) -> Any:
        return _paged(request, number) if number == 1 else _error(403)

    async def context() -> None:
        async with talking_to(answer) as (_, client):
            pages = client.pages("/things")
            await anext(pages)
            await pages.aclose()  # type: ignore[attr-defined]
            assert not [task for task in asyncio.all_tasks() if "ApiClient" in repr(task.get_coro())]

    asyncio.run(context())


def test_a_big_list_is_decoded_page_by_page() -> None:
    """Decoded objects are kept, not their JSON: that of 80,000 pods would be most of a plan's memory."""
    seen: list[int] = []

    def decoded(page: ListResponse) -> list[int]:
        seen.append(len(page.items))
        return [int(msgspec.json.decode(item)["n"]) for item in page.items]

    async def context() -> None:
        async with talking_to(_paged) as (_, client):
            assert await client.list_decoded("/things", decoded) == [1, 2, 3]

    asyncio.run(context())
    assert seen == [1, 1, 1]


@pytest.mark.parametrize(("size", "limits"), [(1000, ["50", "500", "500"]), (1_000_000, ["50", "50", "50"])])
def test_pages_of_large_objects_have_fewer(size: int, limits: list[str]) -> None:
    """A list starts with a small page; only if its objects are small it starts over with pages of the usual size."""
    total = 550 if size == 1000 else 150

    def answer(request: web.Request, number: int) -> Any:
        begin, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        end = min(total, begin + limit)
        items = [{"n": n, "padding": "x" * size} for n in range(begin, end)]
        return {"metadata": {"resourceVersion": "1", "continue": str(end) if end < total else ""}, "items": items}

    async def context() -> None:
        async with talking_to(answer) as (server, client):
            found = await client.list_decoded("/things", lambda page: [msgspec.json.decode(i)["n"] for i in page.items])
            assert found == list(range(total))
            assert [request.query["limit"] for request in server.requests] == limits

    asyncio.run(context())
