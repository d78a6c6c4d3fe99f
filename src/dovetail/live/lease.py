"""Leader election on a Lease, as client-go does it: one process acts, the others watch and wait.

A leader that could not renew for `renew_deadline` steps down before `lease_duration` lets another one in. Time is
judged by this machine's own monotonic clock against changes that it saw itself, so that clocks that differ by an hour
change nothing. `may_act` is asked before every write: a process that was stopped for a while is no leader when it
wakes, whatever it believed before.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dovetail.live.client import MERGE_PATCH, ApiClient, ApiError
from dovetail.live.credentials import UnreachableError
from dovetail.live.resources import LEASE

_RELEASE_SECONDS: Final = 5.0


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Lease(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _LeaseMeta = _LeaseMeta()
    spec: _LeaseSpec = _LeaseSpec()


@dataclass(slots=True, kw_only=True)
class LeaderElection:
    """Runs for one Lease until cancelled; calls `gained` and `lost` as leadership comes and goes."""

    client: ApiClient
    namespace: str
    name: str
    identity: str
    gained: Callable[[], Awaitable[None]]
    lost: Callable[[], Awaitable[None]]
    note: Callable[[str], None] = lambda message: None
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    leading: bool = False
    _seen: tuple[str | None, ...] = ()
    _seen_at: float = 0.0
    _renewed_at: float = 0.0
    _noted: str = ""

    @property
    def may_act(self) -> bool:
        """Return whether no other process can have taken over by now."""
        return self.leading and time.monotonic() - self._renewed_at < self.renew_deadline

    async def run(self) -> None:
        """Tries to lead, renews while leading, steps down when renewing fails for too long."""
        try:
            while True:
                began = time.monotonic()
                held = await self._try(began)
                if held:
                    self._renewed_at = began  # from before the write: the Lease runs from some moment after it
                    if not self.leading:
                        self.leading = True
                        await self.gained()
                elif self.leading and (held is False or time.monotonic() - self._renewed_at >= self.renew_deadline):
                    self.leading = False
                    await self.lost()
                await asyncio.sleep(self.retry_period)
        finally:
            if self.leading:
                self.leading = False
                await asyncio.shield(self._release())

    async def _try(self, began: float) -> bool | None:
        """True: the Lease is ours now; False: it is somebody else's; None: no answer."""
        patience = self.renew_deadline
        if self.leading:
            patience = max(self._renewed_at + self.renew_deadline - began, 0.1)
        try:
            async with asyncio.timeout(patience):
                return await self._acquire_or_renew()
        except (UnreachableError, TimeoutError) as error:
            self._say(f"the Lease can't be renewed ({str(error) or 'no answer in time'}); trying again")
            return None
        except ApiError as error:
            # A conflict means that another candidate wrote between our read and our write: read again next time.
            if error.status == 403:
                rule = LEASE.rule("get, create, patch")
                self._say(f"not allowed to use Leases in namespace {self.namespace}: add {rule} to our role there")
            elif error.status != 409:
                self._say(f"the Lease can't be renewed ({error}); trying again")
            return None

    def _say(self, message: str) -> None:
        if message != self._noted:
            self._noted = message
            self.note(message)

    async def _acquire_or_renew(self) -> bool:
        try:
            lease = await self._read()
        except ApiError as error:
            if error.status != 404:
                raise
            tree = {"apiVersion": LEASE.api_version, "kind": "Lease", "spec": self._mine(_LeaseSpec())}
            tree["metadata"] = {"name": self.name, "namespace": self.namespace}
            path = LEASE.path(namespace=self.namespace)
            await self.client.request("POST", path, body=msgspec.json.encode(tree), tries=1)
            return True
        spec = lease.spec
        if spec.holder_identity not in (None, "", self.identity):
            fresh = (spec.holder_identity, spec.renew_time, str(spec.lease_transitions))
            if fresh != self._seen:
                self._seen, self._seen_at = fresh, time.monotonic()
            wait = max(float(spec.lease_duration_seconds or 0), self.retry_period)
            if time.monotonic() - self._seen_at < wait:
                return False
        await self._write(lease, self._mine(spec))
        self._noted = ""
        return True

    async def _read(self) -> _Lease:
        raw = await self.client.request("GET", LEASE.path(self.name, self.namespace), tries=1)
        return msgspec.json.decode(raw, type=_Lease)

    async def _write(self, lease: _Lease, spec: dict[str, Any]) -> None:
        """Only if nobody wrote since it was read."""
        patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        path = LEASE.path(self.name, self.namespace)
        body = msgspec.json.encode(patch)
        await self.client.request("PATCH", path, body=body, content_type=MERGE_PATCH, tries=1)

    def _mine(self, before: _LeaseSpec) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.lease_duration)),
            "renewTime": now,
        }
        if before.holder_identity != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (before.lease_transitions or 0) + (0 if before.renew_time is None else 1)
        return spec

    async def _release(self) -> None:
        """Return the Lease back on an orderly stop, so that the next leader need not wait."""
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                lease = await self._read()
                if lease.spec.holder_identity == self.identity:
                    await self._write(lease, {"holderIdentity": None, "leaseDurationSeconds": 1})
        except (ApiError, UnreachableError, TimeoutError):
            return
