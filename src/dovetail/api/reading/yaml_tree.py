"""YAML into plain trees of dict, list, str, int, float, bool and None, read as Kubernetes' own tools read it.

Differs from PyYAML's own loader where Kubernetes does: dates stay text, `1e3` is a number, `12:30` is text, `y`/`n` are
booleans, and if a key appears twice, the last one wins. Built from the parser's events, without recursion, so that deep
nesting, millions of aliases (a "YAML bomb") or a cycle give an error message instead of exhausting memory. Sits in api;
knows no Kubernetes object.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from dovetail.api.findings import InputError

DEPTH_MAX: Final = 200
EXPANDED_MAX: Final = 1_000_000  # nodes that aliases may add; hand-written files stay below some thousand

_TRUE: Final = frozenset({"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE: Final = frozenset({"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_SPECIAL: Final = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASES: Final = (("0b", 2), ("0x", 16), ("0o", 8))
_DIGITS_MAX: Final = 4000  # Python refuses to read longer integers
_TAG: Final = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument:
    """One document: its tree, its first line, and its duplicate keys with their lines."""

    tree: Any
    line: int
    duplicates: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class _Open:
    """A list or map that is being read."""

    value: Any
    anchor: str | None
    keys: set[Any] = field(default_factory=set)
    key: Any = None
    has_key: bool = False
    size: int = 1
    merges: list[Any] = field(default_factory=list)


class _Builder:
    """Builds the tree of one document from its events."""

    def __init__(self) -> None:
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.duplicates: list[tuple[str, int]] = []
        self.root: Any = None
        self.expanded = 0

    def take(self, event: Any) -> None:
        """Process the next event."""
        if isinstance(event, yaml.ScalarEvent):
            value = scalar(event.value, event.tag, plain=event.implicit[0])
            if event.anchor:
                self.anchors[event.anchor] = (value, 1)
            self._put(value, 1, event, merge=event.implicit[0] and event.value == "<<")
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(self.stack) >= DEPTH_MAX:
                raise InputError(f"line {_line(event)} is nested more than {DEPTH_MAX} levels deep")
            self.stack.append(_Open({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor))
            if event.anchor:
                self.anchors.pop(event.anchor, None)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close(event)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            raise InputError(f"line {_line(event)} uses *{event.anchor}, which no complete &anchor defines")
        value, size = self.anchors[event.anchor]
        self.expanded += size
        if self.expanded > EXPANDED_MAX:
            raise InputError(f"its aliases expand to more than {EXPANDED_MAX} values (a YAML bomb); write them out")
        self._put(value, size, event)

    def _close(self, event: Any) -> None:
        done = self.stack.pop()
        for source in done.merges:
            for key, inner in source.items():
                done.value.setdefault(key, inner)
        if done.anchor:
            self.anchors[done.anchor] = (done.value, done.size)
        self._put(done.value, done.size, event)

    def _put(self, value: Any, size: int, event: Any, merge: bool = False) -> None:
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        top.size += size
        if isinstance(top.value, list):
            top.value.append(value)
        elif not top.has_key:
            top.key, top.has_key = (_MERGE if merge else _key(value, event)), True
        elif top.key is _MERGE:
            top.merges.extend(_merged(value, event))
            top.has_key = False
        else:
            if top.key in top.keys:
                self.duplicates.append((str(top.key), _line(event)))
            top.keys.add(top.key)
            top.value[top.key] = value
            top.has_key = False


_MERGE: Final = object()


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _key(value: Any, event: Any) -> str:
    """Return a map's key as Kubernetes converts it to JSON: always text."""
    if isinstance(value, (dict, list)):
        raise InputError(f"line {_line(event)} has a map or list as a key; keys must be text")
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _merged(value: Any, event: Any) -> list[dict[str, Any]]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise InputError(f"line {_line(event)} merges (<<) something that is not a map")
    return sources


def scalar(text: str, tag: str | None, *, plain: bool) -> Any:
    """Read one scalar: quoted ones are text, plain ones are typed by their form, tagged ones by their tag."""
    if tag is not None and tag not in ("!", _TAG + "binary"):
        if tag == _TAG + "str":
            return text
        value = _plain(text)
        if tag == _TAG + "float" and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return value
    return _plain(text) if plain and tag is None else text


def _plain(text: str) -> Any:
    first = text[:1]
    if first.isdigit() or first in ("-", "+", "."):
        return _number(text)
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    return False if text in _FALSE else text


def _number(text: str) -> Any:
    bare = text.replace("_", "")
    if _FLOAT.fullmatch(bare) is None:
        sign = -1 if bare.startswith("-") else 1
        for prefix, base in _BASES:
            if bare.lstrip("+-").startswith(prefix):
                try:
                    return sign * int(bare.lstrip("+-")[2:], base)
                except ValueError:
                    return text
        return _SPECIAL.get(bare.lower(), text)
    digits = bare.lstrip("+-")
    if digits.isdigit() and len(digits) < _DIGITS_MAX:
        if digits.startswith("0") and len(digits) > 1:
            octal = all(digit < "8" for digit in digits)
            return (-1 if bare.startswith("-") else 1) * int(digits, 8) if octal else float(bare)
        return int(bare)
    return float(bare)


def parse_yaml(data: bytes | str) -> Iterator[YamlDocument]:
    """Yield the documents of a YAML text, including empty ones (their tree is None)."""
    builder = _Builder()
    line = 1
    try:
        for event in yaml.parse(data, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.DocumentStartEvent):
                builder, line = _Builder(), _line(event)
            elif isinstance(event, yaml.DocumentEndEvent):
                yield YamlDocument(tree=builder.root, line=line, duplicates=tuple(builder.duplicates))
            else:
                builder.take(event)
    except yaml.YAMLError as error:
        raise InputError(_yaml_problem(error)) from None
    except (UnicodeDecodeError, ValueError):
        raise InputError("it is not readable as UTF-8 text") from None


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable")
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "the text"
    return f"{where} is not YAML ({problem})"
