"""Karpenter's hash of a NodePool's template (its version v3): the text in annotation `karpenter.sh/nodepool-hash`.

Karpenter compares a NodeClaim's annotation with its pool's to find drift, so a NodeClaim that Dovetail creates must
carry the same number. A Go library defines it by walking Karpenter's Go types: 64-bit FNV-1, fields mixed in their
order in the type, absent ones skipped, lists of taints without order. Requirements don't count. Sits in api; pure.
"""

import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from dovetail.model.objects import NodeClaimSpec, NodePool, Taint, TemplateMeta
from dovetail.model.timing.duration import parse_nillable

POOL_HASH_VERSION: Final = "v3"
_OFFSET: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = 0xFFFFFFFFFFFFFFFF
_YEAR_ONE: Final = datetime(1, 1, 1, tzinfo=UTC)
_EXPIRE_AFTER_DEFAULT: Final = "720h"


def pool_hash(node_pool: NodePool) -> str:
    """Return the hash of a pool's template, as Karpenter writes it into its annotation."""
    template = node_pool.spec.template
    fields = [
        ("ObjectMeta", _metadata(template.metadata)),
        ("Spec", _spec(template.spec)),
    ]
    return str(_struct("NodeClaimTemplate", fields))


def _metadata(meta: TemplateMeta) -> int | None:
    if not meta.labels and not meta.annotations:
        return None
    return _struct("ObjectMeta", [("Labels", _map(meta.labels)), ("Annotations", _map(meta.annotations))])


def _spec(spec: NodeClaimSpec) -> int:
    reference = spec.node_class_ref
    class_fields = [
        (name, _text(value) if value else None)
        for name, value in (("Kind", reference.kind), ("Name", reference.name), ("Group", reference.group))
    ]
    fields = [
        ("Taints", _taints(spec.taints)),
        ("StartupTaints", _taints(spec.startup_taints)),
        ("NodeClassRef", _struct("NodeClassReference", class_fields)),
        ("TerminationGracePeriod", _length("Duration", spec.termination_grace_period)),
        ("ExpireAfter", _length("NillableDuration", spec.expire_after or _EXPIRE_AFTER_DEFAULT)),
    ]
    return _struct("NodeClaimTemplateSpec", fields)


def _length(kind: str, text: str | None) -> int | None:
    """Hash a duration; Never is absent. A zero counts behind a Go pointer, but not as a plain value."""
    duration = None if text is None else parse_nillable(text)
    if duration is None:
        return None
    absent = duration == 0 and kind == "Duration"
    return _struct(kind, [("Duration", None if absent else _fnv(struct.pack("<q", duration)))])


def _taints(taints: tuple[Taint, ...]) -> int | None:
    if not taints:
        return None
    mixed = 0
    for taint in taints:
        texts = (("Key", taint.key), ("Value", taint.value), ("Effect", taint.effect))
        fields: list[tuple[str, int | None]] = [(name, _text(value) if value else None) for name, value in texts]
        added = taint.time_added
        fields.append(("TimeAdded", None if added is None else _struct("Time", [("Time", _time(added))])))
        mixed ^= _struct("Taint", fields)
    return mixed


def _time(moment: datetime) -> int:
    """Hash Go's binary form of a time, for a process in UTC: version, seconds since year 1, ns, offset."""
    since = moment.astimezone(UTC) - _YEAR_ONE
    return _fnv(struct.pack(">BqiH", 1, since.days * 86400 + since.seconds, since.microseconds * 1000, 0))


def _struct(name: str, fields: Iterable[tuple[str, int | None]]) -> int:
    """Mix the type's name with each field that is set, and finalise after each."""
    mixed = _text(name)
    for field, value in fields:
        if value is not None:
            mixed = _seal(mixed ^ _pair(_text(field), value))
    return mixed


def _map(entries: Mapping[str, str]) -> int | None:
    if not entries:
        return None
    mixed = 0
    for key, value in entries.items():
        mixed ^= _pair(_text(key), _text(value))
    return _seal(mixed)


def _text(value: str) -> int:
    return _fnv(value.encode())


def _pair(first: int, second: int) -> int:
    return _fnv(struct.pack("<QQ", first, second))


def _seal(value: int) -> int:
    return _fnv(struct.pack("<Q", value))


def _fnv(data: bytes) -> int:
    """Return the 64-bit FNV-1 of the bytes: multiply, then mix in."""
    state = _OFFSET
    for byte in data:
        state = (state * _PRIME & _MASK) ^ byte
    return state
