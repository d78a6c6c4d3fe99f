"""Writes to the API server, and tolerates refusals.

Knows nothing of what is written or why.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dovetail.live.kubernetes.client import MERGE_PATCH, ApiClient, ApiError
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.resources import LEASE, Resource
from dovetail.live.observability.logs import Log
from dovetail.standin.trees import Tree

Work = Callable[[], Awaitable[None]]
_AT_ONCE: Final = 16


@dataclass(slots=True, kw_only=True)
class Writer:
    """Patches and deletes, a few at a time."""

    client: ApiClient
    log: Log
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def attempt(self, work: Awaitable[None]) -> None:
        """Await some work; what the server refuses is retried in the next pass."""
        try:
            await work
        except (ApiError, UnreachableError) as error:
            self.log.debug("the simulated provider was refused and tries again", why=str(error))

    async def attempt_all(self, works: Iterable[Work]) -> None:
        """Await many works, some at a time, so that a thousand nodes are looked after in time."""

        async def one(work: Work) -> None:
            async with self._slots:
                await self.attempt(work())

        await asyncio.gather(*(one(work) for work in works))

    async def patch(
        self, resource: Resource, name: str, patch: Tree, subresource: str = "", namespace: str = ""
    ) -> None:
        """Merge a patch into an object; a missing object is not a failure, except for a Lease."""
        path = resource.path(name, namespace, subresource)
        try:
            await self.client.request("PATCH", path, body=msgspec.json.encode(patch), content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status != 404 or resource is LEASE:
                raise

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, at_once: bool = False) -> None:
        """Delete an object, at once or gracefully; a missing object is not a failure."""
        options: Tree = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if at_once:
            options["gracePeriodSeconds"] = 0
        try:
            await self.client.request("DELETE", resource.path(name, namespace), body=msgspec.json.encode(options))
        except ApiError as error:
            if error.status != 404:
                raise
