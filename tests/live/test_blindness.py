"""Nothing is decided on a stale view, and nothing is deleted without a final check of the node's pods."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import DeleteNodeClaim, Failure, InstructionFailed, InstructionSucceeded
from dovetail.live import clocks
from dovetail.live.actuate import Actuator
from dovetail.live.kubernetes.client import QuietError
from tests.live.fake_server import talking_to, until
from tests.live.test_supervision import calm, controlled
from tests.support.sizes import size

pytestmark = pytest.mark.xdist_group("blindness")  # they mostly wait: one worker is enough
Tree = dict[str, Any]


def _status(code: int) -> web.Response:
    return web.json_response({"code": code, "reason": "R", "message": "no"}, status=code)


TROUBLES = ("403", "404", "500", "html", "cut", "nothing")
PLURALS = ("pods", "nodes", "poddisruptionbudgets", "csinodes")
PAIRS = [
    (plural, trouble)
    for plural in PLURALS
    for trouble in TROUBLES
    if plural == "pods" or trouble == "500" or size(test=0, ci=1, long=1)
]
"""Five seconds each: `make test` tries every trouble with one kind, and every kind with one trouble."""


@pytest.mark.parametrize(("plural", "trouble"), PAIRS)
def test_a_kind_that_is_no_longer_heard_of(plural: str, trouble: str) -> None:
    """After the limit Dovetail makes no decision, is not ready and names the kind; when it is back, work continues."""
    spoiled = False

    def answer(request: web.Request, number: int) -> Any:
        if not spoiled or not request.path.endswith(f"/{plural}"):
            return calm(request, number)
        if trouble == "html":
            return web.Response(text="<html>")
        if trouble == "nothing":
            return web.Response()
        if trouble == "cut":
            return web.Response(text='{"metadata": {"resourc')
        return _status(int(trouble))

    async def context() -> None:
        nonlocal spoiled
        async with controlled(answer) as scene:
            controller = scene.controller
            await until(lambda: controller.engine.acts and controller.is_ready)
            spoiled = True
            await until(lambda: not controller.engine.is_synced)
            why = controller.why_unready()
            assert plural.rstrip("s") in why.lower()
            assert scene.metric("dovetail_synced") == 0
            assert "blind" in scene.log.getvalue()
            spoiled = False
            await until(lambda: controller.engine.acts and controller.is_ready)
            assert not scene.task.done()

    asyncio.run(context())


def test_a_process_that_slept_hears_of_it_before_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long sleep, the engine first learns that its view is stale."""

    async def context() -> None:
        async with controlled(calm) as scene:
            await until(lambda: scene.controller.engine.acts)
            now = clocks.steady()
            monkeypatch.setattr(clocks, "steady", lambda: now + 600)
            [first] = scene.controller._with_view_change([])
            assert type(first).__name__ == "ViewGrewOld"
            monkeypatch.undo()

    asyncio.run(context())


def test_an_optional_kind_that_was_never_there_blinds_nobody() -> None:
    """An optional kind that was denied from the start is not required."""

    def answer(request: web.Request, number: int) -> Any:
        return _status(403) if request.path.endswith("/csinodes") else calm(request, number)

    async def context() -> None:
        async with controlled(answer) as scene:
            await until(lambda: scene.controller.engine.acts)
            await asyncio.sleep(5)  # longer than the limit
            assert scene.controller.is_ready
            assert scene.metric("dovetail_view_age_seconds", kind="CSINode") == 0

    asyncio.run(context())


def test_a_watch_that_says_nothing_at_all_is_given_up() -> None:
    """A silent watch is an error of its own, not "nothing has changed"; the reconnection is reported."""
    opened: list[int] = []

    async def silence(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(1)
        return response

    async def context() -> None:
        async with talking_to(lambda request, number: {}) as (server, client):
            server.handle = silence  # type: ignore[method-assign]
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", silence)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            client.connection.server = f"http://127.0.0.1:{runner.addresses[0][1]}"
            with pytest.raises(QuietError):
                async for _ in client.watch_lines(
                    "/api/v1/pods", "1", opened=lambda: opened.append(1), quiet_seconds=0.2
                ):
                    pass
            await runner.cleanup()
        assert opened == [1]

    asyncio.run(context())


def test_a_quiet_cluster_is_no_blind_one() -> None:
    """Without changes or bookmarks watches are reopened as a sign of life, and nothing is listed again."""

    async def hold(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(60)
        return response

    async def context() -> None:
        async with controlled(calm) as scene:
            real = scene.server.handle

            async def handle(request: web.Request) -> web.StreamResponse:
                return await (hold(request) if "watch" in request.query else real(request))

            scene.server.handle = handle  # type: ignore[method-assign]
            await until(lambda: scene.controller.engine.acts)
            lists = [each.lists for each in scene.controller._informers]
            watches = [each.watches for each in scene.controller._informers]
            await asyncio.sleep(8)  # twice the limit: without renewal the view would stay stale
            await until(lambda: scene.controller.is_ready)
            assert [each.lists for each in scene.controller._informers] == lists
            assert all(each.watches > before for each, before in zip(scene.controller._informers, watches, strict=True))

    asyncio.run(context())


# ---------------------------------------------------------------- the final check


def _pod(name: str = "p", *, owner: str = "", phase: str = "Running", **annotations: str) -> Tree:
    meta: Tree = {
        "name": name,
        "namespace": "d",
        "annotations": {k.replace("_", "-"): v for k, v in annotations.items()},
    }
    if owner:
        version = "v1" if owner == "Node" else "apps/v1"
        meta["ownerReferences"] = [{"kind": owner, "apiVersion": version, "name": "o", "uid": "u"}]
    return {"metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": phase}}


def _protected(value: str = "true", **rest: str) -> Tree:
    tree = _pod(**rest)
    tree["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": value}
    return tree


def _odd() -> Tree:
    tree = _pod()
    tree["spec"]["priority"] = "high"
    return tree


def _amount() -> Tree:
    tree = _pod()
    tree["spec"]["containers"] = [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]
    return tree


EMPTY = {"only_empty": True}
MOVED: Tree = {}
LIFTED = {"spares_protected": False}


@pytest.mark.parametrize(
    ("pods", "order", "refused"),
    [
        ([], EMPTY, False),
        ([], MOVED, False),
        ([_pod(owner="DaemonSet")], EMPTY, False),
        ([_pod(owner="Node")], EMPTY, False),
        ([_pod(phase="Succeeded")], EMPTY, False),
        ([_pod()], EMPTY, True),
        ([_pod(owner="ReplicaSet")], EMPTY, True),
        ([_pod()], MOVED, False),
        ([_protected()], EMPTY, True),
        ([_protected()], MOVED, True),
        ([_protected()], LIFTED, False),
        ([_protected("24h")], MOVED, True),
        ([_protected("nonsense")], MOVED, False),
        ([_protected(owner="DaemonSet")], EMPTY, True),
        ([_protected(phase="Succeeded")], MOVED, False),
        ([_pod(), _protected()], MOVED, True),
        ([_odd()], MOVED, True),
        ([_amount()], MOVED, True),
        ([{"metadata": {"namespace": "d"}, "spec": 5}], MOVED, True),
    ],
)
def test_the_pods_have_the_last_word(pods: list[Tree], order: Tree, refused: bool) -> None:
    """A pod on the server that is protected, or on a node that was empty, keeps the node."""

    def answer(request: web.Request, number: int) -> Any:
        assert request.path == "/api/v1/pods"
        assert request.query["fieldSelector"] == "spec.nodeName=n"
        assert "resourceVersion" not in request.query, "from the store itself, not from a cache"
        return {"metadata": {"resourceVersion": "1"}, "items": pods}

    assert _look(answer, **order) == (Failure.OCCUPIED if refused else None)


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        (_status(403), Failure.FORBIDDEN),
        (_status(404), Failure.UNREACHABLE),
        (_status(500), Failure.UNREACHABLE),
        (_status(429), Failure.UNREACHABLE),
        (web.Response(text="<html>"), Failure.UNREACHABLE),
        (web.Response(text="{}"), Failure.UNREACHABLE),
    ],
    ids=["403", "404", "500", "429", "html", "empty"],
)
def test_without_an_answer_nothing_goes(said: web.Response, failure: Failure) -> None:
    """If the pods can't be read, for any reason, the node stays."""
    body, status = said.body, said.status
    assert _look(lambda request, number: web.Response(body=body, status=status)) == failure


def test_a_replacement_that_is_undone_needs_no_look() -> None:
    """Deleting a replacement in a rollback needs no check: it has no pods, and pods may be unreadable."""
    assert _look(lambda request, number: _status(403), node="") is None


def _look(answer: Any, **changes: Any) -> Failure | None:
    def with_a_claim(request: web.Request, number: int) -> Any:
        if request.path.startswith("/apis/karpenter.sh/v1/nodeclaims"):
            return {"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}}
        return answer(request, number)

    async def context() -> Failure | None:
        async with talking_to(with_a_claim) as (server, client):
            actuator = Actuator(client=client, identity="me", seal=Seal((b"the key of these tests",)))
            order = DeleteNodeClaim(
                **{"id": "c/delete/n", "command_id": "c", "name": "n", "uid": "u", "node": "n", **changes}
            )
            told = await actuator.carry_out(order)
            deleted = [request for request in server.requests if request.method == "DELETE"]
            assert len(deleted) == isinstance(told, InstructionSucceeded)
            return told.failure if isinstance(told, InstructionFailed) else None

    return asyncio.run(context())
