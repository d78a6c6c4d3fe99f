"""What a pod asks of a node: containers, sidecars, init containers, pod-level resources, overhead, resizes in place.

A container that was resized in place counts with the largest of what its spec requests, what its kubelet has allocated
and what the running container has, unless the kubelet reported the new size as infeasible (as in Karpenter v1.14 and
later; every profile does this). The same number is used for the room that a pod takes, for pods that move, for pending
pods and for the overhead of DaemonSets. Sits in scheduling, below the classes.
"""

from functools import lru_cache
from typing import Final

import msgspec

from dovetail.model.objects import Container, ContainerStatus, Pod, PodSpec, Quantity, ResourceList, condition
from dovetail.model.quantity import resource_amount

Amounts = dict[str, int]

_POD_LEVEL: Final = ("cpu", "memory")
_RESIZE_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"
_MOST: Final = 2**52
"""A pod's requests count up to this, so that the sum over all pods of a node fits a 64-bit column."""


def amounts(resources: ResourceList) -> Amounts:
    """Return a resource list as integers."""
    return _read_amounts(tuple(resources), *resources.values()).copy()


@lru_cache(maxsize=4096, typed=True)
def _read_amounts(names: tuple[str, ...], *texts: Quantity) -> Amounts:
    """Read a resource list; thousands of nodes have the same."""
    return {name: resource_amount(name, text) for name, text in zip(names, texts, strict=True)}


def add_into(total: Amounts, more: Amounts) -> None:
    """Add resource by resource, in place."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def spec_requests(spec: PodSpec) -> Amounts:
    """Return the requests of a spec without the `pods` resource: containers, sidecars, init containers, overhead.

    Amounts that no node has are read as a smaller one that no node has either.
    """
    total: Amounts = {}
    for container in spec.containers:
        add_into(total, amounts(container.resources.requests))
    sidecars: Amounts = {}
    start_up: Amounts = {}
    for container in spec.init_containers:
        own = amounts(container.resources.requests)
        if _is_sidecar(container):
            add_into(total, own)
            add_into(sidecars, own)
            own = dict(sidecars)
        else:
            add_into(own, sidecars)
        _raise_to(start_up, own)
    _raise_to(total, start_up)
    if spec.resources is not None:
        for name, amount in amounts(spec.resources.requests).items():
            if name in _POD_LEVEL or name.startswith("hugepages-"):
                total[name] = amount
    add_into(total, amounts(spec.overhead))
    for name, amount in total.items():
        if not -_MOST <= amount <= _MOST:
            total[name] = max(-_MOST, min(amount, _MOST))
    return total


def pod_requests(pod: Pod) -> Amounts:
    """Return what a pod takes from a node, including the `pods` resource."""
    total = spec_requests(resized_spec(pod))
    total["pods"] = 1
    return total


def resized_spec(pod: Pod) -> PodSpec:
    """Return the pod's spec with the requests that count while it is resized in place; mostly the spec itself.

    Sidecars are read like containers; ordinary init containers and pod-level resources count by the spec alone.
    """
    spec, status = pod.spec, pod.status
    if not status.container_statuses and not status.init_container_statuses:
        return spec
    pending = condition(status.conditions, _RESIZE_PENDING)
    infeasible = pending is not None and pending.reason == _INFEASIBLE
    containers = _resized(spec.containers, status.container_statuses, infeasible=infeasible)
    sidecars = _resized(spec.init_containers, status.init_container_statuses, infeasible=infeasible, only_sidecars=True)
    if containers is spec.containers and sidecars is spec.init_containers:
        return spec
    return msgspec.structs.replace(spec, containers=containers, init_containers=sidecars)


def _resized(
    containers: tuple[Container, ...],
    statuses: tuple[ContainerStatus, ...],
    *,
    infeasible: bool,
    only_sidecars: bool = False,
) -> tuple[Container, ...]:
    reported = {status.name: status for status in statuses if status.resources is not None}
    if not reported:
        return containers
    found = [
        container
        if only_sidecars and not _is_sidecar(container)
        else _counted(container, reported.get(container.name), infeasible=infeasible)
        for container in containers
    ]
    changed = any(mine is not theirs for mine, theirs in zip(found, containers, strict=True))
    return tuple(found) if changed else containers


def _counted(container: Container, status: ContainerStatus | None, *, infeasible: bool) -> Container:
    if status is None or status.resources is None:
        return container
    wanted = container.resources.requests
    given = (status.resources.requests, status.allocated_resources)
    if not infeasible and all(part == wanted or not part for part in given):
        return container
    counted = _largest(given if infeasible else (wanted, *given))
    if counted == wanted:
        return container
    resources = msgspec.structs.replace(container.resources, requests=counted)
    return msgspec.structs.replace(container, resources=resources)


def _largest(parts: tuple[ResourceList, ...]) -> ResourceList:
    """Return the largest amount of each resource, as written; the first one of equal amounts."""
    found: ResourceList = {}
    for part in parts:
        for name, text in part.items():
            if name not in found or resource_amount(name, text) > resource_amount(name, found[name]):
                found[name] = text
    return found


def uses_resource_claims(spec: PodSpec) -> bool:
    """Return whether a pod asks for devices through resource claims (dynamic resource allocation)."""
    return bool(spec.resource_claims) or any(
        container.resources.claims for container in (*spec.containers, *spec.init_containers)
    )
