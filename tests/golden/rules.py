"""Read from a golden case's objects which placement rules it exercises."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dovetail.model.names import HOSTNAME, ZONE
from dovetail.model.objects import Pod, PodAffinity, TopologySpreadConstraint, is_true
from tests.reference.nodes import state_nodes
from tests.reference.pods import is_provisionable
from tests.support.golden_cases import GoldenCase


def _spreads(case: GoldenCase, *, key: str | None = None, when: str = "DoNotSchedule") -> bool:
    def fits(item: TopologySpreadConstraint) -> bool:
        return item.when_unsatisfiable == when and (key is None or item.topology_key == key)

    return any(fits(item) for pod in case.cluster.pods for item in pod.spec.topology_spread_constraints)


def _pod_affinities(case: GoldenCase, part: str) -> Iterable[PodAffinity]:
    found = (getattr(pod.spec.affinity, part) for pod in case.cluster.pods if pod.spec.affinity is not None)
    return (item for item in found if item is not None)


def _required(case: GoldenCase, part: str) -> bool:
    return any(item.required_during_scheduling_ignored_during_execution for item in _pod_affinities(case, part))


def _preferred(case: GoldenCase) -> bool:
    parts = ("node_affinity", "pod_affinity", "pod_anti_affinity")
    found = [item for part in parts for item in _pod_affinities(case, part)]
    return any(item.preferred_during_scheduling_ignored_during_execution for item in found)


def _node_affinity(case: GoldenCase) -> bool:
    return any(
        item.required_during_scheduling_ignored_during_execution is not None
        for item in _pod_affinities(case, "node_affinity")
    )


def _any_pod(test: Callable[[Pod], bool]) -> Callable[[GoldenCase], bool]:
    return lambda case: any(test(pod) for pod in case.cluster.pods)


def _pool_requirement(case: GoldenCase, *operators: str) -> bool:
    pools = case.cluster.node_pools
    return any(item.operator in operators for pool in pools for item in pool.spec.template.spec.requirements)


def _tainted(case: GoldenCase, effect: str) -> bool:
    on_pools = [taint for pool in case.cluster.node_pools for taint in pool.spec.template.spec.taints]
    on_nodes = [taint for node in case.cluster.nodes for taint in node.spec.taints]
    return any(taint.effect == effect for taint in (*on_pools, *on_nodes))


def _closed(case: GoldenCase) -> bool:
    waits = [pool.spec.disruption.consolidate_after for pool in case.cluster.node_pools]
    events = any(claim.status.last_pod_event_time for claim in case.cluster.node_claims)
    return events and any(wait not in (None, "0s", "Never") for wait in waits)


def _leaving(case: GoldenCase) -> bool:
    return any(state.leaving for state in state_nodes(case.cluster))


RULES: tuple[tuple[str, Callable[[GoldenCase], bool]], ...] = (
    ("resources and the number of pods", lambda case: True),
    ("init containers and sidecars", _any_pod(lambda pod: bool(pod.spec.init_containers))),
    ("DaemonSet overhead", lambda case: bool(case.cluster.daemon_sets)),
    ("node selectors", _any_pod(lambda pod: bool(pod.spec.node_selector))),
    ("required node affinity", _node_affinity),
    ("preferences, relaxed one by one", lambda case: _preferred(case) or _spreads(case, when="ScheduleAnyway")),
    ("taints and tolerations (NoSchedule)", lambda case: _tainted(case, "NoSchedule")),
    ("PreferNoSchedule", lambda case: _tainted(case, "PreferNoSchedule")),
    ("spread over zones", lambda case: _spreads(case, key=ZONE)),
    ("spread over hosts", lambda case: _spreads(case, key=HOSTNAME)),
    ("pod affinity", lambda case: _required(case, "pod_affinity")),
    ("pod anti-affinity, both ways", lambda case: _required(case, "pod_anti_affinity")),
    ("host ports", _any_pod(lambda pod: any(port.host_port for c in pod.spec.containers for port in c.ports))),
    ("zone of bound volumes", _any_pod(lambda pod: bool(pod.spec.volumes))),
    ("several pools, by weight and name", lambda case: len(case.cluster.node_pools) > 1),
    ("limits of pools", lambda case: any(pool.spec.limits for pool in case.cluster.node_pools)),
    (
        "minValues",
        lambda case: any(
            item.min_values for pool in case.cluster.node_pools for item in pool.spec.template.spec.requirements
        ),
    ),
    (
        "Gt, Lt, NotIn, Exists in pools",
        lambda case: _pool_requirement(case, "Gt", "Lt", "Gte", "Lte", "NotIn", "Exists", "DoesNotExist"),
    ),
    (
        "offerings that are not available",
        lambda case: any(not offer.available for kind in case.catalogue.instance_types for offer in kind.offerings),
    ),
    (
        "reserved capacity",
        lambda case: any(offer.reservation_id for kind in case.catalogue.instance_types for offer in kind.offerings),
    ),
    ("pending pods", _any_pod(is_provisionable)),
    ("pods of leaving nodes", _leaving),
    (
        "nodes that are not initialized",
        lambda case: any(not state.initialized for state in state_nodes(case.cluster)),
    ),
    ("unmanaged nodes", lambda case: any(not state.managed for state in state_nodes(case.cluster))),
    ("nodes closed by consolidateAfter", _closed),
    (
        "pods that can't be moved (PDB, do-not-disrupt) on drifted nodes",
        lambda case: (
            any(is_true(claim.status.conditions, "Drifted") for claim in case.cluster.node_claims)
            and (
                bool(case.cluster.pdbs)
                or _any_pod(lambda pod: "karpenter.sh/do-not-disrupt" in pod.metadata.annotations)(case)
            )
        ),
    ),
    (
        "terminating, terminal and mirror pods",
        _any_pod(
            lambda pod: pod.metadata.deletion_timestamp is not None or pod.status.phase in ("Succeeded", "Failed")
        ),
    ),
    ("EC2's instance types", lambda case: case.name.startswith("E")),
)
