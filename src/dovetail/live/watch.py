"""Keeps one kind in view: list, then watch, for ever; every change becomes an event for the engine.

Lists page by page, resumes where a watch broke off, takes bookmarks so that a quiet kind never grows too old, and lists
anew when the server says that it has (410). After a new list, what is no longer there is reported as gone. An object
that can't be decoded is left out and counted, never fatal: one odd pod must not blind the controller. Decides nothing;
holds only names and versions.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dovetail.api.decode import decode_item
from dovetail.lifecycle.messages import Event, ObjectObserved, ObjectVanished
from dovetail.live.client import ApiClient, ApiError
from dovetail.live.credentials import UnreachableError
from dovetail.live.resources import Resource
from dovetail.model.objects import AnyObject

Deliver = Callable[[Event], Awaitable[None]]
Note = Callable[[str, str], None]
Key = tuple[str, str]
_SHORT_WATCH_SECONDS: Final = 1.0
_PAUSE_MOST_SECONDS: Final = 10.0
_DENIED_PAUSE_SECONDS: Final = 300.0
_SKIPPED_NAMED_MAX: Final = 100


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Bare(msgspec.Struct):
    """Of an object only who it is."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)


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
    listed: Callable[[str], None] = lambda kind: None
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    lists: int = 0
    watches: int = 0
    skipped: int = 0
    denied: bool = False
    known: dict[Key, str] = field(default_factory=dict)
    _version: str = ""
    _named: dict[Key, None] = field(default_factory=dict)

    async def run(self) -> None:
        """Lists and watches until cancelled. A forbidden optional kind is noted once and then tried rarely."""
        attempt = 0
        while True:
            began = time.monotonic()
            try:
                if not self._version:
                    await self._list()
                began = time.monotonic()
                await self._watch()
            except TooOldError:
                self._version = ""
            except ApiError as error:
                if error.status == 410:
                    self._version = ""
                elif await self._is_denied(error):
                    continue
            except UnreachableError as error:
                self.note(self.resource.kind, f"the watch broke ({error}); trying again")
            # A watch that stood for a while starts the count anew; one that ends at once must not become a busy loop.
            attempt = 0 if time.monotonic() - began > _SHORT_WATCH_SECONDS else attempt + 1
            if attempt:
                await asyncio.sleep(self.client.backoff(attempt, _PAUSE_MOST_SECONDS))

    async def _is_denied(self, error: ApiError) -> bool:
        """Notes a refusal. True after a long pause where the kind is optional and we were never allowed to see it.

        One that was seen before is asked for again soon: a server that has just started refuses what it will allow in a
        moment, when it has read its roles and its CRDs.
        """
        if error.status not in (403, 404):
            self.note(self.resource.kind, f"the watch was refused ({error}); trying again")
            return False
        if not self.denied:
            self.denied = True
            if not self.resource.quiet:
                self.note(self.resource.kind, denial(self.resource, error))
        if self.resource.essential or self.lists:
            return False
        self.synced.set()
        await asyncio.sleep(_DENIED_PAUSE_SECONDS)
        return True

    async def _list(self) -> None:
        seen: dict[Key, str] = {}
        version = ""
        async for page in self.client.pages(self.resource.path()):
            for raw in page.items:
                await self._listed_item(raw, seen)
            version = page.resource_version
        gone = sorted(self.known.keys() - seen.keys())
        self.known = seen
        self.lists += 1
        self.listed(self.resource.kind)
        for namespace, name in gone:
            await self.deliver(ObjectVanished(kind=self.resource.kind, namespace=namespace, name=name))
        self._version = version
        self.denied = False
        self.synced.set()

    async def _listed_item(self, raw: msgspec.Raw, seen: dict[Key, str]) -> None:
        item = self._decode(raw)
        if item is None:
            key = self._key_of(raw)
            if key in self.known:
                seen[key] = self.known[key]  # it is still there; what was known of it last has to do
            return
        key, version = (item.metadata.namespace, item.metadata.name), item.metadata.resource_version
        seen[key] = version
        if self.known.get(key) != version:
            await self.deliver(ObjectObserved(object=item))

    async def _watch(self) -> None:
        self.watches += 1
        async for line in self.client.watch_lines(self.resource.path(), self._version):
            event = msgspec.json.decode(line, type=_WatchEvent)
            if event.type == "BOOKMARK":
                mark = msgspec.json.decode(event.object, type=_Bare)
                self._version = mark.metadata.resource_version or self._version
            elif event.type == "ERROR":
                status = msgspec.json.decode(event.object, type=_Gone)
                self._version = ""  # whatever it was: a new list is the way out
                if status.code == 410:
                    raise TooOldError(status.message)
                raise ApiError(status.code, "", status.message)
            else:
                await self._take(event)

    async def _take(self, event: _WatchEvent) -> None:
        item = None if event.type == "DELETED" else self._decode(event.object)
        if item is not None:
            key = (item.metadata.namespace, item.metadata.name)
            self._version = self.known[key] = item.metadata.resource_version
            await self.deliver(ObjectObserved(object=item))
            return
        try:
            meta = msgspec.json.decode(event.object, type=_Bare).metadata
        except msgspec.DecodeError:
            return
        self._version = meta.resource_version or self._version
        if event.type == "DELETED":
            key = (meta.namespace, meta.name)
            self.known.pop(key, None)
            self._named.pop(key, None)
            gone = ObjectVanished(kind=self.resource.kind, namespace=key[0], name=key[1], uid=meta.uid)
            await self.deliver(gone)

    def _decode(self, raw: msgspec.Raw) -> AnyObject | None:
        try:
            return decode_item(raw, self.resource.kind)
        except msgspec.DecodeError as error:
            self.skipped += 1
            key = self._key_of(raw)
            if key not in self._named and len(self._named) < _SKIPPED_NAMED_MAX:
                self._named[key] = None
                name = "/".join(part for part in key if part)
                self.note(self.resource.kind, f"{self.resource.kind} {name} can't be read and is left out: {error}")
            return None

    def _key_of(self, raw: msgspec.Raw) -> Key:
        try:
            meta = msgspec.json.decode(raw, type=_Bare).metadata
        except msgspec.DecodeError:
            return ("", "")
        return (meta.namespace, meta.name)


def denial(resource: Resource, error: ApiError) -> str:
    """What to do about a kind that the server does not let us see, and what is lost meanwhile."""
    loss = f"; without it {resource.without}" if resource.without else ""
    if error.status == 404:
        name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        install = ": install Karpenter's CRDs, or `dovetail crds`" if resource.group == "karpenter.sh" else ""
        return f"the cluster has no {name} in {resource.version}{install}{loss}"
    return f"not allowed to watch {resource.plural}: add {resource.rule('get, list, watch')} to our role{loss}"
