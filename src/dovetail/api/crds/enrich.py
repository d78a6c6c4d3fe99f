"""Adds Dovetail's fields to the CRDs of another version of Karpenter: `dovetail crds --from` prints the result.

Everything of that version stays, its enumerations and defaults too; a NodePool's `spec.disruption` gets the fields and
rules that Dovetail adds, and the list of columns gets Dovetail's. So an older Karpenter keeps the schema that it was
tested with. Knows nothing of clusters. Sits in api, above `definitions`.
"""

import copy
from typing import Any, Final

from dovetail.api.crds.definitions import crds
from dovetail.api.crds.words import Schema
from dovetail.api.findings import InputError

_POOLS: Final = "nodepools.karpenter.sh"
_CLAIMS: Final = "nodeclaims.karpenter.sh"
_OWN_REASON: Final = "Expired"
_OLD_POLICY: Final = "WhenUnderutilized"


def enriched(tree: Any, where: str) -> Schema:
    """Return a CRD of Karpenter with Dovetail's fields; raise an InputError if it is none that Dovetail knows."""
    name = tree.get("metadata", {}).get("name") if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or tree.get("kind") != "CustomResourceDefinition" or name not in (_POOLS, _CLAIMS):
        raise InputError(f"{where} holds something else than Karpenter's CRDs; give {_POOLS} and {_CLAIMS}")
    made: Schema = copy.deepcopy(tree)
    own = next(crd for crd in crds() if crd["metadata"]["name"] == name)
    theirs, ours = _version(made, where), _version(own, "Dovetail's CRD")
    _add_columns(theirs, ours)
    if name == _POOLS:
        spec = _part(theirs, where, "schema", "openAPIV3Schema", "properties", "spec", "properties")
        wanted = ours["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["disruption"]
        spec["disruption"] = _disruption(_part(spec, where, "disruption"), wanted, where)
    return made


def _version(crd: Schema, where: str) -> Schema:
    versions = crd.get("spec", {}).get("versions") if isinstance(crd.get("spec"), dict) else None
    for entry in versions if isinstance(versions, list) else ():
        if isinstance(entry, dict) and entry.get("name") == "v1":
            return entry
    raise InputError(f"{where}: {crd['metadata']['name']} has no version v1, which Karpenter has since v1.0")


def _part(tree: Schema, where: str, *path: str) -> Schema:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None  # type: ignore[assignment]
    if not isinstance(tree, dict):
        raise InputError(f"{where}: the schema has no {'.'.join(path)}; give the CRD as Karpenter ships it")
    return tree


def _disruption(theirs: Schema, ours: Schema, where: str) -> Schema:
    """Return Dovetail's schema of a policy with the words and defaults of this version of Karpenter."""
    known = _part(theirs, where, "properties")
    made = copy.deepcopy(ours)
    own = made["properties"]
    policies = _part(known, where, "consolidationPolicy").get("enum") or []
    own["consolidationPolicy"]["enum"] = [*policies, _OLD_POLICY]
    after = _part(known, where, "consolidateAfter")
    own["consolidateAfter"].pop("default", None)
    if "default" in after:
        own["consolidateAfter"]["default"] = after["default"]
    for key in ("required", "default"):
        made.pop(key, None)
        if key in theirs:
            made[key] = copy.deepcopy(theirs[key])
    reasons = _part(known, where, "budgets", "items", "properties", "reasons", "items").get("enum") or []
    for name in ("budgets", "windows"):
        own[name]["items"]["properties"]["reasons"]["items"]["enum"] = [*reasons, _OWN_REASON]
    for key, schema in known.items():
        own.setdefault(key, copy.deepcopy(schema))
    return made


def _add_columns(theirs: Schema, ours: Schema) -> None:
    there = theirs.setdefault("additionalPrinterColumns", [])
    named = {entry.get("name") for entry in there if isinstance(entry, dict)}
    there.extend(
        copy.deepcopy(entry) for entry in ours.get("additionalPrinterColumns", ()) if entry["name"] not in named
    )
