"""Answers of an API server or a proxy are input: none of them ends the controller, all of them are counted."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from io import StringIO
from typing import Any

import pytest
from aiohttp import web

from dovetail.api.settings import settings_of
from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.messages import Failure, InstructionFailed, TaintNode
from dovetail.live.actuate import Actuator
from dovetail.live.kubernetes.client import ApiError, MalformedError
from dovetail.live.kubernetes.crd_check import look_at_crd
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.resources import RESOURCES, plural_in
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from dovetail.live.run import Controller
from dovetail.model.catalogue import Catalogue
from dovetail.model.settings import DOVETAIL
from tests.live.fake_server import FakeServer, talking_to, until

HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
DEEP = b"[" * 20_000
LINES: dict[str, bytes] = {
    "garbage": b"\x00\x01\x02 what",
    "html": HTML,
    "an array": b"[]",
    "a number": b"7",
    "null": b"null",
    "a string": b'"ADDED"',
    "half an object": b'{"type": "ADDED", "object": {"metadata": {"na',
    "deep": b'{"type": "ADDED", "object": ' + DEEP,
    "deep inside the object": b'{"type": "ADDED", "object": {"metadata": {"name": "a", "annotations": ' + DEEP,
    "ill-encoded": b'{"type": "ADDED", "object": {"metadata": {"name": "\xff\xfe"}}}',
    "ill-encoded type": b'{"type": "\xff", "object": {}}',
    "no type": b'{"object": {"metadata": {"name": "a"}}}',
    "no object": b'{"type": "ADDED"}',
    "null object": b'{"type": "ADDED", "object": null}',
    "an array for an object": b'{"type": "MODIFIED", "object": []}',
    "unknown type": b'{"type": "RENAMED", "object": {"metadata": {"name": "a"}}}',
    "type as a number": b'{"type": 5, "object": {}}',
    "metadata null": b'{"type": "ADDED", "object": {"metadata": null}}',
    "metadata as text": b'{"type": "MODIFIED", "object": {"metadata": "x"}}',
    "no metadata": b'{"type": "ADDED", "object": {}}',
    "no name": b'{"type": "ADDED", "object": {"metadata": {"namespace": "d"}}}',
    "deleted without a name": b'{"type": "DELETED", "object": {"metadata": {}}}',
    "deleted null": b'{"type": "DELETED", "object": null}',
    "deleted metadata null": b'{"type": "DELETED", "object": {"metadata": null}}',
    "bookmark metadata null": b'{"type": "BOOKMARK", "object": {"metadata": null}}',
    "bookmark version as a number": b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": 5}}}',
    "bookmark as an array": b'{"type": "BOOKMARK", "object": [1]}',
    "bookmark metadata as text": b'{"type": "BOOKMARK", "object": {"metadata": "7"}}',
    "error null code": b'{"type": "ERROR", "object": {"code": null, "message": null}}',
    "error code as text": b'{"type": "ERROR", "object": {"code": "410"}}',
    "error null": b'{"type": "ERROR", "object": null}',
    "error as an array": b'{"type": "ERROR", "object": [410]}',
    "error without anything": b'{"type": "ERROR", "object": {}}',
}
BODIES: dict[str, bytes] = {
    "html": HTML,
    "nothing": b"",
    "blank": b"  \n",
    "null": b"null",
    "an array": b"[]",
    "a number": b"12",
    "half an object": b'{"metadata": {"resourceVer',
    "deep": b'{"metadata": ' + DEEP,
    "ill-encoded": b'{"metadata": {"name": "\xff"}}',
    "metadata null": b'{"metadata": null}',
    "metadata as an array": b'{"metadata": []}',
}
NO_LISTS: dict[str, bytes] = {
    "empty object": b"{}",
    "a status": b'{"kind": "Status", "metadata": {}, "status": "Success"}',
    "items as a map": b'{"metadata": {"resourceVersion": "1"}, "items": {}}',
    "no metadata": b'{"items": []}',
    "version as a number": b'{"metadata": {"resourceVersion": 1}, "items": []}',
    "deep item": b'{"metadata": {"resourceVersion": "1"}, "items": [' + DEEP,
}


def _raw(body: bytes, status: int = 200, **headers: str) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": "text/html", **headers})


def _list(*items: Any) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "5"}, "items": list(items)}


def _pod(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "d", "uid": name, "resourceVersion": "3"}
    return {"metadata": meta, "spec": {"nodeName": "n"}}


class Scene:
    """A whole controller on a server whose answers a test can corrupt."""

    def __init__(self, server: FakeServer, controller: Controller, task: "asyncio.Task[None]", log: StringIO) -> None:
        self.server, self.controller, self.task, self.log = server, controller, task, log

    def asked(self, path: str, *, watch: bool = False) -> int:
        return sum(each.path == path and ("watch" in each.query) == watch for each in self.server.requests)

    def malformed(self, resource: str) -> float:
        found = self.controller.metrics.registry.get_sample_value(
            "dovetail_malformed_answers_total", {"resource": resource}
        )
        return found or 0.0


def _answers(spoil: Callable[[web.Request], web.StreamResponse | None]) -> Callable[[web.Request, int], Any]:
    state: dict[str, Any] = {"version": 0, "spec": {}}

    def lease(request: web.Request) -> Any:
        state["version"] += 1
        holder = {"holderIdentity": "me", "leaseDurationSeconds": 30}
        return {"metadata": {"resourceVersion": str(state["version"])}, "spec": holder}

    def answer(request: web.Request, number: int) -> Any:
        spoiled = spoil(request)
        if spoiled is not None:
            return spoiled
        if "leases" in request.path:
            return lease(request)
        if "watch" in request.query:
            return [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "6"}}}]
        return _list(_pod("a")) if request.path.endswith("/pods") else _list()

    return answer


@contextlib.asynccontextmanager
async def _controller(
    spoil: Callable[[web.Request], web.StreamResponse | None], **settings: Any
) -> AsyncIterator[Scene]:
    log = StringIO()
    async with talking_to(_answers(spoil)) as (server, client):
        controller = Controller(
            client=client,
            engine=Engine(settings_of({"retryPeriod": "100ms", **settings}, DOVETAIL), Catalogue(instance_types=())),
            log=Log("debug", log),
            metrics=Metrics(),
            identity="me",
            lease_namespace="default",
        )
        task = asyncio.create_task(controller.run())
        try:
            yield Scene(server, controller, task, log)
            assert not task.done(), f"the controller ended: {task} {log.getvalue()}"
        finally:
            controller.stop()
            await asyncio.gather(task, return_exceptions=True)


def _lives_on(spoil: Callable[[web.Request], web.StreamResponse | None], path: str, *, watch: bool = False) -> Scene:
    """Answer badly three times, then well: the controller must still run, be in sync, and have asked again."""
    bad = 0

    def sometimes(request: web.Request) -> web.StreamResponse | None:
        nonlocal bad
        if bad >= 3:
            return None
        spoiled = spoil(request)
        bad += spoiled is not None
        return spoiled

    async def context() -> Scene:
        async with _controller(sometimes) as scene:
            await until(lambda: bad >= 3 or scene.task.done())
            before = scene.asked(path, watch=watch)
            await until(lambda: scene.task.done() or (scene.controller.is_ready and scene.controller.may_act))
            await until(lambda: scene.task.done() or scene.asked(path, watch=watch) > before)
            return scene

    return asyncio.run(context())


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_lines_of_a_watch(line: bytes) -> None:
    """A malformed line is logged and the kind is listed again after a pause; known objects stay known."""

    def spoil(request: web.Request) -> web.StreamResponse | None:
        return _raw(line + b"\n") if request.path.endswith("/pods") and "watch" in request.query else None

    scene = _lives_on(spoil, "/api/v1/pods", watch=True)
    pods = next(each for each in scene.controller._informers if each.resource.kind == "Pod")
    assert pods.lists >= 2, "what was missed can't be known"
    assert ("d", "a") in pods.known
    assert "trying again" in scene.log.getvalue() or "can't be read" in scene.log.getvalue()


@pytest.mark.parametrize("page", [HTML, b"null", b"[]", b'{"kind": "Status"}', b'{"type": "ADDED", "obj'])
def test_a_page_instead_of_a_watch(page: bytes) -> None:
    """A page without a line end is malformed, not the end of a watch."""

    def spoil(request: web.Request) -> web.StreamResponse | None:
        return _raw(page) if request.path.endswith("/pods") and "watch" in request.query else None

    assert _lives_on(spoil, "/api/v1/pods", watch=True).malformed("pods") >= 3


@pytest.mark.parametrize("line", [b"", b"   ", b"\r", b"\t \r"], ids=["nothing", "spaces", "return", "mixed"])
def test_blank_lines_are_passed_over(line: bytes) -> None:
    """Blank lines keep a connection open and are ignored."""

    def spoil(request: web.Request) -> web.StreamResponse | None:
        return _raw(line + b"\n") if request.path.endswith("/pods") and "watch" in request.query else None

    assert _lives_on(spoil, "/api/v1/pods", watch=True).malformed("pods") == 0


@pytest.mark.parametrize("body", [*BODIES.values(), *NO_LISTS.values()], ids=[*BODIES, *NO_LISTS])
def test_lists(body: bytes) -> None:
    """Any other document with status 200 is not a list; in particular, it is not an empty list."""

    def spoil(request: web.Request) -> web.StreamResponse | None:
        return _raw(body) if request.path.endswith("/pods") and "watch" not in request.query else None

    scene = _lives_on(spoil, "/api/v1/pods")
    assert scene.malformed("pods") >= 3


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_lease(body: bytes) -> None:
    """A malformed answer about the Lease delays leadership; the election continues."""
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/dovetail"
    scene = _lives_on(lambda request: _raw(body) if "leases" in request.path else None, path)
    assert scene.malformed("leases") >= 3


@pytest.mark.parametrize("status", [301, 302, 304, 100 + 199])
def test_redirects_are_followed_by_nobody(status: int) -> None:
    """Redirects are not followed, so that a proxy's login page gets no request for the API server."""

    def spoil(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("/pods") or "watch" in request.query:
            return None
        return _raw(HTML, status, Location="/login")

    scene = _lives_on(spoil, "/api/v1/pods")
    assert scene.asked("/login") == 0


@pytest.mark.parametrize("hint", ["²", "٣", "-1", "1e3", "soon", "9" * 400, "Wed, 21 Oct 2065 07:28:00 GMT", "  "])
def test_retry_after(hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any Retry-After value results in a limited number of seconds."""
    waits: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await real(0)

    def answer(request: web.Request, number: int) -> Any:
        headers = {"Retry-After": hint}
        return web.json_response({}, status=429, headers=headers) if number < 3 else {"ok": True}

    async def context() -> None:
        async with talking_to(answer) as (_, client):
            monkeypatch.setattr("dovetail.live.kubernetes.client.asyncio.sleep", sleep)
            await client.request("GET", "/x")
            monkeypatch.undo()

    asyncio.run(context())
    assert all(0 <= each <= 30 for each in waits)


@pytest.mark.parametrize("status", [400, 409, 422, 429, 500, 503])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_refusals_without_a_reason(status: int, body: bytes) -> None:
    """The status decides; the body may be anything."""

    async def context() -> None:
        async with talking_to(lambda request, number: _raw(body, status)) as (_, client):
            with pytest.raises(ApiError) as caught:
                await client.request("PATCH", "/x", body=b"{}", tries=1)
            assert caught.value.status == status

    asyncio.run(context())


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_an_instruction_whose_answer_can_not_be_read(method: str, body: bytes) -> None:
    """An instruction without a readable answer may have been executed: it is repeated, which is harmless."""

    def answer(request: web.Request, number: int) -> Any:
        if request.method == method:
            return _raw(body)
        return {"metadata": {"name": "n", "resourceVersion": "1"}, "spec": {}}

    async def context() -> None:
        async with talking_to(answer) as (_, client):
            actuator = Actuator(client=client, identity="me", seal=Seal((b"the key of these tests",)))
            told = await actuator.carry_out(TaintNode(id="c/taint/n", command_id="c", node="n", record="{}"))
            assert isinstance(told, InstructionFailed)
            assert told.failure is Failure.UNREACHABLE

    asyncio.run(context())


@pytest.mark.parametrize(
    "tree",
    [
        {"metadata": {}},
        {"metadata": {"name": "n"}, "spec": 5},
        {"metadata": {"resourceVersion": "1"}, "spec": {"taints": [7]}},
        {"metadata": {"resourceVersion": "1"}, "spec": {"taints": "x"}},
        {"metadata": {"annotations": [1], "resourceVersion": "1"}},
        {"metadata": {"annotations": "x", "resourceVersion": "1"}},
    ],
    ids=str,
)
def test_objects_of_another_shape(tree: Any) -> None:
    """JSON that is not a Node is counted and retried like a lost answer."""

    async def context() -> None:
        async with talking_to(lambda request, number: dict(tree)) as (_, client):
            counted: list[str] = []
            controller = Controller(
                client=client,
                engine=Engine(DOVETAIL, Catalogue(instance_types=())),
                log=Log("error", StringIO()),
                metrics=Metrics(),
                identity="me",
                lease_namespace="default",
            )
            client.on_malformed = lambda path, why: counted.append(path)
            told = await controller._dispatcher.carry_out(
                TaintNode(id="c/taint/n", command_id="c", node="n", record="{}")
            )
            assert getattr(told, "failure", Failure.UNREACHABLE) is Failure.UNREACHABLE

    asyncio.run(context())


@pytest.mark.parametrize(
    "body",
    [
        *BODIES.values(),
        b"{}",
        b'{"spec": null}',
        b'{"spec": {"versions": null}}',
        b'{"spec": {"versions": [1]}}',
        b'{"spec": {"versions": [{}]}}',
        b'{"spec": {"versions": "v1"}}',
    ],
)
def test_the_crd(body: bytes) -> None:
    """An answer that is not a CRD changes nothing."""

    async def context() -> None:
        async with talking_to(lambda request, number: _raw(body)) as (_, client):
            with pytest.raises(MalformedError):
                await look_at_crd(client)

    asyncio.run(context())


def test_a_crd_of_a_strange_shape_is_an_unknown_one() -> None:
    """A CRD with an unknown schema means: observe only."""
    odd = {"spec": {"versions": [{"name": "v1", "served": True, "schema": []}]}}

    async def context() -> None:
        async with talking_to(lambda request, number: _raw(json.dumps(odd).encode())) as (_, client):
            assert not (await look_at_crd(client)).known

    asyncio.run(context())


def test_a_line_without_an_end_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch whose line never ends is closed."""
    monkeypatch.setattr("dovetail.live.kubernetes.client._LINE_BYTES_MAX", 1 << 16)

    async def context() -> None:
        async with talking_to(lambda request, number: _raw(b"x" * (1 << 18))) as (_, client):
            with pytest.raises(MalformedError):
                async for _line in client.watch_lines("/api/v1/pods", "1"):
                    pass

    asyncio.run(context())


def test_a_body_that_is_not_what_its_header_says() -> None:
    """A wrong encoding or length is a broken connection."""

    def answer(request: web.Request, number: int) -> Any:
        return _raw(b"not gzip at all", **{"Content-Encoding": "gzip"})

    async def context() -> None:
        async with talking_to(answer) as (_, client):
            with pytest.raises(UnreachableError):
                await client.request("GET", "/x", tries=1)

    asyncio.run(context())


def test_paths_are_counted_by_what_they_are_about() -> None:
    """The path label has few values, whatever is requested."""
    for resource in RESOURCES:
        assert plural_in(resource.path()) == resource.plural
        assert plural_in(resource.path("name", "space" if resource.namespaced else "")) == resource.plural
    assert plural_in("/") == ""
    assert plural_in("/api/v1/namespaces/default") == "namespaces"
