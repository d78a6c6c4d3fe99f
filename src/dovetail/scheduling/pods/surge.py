"""Deployments that are moved by their own rolling update instead of an eviction (docs/rules.md#surge).

A Deployment that carries `dovetail.dev/surge: "true"` and rolls without losing a pod (maxSurge of 1 or more,
maxUnavailable of 0, after rounding) can be moved although no eviction is allowed. Finds such Deployments and their
pods, and what prevents one from rolling now. Sits in scheduling, below movers; `decide` and `lifecycle` use it.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from dovetail.model.cluster import Cluster
from dovetail.model.names import SURGE
from dovetail.model.objects import Deployment, Pod, ReplicaSet, condition
from dovetail.scheduling.pods.pod import is_active

Owner = tuple[str, str]
"""Namespace and name of a ReplicaSet."""


class Surge(msgspec.Struct, frozen=True, kw_only=True):
    """A Deployment that may be moved by its rolling update, and its pods; `problem`: why not now."""

    deployment: Deployment
    pods: tuple[Pod, ...] = ()
    problem: str = ""

    @property
    def name(self) -> str:
        """Return `namespace/name`."""
        meta = self.deployment.metadata
        return meta.key

    @property
    def is_single(self) -> bool:
        """Return whether it has one replica, so that an eviction means downtime whatever a PDB says."""
        return wanted_replicas(self.deployment) == 1


class Surges:
    """All Deployments of a cluster that surge, found by the ReplicaSets of their pods."""

    def __init__(self, by_set: Mapping[Owner, Surge] = MappingProxyType({})) -> None:
        self._by_set = by_set

    @staticmethod
    def build(cluster: Cluster) -> "Surges":
        """Find the Deployments that surge; costs nothing where there are none."""
        wanted = {_place(item): item for item in cluster.deployments if can_surge(item)}
        if not wanted:
            return NO_SURGES
        owners = _sets_of(wanted, cluster.replica_sets)
        pods: dict[Owner, list[Pod]] = {}
        for pod in cluster.pods:
            owner = replica_set_of(pod)
            if owner in owners and is_active(pod):
                pods.setdefault(_place(owners[owner]), []).append(pod)
        made = {
            place: Surge(deployment=item, pods=tuple(pods.get(place, ())), problem=why_not_now(item))
            for place, item in wanted.items()
        }
        return Surges({owner: made[_place(item)] for owner, item in owners.items()})

    @property
    def owners(self) -> frozenset[Owner]:
        """Return the ReplicaSets whose pods surge."""
        return frozenset(self._by_set)

    @property
    def single(self) -> Mapping[Owner, bool]:
        """Return, by ReplicaSet, whether the Deployment of its pods has one replica."""
        return {owner: surge.is_single for owner, surge in self._by_set.items()}

    def of(self, pod: Pod) -> Surge | None:
        """Return the Deployment whose rolling update moves a pod; None: it is evicted like any other."""
        return self._by_set.get(replica_set_of(pod)) if self._by_set else None


NO_SURGES: Final = Surges()


def surging_sets(deployments: Iterable[Deployment], replica_sets: Iterable[ReplicaSet]) -> tuple[Owner, ...]:
    """Return the ReplicaSets, by namespace and name, whose pods leave by a rolling update."""
    wanted = {_place(item): item for item in deployments if can_surge(item)}
    return tuple(sorted(_sets_of(wanted, replica_sets))) if wanted else ()


def _sets_of(wanted: Mapping[Owner, Deployment], replica_sets: Iterable[ReplicaSet]) -> dict[Owner, Deployment]:
    return {
        (item.metadata.namespace, item.metadata.name): wanted[place]
        for item in replica_sets
        if (place := deployment_of(item)) in wanted
    }


def can_surge(item: Deployment) -> bool:
    """Return whether a Deployment has the annotation and rolls without losing a pod."""
    if item.metadata.annotations.get(SURGE) != "true" or item.spec.strategy.type not in ("", "RollingUpdate"):
        return False
    rolling, replicas = item.spec.strategy.rolling_update, wanted_replicas(item)
    surge = _amount(rolling.max_surge, replicas, up=True)
    missing = _amount(rolling.max_unavailable, replicas, up=False)
    return replicas >= 1 and surge is not None and surge >= 1 and missing == 0


def wanted_replicas(item: Deployment) -> int:
    """Return how many pods a Deployment wants."""
    return 1 if item.spec.replicas is None else item.spec.replicas


def why_not_now(item: Deployment) -> str:
    """Return what prevents a Deployment from rolling now; empty: nothing."""
    status = item.status
    if item.spec.paused:
        return "it is paused"
    progressing = condition(status.conditions, "Progressing")
    if progressing is not None and progressing.reason == "ProgressDeadlineExceeded":
        return "its last rollout missed the progress deadline"
    wanted = wanted_replicas(item)
    if status.observed_generation < item.metadata.generation or status.updated_replicas < wanted:
        return "it is in the middle of a rollout"
    if status.replicas > status.updated_replicas or status.available_replicas < wanted:
        return "it is in the middle of a rollout"
    return ""


@lru_cache(maxsize=1024)
def _amount(value: int | str | None, replicas: int, *, up: bool) -> int | None:
    """Read maxSurge or maxUnavailable; the default is 25 %; percentages are rounded up for surge, else down."""
    if value is None:
        value = "25%"
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    if not digits.isdecimal():
        return None
    share = int(digits) * replicas
    return (-(-share // 100) if up else share // 100) if value.endswith("%") else int(digits)


def _place(item: Deployment) -> Owner:
    return item.metadata.namespace, item.metadata.name


def deployment_of(item: ReplicaSet) -> Owner:
    """Return namespace and name of the Deployment that controls a ReplicaSet; empty names: none does."""
    return _controller(item.metadata.namespace, item.metadata.owner_references, "Deployment")


def replica_set_of(pod: Pod) -> Owner:
    """Return namespace and name of the ReplicaSet that controls a pod; empty names: none does."""
    return _controller(pod.metadata.namespace, pod.metadata.owner_references, "ReplicaSet")


def _controller(namespace: str, references: Iterable[object], kind: str) -> Owner:
    for entry in references:
        if getattr(entry, "kind", "") == kind:
            return namespace, str(getattr(entry, "name", ""))
    return "", ""
