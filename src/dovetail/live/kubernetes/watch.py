"""Follows one kind: list, then watch, for ever; every change becomes an event for the engine.

Lists page by page, resumes a watch that broke or went quiet, uses bookmarks so that the version of a quiet kind never
expires, and lists again if it has (410) or if a response can't be read. After a new list, missing objects are reported
as gone. An object that can't be decoded is skipped and counted, never fatal: one odd object must not stop the
controller. A pod that can't be decoded still counts as a pod that must not be disrupted. Knows how old its view is.
Decides nothing; holds only names and versions.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

import msgspec

from dovetail.api.reading.admitted import Shared, admit
from dovetail.api.reading.conservative import unreadable_pod
from dovetail.lifecycle.messages import Event, ObjectObserved, ObjectVanished
from dovetail.live import clocks
from dovetail.live.kubernetes.client import QUIET_SECONDS, UNREADABLE, ApiClient, ApiError, MalformedError, QuietError
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.resources import Resource
from dovetail.model.objects import AnyObject

Deliver = Callable[[Event], Awaitable[None]]
Note = Callable[[str, str], None]
Key = tuple[str, str]
_SHORT_WATCH_SECONDS: Final = 1.0
_LONG_WATCH_SECONDS: Final = 30.0
_PAUSE_MOST_SECONDS: Final = 10.0
_CHANGES: Final = ("ADDED", "MODIFIED", "DELETED")
_DENIED_PAUSE_SECONDS: Final = 300.0
SURE_SECONDS: Final = 30.0  # a server that has just started refuses what it will allow once it has loaded its roles
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
    """Only the identity of an object."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Gone(msgspec.Struct):
    code: int | None = None
    message: str | None = None


class TooOldError(Exception):
    """The server no longer has the version to resume from."""


@dataclass(slots=True, kw_only=True)
class Informer:
    """Follows one kind. `synced` is set once everything has been delivered for the first time.

    `note` gets what a person should know, once each; `failed` every attempt without a usable answer; `works` is called
    when the kind is answered again.
    """

    client: ApiClient
    resource: Resource
    deliver: Deliver
    note: Note
    failed: Note = lambda kind, why: None
    works: Callable[[str], None] = lambda kind: None
    listed: Callable[[str], None] = lambda kind: None
    unread: Callable[[str], None] = lambda kind: None
    quiet_seconds: Callable[[], float] = lambda: QUIET_SECONDS
    shared: Shared = field(default_factory=Shared)
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    lists: int = 0
    watches: int = 0
    skipped: int = 0
    denied: bool = False
    known: dict[Key, str] = field(default_factory=dict)
    _version: str = ""
    _heard_at: float | None = None
    _opened_at: float | None = None
    _refused_at: float | None = None
    _watched_once: bool = False
    _standing: asyncio.TimerHandle | None = None
    _named: dict[Key, None] = field(default_factory=dict)

    @property
    def age(self) -> float:
        """Return the seconds since the last sign of life: a list, a change, a bookmark, a quiet watch.

        An accepted watch gets missed changes at once: if it was accepted and then stayed quiet, nothing had changed
        when it started. Servers send no bookmarks for a kind without changes, so a quiet watch is opened again well
        before its view counts as old.
        """
        return inf if self._heard_at is None else clocks.steady() - self._heard_at

    @property
    def is_missing(self) -> bool:
        """Return whether this kind was never seen and decisions do without it."""
        return self.denied and not self.lists and not self.resource.essential

    async def run(self) -> None:
        """List and watch until cancelled. A forbidden optional kind is noted once and then tried rarely."""
        attempt = 0
        while True:
            began, failed = time.monotonic(), True
            try:
                if not self._version:
                    await self._list()
                began = time.monotonic()
                await self._watch()
                failed = False
            except TooOldError:
                self._version, failed = "", False
            except ApiError as error:
                if error.status == 410:
                    self._version = ""
                elif await self._is_denied(error):
                    continue
            except QuietError:
                failed = False  # nothing has changed, or the connection is dead: opening the watch again shows which
            except UnreachableError as error:
                if isinstance(error, MalformedError):
                    self._version, self._opened_at = "", None  # unknown changes were missed: a new list is needed
                self.failed(self.resource.kind, f"the watch broke ({error}); trying again")
            self._count_opening()
            # A watch that lasted for a while resets the count; one that ends at once, or fails repeatedly, must not
            # become a busy loop.
            stood = time.monotonic() - began
            if failed:
                attempt = 1 if stood > _LONG_WATCH_SECONDS else attempt + 1
            else:
                attempt = 0 if stood > _SHORT_WATCH_SECONDS else attempt + 1
            if attempt:
                await asyncio.sleep(self.client.backoff(attempt, _PAUSE_MOST_SECONDS))

    async def _is_denied(self, error: ApiError) -> bool:
        """Record a refusal. True after a long pause if the kind is optional and was never readable.

        A kind that was readable before is retried soon: a server that has just started refuses requests until it has
        loaded its roles and CRDs.
        """
        if error.status not in (403, 404) or not self._is_sure():
            self.failed(self.resource.kind, f"the watch was refused ({error}); trying again")
            return False
        if not self.denied:
            self.denied = True
            self.works(self.resource.kind)  # the server answers, though it refuses
            if not self.resource.is_silent_at(error.status):
                self.note(self.resource.kind, denial(self.resource, error))
        if self.resource.essential or self.lists:
            return False
        self.synced.set()
        await asyncio.sleep(_DENIED_PAUSE_SECONDS)
        return True

    def _is_sure(self) -> bool:
        """Return whether a refusal is meant: of a kind that was readable before, only one that lasts."""
        now = clocks.steady()
        self._refused_at = now if self._refused_at is None else self._refused_at
        return not self._watched_once or now - self._refused_at >= SURE_SECONDS

    def _recovered(self) -> None:
        self._refused_at = None
        self.works(self.resource.kind)

    async def _list(self) -> None:
        seen: dict[Key, str] = {}
        version = ""
        began = clocks.steady()
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
        self._heard_at = began  # what the list holds is what was there when it was asked for, or later
        self.denied = False
        self._recovered()
        self.synced.set()

    async def _listed_item(self, raw: msgspec.Raw, seen: dict[Key, str]) -> None:
        item = self._decode(raw)
        if item is None:
            key = self._key_of(raw)
            if key in self.known:
                seen[key] = self.known[key]  # it still exists; its last known state is kept
            return
        key, version = (item.metadata.namespace, item.metadata.name), item.metadata.resource_version
        seen[key] = version
        if self.known.get(key) != version:
            await self.deliver(ObjectObserved(object=item))

    async def _watch(self) -> None:
        self.watches += 1
        self._opened_at = None
        lines = self.client.watch_lines(
            self.resource.path(), self._version, opened=self._opened, quiet_seconds=self.quiet_seconds()
        )
        async for line in lines:
            try:
                event = msgspec.json.decode(line, type=_WatchEvent)
                if event.type == "BOOKMARK":
                    self._version = _meta_of(event.object).resource_version or self._version
                elif event.type == "ERROR":
                    self._raise(msgspec.json.decode(event.object, type=_Gone))
                elif event.type in _CHANGES:
                    await self._take(event)
                else:
                    raise self._malformed(f"an event of type {event.type!r}")
            except UNREADABLE as error:
                raise self._malformed(f"a line of a watch: {error}") from None
            self._stands()
            self._heard_at = clocks.steady()

    def _count_opening(self) -> None:
        """Count the opening of a watch as a sign of life if the watch then lasted for a while, however it ended."""
        if self._standing is not None:
            self._standing.cancel()
            self._standing = None
        if self._opened_at is not None and clocks.steady() - self._opened_at > _SHORT_WATCH_SECONDS:
            self._heard_at = max(self._heard_at or 0.0, self._opened_at)
        self._opened_at = None

    def _opened(self) -> None:
        """Record an accepted watch. It works if it says something, or is still open after a while."""
        self._opened_at = clocks.steady()
        self._standing = asyncio.get_running_loop().call_later(_SHORT_WATCH_SECONDS, self._stands)

    def _stands(self) -> None:
        if self._standing is not None:
            self._standing.cancel()
            self._standing = None
            self._watched_once = True
            self._recovered()

    def _raise(self, status: _Gone) -> None:
        self._version = ""  # whatever it was, a new list resolves it
        if status.code == 410:
            raise TooOldError(status.message)
        raise ApiError(status.code or 0, "", status.message or "an error without words")

    def _malformed(self, why: str) -> MalformedError:
        return self.client.malformed(self.resource.path(), why)

    async def _take(self, event: _WatchEvent) -> None:
        item = None if event.type == "DELETED" else self._decode(event.object)
        if item is not None:
            key = (item.metadata.namespace, item.metadata.name)
            self._version = self.known[key] = item.metadata.resource_version
            await self.deliver(ObjectObserved(object=item))
            return
        meta = _meta_of(event.object)
        if not meta.name:
            raise self._malformed(f"a {event.type} object without a name")
        self._version = meta.resource_version or self._version
        if event.type == "DELETED":
            key = (meta.namespace, meta.name)
            self.known.pop(key, None)
            self._named.pop(key, None)
            gone = ObjectVanished(kind=self.resource.kind, namespace=key[0], name=key[1], uid=meta.uid)
            await self.deliver(gone)

    def _decode(self, raw: msgspec.Raw) -> AnyObject | None:
        """Return the object as decisions may use it; None if it must be skipped."""
        try:
            item, problems = admit(raw, self.resource.kind, self.shared)
        except UNREADABLE as error:
            stand_in = unreadable_pod(raw) if self.resource.kind == "Pod" else None
            how = "is left out" if stand_in is None else "counts as do-not-disrupt"
            self._skip(self._key_of(raw), f"can't be read and {how}: {error}")
            return stand_in
        if not item.metadata.name:
            return None
        if problems:
            key = (item.metadata.namespace, item.metadata.name)
            self._skip(key, f"can't be used as it is; what it is about is left alone: {'; '.join(problems)}")
        return item

    def _skip(self, key: Key, how: str) -> None:
        """Count an object that can't be read as it is; name it once."""
        self.skipped += 1
        self.unread(self.resource.kind)
        if key not in self._named and len(self._named) < _SKIPPED_NAMED_MAX:
            self._named[key] = None
            name = "/".join(part for part in key if part)
            self.note(self.resource.kind, f"{self.resource.kind} {name} {how}")

    def _key_of(self, raw: msgspec.Raw) -> Key:
        try:
            meta = _meta_of(raw)
        except UNREADABLE:
            return ("", "")
        return (meta.namespace, meta.name)


def _meta_of(raw: msgspec.Raw) -> _Meta:
    return msgspec.json.decode(raw, type=_Bare).metadata


def denial(resource: Resource, error: ApiError) -> str:
    """Return what to do about a kind that Dovetail may not read, and what is lost meanwhile."""
    loss = f"; without it {resource.without}" if resource.without else ""
    if error.status == 404:
        name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        install = ": install Karpenter's CRDs, or `dovetail crds`" if resource.group == "karpenter.sh" else ""
        return f"the cluster has no {name} in {resource.version}{install}{loss}"
    return f"not allowed to watch {resource.plural}: add {resource.rule('get, list, watch')} to Dovetail's role{loss}"
