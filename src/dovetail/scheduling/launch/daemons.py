"""DaemonSets: the pod that each would put on a node, and its overhead on existing and new nodes.

The requests come from the newest pod of the DaemonSet and the required node affinity from its template; without a pod,
everything comes from the template. On an existing node, room is reserved only for daemon pods that are still missing.
The newest pods are followed from snapshot to snapshot (`newest_after`). Decides nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from dovetail.model.labels.requirements import Requirements
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


def daemons_of(
    daemon_sets: Sequence[DaemonSet], newest: Sequence[Pod | None], *, ignore_claims: bool, resizes_count: bool
) -> tuple[Daemon, ...]:
    """Return the expected pods of DaemonSets, given the newest pod of each.

    `ignore_claims`: DaemonSets with resource claims are not expected anywhere, which is Karpenter's default.
    `resizes_count`: a pod that was resized in place counts with its new size.
    """
    return tuple(
        _daemon(item, pod, resizes_count=resizes_count)
        for item, pod in zip(daemon_sets, newest, strict=True)
        if not (ignore_claims and uses_resource_claims(item.spec.template.spec if pod is None else pod.spec))
    )


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
        name=item.metadata.key,
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


_DAWN: Final = datetime.min.replace(tzinfo=UTC)


def newest_by_owner(pods: Iterable[Pod]) -> dict[str, Pod]:
    """Return the newest pod of each controller, by its uid; of the same age, the first."""
    found: dict[str, Pod] = {}
    for pod in pods:
        for uid in _controllers(pod):
            if uid not in found or _since(pod) > _since(found[uid]):
                found[uid] = pod
    return found


def newest_after(before: Mapping[str, Pod], gone: Iterable[Pod], new: Iterable[Pod]) -> dict[str, Pod] | None:
    """Return the newest pods after some have gone and others have come; None if one has gone and none is newer.

    Pods are in the order of their namespaces and names.
    """
    found, lost = dict(before), dict[str, Pod]()
    for pod in gone:
        for uid in _controllers(pod):
            if found.get(uid) is pod:
                lost[uid] = found.pop(uid)
    for pod in new:
        for uid in _controllers(pod):
            known = found.get(uid) or lost.get(uid)
            if known is None or _is_newer(pod, known):
                found[uid] = pod
                lost.pop(uid, None)
    return None if lost else found


def _controllers(pod: Pod) -> Iterator[str]:
    for owner in pod.metadata.owner_references:
        if owner.uid and owner.controller:
            yield owner.uid


def _since(pod: Pod) -> datetime:
    return pod.metadata.creation_timestamp or _DAWN


def _is_newer(pod: Pod, other: Pod) -> bool:
    """Return whether a pod is newer than another; of the same age, the first in the order counts."""
    mine, theirs = pod.metadata, other.metadata
    since, then = _since(pod), _since(other)
    return since > then or (since == then and (mine.namespace, mine.name) <= (theirs.namespace, theirs.name))
