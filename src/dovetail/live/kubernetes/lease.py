"""Leader election on a Lease, as client-go does it: one process acts, the others watch and wait.

A leader that could not renew for `renew_deadline` steps down before `lease_duration` lets another one in. Time is
measured with this machine's own clocks from changes that it saw itself, so clock skew is harmless. `may_act` is called
before every attempt to write: a process that was stopped for a while is no longer the leader when it continues. A
leader renews with a single call, and starts the next renewal `retry_period` after the last one started: a server that
takes seconds to answer makes leading slow, not impossible.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

import msgspec

from dovetail.live import clocks
from dovetail.live.kubernetes.client import MERGE_PATCH, UNREADABLE, ApiClient, ApiError
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.resources import LEASE

_RELEASE_SECONDS: Final = 5.0
_ALIVE_SECONDS: Final = 60.0
_SURE_SECONDS: Final = 30.0  # a server that has just started refuses what it will allow once it has loaded its roles
RELEASE_IDENTITY: Final = "dovetail-release"
"""Who holds the Lease after `dovetail release --stop-controller` (`live.step_down`)."""
_GONE_SECONDS: Final = 60.0
"""How long a process waits that saw the Lease vanish after such a release: an uninstall is about to end it."""


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Lease(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _LeaseMeta = _LeaseMeta()
    spec: _LeaseSpec | None = None


@dataclass(slots=True, kw_only=True)
class LeaderElection:
    """Runs for one Lease until cancelled; calls `gained` and `lost` as leadership comes and goes.

    `note` gets failures, once each; `works` is called when the Lease is answered again, `waits` with who holds it.
    """

    client: ApiClient
    namespace: str
    name: str
    identity: str
    gained: Callable[[], Awaitable[None]]
    lost: Callable[[], Awaitable[None]]
    note: Callable[[str], None] = lambda message: None
    works: Callable[[], None] = lambda: None
    waits: Callable[[str], None] = lambda message: None
    lease_duration: float = 30.0
    renew_deadline: float = 20.0
    retry_period: float = 2.0
    leading: bool = False
    _seen: tuple[str | None, ...] = ()
    _seen_at: float = 0.0
    _renewed: clocks.Moment | None = None
    _beat: float = field(default_factory=clocks.steady)
    _version: str = ""
    _noted: str = ""
    _refused_at: float | None = None
    _answered_once: bool = False
    _gone_at: float | None = None

    @property
    def may_act(self) -> bool:
        """Return whether no other process can have taken over by now."""
        return self.leading and self.age < self.renew_deadline

    @property
    def age(self) -> float:
        """Return the seconds since this process last renewed the Lease, time spent stopped included."""
        return inf if self._renewed is None else self._renewed.age

    @property
    def is_alive(self) -> bool:
        """Return whether it has recently tried to renew or to become the leader."""
        return clocks.steady() - self._beat < _ALIVE_SECONDS + 2 * self.renew_deadline

    async def run(self) -> None:
        """Try to lead, renew while leading, step down when renewing fails for too long."""
        try:
            while True:
                began = clocks.now()
                self._beat = began.steady
                held = await self._try()
                if held:
                    self._renewed = began  # from before the write: the Lease runs from some moment after it
                    if not self.leading:
                        self.leading = True
                        await self.gained()
                elif self.leading and (held is False or self.age >= self.renew_deadline):
                    self.leading = False
                    await self.lost()
                await asyncio.sleep(max(0.0, began.steady + self.retry_period - clocks.steady()))
        finally:
            if self.leading:
                self.leading = False
                await asyncio.shield(self._release())

    async def _try(self) -> bool | None:
        """Try to take or renew the Lease. True: held; False: another holds it; None: no answer."""
        patience = self.renew_deadline
        if self.leading:
            # Half of it: a call that hangs must leave time for another one.
            patience = min(max(self.renew_deadline - self.age, 0.1), self.renew_deadline / 2)
        try:
            async with asyncio.timeout(patience):
                held = await self._acquire_or_renew()
        except (UnreachableError, TimeoutError) as error:
            self._version = ""
            self._warn(f"the Lease can't be renewed ({str(error) or 'no answer in time'}); trying again")
            return None
        except ApiError as error:
            self._version = ""
            # A conflict means that another candidate wrote between the read and the write: read again next time.
            if error.status == 403 and self._is_sure():
                rule = LEASE.rule("get, create, patch")
                self._warn(
                    f"not allowed to use Leases in namespace {self.namespace}: add {rule} to Dovetail's role there"
                )
            elif error.status != 409:
                self._warn(f"the Lease can't be renewed ({error}); trying again")
            return None
        self._noted, self._refused_at, self._answered_once = "", None, True
        self.works()
        return held

    def _is_sure(self) -> bool:
        """Return whether a refusal is meant: where it worked before, only one that lasts."""
        now = clocks.steady()
        self._refused_at = now if self._refused_at is None else self._refused_at
        return not self._answered_once or now - self._refused_at >= _SURE_SECONDS

    def _warn(self, message: str) -> None:
        if message != self._noted:
            self._noted = message
            self.note(message)

    async def _acquire_or_renew(self) -> bool:
        if self.leading and self._version and await self._renew():
            return True
        try:
            lease = await self._read()
        except ApiError as error:
            if error.status != 404:
                raise
            if self._may_be_uninstalled():
                return False
            tree = {"apiVersion": LEASE.api_version, "kind": "Lease", "spec": self._mine(_LeaseSpec())}
            tree["metadata"] = {"name": self.name, "namespace": self.namespace}
            path = LEASE.path(namespace=self.namespace)
            made = await self.client.request("POST", path, body=msgspec.json.encode(tree), tries=1)
            self._version = self._decode(made).metadata.resource_version
            return True
        spec = lease.spec or _LeaseSpec()
        if spec.holder_identity not in (None, "", self.identity):
            fresh = (spec.holder_identity, spec.renew_time, str(spec.lease_transitions))
            if fresh != self._seen:
                if self._seen[:1] != fresh[:1]:
                    self.waits(_words(spec))
                self._seen, self._seen_at, self._gone_at = fresh, clocks.steady(), None
            wait = max(float(spec.lease_duration_seconds or 0), self.retry_period)
            if clocks.steady() - self._seen_at < wait:
                return False
        await self._write(lease.metadata.resource_version, self._mine(spec))
        self._seen = ()
        return True

    def _may_be_uninstalled(self) -> bool:
        """Return whether the Lease vanished a moment ago, after a release that stopped all controllers."""
        if self._seen[:1] != (RELEASE_IDENTITY,):
            return False
        now = clocks.steady()
        if self._gone_at is None:
            self._gone_at = now
            self.waits(f"the Lease was deleted; leading again in {_GONE_SECONDS:g} s unless Dovetail is uninstalled")
        return now - self._gone_at < _GONE_SECONDS

    async def _renew(self) -> bool:
        """Renew with one call, on the last renewal's version. False: another process wrote meanwhile; read first."""
        mine = self._mine(_LeaseSpec(holder_identity=self.identity))
        try:
            await self._write(self._version, mine)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            self._version = ""
            return False
        return True

    async def _read(self) -> _Lease:
        return self._decode(await self.client.request("GET", LEASE.path(self.name, self.namespace), tries=1))

    async def _write(self, version: str, spec: dict[str, Any]) -> None:
        """Write only if nobody wrote since that version."""
        patch = {"metadata": {"resourceVersion": version}, "spec": spec}
        path = LEASE.path(self.name, self.namespace)
        body = msgspec.json.encode(patch)
        answer = await self.client.request("PATCH", path, body=body, content_type=MERGE_PATCH, tries=1)
        self._version = self._decode(answer).metadata.resource_version

    def _decode(self, raw: bytes) -> _Lease:
        try:
            return msgspec.json.decode(raw, type=_Lease)
        except UNREADABLE as error:
            path = LEASE.path(self.name, self.namespace)
            raise self.client.malformed(path, f"no Lease: {error}") from None

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
        """Release the Lease on an orderly stop, so that the next leader need not wait."""
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                lease = await self._read()
                if lease.spec is not None and lease.spec.holder_identity == self.identity:
                    empty = {"holderIdentity": None, "leaseDurationSeconds": 1}
                    await self._write(lease.metadata.resource_version, empty)
        except (ApiError, UnreachableError, TimeoutError):
            return


def _words(spec: _LeaseSpec) -> str:
    """Return who holds the Lease, and what that means for a process that waits for it."""
    if spec.holder_identity != RELEASE_IDENTITY:
        return f"waiting: {spec.holder_identity} holds the Lease"
    minutes = round((spec.lease_duration_seconds or 0) / 60)
    return (
        f"waiting: `dovetail release --stop-controller` holds the Lease for {minutes} min ({RELEASE_IDENTITY}); "
        "delete the Lease to let a controller lead before that"
    )
