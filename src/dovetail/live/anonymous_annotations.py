"""The annotations of an anonymised object: what rules understand stays, every other text is replaced.

A value that a rule can't read means something, too (it pauses, closes or is ignored), so it is replaced by one that is
as unreadable, without its text. Names inside a value are replaced like names everywhere else.
"""

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
import yaml

from dovetail.api.pod_windows import read_pod_window
from dovetail.api.pool_marks import decode_history
from dovetail.api.rolling import decode_rolling
from dovetail.model import names
from dovetail.model.objects import BudgetSpec, DisruptionSpec
from dovetail.model.parts.pools import HealthSpec, PendingPodsSpec, RepairSpec, WindowSpec
from dovetail.model.timing.cron import ScheduleError
from dovetail.model.timing.duration import DurationError, parse_go_duration
from dovetail.model.timing.schedule import parse_schedule

Rename = Callable[[str, str], str]
Rewrite = Callable[[str], str]
UNREADABLE: Final = "unreadable"
_BROKEN_MAP: Final = "unreadable: ["  # no YAML: as broken as what it stands for
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_PLAIN: Final = re.compile(r"true|false|v?[0-9]{1,20}|-[0-9]{1,20}")
_PRESENT: Final = frozenset({"kubernetes.io/config.mirror", names.HOLD})
_TEXTS: Final = frozenset({"Never", "WhenEmpty", "WhenEmptyOrUnderutilized", "WhenUnderutilized", "Balanced"})
_REASONS: Final = frozenset({"Empty", "Expired", "Drifted", "Underutilized", "Unhealthy", "True", "False", "Unknown"})
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,18})?%?")
_FIELDS: Final = frozenset(
    field.encode_name
    for struct in (DisruptionSpec, BudgetSpec, WindowSpec, HealthSpec, PendingPodsSpec, RepairSpec)
    for field in msgspec.structs.fields(struct)
)


def annotations(
    given: dict[str, str], rename: Rename, label_key: Rewrite, label_value: Callable[[str, str], str]
) -> dict[str, str]:
    """Return the annotations without any text of a person; command records are dropped."""
    kept = {key: _value(key, text, rename, label_key) for key, text in given.items() if key not in _OF_A_ROLL}
    rolling = decode_rolling(given[names.ROLLING_DOMAIN]) if names.ROLLING_DOMAIN in given else None
    if names.ROLLING_DOMAIN in given:
        kept[names.ROLLING_DOMAIN] = _rolling(given[names.ROLLING_DOMAIN], label_key, label_value)
    if names.ROLLOUT in given and rolling is not None:  # without its key nothing says what its domains are
        kept[names.ROLLOUT] = _rollout(given[names.ROLLOUT], rolling.key, label_value)
    return kept


_OF_A_ROLL: Final = (names.COMMAND, names.ROLLING_DOMAIN, names.ROLLOUT)


def _value(key: str, text: str, rename: Rename, label_key: Rewrite) -> str:
    if key == _SELECTED_NODE:
        return rename("name", text)
    if key == names.POLICY_ANNOTATION:
        return _policy(text, label_key)
    if key == names.NODEPOOL_HASH:
        return text if _PLAIN.fullmatch(text) else rename("value", text)
    if key in _PRESENT:
        return "true"
    if key == names.HALTED:
        return _halt(text, rename)
    if key == names.RECENT_DISRUPTIONS:
        return text if decode_history(text) is not None and _is_history(text) else UNREADABLE
    if key == names.DISRUPTION_WINDOW:
        return text if not read_pod_window(text).problem else UNREADABLE
    return text if _PLAIN.fullmatch(text) or _is_time(text) or _is_duration(text) else UNREADABLE


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_duration(text: str) -> bool:
    try:
        parse_go_duration(text)
    except DurationError:
        return False
    return True


def _is_history(text: str) -> bool:
    """Return whether a history has only its own fields, and commands that look like Dovetail's."""
    known = {"at", "nodes", "reason", "command"}
    return all(set(entry) <= known and re.fullmatch("[0-9a-f]{0,40}", entry["command"]) for entry in json.loads(text))


def _halt(text: str, rename: Rename) -> str:
    try:
        tree = json.loads(text)
        ready = [[rename("uid", uid), int(count)] for uid, count in tree.get("ready", ())]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return UNREADABLE
    return json.dumps({"why": "moved pods did not become ready", "ready": ready})


def _rolling(text: str, label_key: Rewrite, label_value: Callable[[str, str], str]) -> str:
    if decode_rolling(text) is None:
        return UNREADABLE
    tree = json.loads(text)
    kept = {key: tree[key] for key in ("since", "idleSince", "idleFor") if tree.get(key) is not None}
    value = None if tree["value"] is None else label_value(tree["key"], tree["value"])
    return json.dumps({"key": label_key(tree["key"]), "value": value, **kept})


def _rollout(text: str, key: str, label_value: Callable[[str, str], str]) -> str:
    def domains(entries: Any) -> list[str | None]:
        return [None if entry is None else label_value(key, str(entry)) for entry in entries]

    try:
        tree = json.loads(text)
        began = {"began": tree["began"]} if _is_time(str(tree.get("began"))) else {}
        return json.dumps(
            {**began, "turns": domains(tree.get("turns", ())), "leftBehind": domains(tree.get("leftBehind", ()))}
        )
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return UNREADABLE


# ------------------------------------------------------------ the policy


def _policy(text: str, label_key: Rewrite) -> str:
    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return _BROKEN_MAP
    return json.dumps(_part(tree, label_key)) if isinstance(tree, dict) else UNREADABLE


def _part(tree: Any, label_key: Rewrite, field: str = "") -> Any:
    """Return a part of the policy: fields that Dovetail knows with values that it understands, all else unreadable."""
    if isinstance(tree, dict):
        return {
            str(key) if key in _FIELDS else f"unknown{number}": _part(value, label_key, str(key))
            for number, (key, value) in enumerate(tree.items())
        }
    if isinstance(tree, list):
        return [_part(entry, label_key, field) for entry in tree]
    if not isinstance(tree, str):
        return tree if isinstance(tree, int | float | bool) or tree is None else UNREADABLE
    if field == "topologyKey":
        return label_key(tree)
    if field == "condition" and re.fullmatch("[A-Za-z0-9./-]{1,80}", tree):
        return tree  # the type of a condition, which stays on the nodes, too
    return tree if _is_policy_text(tree) else UNREADABLE


def _is_policy_text(text: str) -> bool:
    if text in _TEXTS or text in _REASONS or _NUMBER.fullmatch(text):
        return True
    try:
        parse_schedule(text)
    except ScheduleError:
        return _is_length(text)
    return True


def _is_length(text: str) -> bool:
    return re.fullmatch(r"([0-9]{1,9}[smhd])+", text) is not None
