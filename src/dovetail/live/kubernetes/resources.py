"""Which kinds the live shell reads, their paths on the API server, and what happens without them.

A kind that decisions can't do without is essential: a missing permission stops with the rule to add. The others degrade
with a warning that says what is not seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dovetail.model.karpenter import FeatureGate, KarpenterSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind: its path on the API server, and what is lost if it can't be read."""

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool
    essential: bool
    without: str = ""
    quiet: bool = False
    """Not every cluster has the kind and not every role may read it: that is nothing to warn of."""
    may_lack: bool = False
    """Not every cluster has the kind, which is nothing to warn of; a role that may not read it is."""

    def is_silent_at(self, status: int) -> bool:
        """Return whether an answer that refuses the kind is nothing to warn of."""
        return self.quiet or (self.may_lack and status == 404)

    @property
    def api_version(self) -> str:
        """Return the API version, such as `v1` or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """Return the path of the collection, of one object, or of a subresource of it."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace:
            root += f"/namespaces/{namespace}"
        parts = [root, self.plural] + ([name] if name else []) + ([subresource] if subresource else [])
        return "/".join(parts)

    def rule(self, verbs: str, name: str = "") -> str:
        """Return the RBAC rule that allows these verbs, on one object if it is named, as you would write it."""
        names = f", resourceNames: [{name}]" if name else ""
        return f'{{apiGroups: ["{self.group}"], resources: ["{self.plural}"]{names}, verbs: [{verbs}]}}'


def plural_in(path: str) -> str:
    """Return the plural of the kind that a path of the API server is about, e.g. `pods`; for metrics."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else parts[:1]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return rest[0] if rest else "other"


RESOURCES: Final[tuple[Resource, ...]] = (
    Resource(kind="NodePool", group="karpenter.sh", version="v1", plural="nodepools", namespaced=False, essential=True),
    Resource(
        kind="NodeClaim", group="karpenter.sh", version="v1", plural="nodeclaims", namespaced=False, essential=True
    ),
    Resource(kind="Node", group="", version="v1", plural="nodes", namespaced=False, essential=True),
    Resource(kind="Pod", group="", version="v1", plural="pods", namespaced=True, essential=True),
    Resource(
        kind="PodDisruptionBudget",
        group="policy",
        version="v1",
        plural="poddisruptionbudgets",
        namespaced=True,
        essential=True,
    ),
    Resource(kind="DaemonSet", group="apps", version="v1", plural="daemonsets", namespaced=True, essential=True),
    Resource(
        kind="PersistentVolumeClaim",
        group="",
        version="v1",
        plural="persistentvolumeclaims",
        namespaced=True,
        essential=True,
    ),
    Resource(
        kind="PersistentVolume", group="", version="v1", plural="persistentvolumes", namespaced=False, essential=True
    ),
    Resource(
        kind="StorageClass",
        group="storage.k8s.io",
        version="v1",
        plural="storageclasses",
        namespaced=False,
        essential=True,
    ),
    Resource(
        kind="CSINode",
        group="storage.k8s.io",
        version="v1",
        plural="csinodes",
        namespaced=False,
        essential=False,
        without="how many volumes a node can attach is not checked",
    ),
    Resource(
        kind="PriorityClass",
        group="scheduling.k8s.io",
        version="v1",
        plural="priorityclasses",
        namespaced=False,
        essential=False,
        without="pods without a resolved priority count as priority 0",
    ),
    Resource(
        kind="Namespace",
        group="",
        version="v1",
        plural="namespaces",
        namespaced=False,
        essential=False,
        without="affinity terms with a namespaceSelector match no namespace",
    ),
    Resource(
        kind="ReplicaSet",
        group="apps",
        version="v1",
        plural="replicasets",
        namespaced=True,
        essential=False,
        without="reports name pods, not their ReplicaSets",
    ),
    Resource(
        kind="StatefulSet",
        group="apps",
        version="v1",
        plural="statefulsets",
        namespaced=True,
        essential=False,
        without="reports name pods, not their StatefulSets",
    ),
    Resource(
        kind="VerticalPodAutoscaler",
        group="autoscaling.k8s.io",
        version="v1",
        plural="verticalpodautoscalers",
        namespaced=True,
        essential=False,
        without="moved pods are taken to come back with the size that they have",
        may_lack=True,
    ),
)
# What only features of Karpenter need: read where the kind exists and the role allows it.
FEATURE_RESOURCES: Final[tuple[Resource, ...]] = tuple(
    Resource(
        kind=kind,
        group=group,
        version=version,
        plural=plural,
        namespaced=kind != "NodeOverlay",
        essential=False,
        without=without,
        quiet=True,
    )
    for kind, group, version, plural, without in (
        ("Deployment", "apps", "v1", "deployments", "buffers for Deployments are not seen"),
        ("Service", "", "v1", "services", "default topology spread goes by owners alone"),
        ("PodTemplate", "", "v1", "podtemplates", "buffers for PodTemplates are not seen"),
        ("CapacityBuffer", "autoscaling.x-k8s.io", "v1beta1", "capacitybuffers", "buffers are not seen"),
        ("NodeOverlay", "karpenter.sh", "v1alpha1", "nodeoverlays", "prices are without overlays"),
    )
)
ALL_RESOURCES: Final = (*RESOURCES, *FEATURE_RESOURCES)
_ASKED_BY: Final = {
    "NodeOverlay": FeatureGate.NODE_OVERLAY,
    "CapacityBuffer": FeatureGate.CAPACITY_BUFFER,
    "PodTemplate": FeatureGate.CAPACITY_BUFFER,
    "Deployment": FeatureGate.CAPACITY_BUFFER,
}


def as_asked(resources: Sequence[Resource], karpenter: KarpenterSettings) -> tuple[Resource, ...]:
    """Return the kinds, with a warning for a missing one that a named gate or the default spread needs."""
    on = {gate for gate, value in karpenter.feature_gates if value}

    def is_asked(resource: Resource) -> bool:
        return _ASKED_BY.get(resource.kind) in on or (resource.kind == "Service" and bool(karpenter.spread))

    return tuple(replace(resource, quiet=resource.quiet and not is_asked(resource)) for resource in resources)


BY_KIND: Final[dict[str, Resource]] = {resource.kind: resource for resource in ALL_RESOURCES}
LEASE: Final = Resource(
    kind="Lease", group="coordination.k8s.io", version="v1", plural="leases", namespaced=True, essential=True
)
SECRET: Final = Resource(kind="Secret", group="", version="v1", plural="secrets", namespaced=True, essential=True)
CONFIG_MAP: Final = Resource(
    kind="ConfigMap", group="", version="v1", plural="configmaps", namespaced=True, essential=False
)
EVENT: Final = Resource(
    kind="Event", group="events.k8s.io", version="v1", plural="events", namespaced=True, essential=False
)
CRD: Final = Resource(
    kind="CustomResourceDefinition",
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    namespaced=False,
    essential=False,
    without="the CRD's version and fields are not checked",
)
