"""The Kubernetes objects that decisions look at, as frozen, slotted structs.

Decides nothing. Field names are the API's in snake case; only fields that some rule needs are here, all others are
passed over while decoding. Quantities stay as written (`"500m"`, `4`): `model.quantity` turns them into integers.
Every struct opts out of garbage-collector tracking: none can be part of a cycle, and 80,000 pods would otherwise make
each collection slow (docs/decisions/0001-structs-from-json.md).
"""

from datetime import datetime
from typing import Annotated, Final

import msgspec

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Quantity = str | int | float
ResourceList = dict[str, Quantity]
Scalar = str | int | float | bool | None


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all objects: immutable, keyword only, camelCase outside, snake_case inside, defaults left out."""


class OwnerReference(ApiStruct, frozen=True):
    """Who made this object."""

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


class Toleration(ApiStruct, frozen=True):
    """A toleration of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


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


class PreferredSchedulingTerm(ApiStruct, frozen=True):
    """A preferred node selector term and its weight."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct, frozen=True):
    """Required and preferred node affinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(ApiStruct, frozen=True):
    """Pods near which (or far from which) a pod wants to be."""

    topology_key: str = ""
    label_selector: LabelSelectorSpec | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelectorSpec | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiStruct, frozen=True):
    """A preferred pod affinity term and its weight."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ApiStruct, frozen=True):
    """Pod affinity or anti-affinity: both have the same shape."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(ApiStruct, frozen=True):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct, frozen=True):
    """How evenly pods must be spread over the domains of a label."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelectorSpec | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class ResourceRequirements(ApiStruct, frozen=True):
    """Requests and limits of a container (or of a pod as a whole)."""

    requests: ResourceList = {}
    limits: ResourceList = {}


class ContainerPort(ApiStruct, frozen=True):
    """A port of a container; only host ports matter here."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class Container(ApiStruct, frozen=True):
    """A container as the scheduler sees it."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None


class PersistentVolumeClaimSource(ApiStruct, frozen=True):
    """A volume that is a PersistentVolumeClaim."""

    claim_name: str = ""


class PersistentVolumeClaimSpec(ApiStruct, frozen=True):
    """What a PersistentVolumeClaim asks for and what it is bound to."""

    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: tuple[str, ...] = ()


class PersistentVolumeClaimTemplate(ApiStruct, frozen=True):
    """The claim that a generic ephemeral volume would make."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class EphemeralVolumeSource(ApiStruct, frozen=True):
    """A generic ephemeral volume."""

    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class Volume(ApiStruct, frozen=True):
    """A pod's volume; only those backed by a claim matter here."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class SchedulingGate(ApiStruct, frozen=True):
    """Holds a pod back from scheduling."""

    name: str = ""


class PodSpec(ApiStruct, frozen=True):
    """What a pod asks of a node."""

    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: ResourceList = {}
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    volumes: tuple[Volume, ...] = ()
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    host_network: bool = False
    termination_grace_period_seconds: int | None = None
    restart_policy: str = ""


class PodStatus(ApiStruct, frozen=True):
    """How a pod is doing."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    start_time: Instant | None = None
    nominated_node_name: str = ""


class Pod(ApiStruct, frozen=True, tag_field="kind", tag="Pod"):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(ApiStruct, frozen=True):
    """What is set on a node."""

    provider_id: str = msgspec.field(default="", name="providerID")
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeStatus(ApiStruct, frozen=True):
    """What a node reports."""

    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[Condition, ...] = ()


class Node(ApiStruct, frozen=True, tag_field="kind", tag="Node"):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


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
    """What came of a NodeClaim."""

    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    image_id: str = msgspec.field(default="", name="imageID")
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[Condition, ...] = ()
    last_pod_event_time: Instant | None = None


class NodeClaim(ApiStruct, frozen=True, tag_field="kind", tag="NodeClaim"):
    """A machine asked for by Karpenter (or by us)."""

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
    """A disruption budget as written, right or wrong; `api.policy` reads and checks it.

    A field of the wrong type breaks this budget, which then allows nothing, and not the whole input (spec section 1).
    """

    nodes: Scalar = None
    schedule: Scalar = None
    duration: Scalar = None
    reasons: tuple[Scalar, ...] | Scalar = None
    topology_key: Scalar = None
    sequential: Scalar = None


class DisruptionSpec(ApiStruct, frozen=True):
    """`spec.disruption` as written, right or wrong; `api.policy` reads and checks it."""

    consolidation_policy: Scalar = None
    consolidate_after: Scalar = None
    expire_after: Scalar = None
    consolidation_grace_period: Scalar = None
    consolidation_savings_threshold: Scalar = None
    budgets: tuple[BudgetSpec, ...] | None = None


class NodePoolSpec(ApiStruct, frozen=True):
    """What a pool's owner writes."""

    template: NodeClaimTemplate = NodeClaimTemplate()
    disruption: DisruptionSpec = DisruptionSpec()
    limits: ResourceList = {}
    weight: int | None = None
    replicas: int | None = None


class NodePoolStatus(ApiStruct, frozen=True):
    """What Karpenter reports of a pool."""

    conditions: tuple[Condition, ...] = ()
    resources: ResourceList = {}


class NodePool(ApiStruct, frozen=True, tag_field="kind", tag="NodePool"):
    """A pool of nodes with one template and one disruption policy.

    `unread`: fields of the wrong type, which were left out (path, and a sentence): what they govern stays closed.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()
    unread: tuple[tuple[str, str], ...] = msgspec.field(default=(), name="dovetail.dev/unread")


class PodDisruptionBudgetSpec(ApiStruct, frozen=True):
    """Which pods a PDB guards, and how many may be away."""

    selector: LabelSelectorSpec | None = None
    min_available: str | int | None = None
    max_unavailable: str | int | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True):
    """What the disruption controller of Kubernetes computed."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(ApiStruct, frozen=True, tag_field="kind", tag="PodDisruptionBudget"):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class PodTemplate(ApiStruct, frozen=True):
    """The pod template of a workload."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class WorkloadSpec(ApiStruct, frozen=True):
    """Selector, template and size of a DaemonSet, ReplicaSet or StatefulSet."""

    replicas: int | None = None
    selector: LabelSelectorSpec | None = None
    template: PodTemplate = PodTemplate()


class DaemonSet(ApiStruct, frozen=True, tag_field="kind", tag="DaemonSet"):
    """A DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class ReplicaSet(ApiStruct, frozen=True, tag_field="kind", tag="ReplicaSet"):
    """A ReplicaSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(ApiStruct, frozen=True, tag_field="kind", tag="StatefulSet"):
    """A StatefulSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


class PersistentVolumeClaim(ApiStruct, frozen=True, tag_field="kind", tag="PersistentVolumeClaim"):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class CsiVolumeSource(ApiStruct, frozen=True):
    """The CSI driver of a volume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(ApiStruct, frozen=True):
    """Where a volume can be used."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiStruct, frozen=True):
    """What a volume is and where it can be used."""

    csi: CsiVolumeSource | None = None
    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    # In-tree sources: present or not is all that matters (their driver counts for attach limits).
    aws_elastic_block_store: dict[str, object] | None = None
    gce_persistent_disk: dict[str, object] | None = None
    azure_disk: dict[str, object] | None = None
    local: dict[str, object] | None = None
    host_path: dict[str, object] | None = None


class PersistentVolume(ApiStruct, frozen=True, tag_field="kind", tag="PersistentVolume"):
    """A PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologyLabelRequirement(ApiStruct, frozen=True):
    """A label and its values, of a storage class's allowed topologies."""

    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(ApiStruct, frozen=True):
    """One allowed topology of a storage class."""

    match_label_expressions: tuple[TopologyLabelRequirement, ...] = ()


class StorageClass(ApiStruct, frozen=True, tag_field="kind", tag="StorageClass"):
    """A StorageClass."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(ApiStruct, frozen=True):
    """How many volumes of a driver a node can attach."""

    count: int | None = None


class CsiNodeDriver(ApiStruct, frozen=True):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CsiNodeSpec(ApiStruct, frozen=True):
    """The CSI drivers of a node."""

    drivers: tuple[CsiNodeDriver, ...] = ()


class CSINode(ApiStruct, frozen=True, tag_field="kind", tag="CSINode"):
    """The CSI drivers and attach limits of a node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()


class PriorityClass(ApiStruct, frozen=True, tag_field="kind", tag="PriorityClass"):
    """A PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class Namespace(ApiStruct, frozen=True, tag_field="kind", tag="Namespace"):
    """A Namespace; its labels matter to namespace selectors."""

    metadata: ObjectMeta = ObjectMeta()


AnyObject = (
    Pod
    | Node
    | NodeClaim
    | NodePool
    | PodDisruptionBudget
    | DaemonSet
    | PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | PriorityClass
    | Namespace
    | ReplicaSet
    | StatefulSet
)

KINDS: Final[dict[str, type]] = {
    "Pod": Pod,
    "Node": Node,
    "NodeClaim": NodeClaim,
    "NodePool": NodePool,
    "PodDisruptionBudget": PodDisruptionBudget,
    "DaemonSet": DaemonSet,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "PersistentVolume": PersistentVolume,
    "StorageClass": StorageClass,
    "CSINode": CSINode,
    "PriorityClass": PriorityClass,
    "Namespace": Namespace,
    "ReplicaSet": ReplicaSet,
    "StatefulSet": StatefulSet,
}


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of that type, if there is one."""
    for entry in conditions:
        if entry.type == kind:
            return entry
    return None


def is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    """Whether the condition of that type is there and True."""
    entry = condition(conditions, kind)
    return entry is not None and entry.status == "True"
