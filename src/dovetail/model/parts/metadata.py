"""What the Kubernetes objects of `model.objects` are made of: metadata, conditions, taints, selectors, amounts.

Decides nothing. Quantities stay as written (`"500m"`, `4`): `model.quantity` turns them into integers. Structs opt
out of garbage-collector tracking: none can be part of a cycle, and 80,000 pods would otherwise make each collection
slow (docs/decisions/0001-structs-from-json.md). Sits at the bottom of the model.
"""

from datetime import datetime
from typing import Annotated

import msgspec

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Quantity = str | int | float
ResourceList = dict[str, Quantity]
Scalar = str | int | float | bool | None


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all objects: immutable, keyword only, camelCase in JSON, snake_case in Python, defaults omitted."""


class OwnerReference(ApiStruct, frozen=True):
    """The owner of an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiStruct, frozen=True):
    """Name, labels, annotations and times."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Condition(ApiStruct, frozen=True):
    """One entry of `status.conditions`."""

    type: str
    status: str = "Unknown"
    reason: str | None = None
    message: str | None = None
    last_transition_time: Instant | None = None
    observed_generation: int | None = None


class Taint(ApiStruct, frozen=True):
    """A taint of a node or of a pool's template."""

    key: str
    effect: str = ""
    value: str = ""
    time_added: Instant | None = None


class SelectorRequirement(ApiStruct, frozen=True):
    """`key operator values` of a node selector, label selector or NodePool; `min_values` only in the last."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] = ()
    min_values: int | None = None


class LabelSelectorSpec(ApiStruct, frozen=True):
    """A label selector as written."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class NodeSelectorTerm(ApiStruct, frozen=True):
    """One of several terms joined by OR."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(ApiStruct, frozen=True):
    """Terms joined by OR."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class ResourceClaimName(ApiStruct, frozen=True):
    """The name of a pod's resource claim (dynamic resource allocation); only its existence matters."""

    name: str = ""


class ResourceRequirements(ApiStruct, frozen=True):
    """Requests and limits of a container (or of a pod as a whole), and the resource claims it uses."""

    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: tuple[ResourceClaimName, ...] = ()


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """Return the condition of that type, or None."""
    for entry in conditions:
        if entry.type == kind:
            return entry
    return None


def is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    """Return whether the condition of that type exists and is True."""
    for entry in conditions:  # `condition`, written out: nodes are asked for half a dozen each
        if entry.type == kind:
            return entry.status == "True"
    return False
