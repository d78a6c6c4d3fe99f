"""Nodes as the scheduler sees them: Node and NodeClaim joined, with their effective labels, taints and room.

A managed node that is not registered yet is seen through its NodeClaim; one that is not initialized is seen without its
startup taints and other temporary ones. Decides whether a node is leaving (docs/rules.md#gates, gate 2). Knows nothing
of pods.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Node, NodeClaim, Taint, is_true
from dovetail.model.settings import Settings
from dovetail.scheduling.pods.requests import Amounts, amounts

_PASSING: Final = (
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    ("karpenter.sh/unregistered", "NoExecute"),
)
_PASSING_PREFIX: Final = "readiness.k8s.io/"
MARKED: Final = "marked for deletion"
Pair = tuple[Node | None, NodeClaim | None]
"""The Node and the NodeClaim of one machine; one of them may be missing."""
_REBOOTING: Final = ("karpenter.sh/rebooting", "NoSchedule")


class StateNode(msgspec.Struct, frozen=True):
    """One node of the cluster's state: a Node, a NodeClaim that has been launched, or both."""

    node: Node | None
    claim: NodeClaim | None
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    hostname: str
    registered: bool
    initialized: bool
    allocatable: Amounts
    capacity: Amounts
    renamed: bool
    """Whether its pods count for another host name than its own: until it registers, it goes by its claim's name."""
    unnamed: bool
    """Whether its Node has no label for the host name."""


def join(cluster: Cluster) -> list[Pair]:
    """Join nodes and NodeClaims by provider id; include claims without a node and nodes without a claim."""
    claims: dict[str, NodeClaim] = {}
    for claim in cluster.node_claims:
        provider_id = claim.status.provider_id
        if provider_id:
            claims[provider_id] = claim
    found: list[Pair] = []
    for node in cluster.nodes:
        provider_id = node.spec.provider_id
        pair = pair_up(node, claims.pop(provider_id, None) if provider_id else None)
        if pair is not None:
            found.append(pair)
    found.extend((None, claim) for claim in claims.values())
    return found


def pair_up(node: Node | None, claim: NodeClaim | None) -> Pair | None:
    """Return what the scheduler sees of a Node and the NodeClaim of the same provider id; None: nothing yet."""
    if node is None:
        return None if claim is None else (None, claim)
    labels = node.metadata.labels
    if labels.get(names.NODEPOOL, "") != "":
        if not node.spec.provider_id:
            return None
        if not labels.get(names.INSTANCE_TYPE) and not labels.get(names.INITIALIZED_LABEL):
            return None if claim is None else (None, claim)  # its labels are not set yet: only the claim is known
    return node, claim


def state_node(
    node: Node | None, claim: NodeClaim | None, *, soft_closing: bool = True, readiness_passes: bool = True
) -> StateNode:
    """Return a node as the scheduler sees it; `soft_closing`: ignore steering's soft taint (docs/rules.md#steering)."""
    node_labels = node.metadata.labels if node is not None else {}
    registered = claim is None or (node is not None and node_labels.get(names.REGISTERED_LABEL) == "true")
    initialized = claim is None or (node is not None and node_labels.get(names.INITIALIZED_LABEL) == "true")
    seen = node if node is not None and registered else claim
    assert seen is not None, "a state node has a Node or a NodeClaim"
    meta = seen.metadata
    hostname = meta.labels.get(names.HOSTNAME) or meta.name
    taints = _taints(node, claim, registered=registered, initialized=initialized, readiness=readiness_passes)
    return StateNode(
        node=node,
        claim=claim,
        name=meta.name,
        labels=meta.labels,
        annotations=meta.annotations,
        taints=_without_closing(taints) if soft_closing else taints,
        hostname=hostname,
        registered=registered,
        initialized=initialized,
        allocatable=_amounts(node, claim, "allocatable", initialized=initialized),
        capacity=_amounts(node, claim, "capacity", initialized=initialized),
        renamed=node is not None and (node_labels.get(names.HOSTNAME) or node.metadata.name) != hostname,
        unnamed=node is not None and names.HOSTNAME not in node_labels,
    )


def _taints(
    node: Node | None, claim: NodeClaim | None, *, registered: bool, initialized: bool, readiness: bool
) -> tuple[Taint, ...]:
    if claim is None:
        return node.spec.taints if node is not None else ()
    taints = node.spec.taints if node is not None and registered else claim.spec.taints
    rebooting = is_true(claim.status.conditions, names.CONDITION_REBOOTING)
    if initialized and not rebooting:
        return taints
    startup = {(taint.key, taint.effect) for taint in claim.spec.startup_taints}
    passing = [taint for taint in taints if _passes(taint, readiness=readiness)]
    return tuple(taint for taint in taints if taint not in passing and (taint.key, taint.effect) not in startup)


def _without_closing(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    if not any(taint.key == names.CLOSING_TAINT for taint in taints):
        return taints
    return tuple(taint for taint in taints if taint.key != names.CLOSING_TAINT)


def _passes(taint: Taint, *, readiness: bool) -> bool:
    """Return whether the taint goes away by itself while the node starts; `readiness`: so do those of that prefix."""
    key = (taint.key, taint.effect)
    return key in _PASSING or key == _REBOOTING or (readiness and taint.key.startswith(_PASSING_PREFIX))


def _amounts(node: Node | None, claim: NodeClaim | None, field: str, *, initialized: bool) -> Amounts:
    of_node = amounts(getattr(node.status, field)) if node is not None else {}
    if initialized or claim is None:
        return of_node
    for name, amount in amounts(getattr(claim.status, field)).items():
        if not of_node.get(name):
            of_node[name] = amount
    return of_node


def why_leaving(state: StateNode, settings: Settings) -> str:
    """Return why a node counts as leaving, in a few words; empty if it stays (docs/rules.md#gates, gate 2)."""
    return MARKED if state.name in settings.marked_for_deletion_nodes else leaving_reason(state, settings)


def leaving_reason(state: StateNode, settings: Settings) -> str:
    """Return why a node is leaving, by its own objects; empty if it stays."""
    node, claim = state.node, state.claim
    if claim is not None and claim.metadata.deletion_timestamp is not None:
        return "its NodeClaim is being deleted"
    if claim is not None and is_true(claim.status.conditions, names.CONDITION_INSTANCE_TERMINATING):
        return "its instance is terminating"
    if (
        node is not None
        and node.metadata.deletion_timestamp is not None
        and (claim is None or settings.rules.node_deletion_marks)
    ):
        return "its Node is being deleted"
    if settings.rules.disruption_taint_marks and node is not None and _tainted(node.spec.taints):
        return "it carries the disruption taint"
    return ""


def _tainted(taints: Iterable[Taint]) -> bool:
    return any(taint.key in (names.DISRUPTION_TAINT, names.DISRUPTED_TAINT) for taint in taints)
