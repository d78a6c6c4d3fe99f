"""Commands in progress, read from the cluster's own objects, with their steps.

The record on nodes and replacements (spec section 9) says which nodes go and what is launched first; the objects show
the progress: tainted, launched, initialized, draining, gone. So the view needs no data from the controller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from dovetail.lifecycle.commands.records import Record, is_tainted, record_of
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Node, NodeClaim, is_true
from dovetail.scheduling.pods.pod import is_active, is_reschedulable

STEPS = ("taint", "launch", "ready", "drain", "gone")
_DONE, _NOW, _LATER = "done", "now", "later"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandNow:
    """A command in progress; `steps`: the state of each of `STEPS`, `done`, `now`, `later`, or `none` if not needed.

    `replacements` are NodeClaims, `coming` the nodes of those that have one already.
    """

    id: str
    by: str
    action: str
    reason: str
    since: datetime
    nodes: tuple[str, ...]
    replacements: tuple[str, ...]
    steps: tuple[str, ...]
    pods_left: int
    coming: tuple[str, ...] = ()


def commands_of(cluster: Cluster) -> tuple[CommandNow, ...]:
    """Return the commands whose records are on nodes or NodeClaims, the oldest first."""
    records: dict[str, Record] = {}
    marked: tuple[Node | NodeClaim, ...] = (*cluster.nodes, *cluster.node_claims)
    for item in marked:
        record = record_of(item)
        if record is not None and (record.id not in records or records[record.id].since < record.since):
            records[record.id] = record
    if not records:
        return ()
    nodes = {node.metadata.name: node for node in cluster.nodes}
    claims = {claim.metadata.name: claim for claim in cluster.node_claims}
    taken = {entry.node for record in records.values() for entry in record.nodes}
    left = _pods_left(cluster, taken)
    found = (_command(record, nodes, claims, left) for record in records.values())
    return tuple(sorted(found, key=lambda entry: (entry.since, entry.id)))


def _pods_left(cluster: Cluster, nodes: Iterable[str]) -> dict[str, int]:
    wanted = frozenset(nodes)
    left: dict[str, int] = {}
    for pod in cluster.pods:
        if pod.spec.node_name in wanted and is_active(pod) and is_reschedulable(pod):
            left[pod.spec.node_name] = left.get(pod.spec.node_name, 0) + 1
    return left


def _command(
    record: Record, nodes: Mapping[str, Node], claims: Mapping[str, NodeClaim], left: Mapping[str, int]
) -> CommandNow:
    here = [nodes[entry.node] for entry in record.nodes if entry.node in nodes]
    own = [claims[entry.claim] for entry in record.nodes if entry.claim in claims]
    coming = [claims[name] for name in record.replacements if name in claims]
    tainted = all(is_tainted(node) for node in here)
    launched = len(coming) == len(record.replacements)
    ready = launched and all(is_true(claim.status.conditions, names.CONDITION_INITIALIZED) for claim in coming)
    leaving = not own or all(claim.metadata.deletion_timestamp is not None for claim in own)
    gone = not own and not here
    steps = [_DONE if tainted else _NOW]
    if record.replacements:
        steps += [_DONE if launched else _LATER, _DONE if ready else _LATER]
    else:
        steps += ["none", "none"]
    steps += [_DONE if gone else _NOW if leaving else _LATER, _DONE if gone else _LATER]
    if _NOW not in steps and _LATER in steps:
        steps[steps.index(_LATER)] = _NOW
    return CommandNow(
        id=record.id,
        by=record.by,
        action=record.action.value,
        reason=record.action.value.removeprefix("delete").removeprefix("replace"),
        since=record.since,
        nodes=tuple(entry.node for entry in record.nodes),
        replacements=record.replacements,
        steps=tuple(steps),
        coming=tuple(claim.status.node_name for claim in coming if claim.status.node_name),
        pods_left=sum(left.get(entry.node, 0) for entry in record.nodes),
    )
