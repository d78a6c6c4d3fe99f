"""Keeps one kind in view: list, then watch, for ever; every change becomes an event for the engine.

Resumes where a watch broke off, takes bookmarks so that a quiet kind never grows too old, and lists anew when the
server says that it has (410). After a new list, what is no longer there is reported as gone. An object that can't be
decoded is skipped and counted, never fatal: one odd pod must not blind the controller. Decides nothing; holds only
names and versions.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from dovetail.api.decode import without_nulls
from dovetail.lifecycle.messages import Event, ObjectObserved, ObjectVanished
from dovetail.live.client import ApiClient, ApiError, UnreachableError
from dovetail.live.resources import Resource
from dovetail.model.objects import KINDS, AnyObject

Deliver = Callable[[Event], Awaitable[None]]
Note = Callable[[str, str], None]
_DECODERS: Final[dict[str, msgspec.json.Decoder[AnyObject]]] = {
    kind: msgspec.json.Decoder(struct) for kind, struct in KINDS.items()
}


def decode_item(raw: bytes | msgspec.Raw, kind: str) -> AnyObject:
    """One object of a list or watch; items of a list don't say their kind. msgspec.DecodeError where not."""
    try:
        return _DECODERS[kind].decode(raw)
    except msgspec.ValidationError:
        return cast("AnyObject", msgspec.convert(without_nulls(msgspec.json.decode(raw)), KINDS[kind]))


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: dict[str, object] = {}


class _Gone(msgspec.Struct):
    code: int = 0
    message: str = ""


class TooOldError(Exception):
    """The server no longer has the version that we would resume from."""


@dataclass(slots=True, kw_only=True)
class Informer:
    """One kind, kept in view. `synced` is set once everything has been delivered for the first time."""

    client: ApiClient
    resource: Resource
    deliver: Deliver
    note: Note
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    lists: int = 0
    skipped: int = 0
    denied: bool = False
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    _version: str = ""

    async def run(self) -> None:
        """Lists and watches until cancelled. A forbidden optional kind is noted once and then tried rarely."""
        attempt = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                attempt = 0
            except TooOldError:
                self._version = ""
            except ApiError as error:
                if error.status == 410:
                    self._version = ""
                    continue
                if error.status in (401, 403, 404):
                    if self._deny(error):
                        await asyncio.sleep(300)
                        continue
                else:
                    self.note(self.resource.kind, f"the watch was refused ({error}); trying again")
                attempt += 1
                await asyncio.sleep(self.client.backoff(attempt))
            except UnreachableError as error:
                self.note(self.resource.kind, f"the watch broke ({error}); trying again")
                attempt += 1
                await asyncio.sleep(self.client.backoff(attempt))

    def _deny(self, error: ApiError) -> bool:
        """Whether to go on without this kind; an essential one is tried again until it is allowed."""
        if not self.denied:
            self.denied = True
            loss = f"; without it {self.resource.without}" if self.resource.without else ""
            self.note(self.resource.kind, f"not allowed: add {self.resource.rule('get, list, watch')}{loss} ({error})")
        if self.resource.essential:
            return False
        self.synced.set()
        return True

    async def _list(self) -> None:
        listing = await self.client.list_all(self.resource.path())
        self.lists += 1
        before, self.known = self.known, {}
        for raw in listing.items:
            item = self._decode(raw)
            if item is None:
                continue
            key = (item.metadata.namespace, item.metadata.name)
            self.known[key] = item.metadata.resource_version
            if before.get(key) != item.metadata.resource_version:
                await self.deliver(ObjectObserved(object=item))
        for namespace, name in sorted(before.keys() - self.known.keys()):
            await self.deliver(ObjectVanished(kind=self.resource.kind, namespace=namespace, name=name))
        self._version = listing.resource_version
        self.denied = False
        self.synced.set()

    async def _watch(self) -> None:
        async for line in self.client.watch_lines(self.resource.path(), self._version):
            event = msgspec.json.decode(line, type=_WatchEvent)
            if event.type == "BOOKMARK":
                mark = msgspec.json.decode(event.object, type=_Bookmark)
                self._version = str(mark.metadata.get("resourceVersion", self._version))
            elif event.type == "ERROR":
                status = msgspec.json.decode(event.object, type=_Gone)
                if status.code == 410:
                    raise TooOldError(status.message)
                raise ApiError(status.code, "", status.message)
            else:
                await self._take(event)

    async def _take(self, event: _WatchEvent) -> None:
        item = self._decode(event.object)
        if item is None:
            return
        key = (item.metadata.namespace, item.metadata.name)
        self._version = item.metadata.resource_version
        if event.type == "DELETED":
            self.known.pop(key, None)
            uid = item.metadata.uid
            await self.deliver(ObjectVanished(kind=self.resource.kind, namespace=key[0], name=key[1], uid=uid))
        else:
            self.known[key] = item.metadata.resource_version
            await self.deliver(ObjectObserved(object=item))

    def _decode(self, raw: msgspec.Raw) -> AnyObject | None:
        try:
            return decode_item(raw, self.resource.kind)
        except msgspec.DecodeError as error:
            self.skipped += 1
            self.note(self.resource.kind, f"an object can't be read and is left out: {error}")
            return None
