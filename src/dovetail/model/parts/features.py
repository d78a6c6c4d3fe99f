"""Objects that only some features of Karpenter use: buffers and what they refer to, overlays, Services.

Decides nothing: `scheduling.buffers`, `scheduling.launch.overlays` and `scheduling.pods.default_spread` read them. A
cluster without these kinds works. Sits in the model; `model.objects` exports them.
"""

from dovetail.model.parts.metadata import (
    ApiStruct,
    Condition,
    LabelSelectorSpec,
    ObjectMeta,
    ResourceList,
    Scalar,
    SelectorRequirement,
)
from dovetail.model.parts.pods import PodTemplate


class RollingUpdate(ApiStruct, frozen=True):
    """How far a rolling update may go beyond the wanted number of pods, and below it."""

    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class DeploymentStrategy(ApiStruct, frozen=True):
    """How a Deployment replaces its pods."""

    type: str = ""
    rolling_update: RollingUpdate = RollingUpdate()


class DeploymentSpec(ApiStruct, frozen=True):
    """The specification of a Deployment."""

    replicas: int | None = None
    selector: LabelSelectorSpec | None = None
    template: PodTemplate = PodTemplate()
    strategy: DeploymentStrategy = DeploymentStrategy()
    paused: bool = False


class DeploymentStatus(ApiStruct, frozen=True):
    """The status of a Deployment."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Deployment(ApiStruct, frozen=True, tag_field="kind", tag="Deployment"):
    """A Deployment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ServiceSpec(ApiStruct, frozen=True):
    """Which pods a Service sends traffic to; None: it selects none by itself."""

    selector: dict[str, str] | None = None


class Service(ApiStruct, frozen=True, tag_field="kind", tag="Service"):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class NamedPodTemplate(ApiStruct, frozen=True, tag_field="kind", tag="PodTemplate"):
    """A PodTemplate: a pod template that is an object of its own."""

    metadata: ObjectMeta = ObjectMeta()
    template: PodTemplate = PodTemplate()


class LocalReference(ApiStruct, frozen=True):
    """The name of an object of the same namespace."""

    name: str = ""


class ScalableReference(ApiStruct, frozen=True):
    """A workload of the same namespace that has replicas."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class CapacityBufferSpec(ApiStruct, frozen=True):
    """How much spare capacity to keep, in copies of a pod."""

    provisioning_strategy: str | None = None
    pod_template_ref: LocalReference | None = None
    scalable_ref: ScalableReference | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: ResourceList = {}


class CapacityBufferStatus(ApiStruct, frozen=True):
    """How Karpenter resolved a buffer."""

    replicas: int | None = None
    conditions: tuple[Condition, ...] = ()


class CapacityBuffer(ApiStruct, frozen=True, tag_field="kind", tag="CapacityBuffer"):
    """Spare capacity for pods that don't exist yet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CapacityBufferSpec = CapacityBufferSpec()
    status: CapacityBufferStatus = CapacityBufferStatus()


class NodeOverlaySpec(ApiStruct, frozen=True):
    """Another price, or more extended resources, for the instance types that meet the requirements."""

    requirements: tuple[SelectorRequirement, ...] = ()
    price: Scalar = None
    price_adjustment: Scalar = None
    capacity: ResourceList = {}
    weight: int | None = None


class NodeOverlayStatus(ApiStruct, frozen=True):
    """Karpenter's status of an overlay."""

    conditions: tuple[Condition, ...] = ()


class NodeOverlay(ApiStruct, frozen=True, tag_field="kind", tag="NodeOverlay"):
    """A correction of the provider's instance types."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeOverlaySpec = NodeOverlaySpec()
    status: NodeOverlayStatus = NodeOverlayStatus()


class ScalingTarget(ApiStruct, frozen=True):
    """The workload whose pods an autoscaler sizes."""

    api_version: str = ""
    kind: str = ""
    name: str = ""


class VpaUpdatePolicy(ApiStruct, frozen=True):
    """When a VerticalPodAutoscaler changes pods: `Off`, `Initial`, `Recreate`, `Auto` or `InPlaceOrRecreate`."""

    update_mode: str | None = None


class VpaContainerPolicy(ApiStruct, frozen=True):
    """What a VerticalPodAutoscaler may change of a container; `*`: of all others."""

    container_name: str = ""
    mode: str | None = None
    controlled_resources: tuple[str, ...] | None = None
    controlled_values: str | None = None
    min_allowed: ResourceList = {}
    max_allowed: ResourceList = {}


class VpaResourcePolicy(ApiStruct, frozen=True):
    """What a VerticalPodAutoscaler may change."""

    container_policies: tuple[VpaContainerPolicy, ...] = ()


class VpaSpec(ApiStruct, frozen=True):
    """Whose pods, when and what."""

    target_ref: ScalingTarget | None = None
    update_policy: VpaUpdatePolicy | None = None
    resource_policy: VpaResourcePolicy | None = None


class VpaContainerRecommendation(ApiStruct, frozen=True):
    """The requests with which a container is created."""

    container_name: str = ""
    target: ResourceList = {}


class VpaRecommendation(ApiStruct, frozen=True):
    """The requests of all containers."""

    container_recommendations: tuple[VpaContainerRecommendation, ...] = ()


class VpaStatus(ApiStruct, frozen=True):
    """What the recommender found."""

    recommendation: VpaRecommendation | None = None


class VerticalPodAutoscaler(ApiStruct, frozen=True, tag_field="kind", tag="VerticalPodAutoscaler"):
    """Another size for the pods of a workload when they are created again."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VpaSpec = VpaSpec()
    status: VpaStatus = VpaStatus()
