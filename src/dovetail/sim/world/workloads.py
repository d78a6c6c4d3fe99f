"""The workloads of the simulated cluster: ReplicaSets (of Deployments), StatefulSets, Jobs and DaemonSets.

Each keeps its desired number of pods, as Kubernetes' own controllers do: a terminating pod is replaced at once by a
ReplicaSet, after it is gone by a StatefulSet, and retried by a Job. A replacement continues the line of the pod it
replaces, so that a run can count how often one replica was moved. Doesn't know where pods go.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from hashlib import sha256
from typing import Any, Final, cast

from msgspec.structs import replace

from dovetail.model import names
from dovetail.model.objects import (
    DaemonSet,
    LabelSelectorSpec,
    Node,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplate,
    ReplicaSet,
    StatefulSet,
    Toleration,
    WorkloadSpec,
    is_true,
)
from dovetail.sim.world.clock import SECOND, Clock, Dice, Span
from dovetail.sim.world.kubelet import Kubelets
from dovetail.sim.world.placement.matching import admitted_by_taints, node_fits_selectors
from dovetail.sim.world.placement.shapes import PodShape, Shapes, shape_of
from dovetail.sim.world.steps import ENDED, LEAVING, READY, WENT
from dovetail.sim.world.store import Change, WorldStore

_SYNC: Final = SECOND // 10
_TIDY: Final = 5 * SECOND
_PENDING: Final = PodStatus(phase="Pending")
_DAEMON_TOLERATIONS: Final = tuple(
    Toleration(key=f"node.kubernetes.io/{name}", operator="Exists", effect=effect)
    for name, effect in (
        ("not-ready", "NoExecute"),
        ("not-ready", "NoSchedule"),
        ("unreachable", "NoExecute"),
        ("unschedulable", "NoSchedule"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload as a scenario defines it.

    `duration` is for Jobs: how long a pod works. `surges`: a Deployment of the same name makes it roll (`rollouts`).
    """

    kind: str
    name: str
    namespace: str = "default"
    replicas: int = 1
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    spec: PodSpec = field(default_factory=PodSpec)
    start: Span | None = None
    stop: Span | None = None
    duration: Span | None = None
    surges: bool = False

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True, eq=False)
class _Set:
    """A workload at work: its pods that count, and lines that wait for a new pod."""

    workload: Workload
    owner: OwnerReference
    shape: PodShape
    desired: int
    pods: dict[str, None] = field(default_factory=dict)
    vacant: deque[str] = field(default_factory=deque)
    made: int = 0
    asked: bool = False
    done: int = 0
    extra: int = 0
    own: dict[str, PodShape] = field(default_factory=dict)
    """What single pods of a StatefulSet keep when they are made again, such as their volumes."""


class Workloads:
    """All workloads, and the lines of their pods."""

    def __init__(self, store: WorldStore, clock: Clock, shapes: Shapes, kubelets: Kubelets, dice: Dice) -> None:
        self.store = store
        self.clock = clock
        self.shapes = shapes
        self.kubelets = kubelets
        self.dice = dice
        self.line_of: dict[str, str] = {}
        self.ended: set[str] = set()
        self.on_job_done: Callable[[str], None] = lambda key: None
        self._sets: dict[str, _Set] = {}
        self._set_of: dict[str, _Set] = {}
        self._daemons: dict[str, _Set] = {}
        self._lines = 0
        self._has_jobs = False
        store.listen_to_pods(self._on_pod_change, WENT | LEAVING | ENDED)
        store.listen_to_pods(self._on_start, READY)
        store.listen(self._on_node_change, "Node")

    # ------------------------------------------------------------ asking

    def add(self, workload: Workload) -> None:
        """Add a workload; its pods follow."""
        uid = self.store.new_uid()
        version = "batch/v1" if workload.kind == "Job" else "apps/v1"
        owner = OwnerReference(api_version=version, kind=workload.kind, name=workload.name, uid=uid, controller=True)
        entry = _Set(workload, owner, _template_shape(workload, owner), workload.replicas)
        self._write(entry, uid)
        if workload.kind == "DaemonSet":
            self._daemons[workload.key] = entry
            for name in sorted(self.store.nodes):
                self._daemon_pod(entry, self.store.nodes[name])
        else:
            self._sets[f"{workload.kind}/{workload.key}"] = entry
            self._has_jobs = self._has_jobs or workload.kind == "Job"
            self._ask(entry)

    def adopt(self, pod: Pod) -> None:
        """Take over a pod that was there before: its owner, or one made for it, recreates it when it goes.

        Each pod keeps its own shape. New pods of its owner get what all of its pods have in common: a mark that a
        person put on one pod goes with that pod.
        """
        key = pod.metadata.key
        owner = next((entry for entry in pod.metadata.owner_references if entry.kind), None)
        if owner is not None and owner.kind in ("DaemonSet", "Node"):
            self.store.put(pod)
            return
        if owner is None:
            owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=pod.metadata.name, controller=True)
        kind = owner.kind if owner.kind in ("ReplicaSet", "StatefulSet") else "ReplicaSet"
        name = f"{kind}/{pod.metadata.namespace}/{owner.name}"
        entry = self._sets.get(name)
        if entry is None:
            work = Workload(
                kind=kind,
                name=owner.name,
                namespace=pod.metadata.namespace,
                replicas=0,
                labels=pod.metadata.labels,
                annotations=pod.metadata.annotations,
                spec=replace(pod.spec, node_name=""),
            )
            entry = self._sets[name] = _Set(work, owner, _template_shape(work, owner), 0)
        else:
            self._share(entry, pod)
        shape = self.shapes.of(key, pod)
        entry.desired += 1
        entry.pods[key] = None
        if kind == "StatefulSet":
            entry.own[key] = shape
        self._lines += 1
        self.line_of[key] = key
        self._set_of[key] = entry
        self.store.put(pod)

    def _share(self, entry: _Set, pod: Pod) -> None:
        """Leave only what one more pod of a set also has in the labels and annotations of its new pods."""
        work, meta = entry.workload, pod.metadata
        labels, annotations = _common(work.labels, meta.labels), _common(work.annotations, meta.annotations)
        if labels is not work.labels or annotations is not work.annotations:
            entry.workload = with_fields(work, labels=labels, annotations=annotations)
            entry.shape = _template_shape(entry.workload, entry.owner)

    def adopt_daemons(self, found: DaemonSet) -> None:
        """Take over a DaemonSet: nodes that join later get its pods; those that are there have theirs."""
        meta, template = found.metadata, found.spec.template
        if not template.spec.containers:
            return  # the capture holds no template
        work = Workload(
            kind="DaemonSet",
            name=meta.name,
            namespace=meta.namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            spec=template.spec,
        )
        owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name=meta.name, uid=meta.uid, controller=True)
        self._daemons[work.key] = _Set(work, owner, _template_shape(work, owner), 0)

    def scale(self, kind: str, key: str, replicas: int) -> None:
        """Set the desired number of pods."""
        entry = self._sets[f"{kind}/{key}"]
        if entry.desired != replicas:
            entry.desired = replicas
            self._write(entry, entry.owner.uid)
            self._ask(entry)

    def remove(self, kind: str, key: str) -> None:
        """Take a workload out of the cluster, with its pods."""
        self.scale(kind, key, 0)

    def respec(self, kind: str, key: str, spec: PodSpec) -> None:
        """Make the next pods of a workload with another spec, as a webhook or an autoscaler would."""
        entry = self._sets[f"{kind}/{key}"]
        entry.shape = _template_shape(with_fields(entry.workload, spec=spec), entry.owner)

    def desired(self, kind: str, key: str) -> int:
        """Return the desired number of pods."""
        return self._sets[f"{kind}/{key}"].desired

    def pods_of(self, kind: str, key: str) -> list[str]:
        """Return the pods of a workload, oldest first."""
        return list(self._sets[f"{kind}/{key}"].pods)

    def exceed(self, kind: str, key: str, extra: int) -> None:
        """Allow a workload more pods than desired, as a rolling update does."""
        entry = self._sets[f"{kind}/{key}"]
        entry.extra = extra
        self._ask(entry)

    def retire(self, pod: str) -> None:
        """Stop one pod without a replacement: another one has already taken its place."""
        self.ended.add(self.line_of[pod])
        self.kubelets.stop(pod)

    def has(self, kind: str, key: str) -> bool:
        """Return whether there is such a workload."""
        return f"{kind}/{key}" in self._sets

    def keys(self, kind: str) -> list[str]:
        """Return the workloads of a kind."""
        prefix = f"{kind}/"
        return [key.removeprefix(prefix) for key in self._sets if key.startswith(prefix)]

    def _write(self, entry: _Set, uid: str) -> None:
        kinds: dict[str, type[DaemonSet] | type[ReplicaSet] | type[StatefulSet]] = {
            "DaemonSet": DaemonSet,
            "ReplicaSet": ReplicaSet,
            "StatefulSet": StatefulSet,
        }
        kind = kinds.get(entry.workload.kind)
        if kind is None:
            return
        work = entry.workload
        self.store.put(
            kind(
                metadata=ObjectMeta(
                    name=work.name,
                    namespace=work.namespace,
                    uid=uid,
                    labels=work.labels,
                    owner_references=(OwnerReference(kind="Deployment", name=work.name, api_version="apps/v1"),)
                    if work.surges
                    else (),
                ),
                spec=WorkloadSpec(
                    replicas=None if kind is DaemonSet else entry.desired,
                    selector=LabelSelectorSpec(match_labels=work.labels),
                    template=PodTemplate(metadata=ObjectMeta(labels=work.labels), spec=entry.shape.spec),
                ),
            )
        )

    # ------------------------------------------------------------ keeping the number

    def _ask(self, entry: _Set) -> None:
        if not entry.asked:
            entry.asked = True
            self.clock.after(_SYNC, self._sync, entry)

    def _sync(self, entry: _Set) -> None:
        entry.asked = False
        kind = entry.workload.kind
        if kind == "StatefulSet":
            self._sync_stateful(entry)
            return
        wanted = entry.desired + entry.extra - entry.done
        while len(entry.pods) < wanted:
            name = f"{entry.workload.name}-{entry.made:05d}"
            key = f"{entry.workload.namespace}/{name}"
            if key in self.store.pods:
                entry.made += 1
                continue
            self._make(entry, name, key)
        surplus = len(entry.pods) - wanted
        if surplus > 0:
            for key in self._victims(entry, surplus):
                line = self.line_of[key]
                self.ended.add(line)
                self.kubelets.stop(key)

    def _sync_stateful(self, entry: _Set) -> None:
        work = entry.workload
        for ordinal in range(entry.desired):
            name = f"{work.name}-{ordinal}"
            key = f"{work.namespace}/{name}"
            if key not in self.store.pods:
                self._make(entry, name, key)
        for key in sorted(entry.pods):
            if int(key.rsplit("-", 1)[1]) >= entry.desired:
                self.ended.add(self.line_of[key])
                self.kubelets.stop(key)

    def _make(self, entry: _Set, name: str, key: str) -> None:
        work = entry.workload
        if work.kind == "StatefulSet":
            line = key
        elif entry.vacant:
            line = entry.vacant.popleft()
        else:
            self._lines += 1
            line = f"{work.key}#{self._lines}"
        entry.made += 1
        entry.pods[key] = None
        self.line_of[key] = line
        self._set_of[key] = entry
        shape = entry.own.get(key, entry.shape) if entry.own else entry.shape
        self.shapes.set(key, shape)
        self.store.put_pod(self._pod(entry, name, shape), key)

    def _pod(self, entry: _Set, name: str, shape: PodShape, node: str = "") -> Pod:
        work = entry.workload
        return Pod(
            metadata=ObjectMeta(
                name=name,
                namespace=work.namespace,
                labels=work.labels,
                annotations=work.annotations,
                creation_timestamp=self.clock.instant(),
                owner_references=(entry.owner,),
            ),
            spec=replace(shape.spec, node_name=node) if node else shape.spec,
            status=_PENDING,
        )

    def _victims(self, entry: _Set, count: int) -> list[str]:
        """Return the pods that a ReplicaSet gives up first: not bound, not ready, cheap, doubled up, young."""
        pods = self.store.pods
        doubled: dict[str, int] = {}
        for key in entry.pods:
            node = pods[key].spec.node_name
            doubled[node] = doubled.get(node, 0) + 1
        now = self.clock.now

        def rank(key: str) -> tuple[Any, ...]:
            pod = pods[key]
            node = pod.spec.node_name
            made = pod.metadata.creation_timestamp
            age = now - self.clock.since_start(made) if made is not None else 0
            return (
                bool(node),
                is_true(pod.status.conditions, "Ready"),
                _deletion_cost(pod),
                -doubled[node],
                age.bit_length(),
                sha256(f"{self.dice.seed}/{pod.metadata.uid}".encode()).digest(),  # by uid, which is chance
            )

        return sorted(entry.pods, key=rank)[:count]

    # ------------------------------------------------------------ what changed

    def _on_node_change(self, change: Change) -> None:
        if change.old is None and change.new is not None:
            for name in sorted(self._daemons):
                self._daemon_pod(self._daemons[name], change.new)  # type: ignore[arg-type]

    def _on_pod_change(self, change: Change) -> None:
        entry = self._set_of.get(change.key)
        if entry is not None:
            self._follow_pod(entry, change.key, cast("Pod | None", change.new))
        if change.new is None:
            self.shapes.drop(change.key)

    def _on_start(self, change: Change) -> None:
        """Begin the work of a Job's pod that has started."""
        entry = self._set_of.get(change.key) if self._has_jobs else None
        if entry is not None and entry.workload.kind == "Job":
            old, new = cast("Pod | None", change.old), cast("Pod", change.new)
            if new.status.phase == "Running" and (old is None or old.status.phase != "Running"):
                self._work(entry, change.key, new)

    def _follow_pod(self, entry: _Set, key: str, new: Pod | None) -> None:
        kind = entry.workload.kind
        if new is not None and new.status.phase == "Succeeded" and kind == "Job":
            if key in entry.pods:
                del entry.pods[key]
                entry.done += 1
                self.ended.add(self.line_of[key])
                self.clock.after(_TIDY, self.kubelets.stop, key)
                if entry.done >= entry.desired:
                    self._sets.pop(f"Job/{entry.workload.key}", None)
                    self.on_job_done(entry.workload.key)
            return
        going = new is None or new.metadata.deletion_timestamp is not None or new.status.phase == "Failed"
        if going and key in entry.pods and (kind != "StatefulSet" or new is None):
            del entry.pods[key]
            line = self.line_of[key]
            if line in self.ended:
                pass
            elif kind != "StatefulSet":
                entry.vacant.append(line)
            self._ask(entry)
        if new is None:
            self._set_of.pop(key, None)
            line = self.line_of.pop(key, "")
            if line in self.ended:
                self.ended.discard(line)

    def _work(self, entry: _Set, key: str, pod: Pod) -> None:
        if entry.workload.duration is not None:
            wait = entry.workload.duration.draw(self.dice.of("work", self.line_of[key]))
            self.clock.after(wait, self._worked, key, pod.metadata.uid)

    def _worked(self, key: str, uid: str) -> None:
        pod = self.store.pods.get(key)
        if pod is not None and pod.metadata.uid == uid and pod.metadata.deletion_timestamp is None:
            self.kubelets.finish(key)

    def _daemon_pod(self, entry: _Set, node: Node) -> None:
        spec = entry.shape.spec
        name = node.metadata.name
        if not node_fits_selectors(spec, node.metadata.labels, name) or not admitted_by_taints(
            spec.tolerations, tuple(t for t in node.spec.taints if t.key not in _startup_keys(node))
        ):
            return
        pod_name = f"{entry.workload.name}-{name}"
        key = f"{entry.workload.namespace}/{pod_name}"
        if key in self.store.pods:
            return
        self.shapes.set(key, entry.shape)
        self.kubelets.start(
            key, self.store.put_pod(self._pod(entry, pod_name, entry.shape, node=name), key), entry.shape
        )


def _startup_keys(node: Node) -> tuple[str, ...]:
    return tuple(taint.key for taint in node.spec.taints if taint.key.startswith("node.kubernetes.io/"))


def _template_shape(work: Workload, owner: OwnerReference) -> PodShape:
    """Return the shape of the pods that a workload makes."""
    template = Pod(
        metadata=ObjectMeta(
            namespace=work.namespace, labels=work.labels, annotations=work.annotations, owner_references=(owner,)
        ),
        spec=_with_daemon_tolerations(work.spec) if work.kind == "DaemonSet" else work.spec,
    )
    selector = LabelSelectorSpec(match_labels=work.labels)
    counted = selector if work.kind in ("ReplicaSet", "StatefulSet") else None
    return shape_of(template, start=work.start, stop=work.stop, default_selector=counted)


def _common(some: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    return some if some == others else {key: value for key, value in some.items() if others.get(key) == value}


def _with_daemon_tolerations(spec: PodSpec) -> PodSpec:
    return replace(spec, tolerations=(*spec.tolerations, *_DAEMON_TOLERATIONS))


def _deletion_cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(names.POD_DELETION_COST, "0"))
    except ValueError:
        return 0
