"""Events in large clusters: one request each, and no command waits for them."""

import asyncio
from io import StringIO
from typing import Any

from aiohttp import web

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import Event, HoldNode, InstructionSucceeded, PublishEvent
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
        return {"metadata": {"resourceVersion": "7"}, "series": {"count": 4}}

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


def test_no_command_waits_behind_events() -> None:
    """A hold is sent while a thousand events wait for a slow server."""

    async def context() -> None:
        answered: list[str] = []
        actuator = _Slow()

        async def answer(event: Event) -> None:
            assert isinstance(event, InstructionSucceeded)
            answered.append(event.id)

        def spawn(work: Any, name: str) -> "asyncio.Task[None]":
            return asyncio.get_running_loop().create_task(work, name=name)

        dispatcher = Dispatcher(
            actuator=actuator,  # type: ignore[arg-type]
            log=Log("error", StringIO()),
            metrics=Metrics(),
            spawn=spawn,
            answer=answer,
        )
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
