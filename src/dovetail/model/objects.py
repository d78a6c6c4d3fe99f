"""The Kubernetes objects that decisions look at, as frozen, slotted structs, and the table of their kinds.

Decides nothing. Field names are the API's in snake case. Only fields that some rule needs are here; decoding ignores
all others. `model.parts` holds the parts that objects share (`metadata`), pods (`pods`), NodePools and NodeClaims
(`pools`) and kinds that only some features need (`features`). Nodes, volumes and the rest are here, and everything can
be imported from here.
"""

from typing import Final

import msgspec

from dovetail.model.parts.features import (
    CapacityBuffer,
    CapacityBufferSpec,
    CapacityBufferStatus,
    Deployment,
    LocalReference,
    NamedPodTemplate,
    NodeOverlay,
    NodeOverlaySpec,
    NodeOverlayStatus,
    ScalableReference,
    ScalingTarget,
    Service,
    ServiceSpec,
    VerticalPodAutoscaler,
    VpaContainerPolicy,
    VpaContainerRecommendation,
    VpaRecommendation,
    VpaResourcePolicy,
    VpaSpec,
    VpaStatus,
    VpaUpdatePolicy,
)
from dovetail.model.parts.metadata import (
    ApiStruct,
    Condition,
    Instant,
    LabelSelectorSpec,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
    Quantity,
    ResourceClaimName,
    ResourceList,
    ResourceRequirements,
    Scalar,
    SelectorRequirement,
    Taint,
    condition,
    is_true,
)
from dovetail.model.parts.pods import (
    ActualResources,
    Affinity,
    Container,
    ContainerPort,
    ContainerStatus,
    DaemonSet,
    EphemeralVolumeSource,
    NodeAffinity,
    PersistentVolumeClaimSource,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimTemplate,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodSpec,
    PodStatus,
    PodTemplate,
    PreferredSchedulingTerm,
    ReplicaSet,
    SchedulingGate,
    StatefulSet,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    WeightedPodAffinityTerm,
    WorkloadSpec,
)
from dovetail.model.parts.pools import (
    BudgetSpec,
    DisruptionSpec,
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeClaimTemplate,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    TemplateMeta,
)

__all__ = [
    "KINDS",
    "ActualResources",
    "Affinity",
    "AnyObject",
    "ApiStruct",
    "BudgetSpec",
    "CSINode",
    "CapacityBuffer",
    "CapacityBufferSpec",
    "CapacityBufferStatus",
    "Condition",
    "Container",
    "ContainerPort",
    "ContainerStatus",
    "CsiNodeDriver",
    "CsiNodeSpec",
    "CsiVolumeSource",
    "DaemonSet",
    "Deployment",
    "DisruptionSpec",
    "EphemeralVolumeSource",
    "Instant",
    "LabelSelectorSpec",
    "LocalReference",
    "NamedPodTemplate",
    "Namespace",
    "Node",
    "NodeAffinity",
    "NodeClaim",
    "NodeClaimSpec",
    "NodeClaimStatus",
    "NodeClaimTemplate",
    "NodeClassReference",
    "NodeOverlay",
    "NodeOverlaySpec",
    "NodeOverlayStatus",
    "NodePool",
    "NodePoolSpec",
    "NodePoolStatus",
    "NodeSelector",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "ObjectMeta",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimSource",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeClaimTemplate",
    "PersistentVolumeSpec",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodDisruptionBudget",
    "PodDisruptionBudgetSpec",
    "PodDisruptionBudgetStatus",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "PreferredSchedulingTerm",
    "PriorityClass",
    "Quantity",
    "ReplicaSet",
    "ResourceClaimName",
    "ResourceList",
    "ResourceRequirements",
    "ScalableReference",
    "Scalar",
    "ScalingTarget",
    "SchedulingGate",
    "SelectorRequirement",
    "Service",
    "ServiceSpec",
    "StatefulSet",
    "StorageClass",
    "Taint",
    "TemplateMeta",
    "Toleration",
    "TopologyLabelRequirement",
    "TopologySelectorTerm",
    "TopologySpreadConstraint",
    "VerticalPodAutoscaler",
    "Volume",
    "VolumeNodeAffinity",
    "VolumeNodeResources",
    "VpaContainerPolicy",
    "VpaContainerRecommendation",
    "VpaRecommendation",
    "VpaResourcePolicy",
    "VpaSpec",
    "VpaStatus",
    "VpaUpdatePolicy",
    "WeightedPodAffinityTerm",
    "WorkloadSpec",
    "condition",
    "is_true",
]


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
    # In-tree sources: only their presence matters (their driver counts for attach limits).
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
    | Deployment
    | Service
    | NamedPodTemplate
    | CapacityBuffer
    | NodeOverlay
    | VerticalPodAutoscaler
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
    "Deployment": Deployment,
    "Service": Service,
    "PodTemplate": NamedPodTemplate,
    "CapacityBuffer": CapacityBuffer,
    "NodeOverlay": NodeOverlay,
    "VerticalPodAutoscaler": VerticalPodAutoscaler,
}
