"""Change fields of a NodePool's policy where they take effect: in the annotation if there is one, else in the spec.

For what-if questions (`plan`, `sim`): the pool is copied, nothing is written to a cluster. Reads field values as the
command line gives them. Pure. Sits in api.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dovetail.api.findings import InputError, one_line
from dovetail.api.manifests.manifest_shapes import DISRUPTION
from dovetail.api.manifests.validate import read_annotation
from dovetail.api.policy import effective_policy
from dovetail.api.reading.yaml_tree import parse_yaml
from dovetail.model import names
from dovetail.model.objects import NodePool
from dovetail.model.settings import Settings

_NUMBERS = ("consolidationSavingsThreshold", "disruptionPrice")


def with_policy_field(pool: NodePool, key: str, value: Any) -> NodePool:
    """Return the pool with one policy field changed where it takes effect."""
    value = float(value) if key in _NUMBERS else value
    annotation = pool.metadata.annotations.get(names.POLICY_ANNOTATION)
    if annotation is not None:
        text = json.dumps({**read_annotation(annotation), key: value})
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


def read_changes(words: Iterable[str]) -> dict[str, Any]:
    """Read `FIELD=VALUE` words; a value is YAML, so that budgets can be given as a list."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key or not text:
            raise InputError(f"--set {one_line(word)}: write FIELD=VALUE, such as consolidateAfter=5m")
        if key not in DISRUPTION.fields:
            near = difflib.get_close_matches(key, DISRUPTION.fields, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"write one of: {', '.join(DISRUPTION.fields)}"
            raise InputError(f"--set {one_line(key)}: there is no such field of spec.disruption; {hint}")
        if key in found:
            raise InputError(f"--set {key}: given twice; keep one")
        found[key] = _value(key, text)
    return found


def _value(key: str, text: str) -> Any:
    if key in _NUMBERS:
        try:
            return float(text)
        except ValueError:
            raise InputError(f"--set {key}={one_line(text)}: write a number, such as 0.01") from None
    if text[0] not in "[{":
        return text
    try:
        return next((document.tree for document in parse_yaml(text.encode())), None)
    except InputError as error:
        raise InputError(f"--set {key}: {error}") from None


def check_changes(pool: NodePool, fields: Mapping[str, Any], settings: Settings) -> NodePool:
    """Return the changed pool; raise if a value makes a readable policy unreadable."""
    name = pool.metadata.name
    try:
        changed = with_policy_fields(pool, fields)
    except (msgspec.ValidationError, InputError) as error:
        raise InputError(f"--set: NodePool {name} can't take this: {error}") from None
    before = effective_policy(pool, settings).problems
    broken = [text for text in effective_policy(changed, settings).problems if text not in before]
    if broken:
        raise InputError(f"--set: {broken[0]}")
    return changed


def patch_of(pools: Iterable[NodePool], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that makes the change; in the annotation if any of the pools has its policy there."""
    annotated = [pool for pool in pools if names.POLICY_ANNOTATION in pool.metadata.annotations]
    if not annotated:
        return {"spec": {"disruption": dict(fields)}}
    text = json.dumps({**read_annotation(annotated[0].metadata.annotations[names.POLICY_ANNOTATION]), **fields})
    return {"metadata": {"annotations": {names.POLICY_ANNOTATION: text}}}
