"""DaemonSets: the pod that each would put on a node, and its overhead on existing and new nodes.

The requests come from the newest pod of the DaemonSet and the required node affinity from its template; without a pod,
everything comes from the template. On an existing node, room is reserved only for daemon pods that are still missing.
"""

from collections.abc import Mapping, Sequence

import msgspec

from dovetail.model.labels.requirements import Requirements
from dovetail.model.listing import are_the_same
from dovetail.model.objects import (
    Affinity,
    Container,
    DaemonSet,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Taint,
    Toleration,
)
from dovetail.scheduling.pods.pod import HostPort, host_ports, tolerates
from dovetail.scheduling.pods.relax import TOLERATE_PREFERENCES
from dovetail.scheduling.pods.requests import Amounts, resized_spec, spec_requests, uses_resource_claims


class Daemon(msgspec.Struct, frozen=True):
    """The pod of a DaemonSet as the scheduler expects it. `terms`: OR-joined requirements, in order."""

    name: str
    requests: Amounts
    tolerations: tuple[Toleration, ...]
    terms: tuple[Requirements, ...]
    ports: tuple[HostPort, ...]


def _has_claims(item: DaemonSet, pod: Pod | None) -> bool:
    return uses_resource_claims(item.spec.template.spec if pod is None else pod.spec)


class Daemons:
    """Caches the last answer: only a DaemonSet, or its newest pod, can change it."""

    __slots__ = ("_found", "_pods", "_read_as", "_sets")

    def __init__(self) -> None:
        self._sets: Sequence[DaemonSet] = ()
        self._pods: Sequence[Pod | None] = ()
        self._found: tuple[Daemon, ...] = ()
        self._read_as = (True, True)

    def of(
        self, daemon_sets: Sequence[DaemonSet], newest: Mapping[str, Pod], *, ignore_claims: bool, resizes_count: bool
    ) -> tuple[Daemon, ...]:
        """Return the expected pods of all DaemonSets; `newest`: the newest pod of each, by its uid.

        `ignore_claims`: DaemonSets with resource claims are not expected anywhere, which is Karpenter's default.
        `resizes_count`: a pod that was resized in place counts with its new size.
        """
        read_as = (ignore_claims, resizes_count)
        pods = [newest.get(item.metadata.uid) for item in daemon_sets]
        same = read_as == self._read_as and are_the_same(daemon_sets, self._sets)
        if not (same and are_the_same(pods, self._pods)):
            self._sets, self._pods, self._read_as = daemon_sets, pods, read_as
            self._found = tuple(
                _daemon(item, pod, resizes_count=resizes_count)
                for item, pod in zip(daemon_sets, pods, strict=True)
                if not (ignore_claims and _has_claims(item, pod))
            )
        return self._found


def _daemon(item: DaemonSet, pod: Pod | None, *, resizes_count: bool) -> Daemon:
    template = item.spec.template.spec
    spec = _defaulted(template)
    if pod is not None:
        spec = resized_spec(pod) if resizes_count else pod.spec
    required = _required(template) or _required(spec)
    base = Requirements.from_labels(spec.node_selector)
    terms: tuple[NodeSelectorTerm, ...] = required.node_selector_terms if required is not None else ()
    requests = spec_requests(spec)
    requests["pods"] = 1
    return Daemon(
        name=f"{item.metadata.namespace}/{item.metadata.name}",
        requests=requests,
        tolerations=spec.tolerations,
        terms=tuple(base.union(Requirements.from_spec(t.match_expressions)) for t in terms) or (base,),
        ports=host_ports(spec),
    )


def _required(spec: PodSpec) -> NodeSelector | None:
    affinity: Affinity | None = spec.affinity
    node: NodeAffinity | None = affinity.node_affinity if affinity is not None else None
    return node.required_during_scheduling_ignored_during_execution if node is not None else None


def _defaulted(spec: PodSpec) -> PodSpec:
    """Return a template with the API server's defaults for a pod: limits replace missing requests."""

    def filled(container: Container) -> Container:
        given = container.resources
        merged = msgspec.structs.replace(given, requests={**given.limits, **given.requests})
        return msgspec.structs.replace(container, resources=merged)

    return msgspec.structs.replace(
        spec,
        containers=tuple(filled(c) for c in spec.containers),
        init_containers=tuple(filled(c) for c in spec.init_containers),
    )


class DaemonTerms:
    """Which required affinity term of each daemon counts.

    Upstream drops a term at the first pool and type that it doesn't match, also for all later pools, types and nodes.
    The profile `karpenter-1.15` repeats that; the default profile tries every term every time.
    """

    def __init__(self, daemons: tuple[Daemon, ...], *, sticky: bool) -> None:
        self.daemons = daemons
        self.sticky = sticky
        self._first = [0] * len(daemons)
        self._eager = False

    def equals(self, other: "DaemonTerms") -> bool:
        """Return whether existing nodes are expected to have the same daemons."""
        mine, theirs = (self.sticky, self._first, self._eager), (other.sticky, other._first, other._eager)
        return mine == theirs and self.daemons == other.daemons

    def on_template(
        self, place: int, taints: tuple[Taint, ...], template: Requirements, kind: Requirements, known: frozenset[str]
    ) -> bool:
        """Return whether the daemon would run on a new node of this pool and type."""
        daemon = self.daemons[place]
        self._eager = True
        if not tolerates((*daemon.tolerations, TOLERATE_PREFERENCES), taints):
            return False
        start = self._first[place] if self.sticky else 0
        for number in range(start, len(daemon.terms)):
            term = daemon.terms[number]
            if self.sticky:
                self._first[place] = number
            if template.is_compatible(term, known) and kind.is_intersecting(term):
                return True
        return False

    def for_nodes(self, place: int) -> tuple[tuple[Toleration, ...], tuple[Requirements, ...]]:
        """Return tolerations and terms to use on existing nodes; Karpenter uses one term only."""
        daemon = self.daemons[place]
        tolerations = (
            (*daemon.tolerations, TOLERATE_PREFERENCES) if self._eager or not self.sticky else daemon.tolerations
        )
        if self.sticky:
            return tolerations, (daemon.terms[self._first[place]],)
        return tolerations, daemon.terms
