"""Replays the load of a recording in a simulated world: what people and autoscalers did, not what a policy did.

Replica sets are scaled when they were scaled, Jobs and single pods come when they came and work as long as they did,
NodePools, PDBs and other objects change when they changed, spot machines are taken when they were taken. A pod that was
created because another one was evicted is not load: the simulated owners recreate their own. Nodes are the simulated
Karpenter's. Decides nothing about disruption.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace as change

from dovetail.model import names
from dovetail.model.objects import NodePool, ReplicaSet, StatefulSet
from dovetail.recordings.lines import BY_POLICY, COMPLETED
from dovetail.recordings.read import ClaimLife, ClusterRecording, PodLife, RecordedChange, is_load
from dovetail.sim.world.clock import SECOND, Span
from dovetail.sim.world.workloads import Workload
from dovetail.sim.world.world import World

_SETS: Final = ("ReplicaSet", "StatefulSet")
_PLAIN: Final = ("PodDisruptionBudget", "PriorityClass", "Namespace", "StorageClass", "PersistentVolumeClaim")
_SUCCESSOR_WITHIN: Final = timedelta(minutes=10)
_SEEN_WITHIN: Final = SECOND
"""Karpenter watches NodePools: it judges every node of a pool as soon as the pool's template changes."""
Adapt = Callable[[NodePool], NodePool]


def pools_of(recording: ClusterRecording) -> list[NodePool]:
    """Return every NodePool that was there at some time, as it was first."""
    found: dict[str, NodePool] = {}
    for entry in recording.changes:
        if isinstance(entry.object, NodePool):
            found.setdefault(entry.name, entry.object)
    return [found[name] for name in sorted(found)]


def add_recorded_load(world: World, recording: ClusterRecording, begin: datetime, adapt: Adapt) -> int:
    """Schedule everything that the load did after the beginning; return how many steps that is."""
    steps: list[tuple[datetime, int, str, Callable[[], None]]] = []
    for pool in pools_of(recording):  # one that came later is there from the start: controllers look at all pools then
        if pool.metadata.name not in world.store.pools:
            world.add_pool(adapt(pool))
    for entry in recording.changes:
        if entry.at > begin and entry.at <= recording.ends:
            action = _change(world, entry, adapt)
            if action is not None:
                steps.append((entry.at, 0, f"{entry.kind}/{entry.namespace}/{entry.name}", action))
    for job in single_pods(recording):
        steps += ((at, 1, job.lives[0].name, action) for at, action in _single(world, job, begin))
    for claim in interrupted(recording):
        assert claim.deleting is not None
        if claim.deleting > begin:
            steps.append((claim.deleting, 2, claim.name, partial(_interrupt, world, claim)))
    for at, _, _, action in sorted(steps, key=lambda step: step[:3]):
        world.at(world.clock.since_start(at), action)
    for entry in _sizes(recording, begin):
        assert isinstance(entry.object, ReplicaSet | StatefulSet)
        key = f"{entry.namespace}/{entry.name}"
        if world.workloads.has(entry.kind, key):
            world.workloads.scale(entry.kind, key, entry.object.spec.replicas or 0)
    return len(steps)


def _sizes(recording: ClusterRecording, begin: datetime) -> Iterator[RecordedChange]:
    """Yield the last state of every set at the beginning."""
    last: dict[tuple[str, str, str], RecordedChange] = {}
    for entry in recording.changes:
        if entry.at > begin:
            break
        if entry.kind in _SETS:
            last[entry.kind, entry.namespace, entry.name] = entry
    yield from (entry for entry in last.values() if entry.object is not None)


# ---------------------------------------------------------------- objects


def _change(world: World, entry: RecordedChange, adapt: Adapt) -> Callable[[], None] | None:
    if entry.kind in _SETS:
        return partial(_resize, world, entry)
    if entry.kind == "NodePool" and isinstance(entry.object, NodePool):
        return partial(_set_pool, world, adapt(entry.object))
    if entry.kind in _PLAIN:
        if entry.object is not None:
            return partial(_put, world, entry)
        key = f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name
        return partial(_remove, world, entry.kind, key)
    return None


def _put(world: World, entry: RecordedChange) -> None:
    assert entry.object is not None
    world.put(entry.object)


def _remove(world: World, kind: str, key: str) -> None:
    world.store.remove(kind, key)


def _resize(world: World, entry: RecordedChange) -> None:
    """Scale a set as it was scaled; the first size above 0 creates it."""
    key, item = f"{entry.namespace}/{entry.name}", entry.object
    assert item is None or isinstance(item, ReplicaSet | StatefulSet)
    wanted = 0 if item is None else item.spec.replicas or 0
    if world.workloads.has(entry.kind, key):
        if world.workloads.desired(entry.kind, key) != wanted:
            world.scale(entry.kind, key, wanted)
    elif item is not None and wanted:
        template = item.spec.template
        world.outside(f"{key} arrives")
        world.workloads.add(
            Workload(
                kind=entry.kind,
                name=entry.name,
                namespace=entry.namespace,
                replicas=wanted,
                labels=template.metadata.labels,
                annotations=template.metadata.annotations,
                spec=change(template.spec, node_name=""),
            )
        )


def _set_pool(world: World, pool: NodePool) -> None:
    known = world.store.pools.get(pool.metadata.name)
    if known is None:
        world.add_pool(pool)
        return
    drifts = known.spec.template != pool.spec.template
    world.add_pool(pool)
    world.outside(f"pool {pool.metadata.name} changed")
    if drifts:
        world.karpenter.template_changed(pool.metadata.name, within=_SEEN_WITHIN)


# ---------------------------------------------------------------- Jobs and single pods


@dataclass(frozen=True, slots=True, kw_only=True)
class SinglePod:
    """A pod of a Job, of an unknown owner or of none, and the pods that took its place after evictions.

    `ends`: when the load ended it; None: it was still there. `worked`: how long its last pod ran, of a Job that ended.
    """

    lives: tuple[PodLife, ...]
    ends: datetime | None
    worked: timedelta | None


def single_pods(recording: ClusterRecording) -> list[SinglePod]:
    """Return every pod of the load that no set keeps, each with its successors joined to it."""
    chains: list[list[PodLife]] = []
    open_ends: dict[tuple[str, str], deque[list[PodLife]]] = {}
    for life in recording.pods:
        if not is_load(life) or life.pod_class.owner[0] in _SETS:
            continue
        key = (life.namespace, life.owner or life.name)
        waiting = open_ends.setdefault(key, deque())
        chain = next((each for each in waiting if _succeeds(each[-1], life)), None)
        if chain is None:
            chain = []
            chains.append(chain)
        else:
            waiting.remove(chain)
        chain.append(life)
        if life.why in BY_POLICY:
            waiting.append(chain)
    return [_single_pod(chain) for chain in chains]


def _succeeds(before: PodLife, after: PodLife) -> bool:
    """Return whether a pod was created because another one was evicted."""
    ended = before.deleting or before.gone
    return ended is not None and ended <= after.created + timedelta(seconds=1) <= ended + _SUCCESSOR_WITHIN


def _single_pod(chain: list[PodLife]) -> SinglePod:
    last = chain[-1]
    ended = last.finished or last.deleting or last.gone
    if last.why in BY_POLICY and last.gone is not None:
        ended = last.gone  # nobody made it again: the load had ended it, too
    worked = None
    if last.finished is not None and last.why == COMPLETED and last.bound is not None:
        worked = max(timedelta(0), last.finished - last.bound)
    return SinglePod(lives=tuple(chain), ends=ended, worked=worked)


def _single(world: World, job: SinglePod, begin: datetime) -> Iterator[tuple[datetime, Callable[[], None]]]:
    """Yield when the pod comes and goes; one that is there at the beginning was adopted under its own name."""
    life = next((each for each in job.lives if each.is_there(begin) or each.created > begin), None)
    if life is None or (job.ends is not None and job.ends <= begin):
        return
    is_job = life.created > begin and life.owner.startswith("Job/") and job.worked is not None
    if life.created > begin:
        yield life.created, partial(_arrive, world, life, None if not is_job else job.worked)
    if not is_job and job.ends is not None:
        yield job.ends, partial(_leave, world, f"{life.namespace}/{life.name}")


def _arrive(world: World, life: PodLife, worked: timedelta | None) -> None:
    key, shared = f"{life.namespace}/{life.name}", life.pod_class.pod
    if world.workloads.has("ReplicaSet", key):
        world.scale("ReplicaSet", key, world.workloads.desired("ReplicaSet", key) + 1)
        return
    length = 0 if worked is None else worked // timedelta(microseconds=1) * 1000
    world.outside(f"{key} arrives")
    world.workloads.add(
        Workload(
            kind="ReplicaSet" if worked is None else "Job",
            name=life.name,
            namespace=life.namespace,
            replicas=1,
            labels=shared.metadata.labels,
            annotations=shared.metadata.annotations,
            spec=change(shared.spec, node_name=""),
            duration=None if worked is None else Span(length, length),
        )
    )


def _leave(world: World, key: str) -> None:
    if world.workloads.has("ReplicaSet", key):
        desired = world.workloads.desired("ReplicaSet", key)
        if desired:
            world.scale("ReplicaSet", key, desired - 1)


# ---------------------------------------------------------------- machines


def interrupted(recording: ClusterRecording) -> list[ClaimLife]:
    """Return the spot machines that the cloud took: deleted, and by no policy."""
    return [
        claim
        for claim in recording.claims
        if claim.capacity_type == names.SPOT and claim.deleting is not None and not claim.reason
    ]


def _interrupt(world: World, claim: ClaimLife) -> None:
    """Interrupt a spot machine like the one that was interrupted, if there is one."""

    def unlike(name: str) -> tuple[bool, bool, str]:
        machine = world.cloud.instances[name]
        return (machine.kind.name != claim.instance_type, machine.zone != claim.zone, name)

    there = [name for name, machine in world.cloud.instances.items() if machine.capacity_type == names.SPOT]
    if there:
        world.cloud.on_interruption(min(there, key=unlike))
