"""In which line of a YAML or JSON file a field of an object stands: for annotations of a pull request.

A help for people only: where it can't be found, the line of the nearest field above it, or 1. Sits in api.
"""

import re
from pathlib import Path
from typing import Final

import yaml

_STEP: Final = re.compile(r"[^.\[\]]+|\[\d+\]|\[[^\]]*\]")


def line_of(file: str, name: str, path: str) -> int:
    """Return the line of a field, such as `spec.disruption.budgets[0].nodes`, of an object, such as `NodePool/web`."""
    try:
        documents = list(yaml.compose_all(Path(file).read_text(encoding="utf-8"), Loader=yaml.SafeLoader))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return 1
    for document in documents:
        for item in _objects(document):
            if name in (_named(item), _scalar(item, "kind")):
                return _line(item, _STEP.findall(path))
    return 1


def _objects(document: yaml.Node | None) -> list[yaml.Node]:
    """Return the object of a document, or those of a List."""
    items = None if document is None else _child(document, "items")
    if isinstance(items, yaml.SequenceNode):
        return list(items.value)
    return [] if document is None else [document]


def _named(item: yaml.Node) -> str:
    meta = _child(item, "metadata")
    return f"{_scalar(item, 'kind')}/{'' if meta is None else _scalar(meta, 'name')}"


def _scalar(item: yaml.Node, key: str) -> str:
    found = _child(item, key)
    return str(found.value) if isinstance(found, yaml.ScalarNode) else ""


def _line(item: yaml.Node, steps: list[str]) -> int:
    line = int(item.start_mark.line) + 1
    for step in steps:
        entry = _entry(item, step)
        if entry is None:
            break
        line, item = int(entry[0].start_mark.line) + 1, entry[1]
    return line


def _child(item: yaml.Node, key: str) -> yaml.Node | None:
    entry = _entry(item, key)
    return None if entry is None else entry[1]


def _entry(item: yaml.Node, step: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the node that shows where a step leads, and the node that it leads to."""
    if isinstance(item, yaml.MappingNode):
        return next(((key, value) for key, value in item.value if str(key.value) == step), None)
    if isinstance(item, yaml.SequenceNode) and step[1:-1].isdigit() and int(step[1:-1]) < len(item.value):
        found = item.value[int(step[1:-1])]
        return found, found
    return None
