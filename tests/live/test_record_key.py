"""The key of the records: created once, shared by all replicas, never guessed and never shown."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from dovetail.lifecycle.commands.seal import Seal
from dovetail.live.kubernetes.client import ApiClient, ApiError
from dovetail.live.kubernetes.credentials import UnreachableError, connect
from dovetail.live.record_key import SECRET_NAME, KeyRefusedError, load_seal
from tests.live.fake_server import talking_to
from tests.support.control_plane import ControlPlane

OLD, NEW = b"the previous key of all", b"the key from now on ...."
Answer = Callable[[web.Request, int], Any]


def _load(answer: Answer) -> tuple[Seal, list[str]]:
    async def work() -> tuple[Seal, list[str]]:
        async with talking_to(answer) as (server, client):
            seal = await load_seal(client, "ns")
            return seal, [request.method for request in server.requests]

    return asyncio.run(work())


def _secret(**data: bytes) -> dict[str, Any]:
    encoded = {key: b64encode(value).decode() for key, value in data.items()}
    return {"kind": "Secret", "metadata": {"resourceVersion": "7"}, "data": encoded}


def _no(status: int) -> web.Response:
    return web.Response(status=status, text=json.dumps({"message": "no", "reason": "No"}))


def test_a_key_that_is_there_is_used() -> None:
    """The first key seals, the previous one still opens; nothing is written."""
    assert _load(lambda request, number: _secret(key=NEW, previous=OLD)) == (Seal((NEW, OLD)), ["GET"])


def test_a_race_of_two_replicas_ends_with_one_key() -> None:
    """The second replica reads the key that the first created."""

    def answer(request: web.Request, number: int) -> Any:
        return {1: _no(404), 2: _no(409)}.get(number, _secret(key=NEW))

    assert _load(answer) == (Seal((NEW,)), ["GET", "POST", "GET"])

    def filled_meanwhile(request: web.Request, number: int) -> Any:
        return {1: _secret(), 2: _no(409)}.get(number, _secret(key=NEW))

    assert _load(filled_meanwhile) == (Seal((NEW,)), ["GET", "PATCH", "GET"])


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (lambda request, number: _no(403), KeyRefusedError, "resourceNames: [dovetail-records], verbs: [get, patch]"),
        (lambda request, number: _secret(key=b"short"), KeyRefusedError, "at least 16 bytes"),
        (lambda request, number: {"data": {"key": "no base64 !"}}, KeyRefusedError, "at least 16 bytes"),
        (lambda request, number: {"data": {"key": None}}, KeyRefusedError, "at least 16 bytes"),
        (lambda request, number: _no(409), KeyRefusedError, "keeps changing"),
        (lambda request, number: web.Response(text="<html>"), UnreachableError, "malformed"),
        (lambda request, number: web.Response(text="[1]"), UnreachableError, "malformed"),
        (lambda request, number: _no(422), ApiError, "422"),
    ],
    ids=["forbidden", "short", "no-base64", "null", "conflicts", "html", "array", "refused"],
)
def test_no_key_no_seal(answer: Answer, error: type[Exception], says: str) -> None:
    """Without a key there is one sentence that says what to do and does not contain the key."""
    with pytest.raises(error) as raised:
        _load(answer)
    assert says in str(raised.value)
    assert "short" not in str(raised.value).replace("at least", "")


def test_on_a_real_server(api_server: ControlPlane) -> None:
    """The key is created if missing, filled in if the chart left it empty, and the same for the next replica."""

    async def load() -> Seal:
        async with ApiClient(connect(str(api_server.kubeconfig))) as client:
            return await load_seal(client, "default")

    path = f"/api/v1/namespaces/default/secrets/{SECRET_NAME}"
    with api_server.client() as api:
        api.request("DELETE", path)
        made = asyncio.run(load())
        assert asyncio.run(load()) == made
        empty = {"data": None}
        assert api.request("PATCH", path, empty, kind="application/merge-patch+json")[0] == 200
        filled = asyncio.run(load())
        assert filled != made
        assert asyncio.run(load()) == filled
        api.request("DELETE", path)


def test_a_key_is_filled_in_only_into_the_secret_that_was_read() -> None:
    """The patch names the version that was read: of two replicas that fill in a key, one gets a conflict."""
    stored: dict[str, Any] = _secret()
    bodies: list[dict[str, Any]] = []

    async def work() -> Seal:
        async with talking_to(lambda request, number: stored) as (server, client):

            async def handle(request: web.Request) -> web.StreamResponse:
                if request.method != "PATCH":
                    return web.json_response(stored)
                body = json.loads(await request.read())
                bodies.append(body)
                if len(bodies) == 1:  # another replica was faster
                    stored["metadata"]["resourceVersion"] = "8"
                    stored["data"] = {"key": b64encode(OLD).decode()}
                given = body.get("metadata", {}).get("resourceVersion", "8")
                return _no(409) if given != stored["metadata"]["resourceVersion"] else web.json_response(stored)

            server.handle = handle  # type: ignore[method-assign]
            return await load_seal(client, "ns")

    assert asyncio.run(work()) == Seal((OLD,))
    assert [body["metadata"]["resourceVersion"] for body in bodies] == ["7"]
