"""A pod's shape: everything that the simulated scheduler, kubelet and evictions need, computed once per template.

Pods of one template share one `PodShape`, so that 8,000 pods cost a few dozen of these. Knows no node.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import takewhile
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from dovetail.model import names
from dovetail.model.objects import LabelSelectorSpec, Pod, PodAffinityTerm, PodSpec, Taint, TopologySpreadConstraint
from dovetail.sim.world.clock import Span, seconds
from dovetail.sim.world.placement.matching import requests_of, tolerates

# What the default scheduler adds for scoring where a pod asks for nothing.
_UNSET_CPU = 100
_UNSET_MEMORY = 200 * 1024 * 1024

_DISRUPTED = Taint(key=names.DISRUPTED_TAINT, effect="NoSchedule")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodShape:
    """What all pods of one template have in common. Told apart by identity.

    `kind`: the same for shapes that only other pods can tell apart: what a node is to one, it is to the others.
    `terms`: the same for shapes that fit the same nodes and are admitted by the same ones, whatever they request.
    `looks_at_pods`: other pods have a say in where it may go. `ports`: host ports and their protocols.
    """

    namespace: str
    labels: dict[str, str]
    spec: PodSpec
    kind: bytes
    terms: bytes
    requests: dict[str, int]
    scoring_cpu: int
    scoring_memory: int
    default_selector: LabelSelectorSpec | None = None
    start: Span = field(default_factory=lambda: seconds(3, 8))
    stop: Span = field(default_factory=lambda: seconds(2, 5))
    daemon: bool = False
    survives_drain: bool = False
    looks_at_pods: bool = False
    ports: tuple[tuple[int, str], ...] = ()

    @property
    def spread(self) -> tuple[TopologySpreadConstraint, ...]:
        """Return its own spread constraints."""
        return self.spec.topology_spread_constraints

    @property
    def required_near(self) -> tuple[PodAffinityTerm, ...]:
        """Return the terms of pods it must be near."""
        near = self.spec.affinity.pod_affinity if self.spec.affinity else None
        return near.required_during_scheduling_ignored_during_execution if near else ()

    @property
    def required_apart(self) -> tuple[PodAffinityTerm, ...]:
        """Return the terms of pods it must not be near."""
        apart = self.spec.affinity.pod_anti_affinity if self.spec.affinity else None
        return apart.required_during_scheduling_ignored_during_execution if apart else ()

    @property
    def preferences(self) -> tuple[tuple[int, PodAffinityTerm], ...]:
        """Return preferred terms with their weight, negative for those it would rather be apart from."""
        found: list[tuple[int, PodAffinityTerm]] = []
        if self.spec.affinity is not None:
            near, apart = self.spec.affinity.pod_affinity, self.spec.affinity.pod_anti_affinity
            if near is not None:
                wanted = near.preferred_during_scheduling_ignored_during_execution
                found.extend((entry.weight, entry.pod_affinity_term) for entry in wanted)
            if apart is not None:
                shunned = apart.preferred_during_scheduling_ignored_during_execution
                found.extend((-entry.weight, entry.pod_affinity_term) for entry in shunned)
        return tuple(found)


def shape_of(
    pod: Pod,
    *,
    start: Span | None = None,
    stop: Span | None = None,
    default_selector: LabelSelectorSpec | None = None,
) -> PodShape:
    """Return the shape of a pod, with its kubelet times where they are known."""
    spec = replace(pod.spec, node_name="")
    requests = requests_of(spec)
    owners = pod.metadata.owner_references
    daemon = any(owner.kind == "DaemonSet" for owner in owners)
    grace = spec.termination_grace_period_seconds
    affinity, spread = spec.affinity, spec.topology_spread_constraints
    near, apart = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else (None, None)
    return PodShape(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        spec=spec,
        kind=msgspec.json.encode((daemon, spec)),
        terms=msgspec.json.encode((daemon, spec.node_selector, spec.tolerations, affinity and affinity.node_affinity)),
        requests=requests,
        scoring_cpu=requests.get("cpu", 0) or _UNSET_CPU,
        scoring_memory=requests.get("memory", 0) or _UNSET_MEMORY,
        default_selector=default_selector,
        start=start or seconds(3, 8),
        stop=stop or seconds(min(2, grace if grace is not None else 2), min(5, grace if grace is not None else 5)),
        daemon=daemon,
        survives_drain=tolerates(spec.tolerations, _DISRUPTED) or any(owner.kind == "Node" for owner in owners),
        looks_at_pods=any(constraint.when_unsatisfiable == "DoNotSchedule" for constraint in spread)
        or bool(near is not None and near.required_during_scheduling_ignored_during_execution)
        or bool(apart is not None and apart.required_during_scheduling_ignored_during_execution),
        ports=_host_ports(spec),
    )


class Shapes:
    """Which shape each pod has (`by_pod`, as far as asked); pods from outside are distinguished by what they say."""

    def __init__(self) -> None:
        self.by_pod: dict[str, PodShape] = {}
        self._by_text: dict[bytes, PodShape] = {}
        self.with_apart: list[PodShape] = []

    def set(self, key: str, shape: PodShape) -> None:
        """Set the shape of the pod of that key."""
        self.by_pod[key] = shape
        if shape.required_apart and not any(known is shape for known in self.with_apart):
            self.with_apart.append(shape)

    def drop(self, key: str) -> None:
        """Forget the pod."""
        self.by_pod.pop(key, None)

    def of(self, key: str, pod: Pod) -> PodShape:
        """Return the shape of a pod that exists."""
        found = self.by_pod.get(key)
        if found is None:
            text = msgspec.json.encode(
                [
                    pod.metadata.namespace,
                    dict(sorted(pod.metadata.labels.items())),
                    replace(pod.spec, node_name=""),
                    [owner.kind for owner in pod.metadata.owner_references],
                ]
            )
            found = self._by_text.get(text)
            if found is None:
                found = self._by_text[text] = shape_of(pod)
            self.set(key, found)
        return found


def _host_ports(spec: PodSpec) -> tuple[tuple[int, str], ...]:
    return tuple(
        (port.host_port, port.protocol or "TCP")
        for container in spec.containers
        for port in container.ports
        if port.host_port
    )


_Entry = tuple[int, str, PodShape]
"""How many were added up to this one, its key and its shape."""
_Queue = OrderedDict[str, _Entry]
"""Its first entry is found at once, however many were taken out before it."""
_Name = TypeVar("_Name", PodShape, bytes)


class Stuck:
    """The keys of pods that found no node, in queues: thousands may be stuck, and few are worth another try.

    Their order is that in which they failed last. Each kind has a queue: where no other pod has a say in where they may
    go, and one of a kind finds no node, neither do the others. Shapes where other pods have a say have queues, too; the
    other shapes from the first time that they are tried by shape.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._by_shape: dict[PodShape, _Queue] | None = None
        self._by_kind: dict[bytes, _Queue] = {}
        self._looking_at_pods: dict[PodShape, _Queue] = {}
        self.number = 0
        """How many have been added so far."""

    def __len__(self) -> int:
        """Count them."""
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all keys, in order."""
        return iter(self._entries)

    def add(self, key: str, shape: PodShape) -> None:
        """Put a pod at the end, unless it is there."""
        if key not in self._entries:
            self.number += 1
            entry = self._entries[key] = (self.number, key, shape)
            _put_in(self._by_kind, shape.kind, key, entry)
            if shape.looks_at_pods:
                _put_in(self._looking_at_pods, shape, key, entry)
            if self._by_shape is not None:
                _put_in(self._by_shape, shape, key, entry)

    def drop(self, key: str) -> None:
        """Take a pod out, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            shape = entry[2]
            _take_out(self._by_kind, shape.kind, key)
            if shape.looks_at_pods:
                _take_out(self._looking_at_pods, shape, key)
            if self._by_shape is not None:
                _take_out(self._by_shape, shape, key)

    def clear(self) -> None:
        """Take all out."""
        self._entries.clear()
        self._by_shape = None
        self._by_kind.clear()
        self._looking_at_pods.clear()

    @property
    def looks_at_pods(self) -> bool:
        """Return whether other pods have a say in where one of them may go."""
        return bool(self._looking_at_pods)

    def kinds(self) -> Iterator[PodShape]:
        """Yield a shape of each kind."""
        return (_first(queue)[2] for queue in self._by_kind.values())

    def added_after(self, number: int) -> Collection[str]:
        """Return the pods that were added when so many had been added before."""
        if not number:
            return self._entries
        return list(takewhile(lambda key: self._entries[key][0] > number, reversed(self._entries)))

    def tries(self, *, by_shape: bool) -> Iterator[tuple[str, PodShape]]:
        """Yield the first pod of each queue, in order; then the next of that queue, if the last one was taken out.

        `by_shape`: pods of one kind may fare differently, so the queues are those of shapes.
        """
        shapes = self._shapes() if by_shape else self._looking_at_pods
        heads = [_first(queue) for queue in shapes.values()]
        if not by_shape:
            firsts = (_first(queue) for queue in self._by_kind.values())
            heads.extend(first for first in firsts if not first[2].looks_at_pods)
        heapify(heads)
        entries = self._entries
        while heads:
            _, key, shape = heads[0]
            yield key, shape
            queue: _Queue | None = None
            if key not in entries:
                queue = shapes.get(shape) if by_shape or shape.looks_at_pods else self._by_kind.get(shape.kind)
            if queue:
                heapreplace(heads, _first(queue))
            else:
                heappop(heads)

    def _shapes(self) -> dict[PodShape, _Queue]:
        """Return the queues of all shapes, kept from now on."""
        if self._by_shape is None:
            self._by_shape = {}
            for key, entry in self._entries.items():
                _put_in(self._by_shape, entry[2], key, entry)
        return self._by_shape


def _first(queue: _Queue) -> _Entry:
    return next(iter(queue.values()))


def _put_in(queues: dict[_Name, _Queue], name: _Name, key: str, entry: _Entry) -> None:
    queue = queues.get(name)
    if queue is None:
        queue = queues[name] = OrderedDict()
    queue[key] = entry


def _take_out(queues: dict[_Name, _Queue], name: _Name, key: str) -> None:
    queue = queues[name]
    del queue[key]
    if not queue:
        del queues[name]
