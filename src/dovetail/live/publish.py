"""The leader's state in one ConfigMap, written for `plan`, `explain`, `top` and `ui`, and read by them.

Written by the leader only, at most once a minute and only if it says something new (`lifecycle.published`). The Lease
says whether the process that wrote it still leads. A reader looks for it in the namespaces in which Dovetail is usually
installed, never in all: anybody may create a ConfigMap of that name in a namespace of their own.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail import __version__
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.published import PublishedState, StateError, decode_state, encode_state, state_of
from dovetail.live.kubernetes.client import JSON, MERGE_PATCH, UNREADABLE, ApiClient, ApiError, FencedError
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.resources import CONFIG_MAP, LEASE
from dovetail.model.timing.duration import format_duration

NAME: Final = "dovetail-state"
KEY: Final = "state.json"
LEASE_NAME: Final = "dovetail"
EVERY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 10.0
_OLD: Final = timedelta(minutes=10)
"""From when on a state is called old if the Lease can't be read."""
NAMESPACES: Final = ("dovetail", "kube-system")
_LOST: Final = (
    "its settings, pauses, back-offs and waste are not known, so the answer uses the defaults and may differ from what "
    "the controller does"
)


_MISSING: Final = "no state of a controller"
_UNREADABLE: Final = "its controller's state can't be read"


@dataclass(slots=True, kw_only=True)
class StatePublisher:
    """Decides when the state is written, and writes it. `fence`: whether this process still leads.

    `clock`: a monotonic clock in seconds. Failures are logged once each and tried again a minute later.
    """

    client: ApiClient
    namespace: str
    fence: Callable[[], bool]
    warn: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _published: PublishedState | None = None
    _written_at: float | None = None
    _looked_at: float | None = None
    _warned: dict[str, None] = field(default_factory=dict)
    _refusals: int = 0

    def due(self, engine: Engine) -> bytes | None:
        """Return what has to be written now; None: nothing, or not yet. Call it where the engine is not running."""
        now = self.clock()
        if not engine.acts or not self.fence():
            self._published = None  # another process may write meanwhile
            return None
        if any(
            at is not None and now - at < pause
            for at, pause in ((self._written_at, EVERY_SECONDS), (self._looked_at, _LOOK_SECONDS))
        ):
            return None
        self._looked_at = now
        state = state_of(engine, __version__)
        if state.says_the_same(self._published):
            return None
        try:
            text = encode_state(state)
        except StateError as error:
            self._warn(str(error))
            return None
        self._published, self._written_at = state, now
        return text

    async def write(self, text: bytes) -> None:
        """Write the document; a failure is only a warning, since nothing that the controller does needs it."""
        try:
            await self._write({KEY: text.decode()})
            self._refusals = 0
        except FencedError:
            self._published = None
        except (ApiError, UnreachableError) as error:
            self._published = None
            where = f"ConfigMap {self.namespace}/{NAME}"
            is_refused = isinstance(error, ApiError) and error.status == 403
            self._refusals = self._refusals + 1 if is_refused else 0
            # A server that has just started refuses for a moment: only what is refused again a minute later is meant.
            if self._refusals > 1:
                rule = CONFIG_MAP.rule("patch", NAME)
                self._warn(f"not allowed to write {where}: add {rule} to Dovetail's role ({error}); plan lacks it")
            else:
                self._warn(f"{where} can't be written ({error}); trying again")

    async def _write(self, data: dict[str, str]) -> None:
        body = msgspec.json.encode({"data": data})
        path = CONFIG_MAP.path(NAME, self.namespace)
        try:
            await self.client.request("PATCH", path, body=body, content_type=MERGE_PATCH, fence=self.fence)
        except ApiError as error:
            if error.status != 404:
                raise
            metadata = {"name": NAME, "namespace": self.namespace}
            tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            path = CONFIG_MAP.path(namespace=self.namespace)
            body = msgspec.json.encode(tree)
            await self.client.request("POST", path, body=body, content_type=JSON, fence=self.fence)

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned = {message: None}
            self.warn(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReading:
    """What a reader found: the state, and what its answer must say first, in a sentence and in a few words."""

    state: PublishedState | None = None
    problem: str = ""
    short: str = ""


async def read_state(client: ApiClient, namespace: str | None, now: datetime) -> StateReading:
    """Read the leader's state; `namespace`: where to look, None: where Dovetail is usually installed."""
    places = (namespace,) if namespace else _places(client)
    for place in places:
        try:
            raw = await client.request("GET", CONFIG_MAP.path(NAME, place))
        except ApiError as error:
            if error.status == 404:
                continue
            if error.status == 403:
                rule = CONFIG_MAP.rule("get", NAME)
                why = f"the state of the controller can't be read: add {rule} to your role in {place} ({error})"
                return StateReading(problem=f"{why}; {_LOST}", short=_UNREADABLE)
            raise
        return await _judged(client, place, raw, now)
    looked = f"there is no ConfigMap {NAME} in namespace {' or '.join(places)}"
    more = "" if namespace else "; --controller-namespace says where else to look"
    return StateReading(problem=f"no controller has published its state ({looked}): {_LOST}{more}", short=_MISSING)


def _places(client: ApiClient) -> Sequence[str]:
    own = client.connection.namespace if client.connection.name == "in-cluster" else ""
    return tuple(dict.fromkeys(place for place in (own, *NAMESPACES) if place))


async def _judged(client: ApiClient, namespace: str, raw: bytes, now: datetime) -> StateReading:
    """Return the state in a ConfigMap, and what is wrong with it."""
    where = f"ConfigMap {namespace}/{NAME}"
    try:
        data = msgspec.json.decode(raw, type=_ConfigMap).data or {}
        if not data.get(KEY):
            why = f"no controller has published its state yet ({where} is empty): {_LOST}"
            return StateReading(problem=why, short=_MISSING)
        state = decode_state(data[KEY])
    except UNREADABLE as error:
        return StateReading(problem=f"{where} can't be read ({error}): {_LOST}", short=_UNREADABLE)
    except StateError as error:
        why = f"{where} can't be used here ({error}), use the controller's own version: {_LOST}"
        return StateReading(problem=why, short=_UNREADABLE)
    old = await _age(client, namespace, state, now)
    parts = [old]
    if state.left_out:
        parts.append(f"the controller's state is too large to be published whole; missing: {_words(state.left_out)}")
    short = "its controller's state is old" if old else "its controller's state is cut" if state.left_out else ""
    return StateReading(state=state, problem="; ".join(filter(None, parts)), short=short)


def _words(fields: Sequence[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in fields)


async def _age(client: ApiClient, namespace: str, state: PublishedState, now: datetime) -> str:
    """Return that a state is old, and why; empty if its writer still leads."""
    told = f"the state of the controller is old: {state.by} wrote it {_ago(now - state.at)} ago"
    try:
        raw = await client.request("GET", LEASE.path(LEASE_NAME, namespace))
        spec = msgspec.json.decode(raw, type=_Lease).spec or _LeaseSpec()
    except UNREADABLE:
        spec = _LeaseSpec()
    except ApiError as error:
        if error.status == 403:
            rule = LEASE.rule("get", LEASE_NAME)
            missing = f"{told}, and its Lease can't be read: add {rule} to your role ({error})"
            return missing if now - state.at > _OLD else ""
        if error.status != 404:
            raise
        spec = _LeaseSpec()
    if not spec.holder_identity or spec.renew_time is None:
        return f"{told}, and no controller leads now"
    if spec.holder_identity != state.by:
        return f"{told}, and {spec.holder_identity} leads now"
    silent = now - spec.renew_time
    if silent > timedelta(seconds=2 * (spec.lease_duration_seconds or 15)):
        return f"{told}, and has not renewed its Lease for {_ago(silent)}"
    return ""


def _ago(span: timedelta) -> str:
    return format_duration(max(0, int(span.total_seconds())) * 1_000_000_000)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    renew_time: datetime | None = None
    lease_duration_seconds: int | None = None


class _Lease(msgspec.Struct):
    spec: _LeaseSpec | None = None
