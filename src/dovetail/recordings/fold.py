"""Turns what is observed of a cluster into the lines of a recording.

Pure: the shell says what was observed and when (`observe`, `vanish`), and writes the lines that come back. `begin`
yields everything that is known, as a new file starts with it. A change that no replay could notice (a heartbeat, the
status of a PDB, a pod event on a claim) gives no line. Memory: one small entry per pod, the last state of every other
object, one entry per class of pods. Sits in `recordings`; knows neither files nor clocks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from dovetail.model import names
from dovetail.model.objects import (
    KINDS,
    AnyObject,
    Condition,
    NodeClaim,
    NodeClaimStatus,
    NodePool,
    NodePoolStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    ReplicaSet,
    condition,
)
from dovetail.recordings.lines import (
    VERSION,
    ClaimLine,
    ClassLine,
    GoneLine,
    HeaderLine,
    Line,
    ObjectLine,
    PodLine,
    why_gone,
)
from dovetail.recordings.read import ClaimLife, PodLife
from dovetail.recordings.trimmed import trimmed
from dovetail.scheduling.pods.requests import resized_spec

PriceOf = Callable[[str, str, str], str | None]
Rewrite = Callable[[dict[str, Any]], dict[str, Any]]
Key = tuple[str, str, str]
_KINDS: Final = {struct: kind for kind, struct in KINDS.items()}
# Labels that differ from pod to pod of one owner; a replay makes its own.
_LABELS_OF_ONE: Final = frozenset(
    {
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "controller-uid",
        "job-name",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
        "batch.kubernetes.io/job-completion-index",
    }
)
# Owners that many pods have, one after the other; the pods of others (Jobs) name theirs themselves.
_LASTING: Final = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "Node"})
_TENTH: Final = timedelta(milliseconds=100)
_DISRUPTION_REASON: Final = "DisruptionReason"


@dataclass(slots=True)
class _PodEntry:
    """What is known of one pod."""

    id: int
    name: str
    shape: bytes
    owner: str
    created: datetime | None
    node: str = ""
    bound: datetime | None = None
    ready: datetime | None = None
    deleting: datetime | None = None
    finished: datetime | None = None
    why: str = ""


@dataclass(slots=True)
class _ClaimEntry:
    """What is known of one NodeClaim; `line` is the last that was written, in times of the current file."""

    claim: NodeClaim
    price: str | None
    line: ClaimLine | None = None


@dataclass(slots=True, kw_only=True)
class Fold:
    """The state of one recording. `rewrite` anonymises every tree; `rename` a name that stands alone."""

    cluster: str
    recorder: str = ""
    catalogue: str = ""
    price_of: PriceOf = lambda kind, zone, capacity_type: None
    rewrite: Rewrite | None = None
    rename: Callable[[str], str] = lambda name: name
    _begins: datetime | None = None
    _pods: dict[tuple[str, str], _PodEntry] = field(default_factory=dict)
    _objects: dict[Key, AnyObject] = field(default_factory=dict)
    _claims: dict[str, _ClaimEntry] = field(default_factory=dict)
    _shapes: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    _classes: dict[bytes, int] = field(default_factory=dict)
    _next_pod: int = 0

    # ------------------------------------------------------------ files

    def begin(self, at: datetime, missing: tuple[str, ...] = (), guessed: tuple[str, ...] = ()) -> Iterator[Line]:
        """Yield the header and everything that is known: the beginning of a new file, on a whole second."""
        at = at.replace(microsecond=0)
        self._begins, self._classes, self._next_pod = at, {}, 0
        used = {entry.shape for entry in self._pods.values()}
        self._shapes = {shape: tree for shape, tree in self._shapes.items() if shape in used}
        yield HeaderLine(
            version=VERSION,
            cluster=self.cluster,
            begins=at,
            recorder=self.recorder,
            catalogue=self.catalogue,
            missing=missing,
            guessed=guessed,
            anonymised=self.rewrite is not None,
        )
        for item in self._objects.values():
            yield self._object_line(item, at)
        for entry in self._claims.values():
            entry.line = None
            yield from self._claim_lines(entry, at)
        for pod in self._pods.values():
            yield from self._first_lines(pod, at)

    # ------------------------------------------------------------ changes

    def observe(self, item: AnyObject, at: datetime) -> list[Line]:
        """Return what is new by this state of an object."""
        if isinstance(item, Pod):
            return self._observe_pod(item, at)
        meta = item.metadata
        key = (_KINDS[type(item)], meta.namespace, meta.name)
        known = self._objects.get(key)
        if known is None and isinstance(item, ReplicaSet) and not item.spec.replicas:
            return []  # an old revision of a Deployment: nothing runs under it
        found: list[Line] = []
        if known is None or _meaning(known) != _meaning(item):
            found.append(self._object_line(item, at))
        self._objects[key] = item
        if isinstance(item, NodeClaim):
            found += self._claim_lines(self._claim_entry(item), at)
        return found

    def learn(self, item: AnyObject, at: datetime) -> None:
        """Take in what is there before the first file begins; `begin` writes it."""
        self._begins = self._begins or at
        self.observe(item, at)

    def vanish(self, kind: str, namespace: str, name: str, at: datetime) -> list[Line]:
        """Return what the end of an object adds."""
        if kind == "Pod":
            pod = self._pods.pop((namespace, name), None)
            return [] if pod is None else [self._gone_line(pod, at)]
        if self._objects.pop((kind, namespace, name), None) is None:
            return []
        found: list[Line] = []
        entry = self._claims.pop(name, None) if kind == "NodeClaim" else None
        if entry is not None:
            found += self._claim_lines(entry, at, gone=at)
        gone = GoneLine(at=self._seconds(at), kind=kind, name=self.rename(name), namespace=self._renamed(namespace))
        return [*found, gone]

    def known(self) -> Iterator[Key]:
        """Yield kind, namespace and name of everything that is known."""
        yield from self._objects
        yield from (("Pod", namespace, name) for namespace, name in self._pods)

    # ------------------------------------------------------------ pods

    def _observe_pod(self, pod: Pod, at: datetime) -> list[Line]:
        meta = pod.metadata
        key = (meta.namespace, meta.name)
        found: list[Line] = []
        entry = self._pods.get(key)
        if entry is not None and entry.created != meta.creation_timestamp:
            found.append(self._gone_line(entry, at))  # its end was missed: another pod has its name
            entry = None
        if entry is None:
            entry = self._pods[key] = self._new_entry(pod)
            update_life(entry, pod, at)
            return [*found, *self._first_lines(entry, at)]
        changes = update_life(entry, pod, at)
        if changes:
            found.append(PodLine(id=entry.id, at=self._seconds(at), **self._told(entry, changes)))
        return found

    def _new_entry(self, pod: Pod) -> _PodEntry:
        meta = pod.metadata
        owner, lasting = owner_of(pod)
        shape, tree = _shape(pod, with_owner=lasting)
        if shape not in self._shapes:
            self._shapes[shape] = self.rewrite(tree()) if self.rewrite is not None else tree()
        return _PodEntry(
            id=-1,
            name=self.rename(meta.name),
            shape=shape,
            owner="" if owner is None or lasting else f"{owner.kind}/{self.rename(owner.name)}",
            created=meta.creation_timestamp,
        )

    def _first_lines(self, entry: _PodEntry, at: datetime) -> Iterator[Line]:
        number = self._classes.get(entry.shape)
        if number is None:
            number = self._classes[entry.shape] = len(self._classes)
            yield ClassLine(id=number, pod=self._shapes[entry.shape])
        entry.id = self._next_pod
        self._next_pod += 1
        yield PodLine(
            id=entry.id,
            at=self._seconds(at),
            name=entry.name,
            pod_class=number,
            owner=entry.owner,
            created=self._stamp(entry.created),
            **self._told(entry, ("node", "bound", "ready", "deleting", "finished", "why")),
        )

    def _told(self, entry: _PodEntry, changes: tuple[str, ...]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for name in changes:
            value = getattr(entry, name)
            if name == "node":
                told[name] = self._renamed(value)
            else:
                told[name] = self._stamp(value) if isinstance(value, datetime) else value
        return told

    def _gone_line(self, entry: _PodEntry, at: datetime) -> PodLine:
        second = self._seconds(at)
        return PodLine(id=entry.id, at=second, gone=second, why=entry.why or why_gone(None, ""))

    # ------------------------------------------------------------ all else

    def _object_line(self, item: AnyObject, at: datetime) -> ObjectLine:
        meta = msgspec.structs.replace(item.metadata, resource_version="")
        tree = trimmed(msgspec.structs.replace(item, metadata=meta))
        return ObjectLine(at=self._seconds(at), object=tree if self.rewrite is None else self.rewrite(tree))

    def _claim_entry(self, claim: NodeClaim) -> _ClaimEntry:
        entry = self._claims.get(claim.metadata.name)
        if entry is None:
            entry = self._claims[claim.metadata.name] = _ClaimEntry(claim, None)
        entry.claim = claim
        if entry.price is None:
            labels = claim.metadata.labels
            kind, zone, bought = (labels.get(key, "") for key in (names.INSTANCE_TYPE, names.ZONE, names.CAPACITY_TYPE))
            entry.price = self.price_of(kind, zone, bought) if kind else None
        return entry

    def _claim_lines(self, entry: _ClaimEntry, at: datetime, gone: datetime | None = None) -> Iterator[ClaimLine]:
        life = claim_life(entry.claim, entry.price, gone)
        line = ClaimLine(
            at=0.0,
            name=self.rename(life.name),
            node_pool=self._renamed(life.node_pool),
            node=self._renamed(life.node),
            instance_type=life.instance_type,
            zone=life.zone,
            capacity_type=life.capacity_type,
            price=life.price,
            created=self._stamp(life.created),
            launched=self._stamp(life.launched),
            registered=self._stamp(life.registered),
            ready=self._stamp(life.ready),
            deleting=self._stamp(life.deleting),
            gone=self._stamp(life.gone),
            reason=life.reason,
        )
        if line != entry.line:
            entry.line = line
            yield msgspec.structs.replace(line, at=self._seconds(at))

    def _renamed(self, name: str) -> str:
        return self.rename(name) if name else ""

    def _stamp(self, at: datetime | None) -> float | None:
        return None if at is None else self._seconds(at)

    def _seconds(self, at: datetime) -> float:
        assert self._begins is not None, "begin a file first"
        return (at - self._begins) // _TENTH / 10  # rounded down: one instant is the same in every file


def claim_life(claim: NodeClaim, price: str | None = None, gone: datetime | None = None) -> ClaimLife:
    """Return what is known of the life of a NodeClaim."""
    labels, status = claim.metadata.labels, claim.status
    why = condition(status.conditions, _DISRUPTION_REASON)
    return ClaimLife(
        name=claim.metadata.name,
        node_pool=labels.get(names.NODEPOOL, ""),
        node=status.node_name,
        instance_type=labels.get(names.INSTANCE_TYPE, ""),
        zone=labels.get(names.ZONE, ""),
        capacity_type=labels.get(names.CAPACITY_TYPE, ""),
        price=price,
        created=claim.metadata.creation_timestamp,
        launched=_since(status.conditions, "Launched"),
        registered=_since(status.conditions, "Registered"),
        ready=_since(status.conditions, "Initialized"),
        deleting=claim.metadata.deletion_timestamp,
        gone=gone,
        reason=(why.reason or "") if why is not None and why.status == "True" else "",
    )


def _since(conditions: tuple[Condition, ...], kind: str) -> datetime | None:
    found = condition(conditions, kind)
    return found.last_transition_time if found is not None and found.status == "True" else None


def owner_of(pod: Pod) -> tuple[OwnerReference | None, bool]:
    """Return the controller of a pod, and whether many pods have it, one after the other."""
    owner = next((reference for reference in pod.metadata.owner_references if reference.controller), None)
    return owner, owner is not None and owner.kind in _LASTING


def update_life(entry: _PodEntry | PodLife, pod: Pod, at: datetime) -> tuple[str, ...]:
    """Bring what is known of a pod up to date and return the names of what has changed.

    Where the pod has no stamp of its own for something, the time of observation stands in.
    """
    status, meta = pod.status, pod.metadata
    target = condition(status.conditions, "DisruptionTarget")
    disrupted = target.reason if target is not None and target.status == "True" else None
    found: dict[str, Any] = {}
    if pod.spec.node_name:
        found["node"] = pod.spec.node_name
        found["bound"] = _since(status.conditions, "PodScheduled") or entry.bound or at
    if _since(status.conditions, "Ready") is not None and entry.ready is None:
        found["ready"] = _since(status.conditions, "Ready")
    if meta.deletion_timestamp is not None and entry.deleting is None:
        found["deleting"] = at
        found["why"] = why_gone(disrupted, status.phase)
    if status.phase in ("Succeeded", "Failed") and entry.finished is None:
        found["finished"] = at
        found["why"] = why_gone(disrupted, status.phase)
    changed = tuple(name for name, value in found.items() if getattr(entry, name) != value)
    for name in changed:
        setattr(entry, name, found[name])
    return changed


def _shape(pod: Pod, *, with_owner: bool) -> tuple[bytes, Callable[[], dict[str, Any]]]:
    """Return what a pod shares with others of its owner: a key that is equal for equal ones, and how to write it."""
    meta = pod.metadata
    owners = (
        tuple(
            msgspec.structs.replace(reference, uid="", block_owner_deletion=None)
            for reference in meta.owner_references
            if reference.controller
        )
        if with_owner
        else ()
    )
    shared = Pod(
        metadata=ObjectMeta(
            namespace=meta.namespace,
            labels={key: value for key, value in meta.labels.items() if key not in _LABELS_OF_ONE},
            annotations=meta.annotations,
            owner_references=owners,
        ),
        spec=msgspec.structs.replace(resized_spec(pod), node_name=""),
    )
    return msgspec.json.encode(shared), lambda: trimmed(shared)


def _meaning(item: AnyObject) -> AnyObject:
    """Return the object without what changes all the time and means nothing to a replay."""
    meta = msgspec.structs.replace(item.metadata, resource_version="", generation=0)
    item = msgspec.structs.replace(item, metadata=meta)
    if isinstance(item, NodeClaim):
        status: NodeClaimStatus = msgspec.structs.replace(item.status, last_pod_event_time=None)
        return msgspec.structs.replace(item, status=status)
    if isinstance(item, PodDisruptionBudget):
        return msgspec.structs.replace(item, status=PodDisruptionBudgetStatus())
    if isinstance(item, NodePool):
        return msgspec.structs.replace(item, status=NodePoolStatus())
    return item
