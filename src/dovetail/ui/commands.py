"""Commands in progress, read from the cluster's own objects, with their steps.

The record on nodes and replacements (docs/rules.md#carrying-out) says which nodes go and what is launched first; the
objects show the progress: tainted, launched, initialized, draining, gone. So the view needs no data from the
controller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from dovetail.lifecycle.commands.draining import WARN_AFTER, holder
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Record, is_tainted, record_of
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Node, NodeClaim, condition, is_true
from dovetail.scheduling.pods.pod import is_active, is_reschedulable

STEPS = ("taint", "launch", "ready", "drain", "gone")
_LONG_DRAIN: Final = timedelta(microseconds=WARN_AFTER // 1000)
_NAMED_MAX: Final = 3
_DONE, _NOW, _LATER = "done", "now", "later"
_PHASES: Final = {
    "taint": Phase.TAINTING,
    "launch": Phase.LAUNCHING,
    "ready": Phase.WAITING,
    "drain": Phase.CHECKING,
    "gone": Phase.FINISHING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandNow:
    """A command in progress; `steps`: the state of each of `STEPS`, `done`, `now`, `later`, or `none` if not needed.

    `replacements` are NodeClaims, `coming` the nodes of those that have one already. `draining`: since when its nodes
    drain, None if they don't yet; `held_by`: what holds a drain that takes long.
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
    draining: datetime | None = None
    held_by: str = ""

    @property
    def phase(self) -> str:
        """Return the phase that its objects show, as internals/command-machine.md names it."""
        if self.draining is not None:
            return Phase.DRAINING.value
        step = next((step for step, state in zip(STEPS, self.steps, strict=True) if state == _NOW), "gone")
        return _PHASES[step].value

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `inFlight` in the JSON of `plan`."""
        since = self.since.isoformat(timespec="seconds").replace("+00:00", "Z")
        return {"id": self.id, "action": self.action, "nodes": list(self.nodes), "phase": self.phase, "since": since}


def in_flight_lines(commands: Iterable[CommandNow]) -> list[str]:
    """Return one line for each command in progress, for people."""
    return [
        f"in progress: {entry.action} of {', '.join(entry.nodes[:_NAMED_MAX])}"
        f"{f' and {len(entry.nodes) - _NAMED_MAX} more' if len(entry.nodes) > _NAMED_MAX else ''}"
        f", {entry.phase} since {entry.since:%H:%M:%S}Z"
        for entry in commands
    ]


def commands_of(cluster: Cluster, now: datetime | None = None) -> tuple[CommandNow, ...]:
    """Return the commands whose records are on nodes or NodeClaims, the oldest first; `now` judges long drains."""
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
    left = pods_left(cluster, taken)
    found = [_command(record, nodes, claims, left) for record in records.values()]
    if now is not None:
        found = [_with_holder(entry, cluster, now) for entry in found]
    return tuple(sorted(found, key=lambda entry: (entry.since, entry.id)))


def _with_holder(entry: CommandNow, cluster: Cluster, now: datetime) -> CommandNow:
    """Return a command with what holds its drain, if that takes long."""
    if entry.draining is None or now - entry.draining < _LONG_DRAIN:
        return entry
    there = {node.metadata.name for node in cluster.nodes}
    node = next((name for name in entry.nodes if name in there), "")
    pods = [pod for pod in cluster.pods if pod.spec.node_name == node]
    return replace(entry, held_by=f"{node}: {holder(pods, cluster.pdbs, now)[2]}") if node else entry


def drains_of(cluster: Cluster, commands: Iterable[CommandNow]) -> tuple[CommandNow, ...]:
    """Return what Karpenter, or somebody by hand, removes: NodeClaims on their way out that no command names."""
    named = {node for entry in commands for node in entry.nodes}
    groups: dict[tuple[datetime, str], list[NodeClaim]] = {}
    for claim in cluster.node_claims:
        since = claim.metadata.deletion_timestamp
        if since is not None and record_of(claim) is None and claim.status.node_name not in named:
            why = condition(claim.status.conditions, names.CONDITION_DISRUPTION_REASON)
            reason = (why.reason or "") if why is not None and why.status == "True" else ""
            groups.setdefault((since, reason), []).append(claim)
    left = pods_left(cluster, (claim.status.node_name for claims in groups.values() for claim in claims))
    return tuple(
        CommandNow(
            id=f"drain-{claims[0].metadata.name}",
            by="Karpenter" if reason else "hand or its pool",
            action="drain",
            reason=reason,
            since=since,
            nodes=tuple(claim.status.node_name or claim.metadata.name for claim in claims),
            replacements=(),
            steps=(_DONE, "none", "none", _NOW, _LATER),
            pods_left=sum(left.get(claim.status.node_name, 0) for claim in claims),
            draining=since,
        )
        for (since, reason), claims in sorted(groups.items(), key=lambda entry: entry[0])
    )


class PassingCommands:
    """Commands whose records were seen at any moment since the last look, so that short ones are counted, too.

    Not thread-safe: a source calls it under its own lock.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Record] = {}
        self._nodes: dict[str, str] = {}

    def observe(self, item: object) -> None:
        """Note the record on a node or a claim, and which node a claim got."""
        if not isinstance(item, Node | NodeClaim):
            return
        record = record_of(item)
        if record is None:
            return
        self._seen[record.id] = record
        if isinstance(item, NodeClaim) and item.status.node_name:
            self._nodes[item.metadata.name] = item.status.node_name

    def take(self) -> tuple[CommandNow, ...]:
        """Return what was seen since the last call, as ended commands, and forget it."""
        found = tuple(
            CommandNow(
                id=record.id,
                by=record.by,
                action=record.action.value,
                reason=record.action.value.removeprefix("delete").removeprefix("replace"),
                since=record.since,
                nodes=tuple(entry.node for entry in record.nodes),
                replacements=record.replacements,
                steps=(_DONE,) * len(STEPS),
                coming=tuple(self._nodes[name] for name in record.replacements if name in self._nodes),
                pods_left=0,
            )
            for record in self._seen.values()
        )
        self._seen, self._nodes = {}, {}
        return found


def pods_left(cluster: Cluster, nodes: Iterable[str]) -> dict[str, int]:
    """Return how many pods that would have to move are on each of these nodes; a node without any is left out."""
    wanted = frozenset(nodes)
    left: dict[str, int] = {}
    for pod in cluster.pods if wanted else ():
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
    ends = [claim.metadata.deletion_timestamp for claim in own]
    ends += [node.metadata.deletion_timestamp for node in here]  # a Node may outlive its claim
    draining = min((at for at in ends if at is not None), default=None)
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
        draining=draining,
        coming=tuple(claim.status.node_name for claim in coming if claim.status.node_name),
        pods_left=sum(left.get(entry.node, 0) for entry in record.nodes),
    )
