"""The descheduler is noticed by the events that it publishes."""

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dovetail.lifecycle.messages import EvictionSeen
from dovetail.live.kubernetes.client import ApiError
from dovetail.live.kubernetes.evictors import SeenEvents, look
from tests.live.fake_server import talking_to


def _event(uid: str, node: str = "n1", reason: str = "HighNodeUtilization", count: int = 0) -> dict[str, Any]:
    """Build an event as the descheduler v0.36.0 publishes it."""
    series = {"series": {"count": count, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}} if count else {}
    return {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "action": "Descheduled",
        "reason": reason,
        "note": f"pod eviction from {node} node by sigs.k8s.io/descheduler",
        "reportingController": "sigs.k8s.io.descheduler",
        "type": "Normal",
        **series,
    }


def _raw(*items: object) -> list[msgspec.Raw]:
    return [msgspec.Raw(msgspec.json.encode(item)) for item in items]


def _seen(node: str = "n1", strategy: str = "HighNodeUtilization") -> EvictionSeen:
    return EvictionSeen(node=node, by="descheduler", strategy=strategy)


def test_only_what_is_new_counts() -> None:
    """Events of before the first list are old; later ones count once, and again if they repeat."""
    evictions = SeenEvents()
    assert evictions.new(_raw(_event("a"))) == []
    assert evictions.new(_raw(_event("a"))) == []
    assert evictions.new(_raw(_event("a"), _event("b", "n2"))) == [_seen("n2")]
    assert evictions.new(_raw(_event("a", count=2), _event("b", "n2"))) == [_seen()]
    assert evictions.new(_raw(_event("a", count=2), _event("b", "n2"))) == []
    many = _raw(*(_event(f"c{number}") for number in range(50)), _event("d", reason="RemoveDuplicates"))
    assert evictions.new(many) == [_seen(), _seen(strategy="RemoveDuplicates")], "one of each kind"


@pytest.mark.parametrize("odd", [{}, [], {"metadata": 1}, {"note": "pod eviction from"}, {"series": {"count": "x"}}])
def test_what_can_not_be_read_is_passed_over(odd: object) -> None:
    """An event of another form does not hide the others."""
    evictions = SeenEvents()
    evictions.new([])
    assert evictions.new(_raw(odd, _event("a"))) == [_seen()]


def test_the_server_filters() -> None:
    """Only the descheduler's events are asked for; a refusal is the caller's."""
    answers: list[Any] = [
        {"metadata": {"resourceVersion": "1"}, "items": []},
        {"metadata": {"resourceVersion": "2"}, "items": [_event("a")]},
        web.json_response({"kind": "Status", "code": 403}, status=403),
    ]

    async def talk() -> None:
        async with talking_to(lambda _, number: answers[number - 1]) as (server, client):
            evictions = SeenEvents()
            assert await look(client, evictions) == []
            assert await look(client, evictions) == [_seen()]
            with pytest.raises(ApiError):
                await look(client, evictions)
            asked = {request.query["fieldSelector"] for request in server.requests}
            assert asked == {"reportingController=sigs.k8s.io.descheduler,type=Normal"}

    asyncio.run(talk())
