"""What a pod is and what it asks for: phases and owners, requests, tolerations, host ports, selectors, preferences."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from dovetail.model.objects import (
    Affinity,
    Container,
    ContainerStatus,
    DaemonSet,
    LabelSelectorSpec,
    NodeAffinity,
    Pod,
    PodDisruptionBudget,
    Taint,
    Toleration,
)
from tests.reference.quantities import Resources, add, amounts, largest
from tests.reference.requirements import Requirements, from_expressions, from_labels


def name_of(pod: Pod) -> str:
    """`namespace/name`."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def identity(pod: Pod) -> str:
    """Return what tells pods apart: the uid, or the name where a file has none."""
    return pod.metadata.uid or name_of(pod)


# Phases and owners


def is_terminal(pod: Pod) -> bool:
    """Done, well or badly."""
    return pod.status.phase in ("Failed", "Succeeded")


def is_terminating(pod: Pod) -> bool:
    """Being deleted."""
    return pod.metadata.deletion_timestamp is not None


def is_active(pod: Pod) -> bool:
    """Neither done nor being deleted."""
    return not is_terminal(pod) and not is_terminating(pod)


def _owned_by(pod: Pod, api_version: str, kind: str) -> bool:
    return any(owner.api_version == api_version and owner.kind == kind for owner in pod.metadata.owner_references)


def is_daemon(pod: Pod) -> bool:
    """Owned by a DaemonSet."""
    return _owned_by(pod, "apps/v1", "DaemonSet")


def is_mirror(pod: Pod) -> bool:
    """Return whether it is a static pod of a node."""
    return _owned_by(pod, "v1", "Node")


def is_reschedulable(pod: Pod) -> bool:
    """Return whether the pod would have to live elsewhere if its node went."""
    stays_a_pod = is_active(pod) or (_owned_by(pod, "apps/v1", "StatefulSet") and is_terminating(pod))
    return stays_a_pod and not is_daemon(pod) and not is_mirror(pod)


def is_provisionable(pod: Pod) -> bool:
    """Return whether the pod is pending and the scheduler said that it fits nowhere."""
    failed = any(item.type == "PodScheduled" and item.reason == "Unschedulable" for item in pod.status.conditions)
    bound = bool(pod.spec.node_name) or bool(pod.status.nominated_node_name)
    return failed and not bound and not is_daemon(pod) and not is_mirror(pod)


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def go_duration(text: str) -> float | None:
    """Return seconds of a positive Go duration, or None."""
    seconds, rest = 0.0, text.removeprefix("+")
    while rest:
        number = ""
        while rest and (rest[0].isdigit() or rest[0] == "."):
            number, rest = number + rest[0], rest[1:]
        unit = next((unit for unit in ("ns", "us", "µs", "ms", "s", "m", "h") if rest.startswith(unit)), None)
        if unit is None or not number.replace(".", "", 1).isdigit():
            return None
        seconds, rest = seconds + float(number) * _UNITS[unit], rest[len(unit) :]
    return seconds if seconds > 0 else None


def may_not_be_disrupted(pod: Pod, now: datetime) -> bool:
    """Return whether its own annotation protects the pod now."""
    text = pod.metadata.annotations.get("karpenter.sh/do-not-disrupt")
    if text is None or text == "true":
        return text == "true"
    seconds = go_duration(text)
    if seconds is None:
        return False
    return pod.status.start_time is None or now - pod.status.start_time < timedelta(seconds=seconds)


def _blocks_fully(pdb: PodDisruptionBudget) -> bool:
    most, least = pdb.spec.max_unavailable, pdb.spec.min_available
    return most in (0, "0%") or least == "100%"


def is_fully_blocked(pod: Pod, pdbs: Iterable[PodDisruptionBudget], now: datetime) -> bool:
    """Return whether PDBs will never let the pod be evicted."""
    disrupted = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
    evictable = is_active(pod) and not is_mirror(pod) and not may_not_be_disrupted(pod, now)
    if not evictable or tolerates(pod.spec.tolerations, [disrupted]):
        return False
    matching = [
        pdb
        for pdb in pdbs
        if pdb.metadata.namespace == pod.metadata.namespace and selects(pdb.spec.selector, pod.metadata.labels)
    ]
    if len(matching) > 1:
        return True
    unready = any(item.type == "Ready" and item.status == "False" for item in pod.status.conditions)
    return any(
        _blocks_fully(pdb) and not (unready and pdb.spec.unhealthy_pod_eviction_policy == "AlwaysAllow")
        for pdb in matching
    )


# Resources


def _asked(pod: Pod, container: Container, statuses: Iterable[ContainerStatus]) -> Resources:
    """Return what one container counts for: its spec, and what its kubelet says of a resize in place."""
    own = amounts(container.resources.requests)
    status = next((item for item in statuses if item.name == container.name), None)
    if status is None or status.resources is None:
        return own
    there = largest(amounts(status.resources.requests), amounts(status.allocated_resources))
    waiting = [item for item in pod.status.conditions if item.type == "PodResizePending"]
    return there if waiting and waiting[0].reason == "Infeasible" else largest(own, there)


def requests_of(pod: Pod) -> Resources:
    """Return the resources that the scheduler counts for a pod, and one of `pods`."""
    running: Resources = {}
    for container in pod.spec.containers:
        running = add(running, _asked(pod, container, pod.status.container_statuses))
    sidecars: Resources = {}
    starting: Resources = {}
    for container in pod.spec.init_containers:
        sidecar = container.restart_policy == "Always"
        statuses = pod.status.init_container_statuses if sidecar else ()
        own = _asked(pod, container, statuses)
        if container.restart_policy == "Always":
            running, sidecars = add(running, own), add(sidecars, own)
            starting = largest(starting, sidecars)
        else:
            starting = largest(starting, add(own, sidecars))
    total = largest(running, starting)
    if pod.spec.resources is not None:
        for name, amount in amounts(pod.spec.resources.requests).items():
            if name in ("cpu", "memory") or name.startswith("hugepages-"):
                total[name] = amount
    return {**add(total, amounts(pod.spec.overhead)), "pods": 1}


def requests_of_all(pods: Iterable[Pod]) -> Resources:
    """Return the sum of what pods ask for."""
    total: Resources = {}
    for pod in pods:
        total = add(total, requests_of(pod))
    return total


# Taints


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in "+-" else text
    return int(text) if digits.isascii() and digits.isdigit() else None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            limit, value = _integer(toleration.value), _integer(taint.value)
            if limit is None or value is None:
                return False
            return value < limit if toleration.operator == "Lt" else value > limit
    return False


def tolerates(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Return whether each taint, of whatever effect, is tolerated."""
    given = tuple(tolerations)
    return all(any(_tolerates(toleration, taint) for toleration in given) for taint in taints)


# Host ports

HostPort = tuple[str, int, str]


def host_ports(pod: Pod) -> list[HostPort]:
    """Return the (address, port, protocol) that the pod's containers take on their node; sidecars are not looked at."""
    ports = (port for container in pod.spec.containers for port in container.ports)
    return [(port.host_ip or "0.0.0.0", port.host_port, port.protocol) for port in ports if port.host_port]


def ports_collide(one: HostPort, other: HostPort) -> bool:
    """Return whether two uses can't share a node: same port and protocol, and same address or any address."""
    first, second = ipaddress.ip_address(one[0]), ipaddress.ip_address(other[0])
    return one[1:] == other[1:] and (first == second or first.is_unspecified or second.is_unspecified)


class PortUse:
    """Which pod holds which host ports of one node."""

    def __init__(self) -> None:
        self._held: dict[str, list[HostPort]] = {}

    def copy(self) -> PortUse:
        """Return a copy that can grow on its own."""
        twin = PortUse()
        twin._held = dict(self._held)
        return twin

    def add(self, pod: Pod) -> None:
        """The pod lives here."""
        self._held[name_of(pod)] = host_ports(pod)

    def conflicts(self, pod: Pod) -> bool:
        """Return whether another pod holds a port that this one wants."""
        return any(
            ports_collide(wanted, held)
            for wanted in host_ports(pod)
            for holder, ports in self._held.items()
            if holder != name_of(pod)
            for held in ports
        )


# Selectors


def selects(selector: LabelSelectorSpec | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches; no selector, or one that can't be read, matches nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    for item in selector.match_expressions:
        match item.operator:
            case "In":
                matches = labels.get(item.key) in item.values
            case "NotIn":
                matches = bool(item.values) and (item.key not in labels or labels[item.key] not in item.values)
            case "Exists":
                matches = item.key in labels and not item.values
            case "DoesNotExist":
                matches = item.key not in labels and not item.values
            case _:
                matches = False
        if not matches:
            return False
    return True


# Node affinity and preferences


def _node_affinity(pod: Pod) -> NodeAffinity:
    affinity = pod.spec.affinity
    return (affinity.node_affinity if affinity else None) or NodeAffinity()


def strict_requirements(pod: Pod) -> Requirements:
    """Return what the pod must have: its node selector and the first of its required affinity terms."""
    needs = from_labels(pod.spec.node_selector)
    required = _node_affinity(pod).required_during_scheduling_ignored_during_execution
    if required and required.node_selector_terms:
        needs.add(from_expressions(required.node_selector_terms[0].match_expressions))
    return needs


def all_requirements(pod: Pod) -> Requirements:
    """Return what the pod must have, and the heaviest of its node preferences as if it were a must."""
    needs = strict_requirements(pod)
    preferred = _node_affinity(pod).preferred_during_scheduling_ignored_during_execution
    if preferred:
        heaviest = max(preferred, key=lambda term: term.weight)
        needs.add(from_expressions(heaviest.preference.match_expressions))
    return needs


def required_alternatives(pod: Pod) -> list[Requirements]:
    """Return the node selector with each of the required affinity terms: one of them must hold."""
    required = _node_affinity(pod).required_during_scheduling_ignored_during_execution
    if required is None:
        return [from_labels(pod.spec.node_selector)]
    alternatives = []
    for term in required.node_selector_terms:
        needs = from_labels(pod.spec.node_selector)
        needs.add(from_expressions(term.match_expressions))
        alternatives.append(needs)
    return alternatives


def _with_affinity(pod: Pod, affinity: Affinity) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=affinity))


TOLERATE_PREFERENCES = Toleration(operator="Exists", effect="PreferNoSchedule")


def tolerating_preferences(pod: Pod) -> Pod:
    """Return the pod with a toleration of all PreferNoSchedule taints."""
    tolerations = (*pod.spec.tolerations, TOLERATE_PREFERENCES)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, tolerations=tolerations))


def relaxed(pod: Pod, *, tolerate_preferences: bool) -> Pod | None:
    """Return the pod with one thing less to ask for, in Karpenter's order; None where nothing is left to give up."""
    return (
        without_first_required_term(pod)
        or _without_heaviest(pod, "pod_affinity")
        or _without_heaviest(pod, "pod_anti_affinity")
        or _without_heaviest(pod, "node_affinity")
        or _without_schedule_anyway(pod)
        or (_with_preference_toleration(pod) if tolerate_preferences else None)
    )


def without_first_required_term(pod: Pod) -> Pod | None:
    """Return the pod without the first of several required node affinity terms."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return None
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if required is None or len(required.node_selector_terms) < 2:
        return None
    fewer = msgspec.structs.replace(required, node_selector_terms=required.node_selector_terms[1:])
    node_affinity = msgspec.structs.replace(
        affinity.node_affinity, required_during_scheduling_ignored_during_execution=fewer
    )
    return _with_affinity(pod, msgspec.structs.replace(affinity, node_affinity=node_affinity))


def _without_heaviest(pod: Pod, kind: str) -> Pod | None:
    affinity = pod.spec.affinity
    part = getattr(affinity, kind) if affinity else None
    if affinity is None or part is None or not part.preferred_during_scheduling_ignored_during_execution:
        return None
    by_weight = sorted(part.preferred_during_scheduling_ignored_during_execution, key=lambda term: -term.weight)
    lighter = msgspec.structs.replace(part, preferred_during_scheduling_ignored_during_execution=tuple(by_weight[1:]))
    return _with_affinity(pod, msgspec.structs.replace(affinity, **{kind: lighter}))


def _without_schedule_anyway(pod: Pod) -> Pod | None:
    constraints = list(pod.spec.topology_spread_constraints)
    for index, constraint in enumerate(constraints):
        if constraint.when_unsatisfiable == "ScheduleAnyway":
            # The last one takes the place of the one that goes: the next to go is found in that order.
            constraints[index] = constraints[-1]
            spec = msgspec.structs.replace(pod.spec, topology_spread_constraints=tuple(constraints[:-1]))
            return msgspec.structs.replace(pod, spec=spec)
    return None


def _with_preference_toleration(pod: Pod) -> Pod | None:
    wanted = TOLERATE_PREFERENCES
    for given in pod.spec.tolerations:
        if (given.key, given.effect, given.operator, given.value) == (
            wanted.key,
            wanted.effect,
            wanted.operator,
            wanted.value,
        ):
            return None
    return tolerating_preferences(pod)


# DaemonSets


def _requests_filled_from_limits(container: Container) -> Container:
    resources = container.resources
    filled = msgspec.structs.replace(resources, requests={**resources.limits, **resources.requests})
    return msgspec.structs.replace(container, resources=filled)


def daemon_pod(daemon_set: DaemonSet, pods: Iterable[Pod]) -> Pod:
    """The pod that stands for a DaemonSet: its newest, or one made from the template, with the template's affinity."""
    newest: Pod | None = None
    for pod in pods:
        controllers = [owner.uid for owner in pod.metadata.owner_references if owner.controller]
        if pod.metadata.namespace != daemon_set.metadata.namespace or daemon_set.metadata.uid not in controllers:
            continue
        if newest is None or _created(pod) > _created(newest):
            newest = pod
    template = daemon_set.spec.template.spec
    if newest is None:
        spec = msgspec.structs.replace(
            template,
            containers=tuple(_requests_filled_from_limits(item) for item in template.containers),
            init_containers=tuple(_requests_filled_from_limits(item) for item in template.init_containers),
        )
        newest = Pod(metadata=msgspec.structs.replace(daemon_set.metadata, labels={}, uid=""), spec=spec)
    node_affinity = template.affinity.node_affinity if template.affinity else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    if required is None:
        return newest
    affinity = newest.spec.affinity or Affinity()
    merged = msgspec.structs.replace(
        affinity.node_affinity or NodeAffinity(), required_during_scheduling_ignored_during_execution=required
    )
    return _with_affinity(newest, msgspec.structs.replace(affinity, node_affinity=merged))


def _created(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created else 0.0
