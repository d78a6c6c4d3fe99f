"""The clusters that instructions are executed on: the simulator's, the tests' own, a small HTTP server, a real one.

Each takes objects as JSON, executes instructions with the actuator that belongs to it, and can let something happen
between what that actuator reads and what it writes.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import msgspec
from aiohttp import web

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import InstructionFailed, InstructionSucceeded
from dovetail.live.actuate import Actuator
from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.credentials import Connection, TokenSource, connect
from dovetail.model.objects import KINDS
from dovetail.sim.world.actuate import SEAL as SIMULATED
from tests.support.control_plane import Client, ControlPlane
from tests.support.lifecycle_world import SEAL as SMALL
from tests.support.lifecycle_world import World as SmallWorld
from tests.support.rogue import small_world

Tree = dict[str, Any]
Answer = InstructionSucceeded | InstructionFailed
MERGE = "application/merge-patch+json"
COLLECTIONS = {
    "Node": "/api/v1/nodes",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "Pod": "/api/v1/namespaces/default/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
}
NAMESPACES = {"Pod": "default", "PodDisruptionBudget": "default"}
"""Where objects of a kind that has namespaces are, in these tests."""


class Ground(Protocol):
    """A cluster to execute instructions on. `seal` is what its actuator trusts records by."""

    seal: Seal

    def put(self, tree: Tree) -> None:
        """Create an object, including its status."""

    def get(self, kind: str, name: str) -> Tree | None:
        """Return the current object."""

    def annotate(self, kind: str, name: str, key: str, value: str) -> None:
        """Change an object without the actuator's knowledge."""

    def do(self, asked: Any) -> Answer:
        """Execute an instruction."""

    def between(self, happen: Callable[[], None]) -> None:
        """Run a callback once, after the next read and before the write that follows."""


def _typed(tree: Tree) -> Any:
    return msgspec.convert(tree, KINDS[tree["kind"]])


class _InMemory:
    """A world of typed objects."""

    world: Any
    actuator: Any
    seal: Seal

    def __init__(self) -> None:
        self.happen: Callable[[], None] | None = None

    def _store(self, item: Any) -> None:
        self.world.put(item)

    def _find(self, kind: str, name: str) -> Any:
        raise NotImplementedError

    def put(self, tree: Tree) -> None:
        self._store(_typed(tree))

    def get(self, kind: str, name: str) -> Tree | None:
        item = self._find(kind, name)
        return None if item is None else json.loads(msgspec.json.encode(item))

    def annotate(self, kind: str, name: str, key: str, value: str) -> None:
        item = self._find(kind, name)
        meta = msgspec.structs.replace(item.metadata, annotations={**item.metadata.annotations, key: value})
        self._store(msgspec.structs.replace(item, metadata=meta))

    def between(self, happen: Callable[[], None]) -> None:
        """Run the callback directly: in memory nothing happens between a read and a write by itself."""
        read = self.actuator.read

        def read_then(ref: Any) -> Any:
            found = read(ref)
            if self.happen is not None:
                then, self.happen = self.happen, None
                then()
            return found

        self.happen = happen
        self.actuator.read = read_then

    def do(self, asked: Any) -> Answer:
        answer: Answer = self.actuator.carry_out(asked)
        return answer


class SimulatorGround(_InMemory):
    """The simulator's cluster."""

    seal = SIMULATED

    def __init__(self) -> None:
        super().__init__()
        self.world = small_world(0)
        self.actuator = self.world.add_engine().actuator

    def _find(self, kind: str, name: str) -> Any:
        return self.world.store.by_kind[kind].get(f"{NAMESPACES[kind]}/{name}" if kind in NAMESPACES else name)


class SmallWorldGround(_InMemory):
    """The cluster that the engine's tests use."""

    seal = SMALL

    def __init__(self) -> None:
        super().__init__()
        self.world = self.actuator = SmallWorld(launches=False)

    def _find(self, kind: str, name: str) -> Any:
        return self.world.objects.get((kind, NAMESPACES.get(kind, ""), name))


class _Live:
    """The live actuator, which runs each instruction in its own event loop."""

    happen: Callable[[], None] | None = None
    seal = Seal((b"the key of a live cluster",))

    def client(self) -> "contextlib.AbstractAsyncContextManager[ApiClient]":
        raise NotImplementedError

    def between(self, happen: Callable[[], None]) -> None:
        self.happen = happen

    def do(self, asked: Any) -> Answer:
        async def act() -> Answer:
            async with self.client() as client:
                request = client.request

                async def disturbed(method: str, *given: Any, **named: Any) -> bytes:
                    if method != "GET" and self.happen is not None:
                        then, self.happen = self.happen, None
                        await asyncio.to_thread(then)
                    return await request(method, *given, **named)

                client.request = disturbed  # type: ignore[method-assign]
                client.backoff = lambda attempt, most=30.0: 0.01  # type: ignore[method-assign]
                return await Actuator(client=client, identity="tests", seal=self.seal).carry_out(asked)

        return asyncio.run(act())


class HttpGround(_Live):
    """A server that stores objects as an API server does, as far as the actuator can see."""

    def __init__(self) -> None:
        self.objects: dict[str, Tree] = {}
        self.version = 0

    def _save(self, path: str, tree: Tree) -> Tree:
        self.version += 1
        meta = {"uid": f"uid-{self.version}", **tree["metadata"], "resourceVersion": str(self.version)}
        self.objects[path] = {**tree, "metadata": meta}
        return self.objects[path]

    def put(self, tree: Tree) -> None:
        self._save(f"{COLLECTIONS[tree['kind']]}/{tree['metadata']['name']}", tree)

    def get(self, kind: str, name: str) -> Tree | None:
        return self.objects.get(f"{COLLECTIONS[kind]}/{name}")

    def annotate(self, kind: str, name: str, key: str, value: str) -> None:
        self._merge(f"{COLLECTIONS[kind]}/{name}", {"metadata": {"annotations": {key: value}}})

    def _merge(self, path: str, patch: Tree) -> Tree:
        return self._save(path, merged(self.objects[path], patch))

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[ApiClient]:
        async def handle(request: web.Request) -> web.StreamResponse:
            where = request.query.get("fieldSelector", "").removeprefix("spec.nodeName=")
            return self.answer(request.method, request.path, await request.read(), where)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        where = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            connection = Connection(server=where, ssl_context=None, tokens=TokenSource(fixed="t"))
            async with ApiClient(connection) as client:
                yield client
        finally:
            await runner.cleanup()

    def answer(self, method: str, path: str, body: bytes, node: str = "") -> web.StreamResponse:
        """Answer one request; `node`: list its pods only."""
        path = path.removesuffix("/status")
        tree = json.loads(body) if body else {}
        known = self.objects.get(path)
        lists = {"/api/v1/pods": "Pod", "/apis/policy/v1/poddisruptionbudgets": "PodDisruptionBudget"}
        if path in lists:
            items = [tree for where, tree in self.objects.items() if where.startswith(COLLECTIONS[lists[path]])]
            items = [tree for tree in items if not node or tree["spec"].get("nodeName") == node]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        if method == "POST" and path.endswith("/eviction"):
            return self.answer("DELETE", path.removesuffix("/eviction"), json.dumps(tree["deleteOptions"]).encode())
        if method == "POST":
            path = f"{path}/{tree['metadata']['name']}"
            if path in self.objects:
                return _no(409, "AlreadyExists")
            return web.json_response(self._save(path, tree), status=201)
        if known is None:
            return _no(404, "NotFound")
        if method == "PATCH":
            version = tree.get("metadata", {}).get("resourceVersion", known["metadata"]["resourceVersion"])
            if version != known["metadata"]["resourceVersion"]:
                return _no(409, "Conflict")
            return web.json_response(self._merge(path, tree))
        if method == "DELETE":
            uid = tree.get("preconditions", {}).get("uid", known["metadata"]["uid"])
            if uid != known["metadata"]["uid"]:
                return _no(409, "Conflict")
            return web.json_response(self._merge(path, {"metadata": {"deletionTimestamp": "2026-01-05T00:00:00Z"}}))
        return web.json_response(known)


def _no(status: int, reason: str) -> web.Response:
    return web.json_response({"kind": "Status", "reason": reason, "message": reason}, status=status)


def merged(tree: Any, patch: Any) -> Any:
    """Apply a merge patch (written here a second time, to check the first)."""
    if not isinstance(patch, dict):
        return patch
    kept = {key: value for key, value in (tree or {}).items() if key not in patch}
    changed = {key: merged((tree or {}).get(key), value) for key, value in patch.items() if value is not None}
    return {**kept, **changed}


class ApiServerGround(_Live):
    """The real API server. Objects of a test are deleted at its end."""

    def __init__(self, plane: ControlPlane, api: Client) -> None:
        self.plane = plane
        self.api = api

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[ApiClient]:
        async with ApiClient(connect(str(self.plane.kubeconfig))) as client:
            yield client

    def put(self, tree: Tree) -> None:
        path = COLLECTIONS[tree["kind"]]
        status, made = self.api.request("POST", path, tree)
        assert status == 201, made
        if "status" in tree:
            where = f"{path}/{tree['metadata']['name']}/status"
            answer = self.api.request("PATCH", where, {"status": tree["status"]}, kind=MERGE)
            assert answer[0] == 200, answer

    def get(self, kind: str, name: str) -> Tree | None:
        status, tree = self.api.request("GET", f"{COLLECTIONS[kind]}/{name}")
        return tree if status == 200 else None

    def annotate(self, kind: str, name: str, key: str, value: str) -> None:
        tree = {"metadata": {"annotations": {key: value}}}
        assert self.api.request("PATCH", f"{COLLECTIONS[kind]}/{name}", tree, kind=MERGE)[0] == 200

    def clean(self) -> None:
        """Remove every object whose name begins with `effect-`, even those with finalizers."""
        for path in COLLECTIONS.values():
            for item in self.api.request("GET", path)[1]["items"]:
                name = item["metadata"]["name"]
                if name.startswith("effect-"):
                    self.api.request("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, kind=MERGE)
                    self.api.request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
