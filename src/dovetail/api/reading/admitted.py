"""Objects of a live cluster as decisions may use them: without what no rule reads, and within a bound.

Whoever may create a pod decides what it contains, up to 1.5 MB of JSON, and short texts take ten times as much memory
as their JSON. So `admit` drops annotations and messages that no rule reads, shares affinities and spreads that are
equal, and bounds what is left of an object. An object over the bound counts as the most restrictive thing it could be
(docs/security.md): its caller warns about it by name. Kinds that only administrators and controllers write have no
bound. Pure; sits in api, above `decode` and `conservative`.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast

import msgspec

from dovetail.api.reading.conservative import HUGE, conservative
from dovetail.api.reading.decode import decode_item
from dovetail.model import names
from dovetail.model.objects import (
    Affinity,
    AnyObject,
    CapacityBuffer,
    Condition,
    Container,
    DaemonSet,
    Deployment,
    LabelSelectorSpec,
    NamedPodTemplate,
    Namespace,
    Node,
    ObjectMeta,
    PersistentVolumeClaim,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodSpec,
    PodTemplate,
    ReplicaSet,
    ResourceRequirements,
    Service,
    ServiceSpec,
    StatefulSet,
    TopologySpreadConstraint,
)

WEIGHT_MAX: Final = 256 << 10
"""Bytes of memory, about, that one object may take: ten times what large ones take in practice."""
_ALWAYS_SMALL: Final = 12 << 10  # no JSON of this length weighs more than the bound
_TEXT_OVERHEAD: Final = 32  # per quotation mark: a Python text takes some 50 bytes and a pointer, however short
_READ_DOMAINS: Final = ("karpenter.sh", "dovetail.dev", "kubernetes.io", "k8s.io")
_NEVER_READ: Final = "kubectl.kubernetes.io/"
_MESSAGE_MAX: Final = 1024
_SHARED_MAX: Final = 8 << 20
_KEYS_MAX: Final = 16
_OWNERS_MAX: Final = 4
_EVERYTHING: Final = LabelSelectorSpec()
_T = TypeVar("_T", Affinity, TopologySpreadConstraint)


class Shared:
    """The affinities and spreads that were seen last, so that equal ones are kept once."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, Any]] = {}
        self._weight = 0

    def one(self, part: _T) -> _T:
        """Return an equal part that was seen before; else this one."""
        encoded = msgspec.json.encode(part)
        key = hashlib.blake2b(encoded, digest_size=16, person=type(part).__name__[:16].encode()).digest()
        if (found := self._known.get(key)) is not None:
            return cast("_T", found[1])
        weight = _weight_of(encoded)
        self._known[key] = (weight, part)
        self._weight += weight
        while self._weight > _SHARED_MAX:
            oldest = next(iter(self._known))
            self._weight -= self._known.pop(oldest)[0]
        return part


def admit(raw: bytes | msgspec.Raw, kind: str, shared: Shared) -> tuple[AnyObject, tuple[str, ...]]:
    """Decode an object of a list or watch; return it as decisions may use it, and what is wrong with it.

    Raises what `decode_item` raises.
    """
    item = _stripped(decode_item(raw, kind))
    shrink = _SHRINKERS.get(type(item))
    if shrink is not None and memoryview(raw).nbytes > _ALWAYS_SMALL and (weight := _weight(item)) > WEIGHT_MAX:
        smaller, counts_as = shrink(item)
        problem = f"it takes {weight >> 10} KiB of memory, more than {WEIGHT_MAX >> 10}, and counts as {counts_as}"
        return smaller, (problem,)
    return conservative(_shared(item, shared))


def _weight(item: AnyObject) -> int:
    return _weight_of(msgspec.json.encode(item))


def _weight_of(encoded: bytes) -> int:
    return len(encoded) + _TEXT_OVERHEAD * encoded.count(b'"')


# ------------------------------------------------------------ what no rule reads


def _stripped(item: Any) -> Any:
    meta = item.metadata
    if meta.annotations or meta.generate_name:
        kept = {key: text for key, text in meta.annotations.items() if is_read(key)}
        item = msgspec.structs.replace(item, metadata=msgspec.structs.replace(meta, annotations=kept, generate_name=""))
    status = getattr(item, "status", None)
    if status is not None and any(len(entry.message or "") > _MESSAGE_MAX for entry in _conditions(status)):
        cut = tuple(_with_short_message(entry) for entry in _conditions(status))
        item = msgspec.structs.replace(item, status=msgspec.structs.replace(status, conditions=cut))
    return item


def is_read(annotation: str) -> bool:
    """Return whether a rule may read an annotation: its domain is Karpenter's, Kubernetes' or Dovetail's."""
    domain, slash, _ = annotation.partition("/")
    return (
        bool(slash)
        and any(domain == ours or domain.endswith(f".{ours}") for ours in _READ_DOMAINS)
        and not annotation.startswith(_NEVER_READ)
    )


def _conditions(status: Any) -> tuple[Condition, ...]:
    found: tuple[Condition, ...] = getattr(status, "conditions", ())
    return found


def _with_short_message(entry: Condition) -> Condition:
    return msgspec.structs.replace(entry, message=(entry.message or "")[:_MESSAGE_MAX] or None)


# ------------------------------------------------------------ what equal objects share


def _shared(item: AnyObject, shared: Shared) -> AnyObject:
    match item:
        case Pod():
            spec = _shared_spec(item.spec, shared)
            return item if spec is item.spec else msgspec.structs.replace(item, spec=spec)
        case DaemonSet() | ReplicaSet() | StatefulSet() | Deployment():
            template = item.spec.template
            spec = _shared_spec(template.spec, shared)
            return item if spec is template.spec else _with_template(item, msgspec.structs.replace(template, spec=spec))
        case _:
            return item


def _shared_spec(spec: PodSpec, shared: Shared) -> PodSpec:
    if spec.affinity is None and not spec.topology_spread_constraints:
        return spec
    affinity = None if spec.affinity is None else shared.one(spec.affinity)
    spreads = tuple(map(shared.one, spec.topology_spread_constraints))
    if affinity is spec.affinity and all(map(_is, spreads, spec.topology_spread_constraints)):
        return spec
    return msgspec.structs.replace(spec, affinity=affinity, topology_spread_constraints=spreads)


def _is(one: object, other: object) -> bool:
    return one is other


def _with_template(item: Any, template: PodTemplate) -> Any:
    return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, template=template))


# ------------------------------------------------------------ the most restrictive thing it could be


def _pod(pod: Pod) -> tuple[Pod, str]:
    """Return a pod that fills its node, keeps others out of its domains, and must not be disrupted."""
    status = pod.status
    small = msgspec.structs.replace(
        status, conditions=status.conditions[:_KEYS_MAX], container_statuses=(), init_container_statuses=()
    )
    meta = msgspec.structs.replace(_identity(pod.metadata), annotations={names.DO_NOT_DISRUPT: "true"})
    spec = msgspec.structs.replace(_huge(pod.spec), node_name=pod.spec.node_name, priority=pod.spec.priority)
    return Pod(metadata=meta, spec=spec, status=small), "do-not-disrupt, on a node without room for others"


def _huge(spec: PodSpec) -> PodSpec:
    """Return a pod's spec that fits no machine, with its required anti-affinity against every pod."""
    container = Container(name="too-large", resources=ResourceRequirements(requests={"cpu": HUGE}))
    anti = spec.affinity.pod_anti_affinity if spec.affinity is not None else None
    terms = anti.required_during_scheduling_ignored_during_execution if anti is not None else ()
    if not terms:
        return PodSpec(containers=(container,))
    keys = _smallest({term.topology_key for term in terms})
    wide = tuple(
        PodAffinityTerm(topology_key=key, label_selector=_EVERYTHING, namespace_selector=_EVERYTHING) for key in keys
    )
    against = PodAffinity(required_during_scheduling_ignored_during_execution=wide)
    return PodSpec(containers=(container,), affinity=Affinity(pod_anti_affinity=against))


def _smallest(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=lambda text: (len(text), text))[:_KEYS_MAX]


def _identity(meta: ObjectMeta) -> ObjectMeta:
    """Return name, times, owners and, where they are not what is large, labels."""
    labels = meta.labels if _text_of(meta.labels) <= WEIGHT_MAX // 4 else _read_labels(meta.labels)
    owners = tuple(sorted(meta.owner_references, key=lambda owner: not owner.controller))[:_OWNERS_MAX]
    return msgspec.structs.replace(meta, labels=labels, owner_references=owners, annotations={}, finalizers=())


def _read_labels(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels of Karpenter, Kubernetes and Dovetail, as many as fit."""
    return {key: labels[key] for key in sorted(filter(is_read, labels))[:256]}


def _text_of(labels: dict[str, str]) -> int:
    return sum(len(key) + len(text) + 4 * _TEXT_OVERHEAD for key, text in labels.items())


def _pdb(item: PodDisruptionBudget) -> tuple[PodDisruptionBudget, str]:
    closed = PodDisruptionBudget(
        metadata=_identity(item.metadata),
        spec=PodDisruptionBudgetSpec(selector=_EVERYTHING, max_unavailable=0),
        status=PodDisruptionBudgetStatus(disruptions_allowed=0),
    )
    return closed, "a PDB that allows no disruption in its namespace"


def _workload(item: Any) -> tuple[Any, str]:
    template = PodTemplate(spec=_huge(item.spec.template.spec))
    small = msgspec.structs.replace(item, metadata=_identity(item.metadata))
    spec = msgspec.structs.replace(small.spec, template=template, selector=None)
    said = "a workload whose pods fit no node and may not surge"
    return msgspec.structs.replace(small, spec=spec), said


def _template(item: NamedPodTemplate) -> tuple[NamedPodTemplate, str]:
    template = PodTemplate(spec=_huge(item.template.spec))
    return NamedPodTemplate(metadata=_identity(item.metadata), template=template), "a pod that fits no node"


def _service(item: Service) -> tuple[Service, str]:
    return Service(metadata=_identity(item.metadata), spec=ServiceSpec()), "a Service that selects nothing"


def _buffer(item: CapacityBuffer) -> tuple[CapacityBuffer, str]:
    small = msgspec.structs.replace(item, metadata=_identity(item.metadata))
    return msgspec.structs.replace(small, spec=msgspec.structs.replace(item.spec, limits={})), "a buffer without limits"


def _only_identity(item: Any) -> tuple[Any, str]:
    return msgspec.structs.replace(item, metadata=_identity(item.metadata)), "one without its own labels"


def _node(node: Node) -> tuple[Node, str]:
    meta = _identity(node.metadata)
    record = {key: text for key, text in node.metadata.annotations.items() if key in (names.COMMAND, names.HOLD)}
    meta = msgspec.structs.replace(meta, annotations={**record, names.ALWAYS_DO_NOT_DISRUPT: "true"})
    status = msgspec.structs.replace(
        node.status, capacity={}, allocatable={}, conditions=node.status.conditions[: 4 * _KEYS_MAX]
    )
    return msgspec.structs.replace(node, metadata=meta, status=status), "do-not-disrupt, without room for pods"


_SHRINKERS: Final[dict[type, Callable[[Any], tuple[AnyObject, str]]]] = {
    Pod: _pod,
    PodDisruptionBudget: _pdb,
    DaemonSet: _workload,
    ReplicaSet: _workload,
    StatefulSet: _workload,
    Deployment: _workload,
    NamedPodTemplate: _template,
    Service: _service,
    CapacityBuffer: _buffer,
    PersistentVolumeClaim: _only_identity,
    Namespace: _only_identity,
    Node: _node,
}
