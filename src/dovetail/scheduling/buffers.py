"""CapacityBuffers as virtual pods: how many copies each buffer represents, and their specs.

Karpenter (gate CapacityBuffer) keeps room for pods that don't exist yet by adding copies of them to the pending pods of
every scheduling run. They are not in the API server, are never evicted and cost nothing to disrupt. Decides nothing;
`scheduling.simulate` places them. Sits in scheduling, below the snapshot.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.model.cluster import Cluster
from dovetail.model.karpenter import BUFFER_CONDITION
from dovetail.model.objects import (
    CapacityBuffer,
    Condition,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplate,
    condition,
)
from dovetail.model.quantity import resource_amount
from dovetail.scheduling.pods.requests import spec_requests

FAKE_POD: Final = "karpenter.sh/capacity-buffer-fake-pod"
_NAME: Final = "karpenter.sh/capacity-buffer-name"
_NAMESPACE: Final = "karpenter.sh/capacity-buffer-namespace"
_LOWEST_PRIORITY: Final = -(1 << 31)
_WAITS: Final = PodStatus(conditions=(Condition(type="PodScheduled", status="False", reason="Unschedulable"),))
_APPS: Final = ("", "apps")

Template = tuple[PodTemplate, int | None]
"""What a buffer holds room for, and how many replicas its workload wants."""


def is_virtual(pod: Pod) -> bool:
    """Return whether a pod only represents a buffer's capacity."""
    return pod.metadata.annotations.get(FAKE_POD) == "true"


def buffer_of(pod: Pod) -> str:
    """Return the buffer of a virtual pod as `namespace/name`."""
    annotations = pod.metadata.annotations
    return f"{annotations.get(_NAMESPACE, '')}/{annotations.get(_NAME, '')}"


def virtual_pods(cluster: Cluster) -> tuple[Pod, ...]:
    """Return the virtual pods of all buffers, by buffer and number."""
    if not cluster.capacity_buffers:
        return ()
    referents = _referents(cluster)
    found: list[Pod] = []
    for buffer in cluster.capacity_buffers:
        template = _template(buffer, referents)
        if template is not None:
            found.extend(_copies(buffer, template[0], replicas_of(buffer, *template)))
    return tuple(found)


def _referents(cluster: Cluster) -> dict[tuple[str, str, str], Template]:
    found: dict[tuple[str, str, str], Template] = {
        ("PodTemplate", item.metadata.namespace, item.metadata.name): (item.template, None)
        for item in cluster.pod_templates
    }
    for kind, items in (
        ("Deployment", cluster.deployments),
        ("StatefulSet", cluster.stateful_sets),
        ("ReplicaSet", cluster.replica_sets),
    ):
        for item in items:
            wanted = 1 if item.spec.replicas is None else item.spec.replicas
            found[kind, item.metadata.namespace, item.metadata.name] = (item.spec.template, wanted)
    return found


def _template(buffer: CapacityBuffer, referents: Mapping[tuple[str, str, str], Template]) -> Template | None:
    """Return the pod template that the buffer refers to; None if it doesn't exist or can't be used."""
    ready = condition(buffer.status.conditions, BUFFER_CONDITION)
    if ready is not None and ready.status == "False":
        return None
    spec, space = buffer.spec, buffer.metadata.namespace
    if spec.pod_template_ref is not None:
        if spec.scalable_ref is not None:
            return None
        return referents.get(("PodTemplate", space, spec.pod_template_ref.name))
    if spec.scalable_ref is None or spec.scalable_ref.api_group not in _APPS:
        return None
    if spec.scalable_ref.kind == "PodTemplate":
        return None
    return referents.get((spec.scalable_ref.kind, space, spec.scalable_ref.name))


def replicas_of(buffer: CapacityBuffer, template: PodTemplate, scalable: int | None) -> int:
    """Return how many copies a buffer represents: Karpenter's own answer if it has one, else computed here."""
    if buffer.status.replicas is not None and condition(buffer.status.conditions, BUFFER_CONDITION) is not None:
        return max(0, buffer.status.replicas)
    spec = buffer.spec
    wanted: list[int] = [] if spec.replicas is None else [spec.replicas]
    if spec.percentage is not None and scalable is not None:
        share = -(-spec.percentage * scalable // 100)
        wanted.append(max(1, share) if spec.percentage > 0 and scalable > 0 else share)
    limited = _limited(buffer, template)
    if not wanted:
        return 0 if limited is None else limited
    return max(0, max(wanted) if limited is None else min(max(wanted), limited))


def _limited(buffer: CapacityBuffer, template: PodTemplate) -> int | None:
    """Return how many copies the buffer's limits allow; None: no limit."""
    requests = spec_requests(template.spec)
    counts = [
        resource_amount(name, limit) // requests[name]
        for name, limit in buffer.spec.limits.items()
        if requests.get(name, 0) > 0
    ]
    return min(counts, default=None)


def _copies(buffer: CapacityBuffer, template: PodTemplate, count: int) -> list[Pod]:
    meta = buffer.metadata
    annotations = {
        **template.metadata.annotations,
        FAKE_POD: "true",
        _NAME: meta.name,
        _NAMESPACE: meta.namespace,
    }
    spec = _bare(template.spec)
    return [
        Pod(
            metadata=ObjectMeta(
                name=f"capacity-buffer-{meta.name}-{number}",
                namespace=meta.namespace,
                uid=f"{meta.uid}-{number}",
                labels=template.metadata.labels,
                annotations=annotations,
            ),
            spec=spec,
            status=_WAITS,
        )
        for number in range(1, count + 1)
    ]


def _bare(spec: PodSpec) -> PodSpec:
    """Return the template's spec without its node and without volumes that only a real pod has."""
    volumes = tuple(v for v in spec.volumes if v.persistent_volume_claim is None and v.ephemeral is None)
    return msgspec.structs.replace(spec, node_name="", volumes=volumes, priority=_LOWEST_PRIORITY)
