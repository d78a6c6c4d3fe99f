"""The NodeClaim of a replacement: as Karpenter would have created it, plus Dovetail's hold and record.

Built from the NodePool as it is on the server (every field of its template carries over), so that Karpenter launches
it and does not see it as drifted: owner reference, pool and node-class labels, hash annotations, requirements with the
instance types.
Pure: maps a tree to a tree. Sits in effects, below `effect`.
"""

from collections.abc import Mapping
from typing import Final

from dovetail.lifecycle.effects.writes import Tree, annotation, listing, mapping, text
from dovetail.model import names
from dovetail.model.command import Replacement
from dovetail.model.labels.clouds import is_clouds_own
from dovetail.model.labels.requirements import OperatorError, Requirement
from dovetail.model.labels.syntax import WELL_KNOWN
from dovetail.model.objects import SelectorRequirement
from dovetail.model.quantity import QuantityError, format_amount, resource_amount

# Only the scheduling simulation uses these; a real NodeClaim must not contain them.
_SIMULATION_ONLY: Final = frozenset({names.REGISTERED_LABEL, names.INITIALIZED_LABEL, names.HOSTNAME})
_INSTANCE_TYPES_MAX: Final = 600
_PROVIDERS: Final = ("kubernetes.io", "k8s.io", "k8s.aws", "k8s.gcp", "kubernetes.azure.com")


def node_claim_tree(name: str, replacement: Replacement, pool: Tree, marks: Mapping[str, str]) -> Tree:
    """Return a NodeClaim of a pool. `pool` is the NodePool's own JSON, `marks` are annotations to add."""
    template = mapping(pool, "spec", "template")
    pool_name = text(pool, "metadata", "name")
    labels = mapping(template, "metadata", "labels")
    labels[names.NODEPOOL] = pool_name
    class_ref = mapping(template, "spec", "nodeClassRef")
    if class_ref.get("group") and class_ref.get("kind"):
        labels[f"{class_ref['group']}/{class_ref['kind'].lower()}"] = class_ref.get("name", "")
    annotations = mapping(template, "metadata", "annotations")
    for key in (names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION):
        value = annotation(pool, key)
        if value:
            annotations[key] = value
    annotations |= marks
    requirements = _requirements(replacement)
    for entry in requirements:
        if _is_custom(entry["key"]) and entry["operator"] == "In" and entry.get("values"):
            labels.setdefault(entry["key"], entry["values"][0])
    spec = mapping(template, "spec")
    spec["requirements"] = requirements
    spec["resources"] = {
        "requests": {key: format_amount(key, amount) for key, amount in sorted(replacement.requests.items())}
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": "karpenter.sh/v1",
                    "kind": "NodePool",
                    "name": pool_name,
                    "uid": text(pool, "metadata", "uid"),
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def launch_problem(replacement: Replacement, pool: Tree) -> str:
    """Return why Karpenter could not launch this NodeClaim of the pool as it is now; empty if it could.

    A claim that can't be launched makes Karpenter's whole provisioner wait, so it must not be created at all.
    """
    name = text(pool, "metadata", "name")
    if mapping(pool, "metadata").get("deletionTimestamp") is not None:
        return f"NodePool {name} is being deleted"
    ready = next((c for c in listing(pool, "status", "conditions") if c.get("type") == "Ready"), {})
    if ready.get("status") == "False":
        return f"NodePool {name} is not Ready"
    used = mapping(pool, "status", "resources")
    for resource, limit in sorted(mapping(pool, "spec", "limits").items()):
        if _reaches(used.get(resource), limit, resource):
            return f"NodePool {name} is at its limit of {limit} {resource}"
    return _requirement_problem(replacement, pool)


def _reaches(used: object, limit: object, resource: str) -> bool:
    if not isinstance(used, str | int) or not isinstance(limit, str | int):
        return False
    try:
        return resource_amount(resource, used) >= resource_amount(resource, limit)
    except QuantityError:
        return False


def _requirement_problem(replacement: Replacement, pool: Tree) -> str:
    """Return the requirement of the pool (which may have changed) that excludes the replacement."""
    for entry in listing(pool, "spec", "template", "spec", "requirements"):
        key, operator, values = entry.get("key"), entry.get("operator"), entry.get("values") or ()
        if not isinstance(key, str) or not isinstance(operator, str) or not isinstance(values, list | tuple):
            continue
        try:
            theirs = Requirement.of(key, operator, tuple(map(str, values)))
        except OperatorError:
            continue
        asked = _asked(replacement, key)
        if asked is not None and not any(theirs.has(value) for value in asked):
            return f"NodePool {text(pool, 'metadata', 'name')} no longer allows {key} {', '.join(asked[:3])}"
    return ""


def _asked(replacement: Replacement, key: str) -> tuple[str, ...] | None:
    """Return the values of a label that the replacement is limited to; None: no limit."""
    if key == names.INSTANCE_TYPE and replacement.instance_types:
        return replacement.instance_types
    entry = next((e for e in replacement.requirements if e.key == key and e.operator == "In"), None)
    return None if entry is None or not entry.values else entry.values


def _is_custom(key: str) -> bool:
    """Return whether a label is the user's own: a provider's labels depend on the launched machine."""
    domain = key.rpartition("/")[0]
    provided = domain.startswith("karpenter.") or domain.endswith(_PROVIDERS) or is_clouds_own(key)
    return key not in WELL_KNOWN and not provided


def _requirements(replacement: Replacement) -> list[Tree]:
    passing = {*_SIMULATION_ONLY, names.INSTANCE_TYPE} if replacement.instance_types else _SIMULATION_ONLY
    kept = [entry for entry in replacement.requirements if entry.key not in passing]
    trees = [_tree(entry) for entry in sorted(kept, key=lambda entry: (entry.key, entry.operator))]
    if replacement.instance_types:
        floor = next((e.min_values for e in replacement.requirements if e.key == names.INSTANCE_TYPE), None)
        types = SelectorRequirement(
            key=names.INSTANCE_TYPE,
            operator="In",
            values=replacement.instance_types[:_INSTANCE_TYPES_MAX],
            min_values=floor,
        )
        trees.append(_tree(types))
    return trees


def _tree(entry: SelectorRequirement) -> Tree:
    tree: Tree = {"key": entry.key, "operator": entry.operator}
    if entry.values:
        tree["values"] = list(entry.values)
    if entry.min_values is not None:
        tree["minValues"] = entry.min_values
    return tree
