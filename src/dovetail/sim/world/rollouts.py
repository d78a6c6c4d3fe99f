"""Deployments of the simulated cluster that roll: a new pod first, then an old one stops, until all are new.

Only workloads that ask to surge get a Deployment of their own (docs/rules.md#surge); for all others a ReplicaSet is
enough. A change of the pod template starts the rolling update: one pod more than wanted, and an old one stops as soon
as there are enough ready ones without it. Where pods land is not known here.
"""

from dataclasses import dataclass
from typing import Final, cast

from msgspec.structs import replace

from dovetail.model.names import SURGE
from dovetail.model.objects import Deployment, ObjectMeta, is_true
from dovetail.model.parts.features import DeploymentSpec, DeploymentStatus, DeploymentStrategy, RollingUpdate
from dovetail.sim.world.clock import SECOND, Clock
from dovetail.sim.world.store import Change, WorldStore
from dovetail.sim.world.workloads import Workload, Workloads

_LOOK_EVERY: Final = SECOND


@dataclass(slots=True)
class _Rollout:
    """A rolling update under way: the pods that are still to go."""

    key: str
    old: list[str]


class Rollouts:
    """All Deployments that surge."""

    def __init__(self, store: WorldStore, clock: Clock, workloads: Workloads) -> None:
        self.store, self.clock, self.workloads = store, clock, workloads
        self._rolling: dict[str, _Rollout] = {}
        store.listen(self._on_change, "Deployment")

    def add(self, workload: Workload) -> None:
        """Add a workload with a Deployment that asks to surge."""
        meta = ObjectMeta(
            name=workload.name,
            namespace=workload.namespace,
            uid=self.store.new_uid(),
            labels=workload.labels,
            annotations={SURGE: "true"},
            generation=1,
        )
        strategy = DeploymentStrategy(
            type="RollingUpdate", rolling_update=RollingUpdate(max_surge=1, max_unavailable=0)
        )
        spec = DeploymentSpec(replicas=workload.replicas, strategy=strategy)
        self.store.put(Deployment(metadata=meta, spec=spec, status=_whole(workload.replicas, 1)))
        self.workloads.add(workload)

    def scaled(self, key: str, replicas: int) -> None:
        """Set how many pods a Deployment wants."""
        item = cast("Deployment | None", self.store.by_kind["Deployment"].get(key))
        if item is not None and item.spec.replicas != replicas:
            self.store.put(replace(item, spec=replace(item.spec, replicas=replicas)))

    def _on_change(self, change: Change) -> None:
        if change.old is None or change.new is None:
            return
        old, new = cast("Deployment", change.old), cast("Deployment", change.new)
        if old.spec.template.metadata.annotations != new.spec.template.metadata.annotations:
            key = new.metadata.key
            self._rolling[key] = _Rollout(key, self.workloads.pods_of("ReplicaSet", key))
            generation = new.metadata.generation + 1
            status = replace(_whole(new.spec.replicas or 0, generation), updated_replicas=0)
            self.store.put(replace(new, metadata=replace(new.metadata, generation=generation), status=status))
            self.workloads.exceed("ReplicaSet", key, 1)
            self.clock.after(_LOOK_EVERY, self._look, key)

    def _look(self, key: str) -> None:
        """Stop an old pod if there are enough ready ones without it; end when none is left."""
        rollout = self._rolling.get(key)
        if rollout is None:
            return
        pods = self.workloads.pods_of("ReplicaSet", key)
        rollout.old = [pod for pod in rollout.old if pod in pods]
        ready = sum(is_true(self.store.pods[pod].status.conditions, "Ready") for pod in pods)
        if rollout.old and ready > self.workloads.desired("ReplicaSet", key):
            self.workloads.retire(rollout.old.pop(0))
        if rollout.old:
            self.clock.after(_LOOK_EVERY, self._look, key)
            return
        del self._rolling[key]
        self.workloads.exceed("ReplicaSet", key, 0)
        item = cast("Deployment | None", self.store.by_kind["Deployment"].get(key))
        if item is not None:
            self.store.put(replace(item, status=_whole(item.spec.replicas or 0, item.metadata.generation)))


def _whole(replicas: int, generation: int) -> DeploymentStatus:
    """Return the status of a Deployment that has rolled out."""
    return DeploymentStatus(
        observed_generation=generation,
        replicas=replicas,
        updated_replicas=replicas,
        ready_replicas=replicas,
        available_replicas=replicas,
    )
