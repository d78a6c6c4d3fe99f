"""The owners of pods that a command moves, and how many ready pods each has.

Defines "as many ready pods as before", for the pause that ends when pods have landed (docs/rules.md#landed) and for the
halt of a pool whose moved pods do not become ready (docs/rules.md#health). Owners are identified by uid. Sits in
lifecycle, below `landing`, `aftercare` and `regrowth`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dovetail.lifecycle.store import Store
from dovetail.model.objects import Pod, ReplicaSet, StatefulSet, is_true
from dovetail.scheduling.pods.pod import is_active


def owners_of(pod: Pod) -> list[str]:
    """Return the uids of a pod's owners, except DaemonSets and nodes."""
    return [owner.uid for owner in pod.metadata.owner_references if owner.kind not in ("DaemonSet", "Node")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The state before a command's pods left: the ready pods of each owner, and the pods that were to leave.

    The latter by uid: the end of a node can be seen before the end of its pods, which must not count as ready
    replacements.
    """

    ready: Mapping[str, int]
    leaving: frozenset[str] = frozenset()


def ready_on(nodes: Iterable[str], store: Store) -> Before:
    """Return the owners that have pods on some nodes, each with how many ready pods it has anywhere."""
    pods = [pod for node in nodes for pod in store.pods_on(node)]
    owners = {owner for pod in pods for owner in owners_of(pod)}
    leaving = frozenset(pod.metadata.uid for pod in pods if owners_of(pod))
    return Before(ready={owner: ready_of(owner, store) for owner in sorted(owners)}, leaving=leaving)


def ready_of(owner: str, store: Store, leaving: frozenset[str] = frozenset()) -> int:
    """Count the pods of an owner that are bound, ready and staying; `leaving`: uids of pods that don't count."""
    pods = (pod for pod in store.pods_owned_by(owner) if owner in owners_of(pod))
    return sum(_is_ready(pod) for pod in pods if pod.metadata.uid not in leaving)


def missing(before: Before, store: Store) -> dict[str, int]:
    """Return the owners that have fewer ready pods than before and than they want now, with how many are missing."""
    gaps = {}
    for owner, count in before.ready.items():
        item = store.workload(owner)
        wanted = 0 if item is None else min(count, _replicas(item))
        gap = wanted - ready_of(owner, store, before.leaving) if wanted > 0 else 0
        if gap > 0:
            gaps[owner] = gap
    return gaps


def _replicas(owner: ReplicaSet | StatefulSet) -> int:
    return 1 if owner.spec.replicas is None else owner.spec.replicas


def _is_ready(pod: Pod) -> bool:
    return is_active(pod) and bool(pod.spec.node_name) and is_true(pod.status.conditions, "Ready")
