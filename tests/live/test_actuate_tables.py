"""The actuator of a real cluster, answer by answer: what it retries, how often, and what it sends."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.effects.objects import CONFLICT_TRIES
from dovetail.lifecycle.messages import (
    CreateNodeClaim,
    DeleteNodeClaim,
    EvictPod,
    Failure,
    HoldNode,
    Instruction,
    InstructionFailed,
    InstructionSucceeded,
    PublishEvent,
    TaintNode,
)
from dovetail.live.actuate import Actuator, Answer
from dovetail.live.kubernetes.client import ApiClient, ApiError, MalformedError
from dovetail.model.command import Replacement

Tree = dict[str, Any]
NODE = {"metadata": {"name": "n", "resourceVersion": "7"}}
CLAIM = {"metadata": {"name": "c", "uid": "u", "resourceVersion": "7"}}
POOL = {"metadata": {"name": "p", "resourceVersion": "7"}}
POD = {"metadata": {"name": "x", "uid": "u", "resourceVersion": "7"}}
EVENT = {"metadata": {"name": "n.c84e8d6e6629ebc0", "resourceVersion": "7"}}
HOLD = HoldNode(id="1", node="n")


class Server:
    """Returns the given answers in order and then repeats the last; records the requests."""

    def __init__(self, *answers: Tree | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, Any, Any]] = []
        self.waits: list[int] = []

    async def request(self, method: str, path: str, *, body: bytes | None = None, **more: Any) -> bytes:
        """Return the next answer."""
        self.asked.append((method, path, None if body is None else msgspec.json.decode(body), more.get("params")))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return msgspec.json.encode(answer)

    def malformed(self, path: str, why: str) -> MalformedError:
        """Return what to raise for an answer that can't be used."""
        return MalformedError(f"{path}: {why}")

    def backoff(self, attempt: int, most: float) -> float:
        """Return no pause, and record that one was requested."""
        self.waits.append(attempt)
        return 0.0


def error(status: int) -> ApiError:
    """Return a refusal."""
    return ApiError(status, "", "no")


def carried_out(asked: Instruction, server: Server, **more: Any) -> tuple[Answer, Actuator]:
    """Return the outcome of an instruction."""
    actuator = Actuator(
        client=cast("ApiClient", server), identity="tests", seal=Seal((b"sixteen bytes or more",)), **more
    )
    return asyncio.run(actuator.carry_out(asked)), actuator  # type: ignore[arg-type]


def failure_of(answer: Answer) -> Failure | None:
    """Return the failure of an instruction."""
    return answer.failure if isinstance(answer, InstructionFailed) else None


@pytest.mark.parametrize(
    ("status", "failure"),
    [(401, Failure.UNREACHABLE), (402, Failure.REFUSED), (499, Failure.REFUSED), (500, Failure.UNREACHABLE),
     (501, Failure.UNREACHABLE), (405, Failure.REFUSED), (410, Failure.REFUSED)],
)  # fmt: skip
def test_what_a_status_means(status: int, failure: Failure) -> None:
    """A failing server and an expired token are retried."""
    answer, _ = carried_out(HOLD, Server(error(status)))
    assert failure_of(answer) is failure


@pytest.mark.parametrize(
    "answer",
    [{}, {"metadata": {}}, {"metadata": {"name": "other", "uid": "u", "resourceVersion": "7"}},
     {"metadata": {"name": "c", "uid": "u"}}, {"metadata": {"name": "n"}},
     {"type": "ERROR", "object": {"code": None}}],
)  # fmt: skip
@pytest.mark.parametrize(
    "asked",
    [
        HOLD,
        TaintNode(id="1", command_id="c", node="n", record="{}"),
        DeleteNodeClaim(id="1", command_id="c", name="c", uid="u"),
    ],
)
def test_an_answer_that_is_not_the_object_decides_nothing(asked: Instruction, answer: Tree) -> None:
    """`{}` with status 200 does not mean that a NodeClaim is another one by now, or that a node has no taints."""
    given, actuator = carried_out(asked, Server(answer))
    assert failure_of(given) is Failure.UNREACHABLE
    assert actuator.writes == 0


def test_an_object_that_is_not_there() -> None:
    """A missing object is reported after the read; nothing is written."""
    server = Server(error(404))
    answer, actuator = carried_out(HOLD, server)
    assert isinstance(answer, InstructionSucceeded)
    assert ([method for method, *_ in server.asked], actuator.writes) == (["GET"], 0)


@pytest.mark.parametrize("status", [409, 404])
def test_an_object_that_has_changed_is_read_again(status: int) -> None:
    """A conflict is retried a few times; then the outcome is the server's answer."""
    server = Server(NODE, error(status), NODE, {})
    answer, actuator = carried_out(HOLD, server)
    assert isinstance(answer, InstructionSucceeded)
    assert [method for method, *_ in server.asked] == ["GET", "PATCH", "GET", "PATCH"]
    assert (actuator.writes, server.waits) == (2, [1])
    stubborn = Server(*[item for _ in range(20) for item in (NODE, error(status))])
    answer, actuator = carried_out(HOLD, stubborn)
    assert failure_of(answer) is (Failure.CONFLICT if status == 409 else Failure.NOT_FOUND)
    assert actuator.writes == CONFLICT_TRIES
    assert stubborn.waits == list(range(1, CONFLICT_TRIES))


def test_what_reading_again_does_not_change_is_answered_at_once() -> None:
    """A refusal, and a creation in a missing collection, are not retried."""
    server = Server(NODE, error(422), NODE, {})
    answer, actuator = carried_out(HOLD, server)
    assert (failure_of(answer), actuator.writes) == (Failure.REFUSED, 1)
    assert [method for method, *_ in server.asked] == ["GET", "PATCH"]
    create = CreateNodeClaim(
        id="1", command_id="c", name="r", record="", replacement=Replacement(node_pool="p", instance_types=("m",))
    )
    server = Server(error(404), POOL, error(404))
    answer, actuator = carried_out(create, server)
    assert (failure_of(answer), actuator.writes) == (Failure.NOT_FOUND, 1)
    server = Server(error(404), POOL, {"metadata": {"uid": "new"}})
    answer, _ = carried_out(create, server)
    assert answer == InstructionSucceeded(id="1", uid="new")
    method, path, _, params = server.asked[-1]
    assert (method, path.endswith("/nodeclaims"), params) == ("POST", True, {"fieldManager": "dovetail"})


def test_an_eviction_names_its_pod() -> None:
    """An eviction uses the pod's subresource."""
    server = Server(POD, {})
    answer, _ = carried_out(EvictPod(id="1", command_id="c", namespace="d", name="x", uid="u"), server)
    assert isinstance(answer, InstructionSucceeded)
    method, path, body, _ = server.asked[-1]
    assert (method, path) == ("POST", "/api/v1/namespaces/d/pods/x/eviction")
    assert body["deleteOptions"] == {"preconditions": {"uid": "u"}}


def test_a_deletion_is_bound_to_its_uid() -> None:
    """A deletion has no field manager; the outcome is the uid, also if a bound was written first."""
    for drain, methods in ((None, ["GET", "DELETE"]), (60 * 10**9, ["GET", "PATCH", "DELETE"])):
        server = Server(CLAIM, {}, {})
        answer, actuator = carried_out(
            DeleteNodeClaim(id="1", command_id="c", name="c", uid="u", drain_for=drain), server
        )
        assert answer == InstructionSucceeded(id="1", uid="u")
        assert [method for method, *_ in server.asked] == methods
        _, _, body, params = server.asked[-1]
        assert (body["preconditions"], params) == ({"uid": "u"}, None)
        assert actuator.writes == len(methods) - 1


def test_who_no_longer_leads_writes_nothing() -> None:
    """Leadership is checked before every write."""
    server = Server(NODE)
    answer, actuator = carried_out(HOLD, server, may_act=lambda: False)
    assert (failure_of(answer), actuator.writes) == (Failure.UNREACHABLE, 0)
    assert [method for method, *_ in server.asked] == ["GET"]


def test_an_event_is_read_only_where_it_is_there() -> None:
    """An event takes one request; if the name exists, it is read and counted without a pause."""
    asked = PublishEvent(id="1", kind="Node", name="n", reason="R", message="m")
    server = Server({})
    carried_out(asked, server)
    assert [method for method, *_ in server.asked] == ["POST"]
    server = Server(error(409), EVENT, {})
    answer, _ = carried_out(asked, server)
    assert isinstance(answer, InstructionSucceeded)
    assert [method for method, *_ in server.asked] == ["POST", "GET", "PATCH"]
    assert server.waits == []
    server = Server(error(409), EVENT, error(409), EVENT, {})
    carried_out(asked, server)
    assert [method for method, *_ in server.asked] == ["POST", "GET", "PATCH", "GET", "PATCH"]
    assert server.waits == [2]
    server = Server(NODE, {})
    carried_out(HOLD, server)
    assert [method for method, *_ in server.asked] == ["GET", "PATCH"]
