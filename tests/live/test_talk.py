"""Large clusters: an event is one request and no command waits for it; writes of one kind go out together."""

import asyncio
from io import StringIO
from typing import Any

from aiohttp import web

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import (
    DeleteNodeClaim,
    Event,
    HoldNode,
    InstructionSucceeded,
    PublishEvent,
    SetDisruptionReason,
)
from dovetail.live.actuate import Actuator, Answer
from dovetail.live.dispatch import Dispatcher
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from tests.live.fake_server import talking_to, until

SEAL = Seal((b"k" * 32,))


def _word(number: int = 0) -> PublishEvent:
    return PublishEvent(id=f"event/{number}", kind="Node", name=f"n{number}", reason="Blocked", message="pdb")


def _asked(answer: Any) -> list[str]:
    """Publish an event to a server and return the requests that it took."""

    async def context() -> list[str]:
        async with talking_to(answer) as (server, client):
            actuator = Actuator(client=client, identity="me", seal=SEAL)
            assert isinstance(await actuator.carry_out(_word()), InstructionSucceeded)
            return [request.method for request in server.requests]

    return asyncio.run(context())


def test_an_event_that_is_new_takes_one_request() -> None:
    """A new event is not looked up first: with 5,000 nodes that would be 5,000 requests."""
    assert _asked(lambda request, number: {"metadata": {"uid": "u"}}) == ["POST"]


def test_an_event_that_is_there_is_read_and_counted_again() -> None:
    """If the server reports that the event exists, it is read and its count grows by one."""

    def answer(request: web.Request, number: int) -> Any:
        if request.method == "POST":
            return web.json_response({"code": 409, "reason": "AlreadyExists", "message": "there"}, status=409)
        return {"metadata": {"name": request.path.rsplit("/", 1)[-1], "resourceVersion": "7"}, "series": {"count": 4}}

    assert _asked(answer) == ["POST", "GET", "PATCH"]


class _Slow:
    """Executes events only when allowed, and everything else at once."""

    def __init__(self) -> None:
        self.may_go = asyncio.Event()
        self.busy = 0

    def may_act(self) -> bool:
        return True

    async def carry_out(self, instruction: Any) -> Answer:
        if isinstance(instruction, PublishEvent):
            self.busy += 1
            await self.may_go.wait()
        return InstructionSucceeded(id=instruction.id)


def _dispatcher(actuator: Any, answered: list[str]) -> Dispatcher:
    """Return a dispatcher that notes the ids of what was answered."""

    async def answer(event: Event) -> None:
        assert isinstance(event, InstructionSucceeded)
        answered.append(event.id)

    def spawn(work: Any, name: str) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(work, name=name)

    return Dispatcher(actuator=actuator, log=Log("error", StringIO()), metrics=Metrics(), spawn=spawn, answer=answer)


def test_no_command_waits_behind_events() -> None:
    """A hold is sent while a thousand events wait for a slow server."""

    async def context() -> None:
        answered: list[str] = []
        actuator = _Slow()
        dispatcher = _dispatcher(actuator, answered)
        for number in range(1000):
            dispatcher.take(_word(number))
        await until(lambda: actuator.busy)
        dispatcher.take(HoldNode(id="hold/n1", node="n1"))
        await until(lambda: answered)
        assert answered == ["hold/n1"]
        assert actuator.busy < 16
        actuator.may_go.set()
        await until(lambda: len(answered) == 1001)

    asyncio.run(context())


class _Together:
    """Answers a deletion only when another one is executed too; counts what is executed at the same time."""

    def __init__(self) -> None:
        self.busy: list[str] = []
        self.most = 0
        self.seen_together: list[tuple[str, ...]] = []
        self.two = asyncio.Event()

    def may_act(self) -> bool:
        return True

    async def carry_out(self, instruction: Any) -> Answer:
        self.busy.append(type(instruction).__name__)
        self.most = max(self.most, len(self.busy))
        self.seen_together.append(tuple(dict.fromkeys(self.busy)))
        if len(self.busy) > 1:
            self.two.set()
        if isinstance(instruction, DeleteNodeClaim):
            await self.two.wait()
        await asyncio.sleep(0)
        self.busy.remove(type(instruction).__name__)
        return InstructionSucceeded(id=instruction.id)


def test_writes_of_one_kind_of_a_command_go_out_together() -> None:
    """A hundred deletions of a command are in flight at once, as slots allow; the reasons follow after all of them."""

    async def context() -> None:
        answered: list[str] = []
        actuator = _Together()
        dispatcher = _dispatcher(actuator, answered)
        names = [f"c{number}" for number in range(100)]
        for name in names:
            dispatcher.take(DeleteNodeClaim(id=f"x/delete/{name}", command_id="x", name=name, uid="u"))
        for name in names:
            dispatcher.take(
                SetDisruptionReason(id=f"x/reason/{name}", command_id="x", name=name, uid="u", reason="Empty")
            )
        await until(lambda: len(answered) == 200)
        assert actuator.most == 16
        assert [ident.split("/")[1] for ident in answered] == ["delete"] * 100 + ["reason"] * 100
        assert set(actuator.seen_together) == {("DeleteNodeClaim",), ("SetDisruptionReason",)}

    asyncio.run(context())


def test_the_same_instruction_twice_is_not_executed_at_the_same_time() -> None:
    """An instruction that is requested again waits for the first request of it."""

    async def context() -> None:
        answered: list[str] = []
        actuator = _Together()
        actuator.two.set()
        dispatcher = _dispatcher(actuator, answered)
        for _ in range(3):
            dispatcher.take(DeleteNodeClaim(id="x/delete/c", command_id="x", name="c", uid="u"))
        await until(lambda: len(answered) == 3)
        assert actuator.most == 1

    asyncio.run(context())
