"""All changes of nodes and claims in the API server's order, recorded by a watch."""

import contextlib
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.e2e_world import TAINT, Tree


@dataclass(frozen=True)
class Entry:
    """One change: `version` is the server's own count, one for all kinds."""

    version: int
    kind: str
    type: str
    object: Tree

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def annotations(self) -> dict[str, str]:
        return self.object["metadata"].get("annotations") or {}

    @property
    def is_tainted(self) -> bool:
        return any(t["key"] == TAINT for t in (self.object.get("spec") or {}).get("taints") or [])

    @property
    def is_leaving(self) -> bool:
        return "deletionTimestamp" in self.object["metadata"]

    @property
    def is_initialized(self) -> bool:
        return conditions_of(self.object).get("Initialized") == "True"


WATCHED = {"/api/v1/nodes": "Node", "/apis/karpenter.sh/v1/nodeclaims": "NodeClaim"}


class History:
    """All changes since it began."""

    def __init__(self, plane: ControlPlane) -> None:
        self.entries: list[Entry] = []
        self._plane = plane
        self._since: dict[str, int] = {}
        self._over = False
        self._connections: dict[str, http.client.HTTPSConnection] = {}
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        for path, kind in WATCHED.items():
            connection = self._connect(kind)
            version = json.loads(self._ask(connection, f"{path}?limit=1").read())["metadata"]["resourceVersion"]
            self._since[kind] = int(version)
            response = self._ask(connection, f"{path}?watch=1&resourceVersion={version}")
            thread = threading.Thread(target=self._follow, args=(response, path, kind), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _connect(self, kind: str) -> http.client.HTTPSConnection:
        port = int(self._plane.base_url.rsplit(":", 1)[1])
        context = ssl.create_default_context(cafile=str(self._plane.ca_path))
        self._connections[kind] = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        return self._connections[kind]

    def _ask(self, connection: http.client.HTTPSConnection, path: str) -> http.client.HTTPResponse:
        connection.request("GET", path, headers={"Authorization": f"Bearer {self._plane.token}"})
        return connection.getresponse()

    def _follow(self, response: http.client.HTTPResponse, path: str, kind: str) -> None:
        """Read a watch; the server ends each after half an hour to an hour, and the next goes on from there."""
        last = self._since[kind]
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException, AttributeError):
            while not self._over:
                while line := response.readline():
                    tree = json.loads(line)
                    if tree["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        last = int(tree["object"]["metadata"]["resourceVersion"])
                        self.entries.append(Entry(last, kind, tree["type"], tree["object"]))
                if not self._over:
                    self._connections[kind].close()
                    response = self._ask(self._connect(kind), f"{path}?watch=1&resourceVersion={last}")

    def end(self) -> None:
        self._over = True
        for connection in self._connections.values():
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(2)
        for thread in self._threads:
            thread.join(60)
        for connection in self._connections.values():
            connection.close()

    def catch_up(self) -> None:
        """Wait until every change that the server has now was received: a watch is a moment behind a list."""
        with self._plane.client() as client:
            for path, kind in WATCHED.items():
                tree = client.request("GET", path)[1]
                eventually(lambda kind=kind, tree=tree: self._has_heard(kind, tree))

    def _has_heard(self, kind: str, listed: Tree) -> bool:
        """Return whether all of a list was received: what it has, and what it no longer has."""
        last = {entry.name: entry for entry in tuple(self.entries) if entry.kind == kind}
        there = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in listed["items"]}
        heard = all(
            name in last and last[name].version >= version
            for name, version in there.items()
            if version > self._since[kind]
        )
        now = int(listed["metadata"]["resourceVersion"])
        return heard and all(
            entry.type == "DELETED" or entry.version > now for name, entry in last.items() if name not in there
        )

    def first(self, kind: str, check: Callable[[Entry], Any]) -> Entry | None:
        """Return the first change of that kind that fits, in the server's order."""
        self.catch_up()
        found = [entry for entry in self.entries if entry.kind == kind and check(entry)]
        return min(found, key=lambda entry: entry.version, default=None)

    def created(self, kind: str = "NodeClaim") -> list[str]:
        """Return the names of all created objects of a kind, each as often as it was created."""
        return [entry.name for entry in self.entries if entry.kind == kind and entry.type == "ADDED"]


@contextlib.contextmanager
def history_of(plane: ControlPlane) -> Iterator[History]:
    """Record changes for the duration of the context."""
    history = History(plane)
    history.begin()
    try:
        yield history
    finally:
        history.end()
