"""Checks NodePool and NodeClaim manifests as the API server (with Dovetail's CRDs) and the controller would.

Works on the raw tree, so that it can quote what was written: one finding for each problem, with the field's path, its
value and what to write instead. Errors are what the API server would refuse or the controller could not use; warnings
are doubtful. See docs/rules.md#policy. Sits in api; reads no files.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from dovetail.api.controls import health_findings, repair_findings, window_findings
from dovetail.api.findings import Finding, InputError
from dovetail.api.manifests.budget_rules import budget_findings, with_text_nodes
from dovetail.api.manifests.controller_rules import (
    KARPENTER_DOMAIN,
    controller_findings,
    indexed_requirements,
    map_or_empty,
    overlong,
    requirement_findings,
    template_labels,
)
from dovetail.api.manifests.manifest_shapes import (
    DISRUPTION,
    DNS_NAME,
    LABEL_NAME,
    LABEL_VALUE,
    NODE_CLAIM,
    NODE_POOL,
)
from dovetail.api.manifests.shape import REQUIRED, Kind, Shape, check, child, error, warning
from dovetail.api.manifests.v1beta1 import as_v1
from dovetail.api.policy_fields import LENGTHS
from dovetail.model.names import CAPACITY_TYPE, HOSTNAME, NODEPOOL, POLICY_ANNOTATION
from dovetail.model.timing.duration import HOUR, parse_nillable

VALIDATED_KINDS: Final = ("NodePool", "NodeClaim")
_VERSIONS: Final = ("karpenter.sh/v1", "karpenter.sh/v1beta1")
_TEMPLATE_EXPIRE_DEFAULT: Final = 720 * HOUR
_ENTRIES_CHECKED_MAX: Final = 100  # too many entries are one finding, not thousands


def validate_manifest(tree: Any) -> tuple[Finding, ...]:
    """Return all findings of one NodePool or NodeClaim, errors and warnings, in the order of its fields."""
    if not isinstance(tree, dict):
        return (error("", tree, "is no Kubernetes object", "write apiVersion, kind, metadata and spec"),)
    kind, version = tree.get("kind"), tree.get("apiVersion")
    if kind not in VALIDATED_KINDS:
        return (error("kind", kind, "is not checked here", f"write {' or '.join(VALIDATED_KINDS)}"),)
    if version not in _VERSIONS:
        return (error("apiVersion", version, "is not known for this kind", f"write {_VERSIONS[0]}"),)
    findings: list[Finding] = []
    tree = _without_nulls(tree)
    if version == "karpenter.sh/v1beta1":
        findings.append(
            warning("apiVersion", version, "is no longer served; it was read as karpenter.sh/v1", "move to v1")
        )
        tree = _lenient(as_v1(tree))
    findings += _metadata(tree)
    findings += _pool(tree) if kind == "NodePool" else _claim(tree)
    return _without_repeats(findings)


def _without_repeats(findings: list[Finding]) -> tuple[Finding, ...]:
    """Drop repeats: the API server and the controller refuse many things for the same reason, in their own words."""
    found: dict[tuple[object, ...], Finding] = {}
    for entry in findings:
        found.setdefault((entry.severity, entry.path, entry.value, entry.remedy or entry.message), entry)
    return tuple(found.values())


def _without_nulls(tree: Any) -> Any:
    """Copy without null fields, which the API server drops; null list items stay, which it refuses."""
    if isinstance(tree, dict):
        return {key: _without_nulls(value) for key, value in tree.items() if value is not None}
    return [_without_nulls(value) for value in tree] if isinstance(tree, list) else tree


def _lenient(tree: dict[str, Any]) -> dict[str, Any]:
    """Fill in what v1beta1 did not require: a class reference needed a name only, a claim's template had resources."""
    spec = tree.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    holder = template.get("spec") if isinstance(template, dict) else spec
    if isinstance(holder, dict) and isinstance(holder.get("nodeClassRef"), dict):
        holder["nodeClassRef"] = {"group": "unknown", "kind": "unknown"} | holder["nodeClassRef"]
    return tree


_METADATA: Final = Shape(
    kind=Kind.MAP,
    fields={
        "labels": Shape(
            kind=Kind.MAP, values=Shape(kind=Kind.TEXT, remedy="it in quotes", pattern=LABEL_VALUE, longest=63)
        ),
        "annotations": Shape(kind=Kind.MAP, values=Shape(kind=Kind.TEXT, remedy="it in quotes")),
    },
)


def _metadata(tree: dict[str, Any]) -> Iterator[Finding]:
    meta = tree.get("metadata", {})
    if not isinstance(meta, dict):
        yield error("metadata", meta, "must be a map", "write a map with a name")
        return
    name = meta.get("name")
    if name is None and not meta.get("generateName"):
        yield error("metadata.name", name, REQUIRED, "write a name")
    elif name is not None and (not isinstance(name, str) or len(name) > 253 or re.fullmatch(DNS_NAME, name) is None):
        yield error("metadata.name", name, "is not a valid object name", "write lower case letters, digits, - and .")
    elif isinstance(name, str) and len(name) > 63 and tree.get("kind") == "NodePool":
        yield warning("metadata.name", name, "becomes a label of each node and is too long for one", "write at most 63")
    known = {key: meta[key] for key in ("labels", "annotations") if key in meta}
    yield from check(_METADATA, known, "metadata")
    labels = known.get("labels")
    for key in labels if isinstance(labels, dict) else ():
        if re.fullmatch(LABEL_NAME, key) is None:
            yield error(
                child("metadata.labels", key), key, "is not a valid label name", "write a name such as example.com/team"
            )


# --- NodePool ---------------------------------------------------------------------------------------------------------


def _pool(tree: dict[str, Any]) -> Iterator[Finding]:
    spec = tree.get("spec")
    disruption = spec.get("disruption") if isinstance(spec, dict) else None
    if isinstance(spec, dict) and isinstance(disruption, dict):
        # Checked on its own below, budget by budget, with integers for `nodes` let through.
        tree = tree | {"spec": {key: value for key, value in spec.items() if key != "disruption"}}
    yield from check(NODE_POOL, tree, "")
    if not isinstance(spec, dict):
        return
    if isinstance(disruption, dict):
        yield from disruption_findings(disruption, "spec.disruption")
    yield from static_findings(spec)
    template = spec.get("template")
    if isinstance(template, dict):
        yield from controller_findings(template)
        yield from own_label_findings(template)
    yield from _annotation(tree, spec)
    yield from _expiry(disruption, "spec.disruption.expireAfter", template)


def disruption_findings(disruption: dict[str, Any], path: str) -> Iterator[Finding]:
    """Check a disruption policy, from the spec or from the annotation."""
    yield from overlong(disruption, LENGTHS, path)
    yield from check(DISRUPTION, disruption | _stand_ins(disruption), path)
    for index, budget in _listed(disruption, "budgets"):
        here = f"{path}.budgets[{index}]"
        normal, remark = with_text_nodes(budget, here)
        if remark is not None:
            yield remark
        yield from budget_findings(normal, here)
    for index, written in _listed(disruption, "windows"):
        yield from window_findings(written, f"{path}.windows[{index}]")
    for index, written in _listed(disruption, "repair"):
        yield from repair_findings(written, f"{path}.repair[{index}]")
    if isinstance(disruption.get("health"), dict):
        yield from health_findings(disruption["health"], f"{path}.health")


_STAND_INS: Final[dict[str, dict[str, Any]]] = {
    "budgets": {},
    "windows": {"schedule": "@daily", "duration": "1h"},
    "repair": {"condition": "Ready", "status": "False", "for": "10m"},
}
"""Entries of the right form, which take the place of those that are checked one by one."""


def _stand_ins(disruption: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        key: [entry] * len(disruption[key])
        for key, entry in _STAND_INS.items()
        if isinstance(disruption.get(key), list)
    }
    return found | ({"health": {}} if isinstance(disruption.get("health"), dict) else {})


def _listed(disruption: dict[str, Any], key: str) -> Iterator[tuple[int, Any]]:
    """Yield the entries of a list with their indexes, but at most twice the allowed number."""
    entries = disruption.get(key)
    if isinstance(entries, list):
        yield from enumerate(entries[:_ENTRIES_CHECKED_MAX])


def static_findings(spec: dict[str, Any]) -> Iterator[Finding]:
    """Check the fields that can't be combined with `replicas`."""
    if spec.get("replicas") is None:
        return
    if spec.get("weight") is not None:
        yield error("spec.weight", spec["weight"], "has no meaning on a static pool (replicas is set)", "take it out")
    limits = map_or_empty(spec.get("limits"))
    for name in sorted(limits):
        if name != "nodes":
            yield error(
                child("spec.limits", name),
                limits[name],
                "can't be limited on a static pool (replicas is set)",
                "keep nodes only",
            )


def own_label_findings(template: dict[str, Any]) -> Iterator[Finding]:
    """Apply the API server's rules on names: labels of the template, keys of its requirements."""
    path = "spec.template.metadata.labels"
    for label in template_labels(template):
        yield from _reserved(label, child(path, label), claim=False)
    for index, requirement in indexed_requirements(template.get("spec")):
        key = requirement.get("key")
        if isinstance(key, str):
            yield from _reserved(key, f"spec.template.spec.requirements[{index}].key", claim=False)


def _reserved(key: str, path: str, *, claim: bool) -> Iterator[Finding]:
    if key == HOSTNAME:
        yield error(path, key, "can't be set here: each node has its own", "take it out")
    elif key == NODEPOOL:
        if not claim:
            yield error(path, key, "can't be set here: it is filled in from the pool's name", "take it out")
    elif key != CAPACITY_TYPE and KARPENTER_DOMAIN.fullmatch(key):
        yield error(
            path, key, "is of Karpenter's own domain", "use a domain of your own; karpenter.sh/capacity-type is fine"
        )


def _annotation(tree: dict[str, Any], spec: dict[str, Any]) -> Iterator[Finding]:
    """Check the annotation that may carry the same policy (docs/rules.md#policy)."""
    meta = tree.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    text = annotations.get(POLICY_ANNOTATION) if isinstance(annotations, dict) else None
    if not isinstance(text, str):
        return
    path = f"metadata.annotations[{POLICY_ANNOTATION}]"
    try:
        policy = read_annotation(text)
    except InputError as problem:
        yield error(path, text, str(problem), "write a map such as {consolidateAfter: 30s}")
        return
    yield from disruption_findings(policy, path)
    yield from _expiry(policy, f"{path}.expireAfter", spec.get("template"))


def read_annotation(text: str) -> dict[str, Any]:
    """Read the annotation's map; null fields count as absent."""
    from dovetail.api.reading.yaml_tree import parse_yaml  # PyYAML is slow to load, and most inputs are JSON

    documents = [document for document in parse_yaml(text) if document.tree is not None]
    if len(documents) != 1 or not isinstance(documents[0].tree, dict):
        raise InputError("is not one YAML or JSON map")
    if documents[0].duplicates:
        raise InputError(f"has {documents[0].duplicates[0][0]} twice")
    tree: dict[str, Any] = _without_nulls(documents[0].tree)
    return tree


def _expiry(disruption: Any, path: str, template: Any) -> Iterator[Finding]:
    """Warn where Karpenter's own expiry, which is forceful, would come first (docs/rules.md#karpenter)."""
    if not isinstance(disruption, dict) or not isinstance(disruption.get("expireAfter"), str):
        return
    inner = template.get("spec") if isinstance(template, dict) else None
    forceful = inner.get("expireAfter") if isinstance(inner, dict) else None
    try:
        graceful = parse_nillable(disruption["expireAfter"], "smhd")
        hard = _TEMPLATE_EXPIRE_DEFAULT if forceful is None else parse_nillable(forceful, "smh")
    except (ValueError, TypeError):
        return
    if hard is not None and graceful is not None and graceful >= hard:
        shown_hard = "720h, the default" if forceful is None else str(forceful)
        yield warning(
            path,
            disruption["expireAfter"],
            f"is not before the template's expireAfter ({shown_hard}), at which Karpenter removes nodes forcefully",
            "make it shorter, or set spec.template.spec.expireAfter: Never",
        )


# --- NodeClaim --------------------------------------------------------------------------------------------------------


def _claim(tree: dict[str, Any]) -> Iterator[Finding]:
    yield from check(NODE_CLAIM, tree, "")
    spec = tree.get("spec")
    yield from overlong(map_or_empty(spec), ("expireAfter", "terminationGracePeriod"), "spec")
    for index, requirement in indexed_requirements(spec):
        path = f"spec.requirements[{index}]"
        yield from requirement_findings(requirement, path, controller=warning)
        if isinstance(requirement.get("key"), str):
            yield from _reserved(requirement["key"], f"{path}.key", claim=True)
