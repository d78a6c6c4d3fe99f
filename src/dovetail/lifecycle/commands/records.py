"""The record of a command on the cluster's own objects: everything a successor needs to finish it or roll it back.

Written as the annotation `dovetail.dev/command` on every candidate's Node together with the taint, and on every
replacement NodeClaim from its creation (Karpenter copies it onto the replacement's Node). docs/rules.md#carrying-out:
after a crash or a change of leader the next one finds what was in flight from the cluster alone. Decides nothing. Sits
in lifecycle, below `command_run`.
"""

from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final

import msgspec

from dovetail.model import names
from dovetail.model.command import Action, Command, Method
from dovetail.model.objects import Instant, Node, NodeClaim, Taint

_NAME_MAX: Final = 63
_ID_LENGTH: Final = 12
_TEXT_MAX: Final = 256 << 10  # what all annotations of an object may hold together
_KEPT_TEXT_MAX: Final = 32 << 10  # more than a command of a hundred nodes with the longest names needs
DOVETAIL: Final = "dovetail"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a command removes, and its exact NodeClaim."""

    node: str
    claim: str
    uid: str
    pool: str = ""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A command as its objects carry it. `since` is when its taints, or its launches, started.

    `by` is the kind of controller that wrote it: another kind (a simulated Karpenter) leaves it alone. `seal` shows
    that Dovetail wrote it (`seal`). `evicted`: the pods (`namespace/name`) whose eviction from this Node was requested.
    """

    v: int = 1
    id: str
    action: Action
    method: Method
    phase: str
    since: Instant
    nodes: tuple[Candidate, ...]
    replacements: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    by: str = DOVETAIL
    evicted: tuple[str, ...] = ()
    seal: str = ""


_DECODER: Final = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> str:
    """Return the annotation's value."""
    return msgspec.json.encode(record).decode()


def read_record(text: str) -> Record | str:
    """Read an annotation's value, or return why it is not a record of a known form."""
    if len(text) > _TEXT_MAX:
        return f"it is longer than {_TEXT_MAX} characters"
    try:
        record = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        return f"it can't be read: {error}"
    if record.v != 1:
        return f"its version {record.v} is not known"
    return record if record.id else "it has no id"


def decode_record(text: str) -> Record | None:
    """Read an annotation's value; None if it is not a record of a known form.

    The objects of a command are looked at often and all carry the same value, so values of a usual size are read once.
    """
    return _decode_once(text) if len(text) <= _KEPT_TEXT_MAX else _decode(text)


def _decode(text: str) -> Record | None:
    record = read_record(text)
    return None if isinstance(record, str) else record


_decode_once = lru_cache(maxsize=1024)(_decode)


def record_of(item: Node | NodeClaim) -> Record | None:
    """Read an object's record, or None."""
    text = item.metadata.annotations.get(names.COMMAND)
    return None if text is None else decode_record(text)


def is_our_taint(taint: Taint) -> bool:
    """Return whether it is `karpenter.sh/disruption=disrupting:NoSchedule`."""
    return taint.key == names.DISRUPTION_TAINT and taint.value == names.DISRUPTION_TAINT_VALUE


def is_tainted(node: Node) -> bool:
    """Return whether the node carries the disruption taint."""
    return any(is_our_taint(taint) for taint in node.spec.taints)


def carries(item: Node | NodeClaim, command_id: str) -> bool:
    """Return whether the object carries the record of that command."""
    record = record_of(item)
    return record is not None and record.id == command_id


def command_id(command: Command, uids: tuple[str, ...], identity: str, now: datetime, number: int) -> str:
    """Return a command's id, derived from its content, its time and the deciding process: deterministic and unique."""
    parts = (identity, str(number), now.isoformat(), command.action, command.method, *command.nodes, *uids)
    return sha256("\x00".join(parts).encode()).hexdigest()[:_ID_LENGTH]


def replacement_names(command: Command, ident: str) -> tuple[str, ...]:
    """Return the names of a command's replacement NodeClaims, so that creating them is idempotent."""
    return tuple(_fit(spec.node_pool, f"-{ident}-{index}") for index, spec in enumerate(command.replacements))


def _fit(pool: str, tail: str) -> str:
    return pool[: _NAME_MAX - len(tail)].rstrip("-.") + tail
