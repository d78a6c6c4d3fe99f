"""The informer: lists, watches, bookmarks, resuming, expired versions, odd objects, denied kinds."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from dovetail.lifecycle.messages import Event, ObjectObserved, ObjectVanished
from dovetail.live import clocks
from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.resources import BY_KIND
from dovetail.live.kubernetes.watch import Informer
from tests.live.fake_server import Script, talking_to, until

Tree = dict[str, Any]


def _pod(name: str, version: int, **spec: Any) -> Tree:
    return {
        "metadata": {"name": name, "namespace": "d", "uid": f"u-{name}", "resourceVersion": str(version)},
        "spec": spec,
    }


def _list(version: int, *items: Tree, more: str = "") -> Tree:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


def _gone() -> Tree:
    return {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}


class Heard:
    """What an informer delivered and noted."""

    def __init__(self, client: ApiClient, kind: str = "Pod") -> None:
        self.events: list[Event] = []
        self.notes: list[str] = []
        self.failures: list[str] = []
        self.informer = Informer(
            client=client,
            resource=BY_KIND[kind],
            deliver=self._deliver,
            note=lambda kind, message: self.notes.append(message),
            failed=lambda kind, message: self.failures.append(message),
        )

    async def _deliver(self, event: Event) -> None:
        self.events.append(event)

    def said(self) -> list[str]:
        """Return `+name` and `-name`, in order."""
        return [
            f"+{event.object.metadata.name}" if isinstance(event, ObjectObserved) else f"-{event.name}"
            for event in self.events
            if isinstance(event, ObjectObserved | ObjectVanished)
        ]


@contextlib.asynccontextmanager
async def _listening(answer: Script, kind: str = "Pod") -> AsyncIterator[tuple[Heard, Any]]:
    async with talking_to(answer) as (server, client):
        heard = Heard(client, kind)
        task = asyncio.create_task(heard.informer.run())
        try:
            yield heard, server
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_lists_in_pages_then_watches_and_resumes() -> None:
    """Every page is delivered; a watch starts at the list's version and resumes where the last one ended."""

    def answer(request: web.Request, number: int) -> Any:
        if "watch" in request.query:
            at = int(request.query["resourceVersion"])
            return [{"type": "MODIFIED", "object": _pod("b", at + 1)}] if at < 12 else []
        if request.query.get("continue") == "next":
            return _list(10, _pod("b", 2))
        return _list(10, _pod("a", 1), more="next")

    async def context() -> None:
        async with _listening(answer) as (heard, server):
            await until(lambda: len(server.watched_from) >= 4)
            assert heard.informer.synced.is_set()
            assert heard.said() == ["+a", "+b", "+b", "+b"]
            assert server.watched_from[:3] == ["10", "11", "12"]
            assert heard.informer.lists == 1

    asyncio.run(context())


def test_bookmarks_move_the_version_on() -> None:
    """A quiet kind resumes from the last bookmark, not from its last change."""

    def answer(request: web.Request, number: int) -> Any:
        if "watch" in request.query:
            return [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "77"}}}]
        return _list(5)

    async def context() -> None:
        async with _listening(answer) as (heard, server):
            await until(lambda: len(server.watched_from) >= 2)
            assert server.watched_from[:2] == ["5", "77"]
            assert heard.events == []

    asyncio.run(context())


def test_too_old_means_a_new_list_and_what_is_missing_has_vanished() -> None:
    """After 410 only changed objects are delivered again, and deleted ones are reported."""
    lists = iter([_list(5, _pod("a", 1), _pod("b", 2), _pod("c", 3)), _list(9, _pod("a", 1), _pod("c", 8))])

    def answer(request: web.Request, number: int) -> Any:
        if "watch" not in request.query:
            return next(lists)
        return [_gone()] if request.query["resourceVersion"] == "5" else []

    async def context() -> None:
        async with _listening(answer) as (heard, server):
            await until(lambda: "9" in server.watched_from)
            assert heard.said() == ["+a", "+b", "+c", "+c", "-b"]
            assert heard.informer.lists == 2

    asyncio.run(context())


def test_too_old_as_an_answer_to_the_watch_itself() -> None:
    """A 410 before the first line has the same effect."""

    def answer(request: web.Request, number: int) -> Any:
        if "watch" not in request.query:
            return _list(number)
        return web.json_response({"code": 410, "reason": "Expired"}, status=410) if number < 4 else []

    async def context() -> None:
        async with _listening(answer) as (heard, server):
            await until(lambda: heard.informer.lists >= 2 and server.watched_from[-1] == "3")

    asyncio.run(context())


def test_any_other_error_in_a_watch_means_a_new_list_too() -> None:
    """If the server can't continue a watch, the informer lists again instead of repeating the request."""

    def answer(request: web.Request, number: int) -> Any:
        if "watch" not in request.query:
            return _list(number)
        return [{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}] if number == 2 else []

    async def context() -> None:
        async with _listening(answer) as (heard, _):
            await until(lambda: heard.informer.lists == 2 and heard.informer.watches > 2)
            assert any("etcd" in failure for failure in heard.failures)

    asyncio.run(context())


def test_an_object_that_can_not_be_read_is_left_out_and_not_taken_for_gone() -> None:
    """An odd pod is logged once and skipped; a known one keeps its last state; its deletion is still seen."""
    odd = _pod("odd", 7)
    odd["spec"] = {"priority": "high"}
    lists = iter([_list(5, _pod("odd", 1), _pod("fine", 2)), _list(9, odd, _pod("fine", 2))])

    def answer(request: web.Request, number: int) -> Any:
        if "watch" not in request.query:
            return next(lists)
        if request.query["resourceVersion"] == "5":
            return [{"type": "MODIFIED", "object": odd}, _gone()]
        return [{"type": "DELETED", "object": odd}] if request.query["resourceVersion"] == "9" else []

    async def context() -> None:
        async with _listening(answer) as (heard, _):
            await until(lambda: "-odd" in heard.said())
            assert heard.said() == ["+odd", "+fine", "+odd", "-odd"], "what can't be read still counts as a pod"
            assert heard.informer.skipped == 2
            assert [note for note in heard.notes if "Pod d/odd can't be read" in note] == heard.notes

    asyncio.run(context())


def test_nulls_are_read_as_absent() -> None:
    """Null for an empty list or map is no reason to skip an object."""
    item = _pod("a", 1, containers=None, nodeSelector=None)

    def answer(request: web.Request, number: int) -> Any:
        return [] if "watch" in request.query else _list(5, item)

    async def context() -> None:
        async with _listening(answer) as (heard, _):
            await until(lambda: heard.said() == ["+a"])

    asyncio.run(context())


def test_an_optional_kind_that_is_forbidden_counts_as_seen() -> None:
    """A denied kind is logged once, with the rule and what is lost; an essential one keeps the gate shut."""

    def answer(request: web.Request, number: int) -> Any:
        return web.json_response({"code": 403, "reason": "Forbidden", "message": "no"}, status=403)

    async def context() -> None:
        async with _listening(answer, "CSINode") as (heard, server):
            await until(heard.informer.synced.is_set)
            assert len(heard.notes) == 1
            assert 'resources: ["csinodes"]' in heard.notes[0]
            assert "attach" in heard.notes[0]
            assert len(server.requests) == 1
        async with _listening(answer, "Pod") as (heard, server):
            await until(lambda: len(server.requests) > 3)
            assert not heard.informer.synced.is_set()
            assert len(heard.notes) == 1

    asyncio.run(context())


@pytest.mark.parametrize("status", [403, 404, 429])
def test_a_server_that_has_just_started_is_asked_again_soon(status: int) -> None:
    """A kind that is refused for a moment (roles or CRDs not loaded yet) is soon back in view."""

    def answer(request: web.Request, number: int) -> Any:
        if "watch" not in request.query:
            return _list(5)
        if number == 2:
            return [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}}]
        if number in (3, 4):
            return web.json_response({"code": status, "reason": "R", "message": "not yet"}, status=status)
        return [{"type": "ADDED", "object": _pod("later", 6)}]

    async def context() -> None:
        async with _listening(answer, "CSINode") as (heard, _):
            await until(lambda: heard.informer.known)
            assert heard.informer.lists == 1
            assert heard.notes == []  # no rule to add: it works

    asyncio.run(context())


def test_a_watch_that_ends_at_once_is_no_busy_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watches that the server closes at once are reopened with growing pauses."""
    monkeypatch.setattr("dovetail.live.kubernetes.watch._SHORT_WATCH_SECONDS", 600.0)  # a busy machine is slow about it

    def answer(request: web.Request, number: int) -> Any:
        return [] if "watch" in request.query else _list(5)

    async def context() -> None:
        async with talking_to(answer) as (_, client):
            pauses: list[int] = []
            client.backoff = lambda attempt, most=30.0: pauses.append(attempt) or 0.001  # type: ignore[method-assign,func-returns-value]
            heard = Heard(client)
            task = asyncio.create_task(heard.informer.run())
            await until(lambda: len(pauses) >= 5)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert pauses == sorted(pauses)
            assert pauses[-1] >= 4

    asyncio.run(context())


def test_a_known_object_that_can_not_be_read_any_more_is_not_gone() -> None:
    """A claim that a later list shows in an odd shape keeps its last state; its deletion is still seen."""
    fine, odd = {"metadata": _pod("odd", 1)["metadata"]}, {"metadata": _pod("odd", 7)["metadata"], "status": 5}
    other = {"metadata": _pod("other", 2)["metadata"]}
    lists = iter([_list(5, fine, other), _list(9, odd, other), _list(12, other)])

    def answer(request: web.Request, number: int) -> Any:
        if "watch" not in request.query:
            return next(lists)
        return [_gone()] if request.query["resourceVersion"] in ("5", "9") else []

    async def context() -> None:
        async with _listening(answer, "NodeClaim") as (heard, _):
            await until(lambda: heard.informer.lists == 2)
            assert heard.said() == ["+odd", "+other"]
            await until(lambda: heard.informer.lists == 3 and "-odd" in heard.said())
            assert heard.said() == ["+odd", "+other", "-odd"]

    asyncio.run(context())


def test_a_view_is_as_old_as_the_question_for_its_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that takes 50 s shows the cluster as it was when it was asked for, not when it ended."""
    now = [100.0]
    monkeypatch.setattr(clocks, "steady", lambda: now[0])

    def answer(request: web.Request, number: int) -> Any:
        if "watch" in request.query:
            return web.Response(status=500, text="{}")
        now[0] = 150.0
        return _list(5, _pod("a", 1))

    async def context() -> None:
        async with _listening(answer) as (heard, _):
            await until(lambda: heard.informer.lists == 1)
            assert heard.informer.age == 50.0

    asyncio.run(context())
