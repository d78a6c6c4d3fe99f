"""Replays the last hours of a captured cluster: its pods arrive at their own creation times.

A capture holds the existing pods and ended ones that were not deleted yet. From it follow the state some hours before
(`as_of`) and the pods that came and went since (`add_arrivals`): pods of ReplicaSets and bare pods exist from their
creation to their end, if it is known; Jobs' pods run as long as they did; a StatefulSet's pods count from the set's own
creation, since a young one is an old one that was moved; DaemonSets' and static pods exist with their nodes. Pods that
were created and deleted in between have left no trace. Nodes created after the start are ignored: the simulated
provisioner opens what is needed. Decides nothing about disruption.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from msgspec.structs import replace as change

from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Condition, Node, NodeClaim, Pod, ReplicaSet, condition
from dovetail.scheduling.pods.pod import is_terminal
from dovetail.sim.scenarios.scenario import ScenarioError
from dovetail.sim.world.clock import Span
from dovetail.sim.world.workloads import Workload
from dovetail.sim.world.world import World

_WITH_NODE = ("DaemonSet", "Node")
_BIRTH = (names.CONDITION_LAUNCHED, names.CONDITION_REGISTERED, names.CONDITION_INITIALIZED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One pod of a capture: from when to when it was there (None: it still is), and who owns it."""

    pod: Pod
    kind: str
    owner: str
    since: datetime
    until: datetime | None

    @property
    def key(self) -> str:
        """Return `namespace/owner`."""
        return f"{self.pod.metadata.namespace}/{self.owner}"

    def covers(self, when: datetime) -> bool:
        """Return whether the pod was there."""
        return self.since <= when and (self.until is None or when < self.until)


def captured_at(cluster: Cluster) -> datetime | None:
    """Return when a capture was made: the last that it knows of. None where nothing in it carries a time."""
    items: tuple[Pod | Node | NodeClaim, ...] = (*cluster.pods, *cluster.nodes, *cluster.node_claims)
    times = [
        time
        for item in items
        for time in (item.metadata.creation_timestamp, *(c.last_transition_time for c in item.status.conditions))
        if time is not None
    ]
    return max(times, default=None)


def window_of(cluster: Cluster, window: int, source: str) -> tuple[datetime, datetime]:
    """Return from when to when a capture is replayed; raise ScenarioError if it can't be."""
    end = captured_at(cluster)
    stays = list(stays_of(cluster))
    if end is None or not stays:
        raise ScenarioError(
            f"{source}: no pod in it carries a creation time; capture the cluster with `dovetail snapshot`, or kubectl "
            "get ... -o json"
        )
    begin = end - timedelta(microseconds=window // 1000)
    if not any(stay.since > begin for stay in stays):
        last = max(stay.since for stay in stays)
        raise ScenarioError(
            f"{source}: no pod in it was created after {begin:%Y-%m-%dT%H:%M:%SZ}, the last one came at "
            f"{last:%Y-%m-%dT%H:%M:%SZ}; write a longer `window`, or leave `arrivals` out"
        )
    return begin, end


def stays_of(cluster: Cluster) -> Iterator[Stay]:
    """Yield every pod that has a place of its own in time, by namespace and name."""
    sets = {(item.metadata.namespace, item.metadata.name): item for item in cluster.stateful_sets}
    for pod in cluster.pods:
        made = pod.metadata.creation_timestamp
        owner = next((entry for entry in pod.metadata.owner_references if entry.kind), None)
        kind = "" if owner is None else owner.kind
        if made is None or kind in _WITH_NODE:
            continue
        if kind == "StatefulSet" and owner is not None:
            found = sets.get((pod.metadata.namespace, owner.name))
            if found is not None and found.metadata.creation_timestamp is not None:
                made = min(made, found.metadata.creation_timestamp)
        name = pod.metadata.name if owner is None else owner.name
        yield Stay(pod=pod, kind=kind, owner=name, since=made, until=_end_of(pod))


def _end_of(pod: Pod) -> datetime | None:
    """Return when a pod that has ended did: it stopped being ready then."""
    if not is_terminal(pod):
        return None
    for kind in ("Ready", "ContainersReady"):
        found = condition(pod.status.conditions, kind)
        if found is not None and found.status != "True" and found.last_transition_time is not None:
            return found.last_transition_time
    return pod.status.start_time or pod.metadata.creation_timestamp


# ---------------------------------------------------------------- the beginning


def as_of(cluster: Cluster, begin: datetime) -> Cluster:
    """Return what was there at that time, as far as the capture knows."""
    there = [stay for stay in stays_of(cluster) if stay.covers(begin)]
    claims = tuple(_younger(claim, begin) for claim in cluster.node_claims if _was_there(claim, begin))
    nodes = tuple(node for node in cluster.nodes if _was_there(node, begin))
    known = {node.metadata.name for node in nodes}
    with_node = tuple(
        pod
        for pod in cluster.pods
        if any(owner.kind in _WITH_NODE for owner in pod.metadata.owner_references) and pod.spec.node_name in known
    )
    counts: dict[tuple[str, str], int] = {}
    for stay in there:
        place = (stay.pod.metadata.namespace, stay.owner)
        counts[place] = counts.get(place, 0) + 1
    return replace(
        cluster,
        node_claims=claims,
        nodes=nodes,
        pods=(*(_alive(stay.pod) for stay in there), *with_node),
        replica_sets=tuple(_sized(item, counts) for item in cluster.replica_sets),
    )


def _was_there(item: Node | NodeClaim, begin: datetime) -> bool:
    born = item.metadata.creation_timestamp
    return born is None or born <= begin


def _younger(claim: NodeClaim, begin: datetime) -> NodeClaim:
    """Return the NodeClaim without what happened to it later."""
    kept = tuple(
        entry
        for entry in claim.status.conditions
        if entry.type in _BIRTH or entry.last_transition_time is None or entry.last_transition_time <= begin
    )
    last = claim.status.last_pod_event_time
    status = change(
        claim.status, conditions=kept, last_pod_event_time=last if last is not None and last <= begin else None
    )
    return change(claim, metadata=change(claim.metadata, deletion_timestamp=None), status=status)


def _alive(pod: Pod) -> Pod:
    """Return the pod before it ended."""
    metadata = change(pod.metadata, deletion_timestamp=None, deletion_grace_period_seconds=None)
    if not is_terminal(pod):
        return change(pod, metadata=metadata)
    conditions: tuple[Condition, ...] = tuple(c for c in pod.status.conditions if c.type == "PodScheduled")
    return change(pod, metadata=metadata, status=change(pod.status, phase="Running", conditions=conditions))


def _sized(item: ReplicaSet, counts: dict[tuple[str, str], int]) -> ReplicaSet:
    """Return a ReplicaSet that asks for as many pods as it had: budgets count by it."""
    count = counts.get((item.metadata.namespace, item.metadata.name), 0)
    return change(item, spec=change(item.spec, replicas=count))


# ---------------------------------------------------------------- what came and went


def add_arrivals(world: World, cluster: Cluster, begin: datetime) -> int:
    """Schedule all arrivals and departures after the start; return how many pods arrive."""
    events: list[tuple[datetime, str, int, Callable[[], None]]] = []
    count = 0
    for stay in stays_of(cluster):
        if stay.until is not None and stay.until <= max(begin, stay.since):
            continue
        if stay.since > begin:
            count += 1
            events.append((stay.since, stay.pod.metadata.name, 1, partial(arrive, world, stay)))
        if stay.until is not None and (stay.kind != "Job" or stay.since <= begin):
            events.append((stay.until, stay.pod.metadata.name, 0, partial(resize, world, stay, -1)))
    for when, _, _, action in sorted(events, key=lambda event: event[:3]):
        world.at(world.clock.since_start(when), action)
    return count


def arrive(world: World, stay: Stay) -> None:
    """Add one pod like a captured one: to its set, or as a Job of its own."""
    if stay.kind == "Job":
        world.outside("a job's pod arrives")
        world.workloads.add(_workload(stay, "Job", stay.pod.metadata.name))
    else:
        resize(world, stay, 1)


def resize(world: World, stay: Stay, by: int) -> None:
    """Change a set by one pod; the first one creates the set."""
    kind = "StatefulSet" if stay.kind == "StatefulSet" else "ReplicaSet"
    if world.workloads.has(kind, stay.key):
        world.scale(kind, stay.key, max(0, world.workloads.desired(kind, stay.key) + by))
    elif by > 0:
        world.outside(f"{stay.key} arrives")
        world.workloads.add(_workload(stay, kind, stay.owner))


def _workload(stay: Stay, kind: str, name: str) -> Workload:
    """Return the workload that a captured pod is of."""
    pod = stay.pod
    worked = None
    if kind == "Job" and stay.until is not None:
        took = int((stay.until - (pod.status.start_time or stay.since)) / timedelta(microseconds=1)) * 1000
        worked = Span(max(0, took), max(0, took))
    return Workload(
        kind=kind,
        name=name,
        namespace=pod.metadata.namespace,
        replicas=1,
        labels=pod.metadata.labels,
        annotations=pod.metadata.annotations,
        spec=change(pod.spec, node_name=""),
        duration=worked,
    )
