"""What Dovetail and operators write on a NodePool: a pause, a halt, and the nodes that started leaving recently.

See docs/rules.md#rates, #pause and #health. Annotations are input: what can't be read fails closed. Sits in api; pure.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from dovetail.model.names import HALTED, PAUSED, PAUSED_REASON, RECENT_DISRUPTIONS
from dovetail.model.objects import Instant, NodePool
from dovetail.model.policies.reasons import Reason
from dovetail.model.timing.duration import later

_HISTORY_MAX: Final = 10_000


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's pause: until when (None: until it is resumed), why, and what is wrong with its text."""

    until: datetime | None = None
    reason: str = ""
    warning: str = ""

    def holds(self, now: datetime) -> bool:
        """Return whether the pool is paused now."""
        return self.until is None or now < self.until


def read_pause(pool: NodePool) -> Pause | None:
    """Return the pool's pause; None if it has none. A value that can't be read pauses too."""
    annotations = pool.metadata.annotations
    value = annotations.get(PAUSED)
    if value is None:
        return None
    reason = annotations.get(PAUSED_REASON, "")
    if value == "true":
        return Pause(reason=reason)
    try:
        until = datetime.fromisoformat(value)
    except ValueError:
        until = None
    if until is None or until.tzinfo is None:
        odd = f"{PAUSED}: {value[:60]!r} is neither true nor a time such as 2026-03-14T15:30:00Z; the pool is paused"
        return Pause(reason=reason, warning=odd)
    return Pause(until=_utc(until), reason=reason)


def _utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return moment.replace(tzinfo=UTC)


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pool stopped by itself: moved pods that did not become ready (docs/rules.md#health)."""

    why: str
    owners: tuple[str, ...] = ()
    command: str = ""
    ready: tuple[tuple[str, int], ...] = ()
    """How many ready pods each owner (by uid) had before: the halt ends when they have as many again."""


class _WireHalt(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    why: str = ""
    owners: tuple[str, ...] = ()
    command: str = ""
    ready: tuple[tuple[str, int], ...] = ()


def read_halt(pool: NodePool) -> Halt | None:
    """Return why the pool halted; None if it has not. A value that can't be read halts too."""
    value = pool.metadata.annotations.get(HALTED)
    if value is None:
        return None
    try:
        wire = msgspec.json.decode(value, type=_WireHalt)
    except (msgspec.DecodeError, RecursionError):
        return Halt(why=f"{HALTED} can't be read: {value[:60]!r}")
    return Halt(why=wire.why, owners=wire.owners, command=wire.command, ready=wire.ready)


def write_halt(halt: Halt) -> str:
    """Return the annotation that says why a pool halted."""
    return msgspec.json.encode(
        _WireHalt(why=halt.why, owners=halt.owners, command=halt.command, ready=halt.ready)
    ).decode()


class Departure(msgspec.Struct, rename="camel", frozen=True):
    """Nodes that started leaving: when, how many, why, by which command."""

    at: Instant
    nodes: int
    reason: Reason
    command: str


History = tuple[Departure, ...]


def read_history(pool: NodePool) -> History | None:
    """Return the nodes that started leaving recently; None if the history can't be read: it then counts as full."""
    return decode_history(pool.metadata.annotations.get(RECENT_DISRUPTIONS))


def decode_history(value: str | None) -> History | None:
    """Read the annotation's value; None if it can't be read."""
    if value is None:
        return ()
    try:
        found = msgspec.json.decode(value, type=tuple[Departure, ...])
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if len(found) <= _HISTORY_MAX and all(entry.nodes >= 0 for entry in found) else None


def write_history(history: History) -> str:
    """Return the annotation that holds a history."""
    entries = sorted(history, key=lambda entry: (entry.at, entry.command))
    return msgspec.json.encode([_tree(entry) for entry in entries]).decode()


def _tree(entry: Departure) -> dict[str, object]:
    at = entry.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return {"at": at, "nodes": entry.nodes, "reason": entry.reason.value, "command": entry.command}


def pruned(history: History, span: int, now: datetime) -> History:
    """Return the entries of a history that are younger than a number of nanoseconds."""
    return tuple(entry for entry in history if now < later(entry.at, span))
