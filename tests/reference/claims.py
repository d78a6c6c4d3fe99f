"""Nodes that would be new: what a pool can launch, narrowed pod by pod, and the reservations that are left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dovetail.model.catalogue import InstanceType, Offering
from dovetail.model.names import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, RESERVED, ZONE
from dovetail.model.objects import NodePool, Pod, Taint
from tests.reference import pods as pod_rules
from tests.reference.pods import PortUse
from tests.reference.quantities import Resources, add, fits
from tests.reference.requirements import Requirement, Requirements, from_expressions, from_labels, requirement
from tests.reference.topology import Topology

# The label that tells a reservation's machines. Karpenter leaves its name to the provider.
RESERVATION_ID = "karpenter.k8s.aws/capacity-reservation-id"
INITIALIZED, REGISTERED = "karpenter.sh/initialized", "karpenter.sh/registered"


class ReservedError(Exception):
    """A reservation could serve the pod, but not in this run: better to wait than to buy something else."""


def allocatable(kind: InstanceType) -> Resources:
    """Return what pods can have of a machine: huge pages come out of its memory."""
    left = {name: amount - kind.overhead.get(name, 0) for name, amount in kind.capacity.items()}
    for name, amount in kind.capacity.items():
        if name.startswith("hugepages-"):
            left["memory"] = max(0, left.get("memory", 0) - amount)
    return left


def goes_with(offering: Offering, wanted: Requirements) -> bool:
    """Return whether a machine from the offering would have the labels that are wanted of it."""
    labels = {CAPACITY_TYPE: offering.capacity_type, ZONE: offering.zone}
    if offering.reservation_id:
        labels[RESERVATION_ID] = offering.reservation_id
    return all(wanted.get(key).has(value) for key, value in labels.items())


def is_launchable(offering: Offering) -> bool:
    """Return whether a machine can come from the offering right now."""
    return offering.available and (offering.capacity_type != RESERVED or offering.reservation_capacity > 0)


class Kind:
    """An instance type with its requirements ready to use."""

    def __init__(self, kind: InstanceType) -> None:
        self.type = kind
        self.name = kind.name
        self.requirements = _complete(kind)
        self.allocatable = allocatable(kind)
        self._offered: dict[tuple[Requirement, ...], list[Offering]] = {}

    def offered(self, wanted: Requirements) -> list[Offering]:
        """Return the available offerings that go with these requirements."""
        # Asked very often with the same few answers: remembered by the labels that an offering has.
        key = (wanted.get(CAPACITY_TYPE), wanted.get(ZONE), wanted.get(RESERVATION_ID))
        if key not in self._offered:
            self._offered[key] = [item for item in self.type.offerings if item.available and goes_with(item, wanted)]
        return self._offered[key]

    def price(self, wanted: Requirements) -> float:
        """Return the cheapest launch under these requirements; infinite where there is none."""
        return min((item.price_float for item in self.offered(wanted) if is_launchable(item)), default=float("inf"))


def _complete(kind: InstanceType) -> Requirements:
    """Return the labels of a type; those that its name and offerings tell may be left out of a catalogue."""
    given = from_expressions(kind.requirements)
    told = {
        INSTANCE_TYPE: [kind.name],
        ZONE: [offering.zone for offering in kind.offerings],
        CAPACITY_TYPE: [offering.capacity_type for offering in kind.offerings],
    }
    given.add(requirement(key, "In", values) for key, values in told.items() if key not in given)
    return given


@dataclass
class DaemonGroup:
    """Instance types on which the same daemons would run, and what those take."""

    kinds: list[Kind]
    overhead: Resources
    ports: PortUse


@dataclass
class Template:
    """What a pool can launch."""

    pool: NodePool
    requirements: Requirements
    kinds: list[Kind]
    well_known: frozenset[str]
    daemon_groups: list[DaemonGroup] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the pool's name."""
        return self.pool.metadata.name


def template_requirements(pool: NodePool) -> Requirements:
    """Return the labels and requirements of a pool's nodes."""
    template = pool.spec.template
    reference = template.spec.node_class_ref
    needs = from_expressions(template.spec.requirements)
    needs.add(
        from_labels(
            {
                **template.metadata.labels,
                NODEPOOL: pool.metadata.name,
                f"{reference.group}/{reference.kind.lower()}": reference.name,
            }
        )
    )
    # Daemons may ask for a node that is up; every new node will be.
    needs.add([requirement(key, "In", ("true",)) for key in (INITIALIZED, REGISTERED)])
    return needs


def missing_values(kinds: Sequence[Kind], wanted: Requirements) -> dict[str, int]:
    """For each label with too few distinct values among the types: how many there are."""
    if not kinds:
        return {}
    short = {}
    for item in wanted:
        if item.min_values is None:
            continue
        values = {value for kind in kinds for value in kind.requirements.get(item.key).values if item.has(value)}
        if len(values) < item.min_values:
            short[item.key] = len(values)
    return short


class Daemons:
    """The pods that DaemonSets put on nodes, and where they run.

    `forgetful`: as in Karpenter, which drops a daemon's first required term for good once an instance type didn't match
    it, so that what comes later, the nodes that exist included, is judged by the terms left.
    """

    def __init__(self, pods: Sequence[Pod], *, forgetful: bool) -> None:
        self._pods = list(pods)
        self._forgetful = forgetful

    def groups(self, template: Template) -> list[DaemonGroup]:
        """Return the template's types, grouped by which daemons would run there."""
        groups: dict[tuple[str, ...], DaemonGroup] = {}
        for kind in template.kinds:
            running = [self._pods[index] for index in range(len(self._pods)) if self._runs_on(template, kind, index)]
            key = tuple(sorted(pod_rules.name_of(pod) for pod in running))
            if key in groups:
                groups[key].kinds.append(kind)
                continue
            ports = PortUse()
            for pod in running:
                ports.add(pod)
            groups[key] = DaemonGroup([kind], pod_rules.requests_of_all(running), ports)
        return list(groups.values())

    def _runs_on(self, template: Template, kind: Kind, index: int) -> bool:
        """Whether a daemon would run on such a node: taints (but for preferences) and one of its affinity terms."""
        pod = self._pods[index]
        if not _tolerates(pod, template.pool.spec.template.spec.taints):
            return False
        while True:
            wanted = pod_rules.strict_requirements(pod)
            if template.requirements.compatible(wanted, may_lack=template.well_known) and kind.requirements.intersects(
                wanted
            ):
                return True
            less = pod_rules.without_first_required_term(pod)
            if less is None:
                return False
            pod = less
            if self._forgetful:
                self._pods[index] = pod

    def on_existing(self, taints: Sequence[Taint], labels: Requirements) -> list[Pod]:
        """Return the daemons that run, or will, on a node that exists."""
        return [
            pod
            for pod in self._pods
            if _tolerates(pod, taints) and any(labels.compatible(wanted) for wanted in self._alternatives(pod))
        ]

    def _alternatives(self, pod: Pod) -> list[Requirements]:
        if self._forgetful:
            return [pod_rules.strict_requirements(pod)]
        return pod_rules.required_alternatives(pod) or [pod_rules.strict_requirements(pod)]


def _tolerates(daemon: Pod, taints: Sequence[Taint]) -> bool:
    return pod_rules.tolerates(pod_rules.tolerating_preferences(daemon).spec.tolerations, taints)


class Reservations:
    """How many machines each reservation can still give, and which new nodes hold one."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._left: dict[str, int] = {}
        self._held: set[tuple[str, str]] = set()
        for kind in kinds:
            for offering in kind.type.offerings:
                if offering.capacity_type == RESERVED:
                    known = self._left.get(offering.reservation_id, offering.reservation_capacity)
                    self._left[offering.reservation_id] = min(known, offering.reservation_capacity)

    def can_reserve(self, host: str, identifier: str) -> bool:
        """Return whether the host holds this reservation or could."""
        return (host, identifier) in self._held or self._left[identifier] > 0

    def hold(self, host: str, wanted: set[str]) -> None:
        """The host holds exactly these from now on."""
        for identifier in sorted(wanted):
            if (host, identifier) not in self._held:
                self._left[identifier] -= 1
                self._held.add((host, identifier))
        for holder, identifier in sorted(self._held):
            if holder == host and identifier not in wanted:
                self._held.discard((holder, identifier))
                self._left[identifier] += 1


@dataclass
class Fit:
    """How a new node would look with one more pod."""

    requirements: Requirements
    kinds: list[Kind]
    reserved: list[Offering]


class NewClaim:
    """A node to be launched: pods, what it must be, and the types it can still be."""

    def __init__(
        self,
        template: Template,
        host: str,
        kinds: list[Kind],
        topology: Topology,
        reservations: Reservations,
        *,
        strict_reservations: bool,
    ) -> None:
        self.template = template
        self.host = host
        self.kinds = kinds
        self.requirements = template.requirements.copy()
        self.requirements.add([requirement(HOSTNAME, "In", (host,))])
        self.requests: Resources = {}
        self.pods: list[Pod] = []
        self.reserved: list[Offering] = []
        self.min_values_relaxed = False
        self._groups = [DaemonGroup(item.kinds, item.overhead, item.ports.copy()) for item in template.daemon_groups]
        self._topology = topology
        self._reservations = reservations
        self._strict = strict_reservations

    def fit(
        self,
        pod: Pod,
        needs: Requirements,
        strict: Requirements,
        volumes: Sequence[Requirements],
        *,
        relax_min_values: bool,
    ) -> Fit | None:
        """Return how the node would look with the pod; None where it can't take it."""
        if not pod_rules.tolerates(pod.spec.tolerations, self.template.pool.spec.template.spec.taints):
            return None
        if not self.requirements.compatible(needs, may_lack=self.template.well_known):
            return None
        base = Requirements([*self.requirements, *needs])
        waiting: ReservedError | None = None
        for where in volumes or [Requirements()]:
            waiting = None
            if not base.compatible(where, may_lack=self.template.well_known):
                continue
            try:
                found = self._fit_there(pod, strict, Requirements([*base, *where]), relax_min_values=relax_min_values)
            except ReservedError as error:
                waiting = error
                continue
            if found is not None:
                return found
        if waiting is not None:
            raise waiting
        return None

    def _fit_there(self, pod: Pod, strict: Requirements, node: Requirements, *, relax_min_values: bool) -> Fit | None:
        taints = self.template.pool.spec.template.spec.taints
        narrowed = self._topology.narrowed(pod, taints, strict, node)
        if narrowed is None or not node.compatible(narrowed, may_lack=self.template.well_known):
            return None
        requests = add(self.requests, pod_rules.requests_of(pod))
        kinds = self._kinds_for(pod, requests, narrowed)
        short = missing_values(kinds, narrowed)
        if short and not relax_min_values:
            return None
        for key, number in short.items():
            narrowed.relax_min_values(key, number)
        if not kinds:
            return None
        reserved = self._reservable(kinds, narrowed)
        return None if reserved is None else Fit(narrowed, kinds, reserved)

    def _kinds_for(self, pod: Pod, requests: Resources, wanted: Requirements) -> list[Kind]:
        still = {id(kind) for kind in self.kinds}
        found = []
        for group in self._groups:
            if group.ports.conflicts(pod):
                continue
            total = add(requests, group.overhead)
            found += [
                kind
                for kind in group.kinds
                if id(kind) in still
                and fits(total, kind.allocatable)
                and kind.requirements.intersects(wanted)
                and kind.offered(wanted)
            ]
        return found

    def _reservable(self, kinds: Sequence[Kind], wanted: Requirements) -> list[Offering] | None:
        """Return the reservations to hold; None where only a full one would do."""
        offered = [offering for kind in kinds for offering in kind.offered(wanted)]
        reserved = [offering for offering in offered if offering.capacity_type == RESERVED]
        with_room = [offering for offering in reserved if offering.reservation_capacity > 0]
        mine = [item for item in with_room if self._reservations.can_reserve(self.host, item.reservation_id)]
        if self._strict and with_room and not mine:
            raise ReservedError("compatible reservations are taken by other new nodes of this run")
        if reserved and not with_room and len(reserved) == len(offered):
            if self._strict:
                raise ReservedError("all compatible reservations are full")
            return None
        if self._strict and self.reserved and not mine:
            raise ReservedError("the pod would rule out the reservations of this node")
        return mine

    def add(self, pod: Pod, fit: Fit) -> None:
        """Places the pod."""
        self.pods.append(pod)
        self.kinds = fit.kinds
        self.requirements = fit.requirements
        self.requests = add(self.requests, pod_rules.requests_of(pod))
        self._topology.register_host(self.host)
        self._topology.record(pod, self.template.pool.spec.template.spec.taints, fit.requirements)
        for group in self._groups:
            group.ports.add(pod)
        self._reservations.hold(self.host, {offering.reservation_id for offering in fit.reserved})
        self.reserved = fit.reserved

    def finish(self) -> None:
        """Once all pods are placed: forgets the made-up host, asks for the reservations, adds the daemons."""
        self.requirements.remove(HOSTNAME)
        if self.reserved:
            self.requirements.replace(requirement(CAPACITY_TYPE, "In", (RESERVED,)))
            identifiers = [offering.reservation_id for offering in self.reserved]
            self.requirements.add([requirement(RESERVATION_ID, "In", identifiers)])
        self.requests = add(self.requests, self._least_overhead())

    def _least_overhead(self) -> Resources:
        """Return what daemons take at least, whatever type comes."""
        still = {id(kind) for kind in self.kinds}
        least: Resources = {}
        for group in self._groups:
            if not any(id(kind) in still for kind in group.kinds):
                continue
            if not least:
                least = group.overhead
            else:
                least = {
                    name: min(amount, group.overhead[name]) for name, amount in least.items() if name in group.overhead
                }
        return least

    def by_price(self) -> list[Kind]:
        """Return the types that it can be, cheapest first, then by name."""
        return sorted(self.kinds, key=lambda kind: (kind.price(self.requirements), kind.name))
