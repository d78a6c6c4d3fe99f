"""Pods as the scheduler sees them, the workloads that create them, and the PDBs that protect them.

Decides nothing; only fields that some rule needs are here. Sits in the model; `model.objects` exports them.
"""

import msgspec

from dovetail.model.parts.metadata import (
    ApiStruct,
    Condition,
    Instant,
    LabelSelectorSpec,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    ResourceClaimName,
    ResourceList,
    ResourceRequirements,
)


class Toleration(ApiStruct, frozen=True):
    """A toleration of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PreferredSchedulingTerm(ApiStruct, frozen=True):
    """A preferred node selector term and its weight."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct, frozen=True):
    """Required and preferred node affinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(ApiStruct, frozen=True):
    """The pods that a pod wants to be near to, or away from."""

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
    """The claim that a generic ephemeral volume creates."""

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
    resource_claims: tuple[ResourceClaimName, ...] = ()
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    host_network: bool = False
    termination_grace_period_seconds: int | None = None
    restart_policy: str = ""


class ActualResources(ApiStruct, frozen=True):
    """The resources of a running container, as its kubelet reports them."""

    requests: ResourceList = {}


class ContainerStatus(ApiStruct, frozen=True):
    """The status of a container: only its resources matter here (resizing a pod in place)."""

    name: str = ""
    resources: ActualResources | None = None
    allocated_resources: ResourceList = {}


class PodStatus(ApiStruct, frozen=True):
    """The status of a pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    start_time: Instant | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    nominated_node_name: str = ""


class Pod(ApiStruct, frozen=True, tag_field="kind", tag="Pod"):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodDisruptionBudgetSpec(ApiStruct, frozen=True):
    """Which pods a PDB protects, and how many may be unavailable."""

    selector: LabelSelectorSpec | None = None
    min_available: str | int | None = None
    max_unavailable: str | int | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True):
    """The status that Kubernetes' disruption controller computes."""

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
