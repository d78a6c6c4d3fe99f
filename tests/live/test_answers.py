"""What an error of the API server means for a command: retry or not."""

import asyncio
from typing import Any, cast

import pytest

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import Failure, HoldNode, InstructionFailed
from dovetail.live.actuate import Actuator
from dovetail.live.kubernetes.client import ApiClient, ApiError


class _Refusing:
    """A server with one answer to everything."""

    def __init__(self, status: int) -> None:
        self.status = status

    async def request(self, *_given: Any, **_named: Any) -> bytes:
        raise ApiError(self.status, "", "no")


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (400, Failure.REFUSED),
        (401, Failure.UNREACHABLE),
        (403, Failure.FORBIDDEN),
        (409, Failure.CONFLICT),
        (422, Failure.REFUSED),
        (429, Failure.THROTTLED),
        (500, Failure.UNREACHABLE),
        (503, Failure.UNREACHABLE),
    ],
)
def test_what_a_status_means(status: int, failure: Failure) -> None:
    """A failing server or an expired token is retried; an invalid request is not."""
    actuator = Actuator(
        client=cast("ApiClient", _Refusing(status)), identity="tests", seal=Seal((b"sixteen bytes or more",))
    )
    answer = asyncio.run(actuator.carry_out(HoldNode(id="1", node="n")))
    assert isinstance(answer, InstructionFailed)
    assert answer.failure is failure
