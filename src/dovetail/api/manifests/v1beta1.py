"""Karpenter's v1beta1 NodePools and NodeClaims as v1 ones, with the same policy.

`WhenUnderutilized` is now WhenEmptyOrUnderutilized; `disruption.expireAfter` stays where it is (it is the graceful
expiry here, disruption-controls, Proposed Spec); a class reference loses its version. The kubelet's settings moved to
the cloud's class and are ignored. Sits in api; pure.
"""

from typing import Any


def as_v1(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a v1beta1 NodePool or NodeClaim as v1; malformed parts are left for the decoder to report."""
    spec = tree.get("spec")
    if not isinstance(spec, dict):
        return tree | {"apiVersion": "karpenter.sh/v1"}
    changed = _pool_spec(spec) if tree.get("kind") == "NodePool" else _claim_spec(spec)
    return tree | {"apiVersion": "karpenter.sh/v1", "spec": changed}


def _pool_spec(spec: dict[str, Any]) -> dict[str, Any]:
    changed = dict(spec)
    disruption = spec.get("disruption")
    if isinstance(disruption, dict) and disruption.get("consolidationPolicy") == "WhenUnderutilized":
        changed["disruption"] = disruption | {"consolidationPolicy": "WhenEmptyOrUnderutilized"}
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        inner = _claim_spec(template["spec"])
        changed["template"] = template | {"spec": inner}
    return changed


def _claim_spec(spec: dict[str, Any]) -> dict[str, Any]:
    changed = {key: value for key, value in spec.items() if key != "kubelet"}
    reference = spec.get("nodeClassRef")
    if isinstance(reference, dict) and "group" not in reference:
        version = reference.get("apiVersion", "")
        if isinstance(version, str):
            group = version.partition("/")[0] if "/" in version else ""
            kept = {key: value for key, value in reference.items() if key != "apiVersion"}
            changed["nodeClassRef"] = kept | ({"group": group} if group else {})
    return changed
