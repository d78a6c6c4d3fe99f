"""What an input lacks that an answer needs (docs/rules.md#one-truth).

An input without pods would plan to delete the cluster, and two clusters in one call make a third that does not exist:
both are refused unless `--partial` is given. What may be missing because the cluster has none of it is only said. A
snapshot of ours says which kinds it listed, so nothing is guessed about those. Pure; `cli.inputs` asks. Sits in api.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

import msgspec

from dovetail.api.reading.decode import DecodedObjects
from dovetail.model.cluster import FIELD_OF, CaptureOrigin, Cluster
from dovetail.model.objects import AnyObject, Node, NodeClaim, ObjectMeta, Pod

RECAPTURE: Final = (
    "capture all of it with 'dovetail snapshot -o cluster.json.gz' or 'kubectl get nodepools,nodeclaims,nodes,pods,pdb,"
    "ds,rs,sts,pvc,pv,sc,csinodes,pc,ns -A -o json', or add --partial to go on with what is there"
)
_NAMED_MAX: Final = 3
_namespace: Final = attrgetter("metadata.namespace")
_WITHOUT: Final = {
    "PodDisruptionBudget": "if there are some, pods are less free to move",
    "DaemonSet": "if there are some, new nodes have less room",
    "Namespace": "namespace selectors match nothing",
    "NodePool": "Karpenter does not manage these nodes",
}


class Lacks(msgspec.Struct, frozen=True, kw_only=True):
    """What an input lacks: `refusals` make an answer wrong, `warnings` may."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def lacks_of(decoded: DecodedObjects, cluster: Cluster) -> Lacks:
    """Return what the objects of an input lack; `cluster`: the same objects, each once."""
    listed = frozenset(kind for mark in decoded.captures for kind in mark.kinds)
    refusals = (
        *_two_clusters(decoded, cluster),
        *_nothing_to_plan(cluster, listed),
        *_no_pods(cluster, listed),
        *_missing_namespaces(decoded, cluster, listed),
    )
    return Lacks(refusals=refusals, warnings=(*_missing_kinds(cluster, listed), *_two_moments(decoded)))


def _two_clusters(decoded: DecodedObjects, cluster: Cluster) -> Iterator[str]:
    origins = {mark.cluster.uid: mark.origin for mark in decoded.captures if mark.cluster.uid}
    if len(origins) > 1:
        yield f"the input holds captures of {len(origins)} clusters ({', '.join(map(_named, origins.values()))})"
        return
    if len(decoded.objects) == sum(len(getattr(cluster, column)) for column in FIELD_OF.values()):
        return  # no object twice
    seen: dict[tuple[type, str, str], AnyObject] = {}
    for item in decoded.objects:
        meta = item.metadata
        other = seen.setdefault((type(item), meta.namespace, meta.name), item)
        why = "" if other is item else _differs(other, item)
        if why:
            yield f"{type(item).__name__} {_name(meta)} is there twice {why}: these are objects of two clusters"
            return


def _named(origin: CaptureOrigin) -> str:
    return origin.name or f"one with the uid {origin.uid}"


def _differs(one: AnyObject, other: AnyObject) -> str:
    """Return why two objects of one name can't be the same object; empty if they can."""
    mine, his = one.metadata, other.metadata
    if mine.uid and his.uid and mine.uid != his.uid:
        return "with different uids"
    if _born_apart(mine, his):
        return "with different times of creation"
    machines = _machine(one), _machine(other)
    return "on different machines" if all(machines) and machines[0] != machines[1] else ""


def _machine(item: AnyObject) -> str:
    """Return what an object is bound to for life, if it is a node, a claim or a pod."""
    if isinstance(item, Node):
        return item.spec.provider_id
    if isinstance(item, NodeClaim):
        return item.status.provider_id
    return item.spec.node_name if isinstance(item, Pod) else ""


def _born_apart(one: ObjectMeta, other: ObjectMeta) -> bool:
    times = one.creation_timestamp, other.creation_timestamp
    return None not in times and times[0] != times[1]


def _nothing_to_plan(cluster: Cluster, listed: frozenset[str]) -> Iterator[str]:
    if cluster.nodes or cluster.node_claims or cluster.node_pools or "Node" in listed:
        return
    counts = {kind.__name__: len(getattr(cluster, column)) for kind, column in FIELD_OF.items()}
    there = [f"{count:,} {kind}" for kind, count in {**counts, **cluster.unknown_kinds}.items() if count]
    yield f"the input has no Node and no NodePool, only {_some(there)}"


def _no_pods(cluster: Cluster, listed: frozenset[str]) -> Iterator[str]:
    if cluster.nodes and not cluster.pods and "Pod" not in listed:
        nodes = "1 Node" if len(cluster.nodes) == 1 else f"{len(cluster.nodes):,} Nodes"
        yield f"the input has {nodes} and no Pod at all, so every node looks empty"


def _missing_namespaces(decoded: DecodedObjects, cluster: Cluster, listed: frozenset[str]) -> Iterator[str]:
    """Yield that pods of some namespaces were not captured, if other objects show that they have some."""
    if not cluster.pods or "Pod" in listed:
        return
    peopled = dict(decoded.running)
    for pdb in cluster.pdbs:
        if pdb.status.expected_pods > 0:
            name = _name(pdb.metadata)
            said = f"PodDisruptionBudget {name} expects {pdb.status.expected_pods}"
            peopled.setdefault(pdb.metadata.namespace, said)
    missing = sorted(namespace for namespace in peopled if not _has_pods(cluster, namespace))
    if missing:
        known = frozenset(map(_namespace, cluster.pods))
        there = f"of {_some(sorted(known))} only" if len(known) <= _NAMED_MAX else f"of {len(known)} namespaces"
        has = "has" if len(missing) == 1 else "have"
        shown = f"namespace{'s' if len(missing) > 1 else ''} {_some(missing)}"
        yield f"the input has pods {there} and none of {shown}, which {has} some ({peopled[missing[0]]})"


def _has_pods(cluster: Cluster, namespace: str) -> bool:
    """Return whether a namespace has pods; a cluster's objects are sorted by namespace."""
    at = bisect_left(cluster.pods, namespace, key=_namespace)
    return at < len(cluster.pods) and _namespace(cluster.pods[at]) == namespace


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED_MAX])
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX} more"


def _missing_kinds(cluster: Cluster, listed: frozenset[str]) -> Iterator[str]:
    if not cluster.nodes and not cluster.pods:
        return  # manifests, not a capture
    columns = {kind.__name__: column for kind, column in FIELD_OF.items()}
    for kind, meaning in _WITHOUT.items():
        if not getattr(cluster, columns[kind]) and kind not in listed:
            yield f"no {kind} in the input: {meaning}"


def _two_moments(decoded: DecodedObjects) -> Iterator[str]:
    times = sorted({mark.captured_at for mark in decoded.captures})
    if len(times) > 1:
        first, last = (at.isoformat(timespec="seconds").replace("+00:00", "Z") for at in (times[0], times[-1]))
        yield f"the input was captured at {len(times)} times, from {first} to {last}: what left in between still counts"


def accepted(refusals: Iterable[str]) -> tuple[str, ...]:
    """Return what an answer says first if an input that lacks something was accepted with `--partial`."""
    return tuple(f"partial input, accepted by --partial: {text}" for text in refusals)


def _name(meta: ObjectMeta) -> str:
    return meta.key if meta.namespace else meta.name
