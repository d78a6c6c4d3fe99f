"""Change fields of a NodePool's policy where they take effect: in the annotation if there is one, else in the spec.

For what-if questions (`plan`, `sim`): the pool is copied, nothing is written to a cluster. Reads field values as the
command line gives them. Pure. Sits in api.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dovetail.api.findings import InputError, one_line
from dovetail.api.manifests.manifest_shapes import DISRUPTION
from dovetail.api.manifests.validate import read_annotation
from dovetail.api.policy import effective_policy
from dovetail.api.reading.yaml_tree import parse_yaml
from dovetail.api.settings import SETTINGS
from dovetail.model import names
from dovetail.model.objects import NodePool
from dovetail.model.policies.managed import is_labelled
from dovetail.model.settings import Settings

BASE: Final = "base"
MANAGE: Final = "manage"
_KARPENTERS: Final = ("consolidationPolicy", "consolidateAfter", "budgets")
_BUDGET: Final = frozenset({"nodes", "schedule", "duration", "reasons"})
_BUDGET_REASONS: Final = frozenset({"Empty", "Drifted", "Underutilized"})
_NUMBERS = ("consolidationSavingsThreshold", "disruptionPrice")


def with_policy_field(pool: NodePool, key: str, value: Any) -> NodePool:
    """Return the pool with one policy field changed where it takes effect; None: left out.

    It takes the place of an annotation that can't be read.
    """
    value = float(value) if key in _NUMBERS and value is not None else value
    annotation = pool.metadata.annotations.get(names.POLICY_ANNOTATION)
    if annotation is not None:
        text = json.dumps({**(_readable(annotation) or {}), key: value})
        annotations = {**pool.metadata.annotations, names.POLICY_ANNOTATION: text}
        return msgspec.structs.replace(pool, metadata=msgspec.structs.replace(pool.metadata, annotations=annotations))
    tree = msgspec.to_builtins(pool.spec.disruption)
    tree[key] = value
    disruption = msgspec.convert(tree, type(pool.spec.disruption))
    return msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, disruption=disruption))


def with_policy_fields(pool: NodePool, fields: Mapping[str, Any]) -> NodePool:
    """Return the pool with several policy fields changed."""
    for key, value in fields.items():
        pool = with_policy_field(pool, key, value)
    return pool


def mended(pool: NodePool, unreadable: Iterable[str]) -> NodePool:
    """Return the pool without the policy fields that can't be read, or without an annotation that can't be."""
    annotation = pool.metadata.annotations.get(names.POLICY_ANNOTATION)
    if annotation is not None and _readable(annotation) is None:
        kept = {key: text for key, text in pool.metadata.annotations.items() if key != names.POLICY_ANNOTATION}
        return msgspec.structs.replace(pool, metadata=msgspec.structs.replace(pool.metadata, annotations=kept))
    return with_policy_fields(pool, dict.fromkeys(unreadable))


def _readable(annotation: str) -> Mapping[str, Any] | None:
    try:
        return read_annotation(annotation)
    except InputError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """What `--set` asks for: fields of spec.disruption, settings, and whether Dovetail manages the pools (or None)."""

    fields: dict[str, Any]
    settings: dict[str, Any]
    manage: bool | None = None


def read_changes(words: Iterable[str]) -> PolicyChange:
    """Read `FIELD=VALUE` words; a value is YAML, so that budgets can be given as a list."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key or not text:
            raise InputError(f"--set {one_line(word)}: write FIELD=VALUE, such as consolidateAfter=5m")
        if key not in DISRUPTION.fields and key not in (*SETTINGS, BASE, MANAGE):
            known = (*DISRUPTION.fields, BASE, MANAGE)
            near = difflib.get_close_matches(key, (*known, *SETTINGS), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"write one of: {', '.join(known)}, or a setting"
            raise InputError(
                f"--set {one_line(key)}: there is no such field of spec.disruption, and no setting; {hint}"
            )
        if key in found:
            raise InputError(f"--set {key}: given twice; keep one")
        found[key] = _value(key, text)
    manage = found.pop(MANAGE, None)
    if manage not in (None, "true", "false"):
        raise InputError(f"--set {MANAGE}={one_line(str(manage))}: write true or false")
    return PolicyChange(
        fields={key: value for key, value in found.items() if key in DISRUPTION.fields},
        settings={key: value for key, value in found.items() if key not in DISRUPTION.fields},
        manage=None if manage is None else manage == "true",
    )


def dovetails_own(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which of these fields of spec.disruption only Dovetail reads: Karpenter takes no notice of them."""
    return tuple(key for key, value in fields.items() if key not in _KARPENTERS or _has_extras(value))


def _has_extras(value: Any) -> bool:
    """Return whether budgets use more than Karpenter knows."""
    return isinstance(value, list) and any(
        isinstance(entry, dict)
        and (not entry.keys() <= _BUDGET or not set(entry.get("reasons") or ()) <= _BUDGET_REASONS)
        for entry in value
    )


def _value(key: str, text: str) -> Any:
    if key in _NUMBERS:
        try:
            return float(text)
        except ValueError:
            raise InputError(f"--set {key}={one_line(text)}: write a number, such as 0.01") from None
    if text[0] not in "[{" and key not in SETTINGS:
        return text
    try:
        return next((document.tree for document in parse_yaml(text.encode())), None)
    except InputError as error:
        raise InputError(f"--set {key}: {error}") from None


def check_changes(pool: NodePool, fields: Mapping[str, Any], settings: Settings) -> NodePool:
    """Return the changed pool; raise if a value makes a readable policy unreadable."""
    name = pool.metadata.name
    try:
        read_annotation(pool.metadata.annotations.get(names.POLICY_ANNOTATION, "{}"))
        changed = with_policy_fields(pool, fields)
    except (msgspec.ValidationError, InputError) as error:
        raise InputError(f"--set: NodePool {name} can't take this: {error}") from None
    before = effective_policy(pool, settings).problems
    broken = [text for text in effective_policy(changed, settings).problems if text not in before]
    if broken:
        raise InputError(f"--set: {broken[0]}")
    return changed


def patches_of(
    pools: Iterable[NodePool], fields: Mapping[str, Any], *, manage: bool | None = None
) -> dict[str, dict[str, Any]]:
    """Return the merge patch of each pool, by name; `manage`: give it to Dovetail (True) or back (False)."""
    return {pool.metadata.name: _patch(pool, fields, manage) for pool in pools}


def patch_of(pools: Iterable[NodePool], fields: Mapping[str, Any], *, manage: bool | None = None) -> dict[str, Any]:
    """Return the merge patch that makes the change; in the annotation if any of the pools has its policy there."""
    found = sorted(pools, key=lambda pool: names.POLICY_ANNOTATION not in pool.metadata.annotations)
    return _patch(found[0] if found else NodePool(), fields, manage)


def _patch(pool: NodePool, fields: Mapping[str, Any], manage: bool | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if manage is not None and is_labelled(pool.metadata.labels) is not manage:
        metadata["labels"] = {names.MANAGE: "true" if manage else None}
    annotation = pool.metadata.annotations.get(names.POLICY_ANNOTATION)
    if annotation is not None and fields:
        text = json.dumps({**(_readable(annotation) or {}), **fields})
        metadata["annotations"] = {names.POLICY_ANNOTATION: text}
    found: dict[str, Any] = {"metadata": metadata} if metadata else {}
    return found | ({"spec": {"disruption": dict(fields)}} if annotation is None and fields else {})
