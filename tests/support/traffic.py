"""What clients of this process ask of an API server, request by request, and what the server answers."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from dovetail.live.kubernetes.client import ApiClient

Tree = dict[str, Any]
WATCH_SECONDS = 4
"""How long a server lets a watch stand; it sends a bookmark two seconds before the end."""


@dataclass
class Watch:
    """One watch: the version it began with, and the type and version of each event that came."""

    path: str
    began: str
    came: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False

    @property
    def reached(self) -> str:
        """Return the version with which the next watch must begin."""
        return self.came[-1][1] if self.came else self.began


@dataclass(frozen=True)
class Write:
    """One write that the server took: what was sent and what came back."""

    method: str
    path: str
    sent: Tree
    answer: Tree


@dataclass
class Traffic:
    """The requests of one client, as they go over the line; retries count."""

    requests: list[tuple[str, str, Tree]] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def lists(self) -> Counter[str]:
        """Count how often a list of each kind was begun, whatever its pages; not those of some objects only."""
        watched = {watch.path for watch in self.watches}
        return Counter(
            path
            for method, path, query in self.requests
            if method == "GET" and path in watched and not query.keys() & {"watch", "continue", "fieldSelector"}
        )

    def ended(self) -> Counter[str]:
        """Count the watches of each kind that the server has ended."""
        return Counter(watch.path for watch in self.watches if watch.ended)

    def objects_read(self) -> Counter[str]:
        """Count the reads of everything that is not watched, and of some objects of a kind."""
        watched = {watch.path for watch in self.watches}
        return Counter(
            f"{path}?{query['fieldSelector']}" if "fieldSelector" in query else path
            for method, path, query in self.requests
            if method == "GET" and (path not in watched or "fieldSelector" in query)
        )

    def repeated(self) -> list[str]:
        """Name the writes that changed nothing: the server gives an object no new version then."""
        found = []
        known: dict[str, str] = {}
        for write in self.writes:
            if write.method != "PATCH":
                continue
            version = write.answer["metadata"]["resourceVersion"]
            before = write.sent.get("metadata", {}).get("resourceVersion") or known.get(write.path)
            if version == before:
                found.append(f"{write.path}: {write.sent}")
            known[write.path] = version
        marks = Counter(_mark(write) for write in self.writes if write.method != "PATCH")
        return [*found, *(mark for mark, count in marks.items() if count > 1)]

    def by_verb(self) -> str:
        """Return a table of requests by verb and path."""
        found = Counter((_verb(method, query), path) for method, path, query in self.requests)
        return "\n".join(f"{count:5} {verb:6} {path}" for (verb, path), count in sorted(found.items()))


def _mark(write: Write) -> str:
    """Return what a creation or a deletion says; an event's name and time are new every time."""
    if "/events" in write.path:
        return f"{write.sent['regarding']['name']}: {write.sent['reason']}: {write.sent['note']}"
    sent = write.sent.get("metadata", {}).get("name") or write.sent.get("preconditions")
    return f"{write.method} {write.path}: {sent}"


def _verb(method: str, query: Tree) -> str:
    return "watch" if "watch" in query else method.lower()


class Recorder:
    """Records the traffic of every client from its creation on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._by_client: dict[int, tuple[ApiClient, Traffic]] = {}
        ask: Callable[..., Any] = ApiClient._ask
        send, watch = ApiClient.request, ApiClient.watch_lines

        def asked(client: ApiClient, request: Any, *rest: Any) -> Any:
            self.of(client).requests.append((request.method, request.path, dict(request.params or {})))
            return ask(client, request, *rest)

        async def sent(client: ApiClient, method: str, path: str, **rest: Any) -> bytes:
            answer = await send(client, method, path, **rest)
            if method != "GET":
                self.of(client).writes.append(Write(method, path, json.loads(rest["body"]), json.loads(answer)))
            return answer

        async def watched(client: ApiClient, path: str, version: str, *rest: Any, **named: Any) -> AsyncIterator[bytes]:
            found = Watch(path, version)
            self.of(client).watches.append(found)
            async for line in watch(client, path, version, {"timeoutSeconds": str(WATCH_SECONDS)}, *rest, **named):
                event = json.loads(line)
                found.came.append((event["type"], event["object"]["metadata"]["resourceVersion"]))
                yield line
            found.ended = True

        monkeypatch.setattr(ApiClient, "_ask", asked)
        monkeypatch.setattr(ApiClient, "request", sent)
        monkeypatch.setattr(ApiClient, "watch_lines", watched)

    def of(self, client: ApiClient) -> Traffic:
        """Return the traffic of a client."""
        return self._by_client.setdefault(id(client), (client, Traffic()))[1]
