"""For how long the objects of a pool say that its load is level, where nobody has watched (docs/rules.md#one-price).

A capture and a controller that has just started have no history, but the objects have: a pool whose pods and machines
are hours old is calm. Its load is level since the time after which pods that request more than one average node were
created, and a machine that a provisioner opened ends that. Pods that went leave no trace, so this counts only up to a
limit (`PRIOR_MAX`). Decides nothing. Sits in decide, below the gates.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Node, Pod
from dovetail.model.persistence import Persistence, prior_of
from dovetail.scheduling.pods.pod import is_reschedulable
from dovetail.scheduling.pods.requests import amounts, spec_requests

_RESOURCES = ("cpu", "memory")
_MICROSECOND = timedelta(microseconds=1)


def shown_by_objects(cluster: Cluster, now: datetime) -> dict[str, Persistence]:
    """Return for every pool with nodes what its objects say."""
    nodes: dict[str, list[Node]] = {}
    for node in cluster.nodes:
        if pool := node.metadata.labels.get(names.NODEPOOL):
            nodes.setdefault(pool, []).append(node)
    pool_of = {node.metadata.name: pool for pool, members in nodes.items() for node in members}
    pods: dict[str, list[Pod]] = {}
    for pod in cluster.pods:
        if (pool := pool_of.get(pod.spec.node_name or "")) and is_reschedulable(pod):
            pods.setdefault(pool, []).append(pod)
    opened = _last_opened(cluster)
    return {
        pool: Persistence(learned=prior_of(_calm(members, pods.get(pool, ()), opened.get(pool), now)))
        for pool, members in nodes.items()
    }


def _last_opened(cluster: Cluster) -> dict[str, datetime]:
    """Return when a provisioner last opened a node in each pool; those that Dovetail launched don't count."""
    found: dict[str, datetime] = {}
    for claim in cluster.node_claims:
        about = claim.metadata
        ours = names.HOLD in about.annotations or names.COMMAND in about.annotations
        pool, created = about.labels.get(names.NODEPOOL, ""), about.creation_timestamp
        if created is not None and not ours and created > found.get(pool, created - _MICROSECOND):
            found[pool] = created
    return found


def _calm(nodes: list[Node], pods: Iterable[Pod], opened: datetime | None, now: datetime) -> int:
    """Return for how long the load was level by what was created, in nanoseconds."""
    sizes = [amounts(node.status.allocatable) for node in nodes]
    room = [sum(size.get(name, 0) for size in sizes) // len(sizes) for name in _RESOURCES]
    since = [opened] if opened is not None else []
    came = sorted(((at, pod) for pod in pods if (at := pod.metadata.creation_timestamp) is not None), key=_newest)
    for at, pod in came:
        asks = spec_requests(pod.spec)
        room = [left - asks.get(name, 0) for left, name in zip(room, _RESOURCES, strict=True)]
        if min(room) < 0:
            since.append(at)
            break
    else:
        since += [at for at, _ in came[-1:]]
    return (now - max(since)) // _MICROSECOND * 1000 if since else 0


def _newest(entry: tuple[datetime, Pod]) -> float:
    return -entry[0].timestamp()
