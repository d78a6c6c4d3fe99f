"""Checks the NodePool CRD on the server: whether its version is known, and whether it has Dovetail's fields.

A Karpenter upgrade may restore Karpenter's own CRD; then the fields of `spec.disruption` that only Dovetail has are
gone from the objects, while the annotation keeps working. With an unknown version Dovetail only observes.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dovetail.api.policy_fields import BUDGET_FIELDS, FIELDS
from dovetail.live.kubernetes.client import UNREADABLE, ApiClient, ApiError
from dovetail.live.kubernetes.resources import CRD

_OURS: Final = tuple(field.name for field in FIELDS if not field.karpenters)
_OURS_OF_A_BUDGET: Final = ("topologyKey", "sequential", *(part.name for part in BUDGET_FIELDS))
NAME: Final = "nodepools.karpenter.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrdState:
    """The result: `known` allows acting, `missing` are Dovetail's fields that the CRD lacks; `note` is for people."""

    known: bool
    missing: tuple[str, ...]
    note: str


async def look_at_crd(client: ApiClient) -> CrdState:
    """Read the CRD; without permission, rely on the objects themselves."""
    path = CRD.path(NAME)
    try:
        tree = msgspec.json.decode(await client.request("GET", path))
    except UNREADABLE as error:
        raise client.malformed(path, f"no CRD: {error}") from None
    except ApiError as error:
        if error.status == 404:
            return CrdState(
                known=False, missing=(), note=f"there is no CRD {NAME}: install Karpenter, or `dovetail crds`"
            )
        if error.status == 403:
            return CrdState(known=True, missing=(), note=f"{CRD.without}; add {CRD.rule('get')}")
        raise
    if not _is_crd(tree):
        raise client.malformed(path, "no CRD")
    return judge_crd(tree)


def _is_crd(tree: Any) -> bool:
    """Return whether a response is a CRD at all, not a proxy's page."""
    spec = tree.get("spec") if isinstance(tree, dict) else None
    versions = spec.get("versions") if isinstance(spec, dict) else None
    return isinstance(versions, list) and all(isinstance(each, dict) and each.get("name") for each in versions)


def judge_crd(tree: dict[str, Any]) -> CrdState:
    """Return what a CRD's versions and fields mean for Dovetail."""
    versions = {version["name"]: version for version in tree["spec"]["versions"] if version.get("served")}
    if "v1" not in versions:
        served = ", ".join(sorted(versions)) or "none"
        return CrdState(
            known=False,
            missing=(),
            note=f"the CRD {NAME} serves {served}, not v1: observing only; see the table of supported versions",
        )
    try:
        spec = versions["v1"]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        disruption = spec["disruption"]["properties"]
        budget = disruption["budgets"]["items"]["properties"]
        missing = tuple(name for name in _OURS if name not in disruption)
        missing += tuple(f"budgets.{name}" for name in _OURS_OF_A_BUDGET if name not in budget)
    except (KeyError, TypeError):
        return CrdState(known=False, missing=(), note=f"the CRD {NAME} has an unknown shape: observing only")
    note = ""
    if missing:
        note = (
            f"the CRD {NAME} lacks Dovetail's fields ({', '.join(missing)}): Karpenter's own was put back; "
            "the annotation dovetail.dev/disruption goes on working, or run: "
            "dovetail crds | kubectl apply --server-side --force-conflicts -f -"
        )
    return CrdState(known=True, missing=missing, note=note)
