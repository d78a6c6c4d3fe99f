"""No write is sent once another process may lead: every attempt checks, and time while stopped counts."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import DeleteNodeClaim, Failure, InstructionFailed
from dovetail.live import clocks
from dovetail.live.actuate import Actuator
from dovetail.live.kubernetes.client import FencedError
from dovetail.live.kubernetes.credentials import TokenSource
from dovetail.live.kubernetes.lease import LeaderElection
from tests.live.fake_server import talking_to

SEAL = Seal((b"the key of these tests",))
DELETE = DeleteNodeClaim(id="c/delete/n", command_id="c", name="n", uid="u")


def _throttled(leads: list[bool], sent: list[str]) -> Callable[[web.Request, int], Any]:
    def answer(request: web.Request, number: int) -> Any:
        if request.method != "GET":
            sent.append(request.method)
            leads[0] = False  # another replica takes the Lease while this one waits
            return web.json_response({"code": 429}, status=429)
        return {"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}}

    return answer


def test_a_throttled_deletion_is_not_sent_again_by_one_that_no_longer_leads() -> None:
    """After a 429, the retry is not sent if another replica holds the Lease."""
    leads, sent = [True], list[str]()

    async def context() -> None:
        async with talking_to(_throttled(leads, sent)) as (_, client):
            actuator = Actuator(client=client, identity="me", seal=SEAL, may_act=lambda: leads[0])
            answer = await actuator.carry_out(DELETE)
            assert isinstance(answer, InstructionFailed)
            assert answer.failure is Failure.UNREACHABLE

    asyncio.run(context())
    assert sent == ["DELETE"]


@pytest.mark.parametrize("method", ["DELETE", "PATCH", "POST"])
def test_every_attempt_asks(method: str) -> None:
    """Every method is attempted as often as the fence allows, and not once more."""
    asked, sent = 0, list[str]()

    def fence() -> bool:
        nonlocal asked
        asked += 1
        return len(sent) < 2

    def answer(request: web.Request, number: int) -> Any:
        sent.append(request.method)
        return web.json_response({"code": 429}, status=429)

    async def context() -> None:
        async with talking_to(answer) as (_, client):
            with pytest.raises(FencedError):
                await client.request(method, "/x", body=b"{}", fence=fence)

    asyncio.run(context())
    assert sent == [method, method]
    assert asked >= 3


def test_the_fence_is_asked_after_the_token_was_fetched() -> None:
    """The fence is checked after the token is fetched, because a plugin may take a minute."""
    leads = True

    class Slow(TokenSource):
        async def token(self) -> str:
            nonlocal leads
            leads = False
            return "t"

    async def context() -> None:
        async with talking_to(lambda request, number: {}, Slow()) as (server, client):
            with pytest.raises(FencedError):
                await client.request("DELETE", "/x", fence=lambda: leads)
            assert server.requests == []

    asyncio.run(context())


def test_reads_are_not_fenced() -> None:
    """A replica that does not lead still reads."""

    async def context() -> None:
        async with talking_to(lambda request, number: {"ok": True}) as (_, client):
            assert await client.request("GET", "/x") == b'{"ok": true}'

    asyncio.run(context())


@pytest.mark.parametrize(
    ("steady", "wall", "acts"),
    [
        (0.0, 0.0, True),
        (19.0, 19.0, True),
        (20.0, 20.0, False),
        (25.0, 25.0, False),
        (25.0, 0.0, False),  # the wall clock was set back in the meantime
        (25.0, -3600.0, False),
        (1.0, 25.0, False),  # a frozen machine: its monotonic clock did not advance
        (1.0, -3600.0, True),  # setting the wall clock back does not end leadership
        (1.0, 3600.0, False),  # setting it forward may mean sleep: the next renewal decides
    ],
)
def test_time_spent_stopped_counts(steady: float, wall: float, acts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of a renewal is taken from the clock that advanced more."""

    async def nothing() -> None:
        return None

    async def context() -> None:
        async with talking_to(lambda request, number: {}) as (_, client):
            election = LeaderElection(
                client=client, namespace="d", name="x", identity="me", gained=nothing, lost=nothing, leading=True
            )
            election._renewed = clocks.Moment(steady=1000.0, wall=5000.0)
            monkeypatch.setattr(clocks, "steady", lambda: 1000.0 + steady)
            monkeypatch.setattr(time, "time", lambda: 5000.0 + wall)
            assert election.may_act is acts
            monkeypatch.undo()

    asyncio.run(context())


def test_the_steady_clock_goes_on_while_the_machine_sleeps() -> None:
    """The clock that includes sleep is used if the system has it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(clocks.steady() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60
