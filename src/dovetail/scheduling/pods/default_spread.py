"""Default topology spread: constraints for pods that have none, from Karpenter's scheduler configuration.

The selector of each pod is kube-scheduler's default: the selectors of all Services that select the pod, combined with
the selector of its ReplicaSet or StatefulSet. A pod without either gets no constraint. Nothing is written to pods. Sits
in scheduling, below the classes.
"""

from collections.abc import Callable, Mapping

import msgspec

from dovetail.model.cluster import Cluster
from dovetail.model.objects import (
    LabelSelectorSpec,
    Pod,
    PodSpec,
    SelectorRequirement,
    TopologySpreadConstraint,
)
from dovetail.scheduling.pods.pod import is_daemon
from dovetail.scheduling.pods.requests import resized_spec

_OWNERS = ("ReplicaSet", "StatefulSet")
_Owner = tuple[str, str, str]
_NOTHING = LabelSelectorSpec()


class DefaultSpread:
    """The constraints and the sources of their selectors. Equal if they give every pod the same spec."""

    __slots__ = ("_constraints", "_owners", "_services", "_sized")

    def __init__(
        self, constraints: tuple[TopologySpreadConstraint, ...], cluster: Cluster, *, resizes_count: bool = True
    ) -> None:
        self._constraints = constraints
        self._sized: Callable[[Pod], PodSpec] = resized_spec if resizes_count else _written_spec
        self._services: dict[str, tuple[Mapping[str, str], ...]] = {}
        self._owners: dict[_Owner, LabelSelectorSpec] = {}
        if not constraints:
            return
        for service in cluster.services:  # sorted by name: if two differ in a key, the later name wins
            if service.spec.selector:
                space = service.metadata.namespace
                self._services[space] = (*self._services.get(space, ()), service.spec.selector)
        for kind, items in (("ReplicaSet", cluster.replica_sets), ("StatefulSet", cluster.stateful_sets)):
            for item in items:
                if item.spec.selector is not None:
                    self._owners[kind, item.metadata.namespace, item.metadata.name] = item.spec.selector

    def same_as(self, other: "DefaultSpread") -> bool:
        """Return whether both give every pod the same spec."""
        return (
            self._constraints == other._constraints
            and self._sized is other._sized
            and self._services == other._services
            and self._owners == other._owners
        )

    @property
    def counted_spec(self) -> Callable[[Pod], PodSpec]:
        """Return the function from a pod to the spec that the scheduler uses.

        That is the one resized in place, with the default constraints if it has none.
        """
        return self._spread_spec if self._constraints else self._sized

    def _spread_spec(self, pod: Pod) -> PodSpec:
        spec = self._sized(pod)
        if spec.topology_spread_constraints or is_daemon(pod):
            return spec
        selector = self._selector(pod)
        if selector == _NOTHING:
            return spec
        given = tuple(msgspec.structs.replace(entry, label_selector=selector) for entry in self._constraints)
        return msgspec.structs.replace(spec, topology_spread_constraints=given)

    def _selector(self, pod: Pod) -> LabelSelectorSpec:
        labels: dict[str, str] = {}
        for wanted in self._services.get(pod.metadata.namespace, ()):
            if all(pod.metadata.labels.get(key) == value for key, value in wanted.items()):
                labels.update(wanted)
        owner = next((entry for entry in pod.metadata.owner_references if entry.controller), None)
        own = None
        if owner is not None and owner.kind in _OWNERS and owner.api_version == "apps/v1":
            own = self._owners.get((owner.kind, pod.metadata.namespace, owner.name))
        return LabelSelectorSpec(match_labels=labels) if own is None else _both(labels, own)


def _written_spec(pod: Pod) -> PodSpec:
    return pod.spec


def _both(labels: dict[str, str], own: LabelSelectorSpec) -> LabelSelectorSpec:
    """Return a selector for pods that both select; none if they contradict each other."""
    clashing = {key: value for key, value in own.match_labels.items() if labels.get(key, value) != value}
    more = tuple(SelectorRequirement(key=key, operator="In", values=(value,)) for key, value in clashing.items())
    joined = {**own.match_labels, **labels}
    return LabelSelectorSpec(match_labels=joined, match_expressions=(*own.match_expressions, *more))
