"""Leader election on a Lease, as client-go does it: one process acts, the others watch and wait.

A leader that could not renew for `renew_deadline` steps down before `lease_duration` lets another one in. Time is
judged by this machine's own monotonic clock against changes that it saw itself, so that clocks that differ by an hour
change nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from dovetail.live.client import ApiClient, ApiError, UnreachableError
from dovetail.live.resources import LEASE


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class _LeaseMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Lease(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _LeaseMeta = _LeaseMeta()
    spec: _LeaseSpec = _LeaseSpec()
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


@dataclass(slots=True, kw_only=True)
class LeaderElection:
    """Runs for one Lease until cancelled; calls `gained` and `lost` as leadership comes and goes."""

    client: ApiClient
    namespace: str
    name: str
    identity: str
    gained: Callable[[], Awaitable[None]]
    lost: Callable[[], Awaitable[None]]
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    leading: bool = False
    _seen: str = ""
    _seen_at: float = 0.0
    _renewed_at: float = 0.0

    async def run(self) -> None:
        """Tries to lead, renews while leading, steps down when renewing fails for too long."""
        try:
            while True:
                held = await self._try()
                now = time.monotonic()
                if held:
                    self._renewed_at = now
                    if not self.leading:
                        self.leading = True
                        await self.gained()
                elif self.leading and (held is False or now - self._renewed_at > self.renew_deadline):
                    self.leading = False
                    await self.lost()
                await asyncio.sleep(self.retry_period)
        finally:
            if self.leading:
                self.leading = False
                await asyncio.shield(self._release())

    async def _try(self) -> bool | None:
        """True: the Lease is ours now; False: it is somebody else's; None: no answer."""
        try:
            return await asyncio.wait_for(self._acquire_or_renew(), self.renew_deadline)
        except (UnreachableError, TimeoutError):
            return None
        except ApiError as error:
            # A conflict means that another candidate wrote between our read and our write: read again next time.
            return None if error.status in (409, 429) or error.status >= 500 else False

    async def _acquire_or_renew(self) -> bool:
        path = LEASE.path(self.name, self.namespace)
        try:
            lease = msgspec.json.decode(await self.client.request("GET", path, tries=1), type=_Lease)
        except ApiError as error:
            if error.status != 404:
                raise
            body = msgspec.json.encode(self._mine(_Lease()))
            await self.client.request("POST", LEASE.path(namespace=self.namespace), body=body, tries=1)
            return True
        if lease.spec.holder_identity not in ("", self.identity):
            fresh = f"{lease.spec.holder_identity} {lease.spec.renew_time} {lease.spec.lease_transitions}"
            if fresh != self._seen:
                self._seen, self._seen_at = fresh, time.monotonic()
            wait = max(float(lease.spec.lease_duration_seconds), self.retry_period)
            if time.monotonic() - self._seen_at < wait:
                return False
        await self.client.request("PUT", path, body=msgspec.json.encode(self._mine(lease)), tries=1)
        return True

    def _mine(self, lease: _Lease) -> _Lease:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = lease.spec
        kept = before.holder_identity == self.identity
        return _Lease(
            metadata=_LeaseMeta(
                name=self.name, namespace=self.namespace, resource_version=lease.metadata.resource_version
            ),
            spec=_LeaseSpec(
                holder_identity=self.identity,
                lease_duration_seconds=round(self.lease_duration),
                acquire_time=before.acquire_time if kept else now,
                renew_time=now,
                lease_transitions=before.lease_transitions + (0 if kept else 1),
            ),
        )

    async def _release(self) -> None:
        """Gives the Lease back on an orderly stop, so that the next leader need not wait."""
        path = LEASE.path(self.name, self.namespace)
        try:
            lease = msgspec.json.decode(await self.client.request("GET", path, tries=1), type=_Lease)
            if lease.spec.holder_identity == self.identity:
                spec = msgspec.structs.replace(lease.spec, holder_identity="", lease_duration_seconds=1)
                body = msgspec.json.encode(msgspec.structs.replace(lease, spec=spec))
                await self.client.request("PUT", path, body=body, tries=1)
        except (ApiError, UnreachableError):
            return
