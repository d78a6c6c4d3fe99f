"""Which workload a pod belongs to: the Deployment of its ReplicaSet, if it is known.

Pure. Sits in plan; `blockers` and `explanation` use it.
"""

from dataclasses import dataclass

from dovetail.model.cluster import Cluster
from dovetail.model.objects import OwnerReference, Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A workload, or a pod that nothing owns. `kind` is the owner's own, such as Deployment; `name` has a namespace."""

    kind: str
    name: str


class Owners:
    """Looks up the workload of a pod."""

    def __init__(self, cluster: Cluster) -> None:
        self._sets = {(item.metadata.namespace, item.metadata.name): item for item in cluster.replica_sets}

    def of(self, pod: Pod) -> Owner:
        """Return the workload of a pod."""
        namespace = pod.metadata.namespace
        owner = controller_of(pod.metadata.owner_references)
        if owner is None:
            return Owner(kind="Pod", name=f"{namespace}/{pod.metadata.name}")
        if owner.kind == "ReplicaSet" and (item := self._sets.get((namespace, owner.name))) is not None:
            above = controller_of(item.metadata.owner_references)
            owner = owner if above is None else above
        return Owner(kind=owner.kind, name=f"{namespace}/{owner.name}")


def controller_of(references: tuple[OwnerReference, ...]) -> OwnerReference | None:
    """Return the controller among owners, or the first of them."""
    named = [entry for entry in references if entry.kind and entry.name]
    return next((entry for entry in named if entry.controller), named[0] if named else None)
