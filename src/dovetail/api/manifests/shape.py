"""Shapes of manifests as data, and the one function that checks a tree against them.

A shape says about a field what a CRD's schema says (type, pattern, enum, bounds, contents) and what to write instead.
`validate` has the rules between fields. Sits in api; knows no kind.
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from dovetail.api.findings import Finding, Remark, Severity, shown

_PLAIN_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
QUANTITY: Final = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))?"
)

REQUIRED: Final = "is required"
_INTEGER_END: Final = 2**63
_TEXT_MAX: Final = 256 * 1024  # annotations may be this long; keeps patterns from running on whole files


class Kind(StrEnum):
    """The type of a field; the value is the word for people."""

    TEXT = "text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    FLAG = "true or false"
    MAP = "a map"
    LIST = "a list"
    QUANTITY = "a quantity such as 500m, 4 or 16Gi"
    TIME = "a time such as 2026-03-14T15:30:00Z"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What one field may contain. `remedy` completes the sentence "write ..."."""

    kind: Kind
    remedy: str = ""
    pattern: str | None = None
    words: tuple[str, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    longest: int | None = None
    fields: Mapping[str, "Shape"] = msgspec.field(default_factory=dict)
    required: tuple[str, ...] = ()
    items: "Shape | None" = None
    values: "Shape | None" = None


def child(path: str, key: str) -> str:
    """Return the path of a map's entry: `spec.limits.cpu`, `labels[example.com/team]`."""
    if _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{key}]"


def error(path: str, value: Any, message: str, remedy: str = "") -> Finding:
    """Build a finding that makes the object unusable."""
    return Finding(severity=Severity.ERROR, path=path, value=shown(value), message=message, remedy=remedy)


def warning(path: str, value: Any, message: str, remedy: str = "") -> Finding:
    """Build a finding that is only a warning."""
    return Finding(severity=Severity.WARNING, path=path, value=shown(value), message=message, remedy=remedy)


def check(shape: Shape, value: Any, path: str) -> Iterator[Finding]:
    """Return everything that is wrong with a value; unknown fields are warnings, null fields count as absent."""
    if not _is(shape.kind, value):
        yield error(path, value, f"must be {shape.kind.value}", _write(shape))
        return
    if shape.kind is Kind.MAP:
        yield from _check_map(shape, value, path)
    elif shape.kind is Kind.LIST:
        if len(value) > shape.high:
            yield error(
                path, Remark(f"{len(value)} entries"), f"may have at most {shape.high:.0f} entries", "drop some"
            )
        for index, item in enumerate(value):
            if shape.items is not None:
                yield from check(shape.items, item, f"{path}[{index}]")
    else:
        yield from _check_plain(shape, value, path)


def _is(kind: Kind, value: Any) -> bool:
    if kind is Kind.FLAG:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind is Kind.WHOLE:
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if kind is Kind.NUMBER:
        return isinstance(value, (int, float)) and math.isfinite(value)
    if kind is Kind.QUANTITY:
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return isinstance(value, str) or (is_whole and abs(value) < _INTEGER_END)
    if kind is Kind.MAP:
        return isinstance(value, dict)
    return isinstance(value, list if kind is Kind.LIST else str)


def _check_map(shape: Shape, value: dict[str, Any], path: str) -> Iterator[Finding]:
    for name in shape.required:
        if value.get(name) is None:
            yield error(child(path, name), None, REQUIRED, _write(shape.fields[name]) or "write it")
    if len(value) > shape.high:
        yield error(path, Remark(f"{len(value)} entries"), f"may have at most {shape.high:.0f} entries", "drop some")
    for key, inner in value.items():
        if inner is None:
            continue
        known = shape.fields.get(key) or shape.values
        if known is not None:
            yield from check(known, inner, child(path, key))
        elif shape.fields:
            yield warning(
                child(path, key), inner, "is not a field of this object and will be dropped", _near(key, shape)
            )


def _near(key: str, shape: Shape) -> str:
    import difflib

    near = difflib.get_close_matches(key, list(shape.fields), n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else "take it out"


def _check_plain(shape: Shape, value: Any, path: str) -> Iterator[Finding]:
    if shape.words and value not in shape.words:
        yield error(path, value, "is none of the words known here", f"write {' or '.join(shape.words)}")
    elif isinstance(value, str) and len(value) > (shape.longest or _TEXT_MAX):
        yield error(path, value, f"has {len(value)} characters", f"write at most {shape.longest or _TEXT_MAX}")
    elif shape.pattern is not None and re.fullmatch(shape.pattern, value) is None:
        yield error(path, value, "has the wrong form", _write(shape))
    elif shape.kind is Kind.QUANTITY and isinstance(value, str) and QUANTITY.fullmatch(value) is None:
        yield error(path, value, f"must be {Kind.QUANTITY.value}")
    elif shape.kind is Kind.TIME and not _is_time(value):
        yield error(path, value, f"must be {Kind.TIME.value}")
    elif shape.kind in (Kind.WHOLE, Kind.NUMBER) and not shape.low <= value <= shape.high:
        yield error(path, value, "is out of bounds", _bounds(shape))


def _bounds(shape: Shape) -> str:
    if shape.high == math.inf:
        return f"write {shape.low:g} or more"
    return f"write {shape.low:g} to {shape.high:g}"


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _write(shape: Shape) -> str:
    if shape.remedy:
        return f"write {shape.remedy}"
    return f"write {' or '.join(shape.words)}" if shape.words else ""
