"""Karpenter's own objects, NodePools and NodeClaims, as written, valid or not.

Decides nothing: `api.policy` reads and checks a pool's policy, `api.manifests.pool_rules` the rest of it. Sits in the
model; `model.objects` exports them.
"""

import msgspec

from dovetail.model.parts.metadata import (
    ApiStruct,
    Condition,
    Instant,
    ObjectMeta,
    ResourceList,
    ResourceRequirements,
    Scalar,
    SelectorRequirement,
    Taint,
)


class NodeClassReference(ApiStruct, frozen=True):
    """The cloud's part of a pool's template."""

    group: str = ""
    kind: str = ""
    name: str = ""


class NodeClaimSpec(ApiStruct, frozen=True):
    """What a NodeClaim asks for."""

    requirements: tuple[SelectorRequirement, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    node_class_ref: NodeClassReference = NodeClassReference()
    expire_after: str | None = None
    termination_grace_period: str | None = None


class NodeClaimStatus(ApiStruct, frozen=True):
    """The status of a NodeClaim."""

    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    image_id: str = msgspec.field(default="", name="imageID")
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[Condition, ...] = ()
    last_pod_event_time: Instant | None = None


class NodeClaim(ApiStruct, frozen=True, tag_field="kind", tag="NodeClaim"):
    """A machine that Karpenter or Dovetail requested."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()


class TemplateMeta(ApiStruct, frozen=True):
    """Labels and annotations that a pool puts on its nodes."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class NodeClaimTemplate(ApiStruct, frozen=True):
    """What a pool's NodeClaims look like."""

    metadata: TemplateMeta = TemplateMeta()
    spec: NodeClaimSpec = NodeClaimSpec()


class BudgetSpec(ApiStruct, frozen=True):
    """A disruption budget as written, valid or not; `api.policy` reads and checks it.

    A field of the wrong type breaks only this budget, which then allows nothing, not the whole input
    (docs/rules.md#policy).
    """

    nodes: Scalar = None
    schedule: Scalar = None
    duration: Scalar = None
    reasons: tuple[Scalar, ...] | Scalar = None
    topology_key: Scalar = None
    sequential: Scalar = None
    per: Scalar = None


class WindowSpec(ApiStruct, frozen=True):
    """An allow window as written, valid or not (docs/rules.md#windows)."""

    schedule: Scalar = None
    duration: Scalar = None
    reasons: tuple[Scalar, ...] | Scalar = None


class PendingPodsSpec(ApiStruct, frozen=True):
    """`health.pendingPods` as written, valid or not (docs/rules.md#health)."""

    count: Scalar = None
    lasting: Scalar = msgspec.field(default=None, name="for")


class HealthSpec(ApiStruct, frozen=True):
    """`health` as written, valid or not (docs/rules.md#health)."""

    not_ready_nodes: Scalar = None
    pending_pods: PendingPodsSpec | Scalar = None
    moved_pods_ready_within: Scalar = None


class RepairSpec(ApiStruct, frozen=True):
    """A rule of `repair` as written, valid or not (docs/rules.md#repair)."""

    condition: Scalar = None
    status: Scalar = None
    lasting: Scalar = msgspec.field(default=None, name="for")
    drain_for: Scalar = None


class DisruptionSpec(ApiStruct, frozen=True):
    """`spec.disruption` as written, valid or not; `api.policy` reads and checks it."""

    consolidation_policy: Scalar = None
    consolidate_after: Scalar = None
    expire_after: Scalar = None
    consolidation_grace_period: Scalar = None
    consolidation_savings_threshold: Scalar = None
    disruption_price: Scalar = None
    restart_price: Scalar = None
    budgets: tuple[BudgetSpec, ...] | None = None
    windows: tuple[WindowSpec, ...] | None = None
    min_node_age: Scalar = None
    health: HealthSpec | None = None
    repair: tuple[RepairSpec, ...] | None = None


class NodePoolSpec(ApiStruct, frozen=True):
    """The specification of a pool."""

    template: NodeClaimTemplate = NodeClaimTemplate()
    disruption: DisruptionSpec = DisruptionSpec()
    limits: ResourceList = {}
    weight: int | None = None
    replicas: int | None = None


class NodePoolStatus(ApiStruct, frozen=True):
    """The status of a pool, as Karpenter reports it."""

    conditions: tuple[Condition, ...] = ()
    resources: ResourceList = {}


class NodePool(ApiStruct, frozen=True, tag_field="kind", tag="NodePool"):
    """A pool of nodes with one template and one disruption policy.

    `unread`: the omitted fields of a wrong type (path and message); what they control stays closed.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()
    unread: tuple[tuple[str, str], ...] = msgspec.field(default=(), name="dovetail.dev/unread")
