"""The descheduler's evictions, by the events that it publishes: on the pod, an eviction leaves no name.

Listing events needs a right that the chart gives only if asked (`rights.neighbours`); without it the descheduler is not
noticed. The server filters, so a list holds nothing but the descheduler's own. What was published before the first list
is old. Decides nothing: the engine does (`lifecycle.memory.neighbours`). Sits in live.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from dovetail.lifecycle.messages import EvictionSeen
from dovetail.live.kubernetes.client import ApiClient, ApiError
from dovetail.live.kubernetes.credentials import UnreachableError

if TYPE_CHECKING:
    from dovetail.live.run import Controller

EVERY_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 2.0
"""How soon a process looks again whether it leads."""
_DENIED_SECONDS: Final = 600.0
_PATH: Final = "/apis/events.k8s.io/v1/events"
_PUBLISHER: Final = "sigs.k8s.io.descheduler"
_EVICTED: Final = {"fieldSelector": f"reportingController={_PUBLISHER},type=Normal"}
_NODE: Final = re.compile(r"^pod eviction from (\S+) node by ")


class _Series(msgspec.Struct):
    count: int = 0


class _Meta(msgspec.Struct):
    uid: str = ""


class _Event(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    reason: str = ""
    note: str = ""
    series: _Series | None = None


class SeenEvents:
    """Which of the descheduler's events are new."""

    def __init__(self) -> None:
        self._known: dict[str, int] | None = None

    def new(self, items: Iterable[msgspec.Raw]) -> list[EvictionSeen]:
        """Return the evictions that a list of events has and the one before did not have, one of each kind."""
        listed: dict[str, int] = {}
        found: dict[EvictionSeen, None] = {}
        for raw in items:
            try:
                event = msgspec.json.decode(raw, type=_Event)
            except (msgspec.DecodeError, UnicodeError):
                continue
            count = 1 if event.series is None else event.series.count
            listed[event.metadata.uid] = count
            node = _NODE.match(event.note)
            if self._known is not None and node is not None and count > self._known.get(event.metadata.uid, 0):
                found[EvictionSeen(node=node[1], by="descheduler", strategy=event.reason)] = None
        self._known = listed
        return list(found)


async def look(client: ApiClient, evictions: SeenEvents) -> list[EvictionSeen]:
    """Return the evictions since the last look."""
    return evictions.new((await client.list_all(_PATH, _EVICTED)).items)


def watch_evictors() -> "Callable[[Controller], Awaitable[None]]":
    """Return the background task; only the leader looks."""

    async def evictors(controller: "Controller") -> None:
        evictions = SeenEvents()
        while True:
            wait = _IDLE_SECONDS
            if controller.may_act and controller.engine.managed_pools():
                wait = EVERY_SECONDS
                try:
                    for seen in await look(controller.client, evictions):
                        await controller.put(seen)
                except ApiError as error:
                    wait = _DENIED_SECONDS if error.status in (401, 403, 404) else wait
                except UnreachableError:
                    pass
            await asyncio.sleep(wait)

    return evictors
