"""The sizes with which moved pods come back, where these differ from what the pods have now.

A VerticalPodAutoscaler sets the requests of pods when they are created (in every update mode but `Off`), so a pod that
is moved comes back with its target. Pods of an owner whose pods came back larger lately (`model.coming_size`) are taken
to come back as large again. Without either a pod keeps its size. Decides nothing; movers ask it for the class of each
pod. Sits in scheduling, below the snapshot.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dovetail.model.cluster import Cluster
from dovetail.model.coming_size import GrownSize
from dovetail.model.objects import Container, Pod, PodSpec, ResourceList, VerticalPodAutoscaler, VpaContainerPolicy
from dovetail.model.quantity import QuantityError, format_amount, resource_amount
from dovetail.scheduling.pods.classes import Classes, PodClass
from dovetail.scheduling.pods.requests import spec_requests

SIZED: Final = ("cpu", "memory")
_OFF: Final = "Off"
_EVERY: Final = "*"
_REQUESTS_ONLY: Final = "RequestsOnly"
_HASH: Final = "pod-template-hash"

_Amount = str | int | float
_Target = tuple[str, str, str]
"""Namespace, kind and name of a workload."""


class SizeAdvice(msgspec.Struct, frozen=True):
    """What a VerticalPodAutoscaler gives to the containers of a workload's pods, by name.

    `within_limits`: containers whose limits it leaves alone, so their requests can't exceed these.
    """

    vpa: str
    target: _Target
    containers: dict[str, ResourceList]
    within_limits: frozenset[str] = frozenset()

    def total(self) -> dict[str, int]:
        """Return what all containers get together."""
        found: dict[str, int] = {}
        for requests in self.containers.values():
            for name, text in requests.items():
                found[name] = found.get(name, 0) + resource_amount(name, text)
        return found


class ComingSizes:
    """Immutable but for its cache. False if every pod comes back as it is."""

    def __init__(self, cluster: Cluster, grown: Mapping[str, GrownSize]) -> None:
        self._grown = dict(grown)
        self.advice: dict[_Target, SizeAdvice] = {}
        for vpa in cluster.vpas:  # sorted by name: of two for one workload the first counts
            found = read_advice(vpa)
            if found is not None:
                self.advice.setdefault(found.target, found)
        targets = {(space, name) for space, kind, name in self.advice if kind == "Deployment"}
        self._deployments = {
            (item.metadata.namespace, item.metadata.name): owner.name
            for item in (cluster.replica_sets if targets else ())
            for owner in item.metadata.owner_references
            if owner.kind == "Deployment" and (item.metadata.namespace, owner.name) in targets
        }
        self._known: dict[tuple[int, object], PodClass] = {}
        self._classes: Classes | None = None

    def __bool__(self) -> bool:
        return bool(self.advice or self._grown)

    def same_as(self, other: "ComingSizes") -> bool:
        """Return whether both give every pod the same size."""
        return self.advice == other.advice and self._grown == other._grown and self._deployments == other._deployments

    # ------------------------------------------------------------ one pod

    def advice_of(self, pod: Pod) -> SizeAdvice | None:
        """Return what a VerticalPodAutoscaler gives to a pod; None: nothing."""
        if not self.advice:
            return None
        space = pod.metadata.namespace
        for owner in pod.metadata.owner_references:
            found = self.advice.get((space, owner.kind, owner.name))
            if found is None and owner.kind == "ReplicaSet":
                found = self.advice.get((space, "Deployment", self._deployment(pod, owner.name)))
            if found is not None:
                return found
        return None

    def _deployment(self, pod: Pod, replica_set: str) -> str:
        known = self._deployments.get((pod.metadata.namespace, replica_set))
        key = pod.metadata.labels.get(_HASH)
        return known or (replica_set.removesuffix(f"-{key}") if key else "")

    def grown_of(self, pod: Pod) -> GrownSize | None:
        """Return the size with which the pods of a pod's owner came back lately; None: it is not known to differ."""
        if not self._grown:
            return None
        owners = pod.metadata.owner_references
        return next((self._grown[owner.uid] for owner in owners if owner.uid in self._grown), None)

    def class_of(self, pod: Pod, cls: PodClass, classes: Classes) -> PodClass:
        """Return the class of a pod when it has come back; mostly its own."""
        source: SizeAdvice | GrownSize | None = self.advice_of(pod) or self.grown_of(pod)
        if source is None:
            return cls
        if self._classes is not classes:
            self._classes, self._known = classes, {}
        key = (cls.id, id(source))  # sources live as long as this object
        found = self._known.get(key)
        if found is None:
            spec = coming_spec(cls.info.spec, source)
            found = cls if spec is cls.info.spec else classes.class_of(pod, classes.spec_info(spec))
            self._known[key] = found
        return found

    def words(self, pod: Pod) -> str:
        """Return with which size a pod comes back and why, for people; empty if it comes back as it is."""
        source: SizeAdvice | GrownSize | None = self.advice_of(pod) or self.grown_of(pod)
        if source is None:
            return ""
        spec = coming_spec(pod.spec, source)
        was, will = spec_requests(pod.spec), spec_requests(spec)
        changed = [name for name in SIZED if was.get(name, 0) != will.get(name, 0)]
        if not changed:
            return ""
        size = ", ".join(f"{name} {format_amount(name, will.get(name, 0))}" for name in changed)
        why = (
            f"VerticalPodAutoscaler {source.vpa}"
            if isinstance(source, SizeAdvice)
            else (f"as the last pods of {source.owner} did")
        )
        return f"comes back with {size} ({why})"


def read_advice(vpa: VerticalPodAutoscaler) -> SizeAdvice | None:
    """Return what a VerticalPodAutoscaler does to pods that are created; None: nothing."""
    spec, recommendation = vpa.spec, vpa.status.recommendation
    mode = None if spec.update_policy is None else spec.update_policy.update_mode
    if spec.target_ref is None or recommendation is None or mode == _OFF:
        return None
    given = () if spec.resource_policy is None else spec.resource_policy.container_policies
    policies = {policy.container_name: policy for policy in given}
    containers: dict[str, ResourceList] = {}
    within: set[str] = set()
    for entry in recommendation.container_recommendations:
        policy = policies.get(entry.container_name) or policies.get(_EVERY)
        if policy is not None and policy.mode == _OFF:
            continue
        allowed = SIZED if policy is None or policy.controlled_resources is None else policy.controlled_resources
        target = {
            name: text if policy is None else _allowed(name, text, policy)
            for name, text in entry.target.items()
            if name in allowed and _is_amount(name, text)
        }
        if target:
            containers[entry.container_name] = target
            if policy is not None and policy.controlled_values == _REQUESTS_ONLY:
                within.add(entry.container_name)
    if not containers:
        return None
    target_ref = (vpa.metadata.namespace, spec.target_ref.kind, spec.target_ref.name)
    return SizeAdvice(vpa.metadata.key, target_ref, containers, frozenset(within))


def _allowed(name: str, text: _Amount, policy: VpaContainerPolicy) -> _Amount:
    """Return a target within the policy, which may have changed since the recommendation was made."""
    least, most = policy.min_allowed.get(name), policy.max_allowed.get(name)
    if least is not None and _is_amount(name, least) and resource_amount(name, text) < resource_amount(name, least):
        text = least
    return text if most is None or not _is_amount(name, most) else _smaller(name, text, most)


def _smaller(name: str, text: _Amount, other: _Amount) -> _Amount:
    return other if resource_amount(name, other) < resource_amount(name, text) else text


def _is_amount(name: str, text: object) -> bool:
    try:
        return resource_amount(name, text) >= 0  # type: ignore[arg-type]
    except QuantityError:
        return False


def coming_spec(spec: PodSpec, source: SizeAdvice | GrownSize) -> PodSpec:
    """Return the spec of a pod that has come back; the same object if nothing in it changes."""
    if isinstance(source, GrownSize):
        known = dict(source.containers)
        containers = _each(spec.containers, lambda one: _larger(one, known.get(one.name, {})))
    elif any(container.name in source.containers for container in spec.containers):
        containers = _each(spec.containers, lambda one: _given(one, source))
    else:  # captures leave out the names of containers; the scheduler only counts the sum
        containers = _sum_on_first(spec.containers, source)
    if containers == spec.containers:
        return spec
    return msgspec.structs.replace(spec, containers=containers)


def _each(containers: Sequence[Container], change: Callable[[Container], Container]) -> tuple[Container, ...]:
    return tuple(map(change, containers))


def _with(container: Container, requests: ResourceList) -> Container:
    if requests == container.resources.requests:
        return container
    return msgspec.structs.replace(container, resources=msgspec.structs.replace(container.resources, requests=requests))


def _given(container: Container, advice: SizeAdvice) -> Container:
    target = advice.containers.get(container.name, {})
    if container.name in advice.within_limits:
        limits = {name: text for name, text in container.resources.limits.items() if _is_amount(name, text)}
        target = {name: _smaller(name, text, limits.get(name, text)) for name, text in target.items()}
    return _with(container, {**container.resources.requests, **target})


def _larger(container: Container, other: ResourceList) -> Container:
    requests = dict(container.resources.requests)
    for name, text in other.items():
        if name not in requests or resource_amount(name, text) > resource_amount(name, requests[name]):
            requests[name] = text
    return _with(container, requests)


def _sum_on_first(containers: Sequence[Container], advice: SizeAdvice) -> tuple[Container, ...]:
    """Put the sum of the targets on the first container; if some have no target, at least what all have now."""
    if not containers:
        return tuple(containers)
    total, covered = advice.total(), len(advice.containers) >= len(containers)
    requests: ResourceList = dict(containers[0].resources.requests)
    for name, amount in total.items():
        have = sum(resource_amount(name, one.resources.requests[name]) for one in _asking(containers, name))
        requests[name] = format_amount(name, amount if covered else max(amount, have))
    first = _with(containers[0], requests)
    rest = [_without(one, total) for one in containers[1:]]
    return (first, *rest)


def _asking(containers: Iterable[Container], name: str) -> Iterator[Container]:
    return (one for one in containers if name in one.resources.requests)


def _without(container: Container, named: Mapping[str, int]) -> Container:
    return _with(container, {name: text for name, text in container.resources.requests.items() if name not in named})
