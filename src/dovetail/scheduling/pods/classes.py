"""Pods grouped into classes that are equal to the scheduler; each fact about a class is computed once.

Two pods are in one class if they agree in namespace, spec (except for their node) and those labels that some selector
in the cluster uses. A registry only grows and is passed from snapshot to snapshot: a known pod object costs one lookup.
Decides nothing; `scheduling.variants` compiles what a class asks of a node.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from dovetail.model.objects import Affinity, LabelSelectorSpec, ObjectMeta, Pod, PodSpec
from dovetail.scheduling.launch.machines import Resources
from dovetail.scheduling.pods import pod as filters
from dovetail.scheduling.pods.requests import spec_requests, uses_resource_claims

TERMINAL: Final = 1
TERMINATING: Final = 2
RESCHEDULABLE: Final = 4
DAEMON: Final = 8
_ENDED: Final = ("Failed", "Succeeded")

_encode = msgspec.json.Encoder().encode
_PREFIX: Final = len('{"nodeName":"')


class SpecInfo:
    """What follows from a spec alone."""

    __slots__ = (
        "anti_affinity",
        "claims",
        "id",
        "keys",
        "names_claims",
        "need",
        "ports",
        "requests",
        "spec",
        "volumes",
    )

    def __init__(self, number: int, spec: PodSpec, resources: Resources) -> None:
        self.id = number
        self.spec = spec
        self.requests = spec_requests(spec)
        self.requests["pods"] = 1
        self.need: tuple[tuple[int, int], ...] = tuple(
            (resources.column_of(name), amount) for name, amount in self.requests.items() if amount > 0
        )
        self.ports = filters.host_ports(spec)
        self.claims = uses_resource_claims(spec)
        self.keys = frozenset(_selector_keys(spec))
        self.volumes = any(v.persistent_volume_claim is not None or v.ephemeral is not None for v in spec.volumes)
        self.names_claims = any(v.ephemeral is not None for v in spec.volumes)
        anti = spec.affinity.pod_anti_affinity if spec.affinity is not None else None
        self.anti_affinity = anti is not None and bool(anti.required_during_scheduling_ignored_during_execution)


class PodClass:
    """Pods that are equal to the scheduler. Compare by identity; `id` is stable for the life of the registry."""

    __slots__ = ("cpu", "id", "info", "labels", "memory", "namespace", "pod_name")

    def __init__(self, number: int, info: SpecInfo, namespace: str, labels: dict[str, str], pod_name: str) -> None:
        self.id = number
        self.info = info
        self.namespace = namespace
        self.labels = labels
        self.pod_name = pod_name
        self.cpu = info.requests.get("cpu", 0)
        self.memory = info.requests.get("memory", 0)


class Classes:
    """The registry of specs and classes; `claims` and `ports`: whether any spec ever seen asks for some."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.specs: dict[bytes, SpecInfo] = {}
        self.claims = self.ports = False
        self.keys: frozenset[str] = frozenset()
        self.all: list[PodClass] = []
        self._by_identity: dict[tuple[int, str, tuple[str | None, ...], str], PodClass] = {}
        self._sorted_keys: tuple[str, ...] = ()

    def spec_info(self, spec: PodSpec, *, daemon: bool = False) -> SpecInfo:
        """Return the SpecInfo of a spec; one instance per spec."""
        key = spec_key(spec, daemon=daemon)
        info = self.specs.get(key)
        if info is None:
            info = self.specs[key] = SpecInfo(len(self.specs), _counted(spec, daemon=daemon), self.resources)
            self.claims, self.ports = self.claims or info.claims, self.ports or bool(info.ports)
        return info

    def use_keys(self, keys: Iterable[str]) -> bool:
        """Add the labels that selectors use; return whether classes must be looked up again."""
        wider = self.keys | frozenset(keys)
        if wider == self.keys:
            return False
        self.keys = wider
        self._sorted_keys = tuple(sorted(wider))
        self._by_identity.clear()
        return True

    def class_of(self, pod: Pod, info: SpecInfo) -> PodClass:
        """Return the class of a pod."""
        meta = pod.metadata
        labels = tuple(map(meta.labels.get, self._sorted_keys))
        # A generic ephemeral volume's claim is named after its pod.
        own_name = meta.name if info.names_claims else ""
        identity = (info.id, meta.namespace, labels, own_name)
        found = self._by_identity.get(identity)
        if found is None:
            kept = {key: value for key, value in zip(self._sorted_keys, labels, strict=True) if value is not None}
            found = self._by_identity[identity] = PodClass(len(self.all), info, meta.namespace, kept, own_name)
            self.all.append(found)
        return found


def spec_key(spec: PodSpec, *, daemon: bool = False) -> bytes:
    """Return what equal specs have in common, whatever their node."""
    if daemon or spec.volumes:
        spec = _counted(spec, daemon=daemon)
    raw = _encode(spec)
    return raw[_PREFIX + len(spec.node_name) + 2 :] if spec.node_name else raw[1:]


def pod_key(spec: PodSpec, meta: ObjectMeta, *, daemon: bool) -> bytes:
    """Return what pods with equal specs, labels and namespaces have in common, whatever their node."""
    if daemon or spec.volumes:
        spec = _counted(spec, daemon=daemon)
    raw = _encode((spec, meta.labels, meta.namespace))
    return raw[_PREFIX + len(spec.node_name) + 3 :] if spec.node_name else raw[2:]


def _counted(spec: PodSpec, *, daemon: bool) -> PodSpec:
    """Return the spec without what differs from pod to pod and says nothing about the pod's place."""
    if spec.volumes:
        spec = _without_own_volumes(spec)
    return _without_own_node(spec) if daemon else spec


def _without_own_volumes(spec: PodSpec) -> PodSpec:
    """Return the spec with only those volumes that are claims.

    The API server adds one with a random name to nearly every pod: `kube-api-access-x2x4p`.
    """
    claims = tuple([v for v in spec.volumes if v.persistent_volume_claim is not None or v.ephemeral is not None])
    return spec if len(claims) == len(spec.volumes) else msgspec.structs.replace(spec, volumes=claims)


def _without_own_node(spec: PodSpec) -> PodSpec:
    """Return the spec of a DaemonSet's pod without its node affinity.

    The DaemonSet's controller writes each pod's own node into it; such a pod never moves.
    """
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return spec
    rest = msgspec.structs.replace(spec.affinity, node_affinity=None)
    return msgspec.structs.replace(spec, affinity=None if rest == Affinity() else rest)


def flags_of(pod: Pod) -> int:
    """Return a pod's filters as bits: those of `scheduling.pods`, in one go because every pod passes here."""
    meta = pod.metadata
    flags = TERMINAL if pod.status.phase in _ENDED else 0
    if meta.deletion_timestamp is not None:
        flags |= TERMINATING
    owners = meta.owner_references
    if len(owners) == 1 and owners[0].kind == "ReplicaSet":
        return flags or RESCHEDULABLE  # most are
    stays = stateful = False
    for owner in owners:
        kind = owner.kind
        if kind == "DaemonSet" and owner.api_version == "apps/v1":
            return flags | DAEMON
        if kind == "Node" and owner.api_version == "v1":
            stays = True
        elif kind == "StatefulSet" and owner.api_version == "apps/v1":
            stateful = True
    if not stays and (not flags or (stateful and flags & TERMINATING)):
        flags |= RESCHEDULABLE
    return flags


def _keys_of(selector: LabelSelectorSpec | None) -> Iterable[str]:
    if selector is not None:
        yield from selector.match_labels
        for entry in selector.match_expressions:
            yield entry.key


def _selector_keys(spec: PodSpec) -> Iterable[str]:
    """Return labels that the spec's selectors use."""
    for spread in spec.topology_spread_constraints:
        yield from _keys_of(spread.label_selector)
        yield from spread.match_label_keys
    if spec.affinity is None:
        return
    for group in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
        if group is not None:
            for term in group.required_during_scheduling_ignored_during_execution:
                yield from _keys_of(term.label_selector)
            for weighted in group.preferred_during_scheduling_ignored_during_execution:
                yield from _keys_of(weighted.pod_affinity_term.label_selector)


def asked_values(spec: PodSpec) -> Iterable[tuple[str, Iterable[str]]]:
    """Return values of node labels that the spec requests, required or preferred."""
    for key, value in spec.node_selector.items():
        yield key, (value,)
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None:
        return
    required = affinity.required_during_scheduling_ignored_during_execution
    terms = list(required.node_selector_terms) if required is not None else []
    terms.extend(soft.preference for soft in affinity.preferred_during_scheduling_ignored_during_execution)
    for term in terms:
        for entry in term.match_expressions:
            yield entry.key, entry.values
