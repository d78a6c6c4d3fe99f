"""A proxy that injects the faults of a plan and checks every write against the server's state."""

import asyncio
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from dovetail.live.kubernetes.resources import plural_in
from tests.chaos.storm import GARBAGE, Plan, Trouble
from tests.support.proxy import Answer, Proxy, Seen

IDENTITY = "chaos"
_KNOWN_AFTER_SECONDS = 5.0
Tree = dict[str, Any]


@dataclass
class Front(Proxy):
    """Forwards everything until `blow` starts a plan and again after `calm`. `violations` lists broken promises."""

    admin: str = ""
    plan: Plan | None = None
    tokens: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)
    _began: float | None = None
    _rng: random.Random = field(default_factory=random.Random)

    def blow(self, plan: Plan) -> None:
        self.plan, self._rng, self._began = plan, random.Random(f"front-{plan.seed}"), time.monotonic()

    def calm(self) -> None:
        self._began = None

    def on(self, kind: str, path: str = "") -> Trouble | None:
        """Return the fault of a kind that applies to this request, or None."""
        if self._began is None or self.plan is None:
            return None
        at = time.monotonic() - self._began
        for trouble in self.plan.troubles:
            if trouble.kind == kind and trouble.is_on(at) and (not trouble.about or trouble.about == plural_in(path)):
                return trouble if self._rng.random() < trouble.share else None
        return None

    async def _instead(self, request: web.Request, seen: Seen, to: aiohttp.ClientSession) -> web.Response | None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens and token not in self.tokens:
            return Answer(401, "Unauthorized").response()
        if seen.acts():
            await self._check(seen, to)
        if (instead := await super()._instead(request, seen, to)) is not None:
            return instead
        if slow := self.on("slow", seen.path):
            await asyncio.sleep(slow.amount)
        while self.on("silent", seen.path):
            await asyncio.sleep(0.2)
        if self.on("throttled", seen.path):
            return Answer(429, "TooManyRequests", {"Retry-After": self._rng.choice(("1", "0", "²", "x"))}).response()
        if self.on("failing", seen.path):
            return Answer(self._rng.choice((500, 502, 503, 504)), "InternalError").response()
        if self.on("forbidden", seen.path):
            return Answer(403, "Forbidden").response()
        if self.on("html", seen.path):
            return web.Response(text="<html><h1>Gateway</h1></html>", content_type="text/html")
        return None

    def _headers(self, request: web.Request) -> dict[str, str]:
        return {**super()._headers(request), "Authorization": f"Bearer {self.admin}"}

    def _body(self, seen: Seen, body: bytes) -> bytes:
        if self.on("garbage", seen.path):
            return self._rng.choice(GARBAGE)
        return body[: len(body) // 2] if self.on("cut", seen.path) else body

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Copy a watch line by line and inject faults."""
        response = web.StreamResponse(status=200, headers=headers)
        await response.prepare(request)
        path = request.path
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def read() -> None:
            pending = b""
            async for chunk in answer.content.iter_any():
                *whole, pending = (pending + chunk).split(b"\n")
                for line in whole:
                    await lines.put(line + b"\n")

        reader = asyncio.create_task(read())
        reader.add_done_callback(lambda _: lines.put_nowait(None))
        self._watches.add(reader)
        try:
            while True:
                try:
                    async with asyncio.timeout(1.0):
                        line = await lines.get()
                except TimeoutError:
                    if request.transport is None or request.transport.is_closing():
                        break
                    if not self.on("garbage", path) and not self.on("cut", path):
                        continue
                    line = b'{"type": "ADDED", "object": {"metadata": {"na\n'
                if line is None:
                    break
                while self.on("silent", path):
                    await asyncio.sleep(0.2)
                if self.on("garbage", path):
                    line = self._rng.choice(GARBAGE) + b"\n"
                elif self.on("cut", path):
                    await response.write(line[: len(line) // 2])
                    reader.cancel()
                    break
                await response.write(line)
        except (ConnectionError, aiohttp.ClientError):
            pass
        finally:
            self._watches.discard(reader)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if request.transport is not None:
            request.transport.abort()
        return response

    # ------------------------------------------------------------ promises

    async def _check(self, seen: Seen, to: aiohttp.ClientSession) -> None:
        """Check a write as it arrives: its sender holds the Lease, and a deletion removes nothing that is protected."""
        lease = await self._get(to, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/dovetail")
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder != IDENTITY:
            self.violations.append(f"{seen.method} {seen.path} came while {holder!r} held the Lease")
        if seen.method != "DELETE":
            return
        claim = await self._get(to, seen.path)
        name = (claim.get("status") or {}).get("nodeName") or ""
        if not name:
            return
        node = await self._get(to, f"/api/v1/nodes/{name}")
        record = ((node.get("metadata") or {}).get("annotations") or {}).get("dovetail.dev/command", "")
        is_candidate = f'"node":"{name}"' in record.replace(" ", "")
        pods = await self._get(to, f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")
        for pod in pods.get("items") or []:
            if not is_candidate or not _was_there(pod):
                continue
            annotations = pod["metadata"].get("annotations") or {}
            if annotations.get("karpenter.sh/do-not-disrupt") == "true":
                self.violations.append(f"{seen.path} was deleted under protected pod {pod['metadata']['name']}")
            elif "deleteEmpty" in record:
                self.violations.append(f"{seen.path} was deleted as empty with pod {pod['metadata']['name']}")

    async def _get(self, to: aiohttp.ClientSession, path: str) -> Tree:
        headers = {"Authorization": f"Bearer {self.admin}"}
        async with to.get(aiohttp.client.URL(self.upstream + path, encoded=True), headers=headers) as answer:
            return dict(json.loads(await answer.read()))


def _was_there(pod: Tree) -> bool:
    """Return whether a pod has been bound for so long that the final check must have seen it."""
    if pod["metadata"].get("deletionTimestamp") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    return (datetime.now(UTC) - made).total_seconds() > _KNOWN_AFTER_SECONDS


@contextmanager
def front_of(upstream: str, ca_path: Path, admin: str) -> Iterator[Front]:
    """Run a proxy for the duration of the context."""
    with Front(upstream=upstream, ca_path=ca_path, admin=admin).running() as front:
        assert isinstance(front, Front)
        yield front
