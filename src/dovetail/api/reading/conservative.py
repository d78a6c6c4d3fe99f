"""Makes objects of a live cluster that can be read only in part safe for decisions.

A file with an unreadable amount is the user's mistake and is refused. A running controller can't refuse its cluster: it
uses the value that makes it do least. A pod or DaemonSet with an unreadable request asks for more than any machine has;
a node, NodeClaim or pool with an unreadable amount has nothing. Nodes that such an object concerns are not disrupted:
the copy in memory says do-not-disrupt. Pure; sits in api.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from dovetail.model import names
from dovetail.model.objects import AnyObject, DaemonSet, Node, NodeClaim, NodePool, Pod, PodSpec
from dovetail.model.parts.metadata import ObjectMeta, ResourceList, ResourceRequirements
from dovetail.model.parts.pods import Container
from dovetail.model.quantity import QuantityError, resource_amount

HUGE: Final = "1P"
"""More than any machine has, and small enough that the sum over thousands of pods fits 64 bits."""
_NOTHING: Final = "0"
Problems = list[str]


class _Where(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Found(msgspec.Struct):
    metadata: dict[str, Any]
    spec: _Where = _Where()


def conservative(item: AnyObject) -> tuple[AnyObject, tuple[str, ...]]:
    """Return the object as decisions may use it, and what could not be read; usually the object itself and nothing."""
    if not any(_is_odd(amounts) for amounts in _lists(item)):
        return item, ()
    problems: Problems = []
    return _MENDERS[type(item)](item, problems), tuple(problems)


def unreadable_pod(raw: bytes | msgspec.Raw) -> Pod | None:
    """Return a stand-in for a pod that can't be decoded: it is on its node and must not be disrupted.

    None: not even its name and node can be read.
    """
    try:
        found = msgspec.json.decode(raw, type=_Found)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    name, namespace = found.metadata.get("name"), found.metadata.get("namespace")
    uid, version = found.metadata.get("uid"), found.metadata.get("resourceVersion")
    if not isinstance(name, str) or not isinstance(namespace, str) or not name:
        return None
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid if isinstance(uid, str) else "",
        resource_version=version if isinstance(version, str) else "",
        annotations={names.DO_NOT_DISRUPT: "true"},
    )
    container = Container(name="unreadable", resources=ResourceRequirements(requests={"cpu": HUGE}))
    return Pod(metadata=meta, spec=PodSpec(node_name=found.spec.node_name, containers=(container,)))


def _lists(item: AnyObject) -> Iterator[ResourceList]:
    """Yield every list of amounts that decisions read."""
    match item:
        case Pod(spec=spec):
            yield from _pod_lists(spec)
        case Node(status=status):
            yield from (status.capacity, status.allocatable)
        case NodeClaim(spec=claimed, status=reported):
            yield from (claimed.resources.requests, reported.capacity, reported.allocatable)
        case NodePool(spec=pool):
            yield pool.limits
        case DaemonSet(spec=workload):
            yield from _pod_lists(workload.template.spec)


def _pod_lists(spec: PodSpec) -> Iterator[ResourceList]:
    for container in (*spec.containers, *spec.init_containers):
        yield from (container.resources.requests, container.resources.limits)
    if spec.resources is not None:
        yield from (spec.resources.requests, spec.resources.limits)
    if spec.overhead:
        yield spec.overhead


def _is_odd(amounts: ResourceList) -> bool:
    try:
        for name, text in amounts.items():
            resource_amount(name, text)
    except QuantityError:
        return True
    return False


def _mended(amounts: ResourceList, instead: str, problems: Problems) -> ResourceList:
    kept: ResourceList = {}
    for name, text in amounts.items():
        try:
            resource_amount(name, text)
            kept[name] = text
        except QuantityError as error:
            kept[name] = instead
            problems.append(f"{name}: {error}")
    return kept


def _requirements(given: ResourceRequirements, problems: Problems) -> ResourceRequirements:
    return msgspec.structs.replace(
        given,
        requests=_mended(given.requests, HUGE, problems),
        limits=_mended(given.limits, HUGE, problems),
    )


def _containers(given: tuple[Container, ...], problems: Problems) -> tuple[Container, ...]:
    return tuple(msgspec.structs.replace(entry, resources=_requirements(entry.resources, problems)) for entry in given)


def _pod_spec(spec: PodSpec, problems: Problems) -> PodSpec:
    return msgspec.structs.replace(
        spec,
        containers=_containers(spec.containers, problems),
        init_containers=_containers(spec.init_containers, problems),
        resources=None if spec.resources is None else _requirements(spec.resources, problems),
        overhead=_mended(spec.overhead, HUGE, problems),
    )


def _marked(meta: ObjectMeta, key: str) -> ObjectMeta:
    return msgspec.structs.replace(meta, annotations={**meta.annotations, key: "true"})


def _pod(pod: Pod, problems: Problems) -> Pod:
    spec = _pod_spec(pod.spec, problems)
    return msgspec.structs.replace(pod, metadata=_marked(pod.metadata, names.DO_NOT_DISRUPT), spec=spec)


def _daemon_set(item: DaemonSet, problems: Problems) -> DaemonSet:
    template = msgspec.structs.replace(item.spec.template, spec=_pod_spec(item.spec.template.spec, problems))
    return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, template=template))


def _node(node: Node, problems: Problems) -> Node:
    status = msgspec.structs.replace(
        node.status,
        capacity=_mended(node.status.capacity, _NOTHING, problems),
        allocatable=_mended(node.status.allocatable, _NOTHING, problems),
    )
    return msgspec.structs.replace(node, metadata=_marked(node.metadata, names.ALWAYS_DO_NOT_DISRUPT), status=status)


def _claim(claim: NodeClaim, problems: Problems) -> NodeClaim:
    resources = msgspec.structs.replace(
        claim.spec.resources, requests=_mended(claim.spec.resources.requests, _NOTHING, problems)
    )
    status = msgspec.structs.replace(
        claim.status,
        capacity=_mended(claim.status.capacity, _NOTHING, problems),
        allocatable=_mended(claim.status.allocatable, _NOTHING, problems),
    )
    meta = _marked(claim.metadata, names.ALWAYS_DO_NOT_DISRUPT)
    spec = msgspec.structs.replace(claim.spec, resources=resources)
    return msgspec.structs.replace(claim, metadata=meta, spec=spec, status=status)


def _pool(pool: NodePool, problems: Problems) -> NodePool:
    spec = msgspec.structs.replace(pool.spec, limits=_mended(pool.spec.limits, _NOTHING, problems))
    return msgspec.structs.replace(pool, spec=spec)


_MENDERS: Final[dict[type, Callable[[Any, Problems], AnyObject]]] = {
    Pod: _pod,
    DaemonSet: _daemon_set,
    Node: _node,
    NodeClaim: _claim,
    NodePool: _pool,
}
