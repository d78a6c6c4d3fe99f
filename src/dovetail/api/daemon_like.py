"""Reads the setting `daemonLikePods`: a list of label selectors, each with the namespaces that it is for.

Mistakes are refused with a sentence that names the key. Sits in api.
"""

from typing import Any, Final

import msgspec

from dovetail.api.findings import InputError, shown
from dovetail.model.labels.selectors import LabelSelector
from dovetail.model.objects import LabelSelectorSpec
from dovetail.model.policies.daemon_like import DaemonLikePods

_KEYS: Final = ("namespaces", "matchLabels", "matchExpressions")
_EXAMPLE: Final = "[{namespaces: [gpu], matchLabels: {app: gpu-agent}}]"


def read_daemon_like(value: Any, key: str) -> tuple[DaemonLikePods, ...]:
    """Read the setting; raise an InputError that names the entry and the field."""
    if not isinstance(value, list):
        raise InputError(f"{key} is {shown(value)}; write a list such as {_EXAMPLE}")
    return tuple(_entry(entry, f"{key}[{number}]") for number, entry in enumerate(value))


def _entry(tree: Any, where: str) -> DaemonLikePods:
    if not isinstance(tree, dict):
        raise InputError(f"{where} is {shown(tree)}; write a map such as {_EXAMPLE[1:-1]}")
    for name in tree:
        if name not in _KEYS:
            raise InputError(f"{where} has the field {shown(name)}; valid fields: {', '.join(_KEYS)}")
    spaces = tree.get("namespaces", [])
    if not isinstance(spaces, list) or not all(isinstance(name, str) and name for name in spaces):
        raise InputError(f"{where}.namespaces is {shown(spaces)}; write a list of names such as [gpu]")
    try:
        spec = msgspec.convert({key: value for key, value in tree.items() if key != "namespaces"}, LabelSelectorSpec)
    except msgspec.ValidationError as error:
        raise InputError(f"{where} is not a label selector ({error}); write for example {_EXAMPLE[1:-1]}") from None
    if not spec.match_labels and not spec.match_expressions:
        raise InputError(f"{where} selects every pod; write matchLabels or matchExpressions")
    selector = LabelSelector.compile(spec)
    if selector.problem:
        raise InputError(f"{where}: {selector.problem}")
    return DaemonLikePods(selector=selector, namespaces=tuple(spaces))
