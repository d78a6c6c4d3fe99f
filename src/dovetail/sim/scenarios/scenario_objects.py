"""A scenario's NodePools and pod specs as Kubernetes objects.

Turns sections of the file into objects; `sim.scenarios.stage` lets things happen to them.
"""

from typing import Any, Final

import msgspec

from dovetail.model import names
from dovetail.model.objects import (
    Affinity,
    Container,
    DisruptionSpec,
    LabelSelectorSpec,
    NodeClaimSpec,
    NodeClaimTemplate,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    ObjectMeta,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ResourceRequirements,
    TemplateMeta,
    TopologySpreadConstraint,
)
from dovetail.sim.scenarios.scenario import Policy, ScenarioError
from dovetail.sim.scenarios.sections import PoolSection, WorkloadSection
from dovetail.sim.world.world import managed

_TOPOLOGIES: Final = {"zone": names.ZONE, "hostname": names.HOSTNAME, "node": names.HOSTNAME}


def pool_of(section: PoolSection, policy: Policy) -> NodePool:
    """Return the NodePool under a policy: the pool's own disruption, with what the policy changes."""
    pool = NodePool(
        metadata=ObjectMeta(name=section.name),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(
                metadata=TemplateMeta(labels=section.labels),
                spec=NodeClaimSpec(
                    requirements=section.requirements,
                    taints=section.taints,
                    startup_taints=section.startup_taints,
                    node_class_ref=NodeClassReference(group="sim", kind="SimNodeClass", name="default"),
                    expire_after=section.expire_after,
                    termination_grace_period=section.termination_grace_period,
                ),
            ),
            disruption=disruption_of(section.disruption, policy.disruption),
            limits=section.limits,
            weight=section.weight,
        ),
    )
    return managed(pool) if section.managed and not policy.settings.rules.plays_karpenter else pool


def disruption_of(base: dict[str, Any], policy: dict[str, Any]) -> DisruptionSpec:
    """Read `spec.disruption` from the file."""
    try:
        return msgspec.convert({**base, **policy}, DisruptionSpec, strict=False)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"disruption: {error}; write it as in a NodePool's spec.disruption") from None


def pod_spec(work: WorkloadSection, labels: dict[str, str], cpu: str | int, memory: str | int) -> PodSpec:
    """Return the pod spec of a workload, with the drawn requests."""
    selector = LabelSelectorSpec(match_labels=labels)
    spread = tuple(
        TopologySpreadConstraint(
            topology_key=_TOPOLOGIES.get(entry.over, entry.over),
            max_skew=entry.skew,
            when_unsatisfiable="DoNotSchedule" if entry.must else "ScheduleAnyway",
            label_selector=selector,
        )
        for entry in work.spread
    )
    affinity = None
    if work.apart is not None:
        term = PodAffinityTerm(topology_key=_TOPOLOGIES.get(work.apart, work.apart), label_selector=selector)
        affinity = Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    return PodSpec(
        node_selector=work.node_selector,
        tolerations=work.tolerations,
        topology_spread_constraints=spread,
        affinity=affinity,
        priority=work.priority,
        termination_grace_period_seconds=work.grace,
        containers=(Container(name="main", resources=ResourceRequirements(requests={"cpu": cpu, "memory": memory})),),
    )
