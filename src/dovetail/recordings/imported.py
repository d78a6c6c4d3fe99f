"""Makes a recording of the series of kube-state-metrics and Karpenter: objects over time, as a recorder would see them.

What a series says with its own time (created, bound, ready) is exact; what only begins or ends between two samples is
placed in the middle. What no series says comes from a capture; what that does not have either is guessed and named.
Pure: takes runs (`recordings.series`), returns events for `recordings.fold`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from dovetail.api.findings import InputError
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.objects import (
    KINDS,
    AnyObject,
    BudgetSpec,
    Condition,
    Container,
    DaemonSet,
    DisruptionSpec,
    Node,
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeClaimTemplate,
    NodePool,
    NodePoolSpec,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplate,
    ReplicaSet,
    ResourceList,
    ResourceRequirements,
    SelectorRequirement,
    StatefulSet,
    Taint,
    Toleration,
    WorkloadSpec,
)
from dovetail.recordings.fold import Fold
from dovetail.recordings.lines import Line
from dovetail.recordings.read import RecordedChange
from dovetail.recordings.series import KARPENTER_LABELS, NODE_LABELS, SeriesRuns, ValueRun
from dovetail.recordings.store import new_file

ALLOW_LIST: Final = (
    "--metric-labels-allowlist=nodes=[karpenter.sh/nodepool,node.kubernetes.io/instance-type,"
    "topology.kubernetes.io/zone,karpenter.sh/capacity-type]"
)
_KINDS: Final = {struct: kind for kind, struct in KINDS.items()}
Series = Mapping[str, Sequence[SeriesRuns]]
Key = tuple[str, str, str]
PodKey = tuple[str, str, str]
_SETS: Final[dict[str, type[ReplicaSet] | type[StatefulSet]]] = {"ReplicaSet": ReplicaSet, "StatefulSet": StatefulSet}
_REASONS: Final = {"underutilized": "Underutilized", "empty": "Empty", "drifted": "Drifted", "expired": "Expired"}
_OF_THE_SYSTEM: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/", "dovetail.dev/")
_LAUNCH_MOST: Final = 600.0
_BATCH_SECONDS: Final = 2.0
_GAP_STEPS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedStretch:
    """A time without a gap, everything that happened in it in order, and what is gone when it begins."""

    begins: datetime
    ends: datetime
    events: tuple[RecordedChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What the series give: stretches between gaps, what is missing and what was guessed, and all nodes."""

    stretches: tuple[ImportedStretch, ...]
    missing: tuple[str, ...]
    guessed: tuple[str, ...]
    nodes: tuple[Node, ...]


@dataclass(slots=True)
class _PodFacts:
    key: PodKey
    owner: tuple[str, str] = ("", "")
    node: str = ""
    priority_class: str = ""
    first: float = 0.0
    last: float = 0.0
    created: float | None = None
    bound: float | None = None
    ready: float | None = None
    deleting: float | None = None
    finished: float | None = None
    phase: str = ""
    requests: dict[str, ResourceList] = field(default_factory=dict)
    init_requests: dict[str, ResourceList] = field(default_factory=dict)


@dataclass(slots=True)
class _NodeFacts:
    name: str
    first: float
    last: float
    provider_id: str = ""
    created: float = 0.0
    ready: float | None = None
    tainted: float | None = None
    deleting: float | None = None
    reason: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    capacity: ResourceList = field(default_factory=dict)
    allocatable: ResourceList = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    @property
    def pool(self) -> str:
        """Return the NodePool, empty for a node that is not Karpenter's."""
        return self.labels.get(names.NODEPOOL, "")


def import_series(series: Series, step: float, capture: Cluster) -> Import:
    """Return what the series and the capture say; raise InputError if they can't make a recording."""
    return _Importer(series, step, capture).run()


@dataclass(slots=True)
class _Importer:
    """One import: the series, the capture, and what was read from them."""

    series: Series
    step: float
    capture: Cluster
    guessed: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    _nodes: dict[str, _NodeFacts] = field(default_factory=dict)
    _pods: dict[PodKey, _PodFacts] = field(default_factory=dict)
    _classes: dict[tuple[str, str, str, str], tuple[ObjectMeta, PodSpec]] = field(default_factory=dict)
    _ends: float = 0.0

    def run(self) -> Import:
        self._check()
        presence = sorted((run.first, run.last) for each in self.series["nodes"] for run in each.runs)
        spans = _joined_spans(presence, _GAP_STEPS * self.step)
        self._ends = spans[-1][1]
        self._read_nodes()
        self._read_pods()
        self._give_reasons()
        delay = self._launch_delay()
        self._note()
        events = [*self._node_events(delay), *self._set_events(), *self._pod_events()]
        standing = [*self._captured(), *self._pools(), *self._daemons()]
        stretches = tuple(self._stretches(spans, standing, events))
        nodes = tuple(self._node(facts, facts.last) for facts in self._nodes.values())
        return Import(
            stretches=stretches, missing=tuple(sorted(self.missing)), guessed=tuple(sorted(self.guessed)), nodes=nodes
        )

    # ------------------------------------------------------------ what must be there

    def _check(self) -> None:
        if not self.series["nodes"] or not self.series["pods"]:
            raise InputError(
                "Prometheus has no series of kube-state-metrics (kube_node_info, kube_pod_info) for this time; install "
                "kube-state-metrics, or check --match and --for"
            )
        if not self.series["podRequests"]:
            raise InputError(
                "there are no requests of pods (kube_pod_container_resource_requests): let kube-state-metrics collect "
                "pods and don't drop this series when it is scraped"
            )
        sets = {kind for kind, _ in (_owner(each.by_name) for each in self.series["pods"])}
        for kind, name, metric in (
            ("ReplicaSet", "replicaSets", "kube_replicaset_spec_replicas"),
            ("StatefulSet", "statefulSets", "kube_statefulset_replicas"),
        ):
            if kind in sets and not self.series[name]:
                raise InputError(
                    f"there are no sizes of {kind}s ({metric}): let kube-state-metrics collect {kind.lower()}s "
                    "(--resources) and don't drop this series when it is scraped"
                )

    def _check_types(self) -> None:
        unknown = [facts.name for facts in self._nodes.values() if names.INSTANCE_TYPE not in facts.labels]
        if not any(facts.pool for facts in self._nodes.values()):
            raise InputError(
                "no node's pool and instance type can be known: scrape Karpenter (karpenter_nodes_allocatable), or "
                f"start kube-state-metrics with {ALLOW_LIST}"
            )
        if unknown and len(unknown) > len(self._nodes) // 10:
            raise InputError(
                f"the instance type of {len(unknown)} of {len(self._nodes)} nodes can't be known ({unknown[0]}): "
                f"scrape Karpenter (karpenter_nodes_allocatable), or start kube-state-metrics with {ALLOW_LIST}"
            )
        if unknown:
            self.guessed.add(f"{len(unknown)} nodes without a known type are left out")
            for name in unknown:
                del self._nodes[name]

    # ------------------------------------------------------------ nodes

    def _read_nodes(self) -> None:
        for each in self.series["nodes"]:
            labels = each.by_name
            facts = self._nodes.setdefault(labels["node"], _NodeFacts(labels["node"], each.first, each.last))
            facts.first, facts.last = min(facts.first, each.first), max(facts.last, each.last)
            facts.provider_id = labels.get("provider_id", facts.provider_id)
            facts.created = facts.first
        for node in self.capture.nodes:
            if node.metadata.name in self._nodes:
                known = {*NODE_LABELS.values()}
                own = {key: value for key, value in node.metadata.labels.items() if key in known}
                self._nodes[node.metadata.name].labels |= own
        for facts, each in self._of_nodes("nodeLabels"):
            facts.labels |= {NODE_LABELS[key]: value for key, value in each.labels if key in NODE_LABELS}
        for facts, each in self._of_nodes("karpenterNodes", "node_name"):
            facts.labels |= {KARPENTER_LABELS[key]: value for key, value in each.labels if key in KARPENTER_LABELS}
        for facts, each in self._of_nodes("nodeCreated"):
            facts.created = each.value
        for name in ("nodeCapacity", "nodeAllocatable"):
            for facts, each in self._of_nodes(name):
                wanted = facts.capacity if name == "nodeCapacity" else facts.allocatable
                wanted |= self._amount(each)
        for facts, each in self._of_nodes("nodeReady"):
            facts.ready = max(facts.created, each.first - self.step / 2)
        for facts, each in self._of_nodes("nodeTaints"):
            self._take_taint(facts, each)
        for facts, each in self._of_nodes("nodeDeleting"):
            facts.deleting = each.value
        self._check_types()
        for facts in self._nodes.values():
            if facts.deleting is None and self._is_over(facts.last):
                facts.deleting = facts.tainted or facts.last
                self.guessed.add("when nodes began to leave (kube_node_deletion_timestamp is missing)")
            facts.labels.setdefault("kubernetes.io/arch", "amd64")
            facts.labels.setdefault("kubernetes.io/os", "linux")
            facts.labels[names.HOSTNAME] = facts.name

    def _of_nodes(self, name: str, label: str = "node") -> Iterator[tuple[_NodeFacts, SeriesRuns]]:
        for each in self.series.get(name, ()):
            facts = self._nodes.get(each.by_name.get(label, ""))
            if facts is not None:
                yield facts, each

    @staticmethod
    def _take_taint(facts: _NodeFacts, each: SeriesRuns) -> None:
        labels = each.by_name
        taint = Taint(key=labels.get("key", ""), value=labels.get("value", ""), effect=labels.get("effect", ""))
        if taint.key == names.DISRUPTED_TAINT:
            facts.tainted = each.first
        elif not taint.key.startswith(_OF_THE_SYSTEM):
            facts.taints = (*facts.taints, taint)

    def _amount(self, each: SeriesRuns) -> ResourceList:
        name = self._resource(each.by_name.get("resource", ""))
        if name == "cpu":
            return {name: f"{round(each.value * 1000)}m"}
        return {name: str(round(each.value))} if name else {}

    def _resource(self, name: str) -> str:
        """Return the resource behind a label, in which every sign but letters and digits is an underscore."""
        if name in ("cpu", "memory", "pods"):
            return name
        if name == "ephemeral_storage":
            return "ephemeral-storage"
        for node in self.capture.nodes:
            for known in node.status.capacity:
                if "".join(letter if letter.isalnum() else "_" for letter in known) == name:
                    return known
        vendor, _, device = name.rpartition("_com_")
        if vendor:
            return f"{vendor.replace('_', '.')}.com/{device.replace('_', '-')}"
        return ""

    def _give_reasons(self) -> None:
        """Match the nodes that left with Karpenter's counters; without these, by whether pods were on them."""
        left = sorted(
            (facts for facts in self._nodes.values() if facts.pool and facts.deleting is not None),
            key=lambda facts: (facts.deleting or 0.0, facts.name),
        )
        if not self.series["disrupted"]:
            if left:
                self.guessed.add("why nodes left (karpenter_nodeclaims_disrupted_total is missing)")
            last: dict[str, float] = {}
            for pod in self._pods.values():
                if pod.owner[0] not in ("DaemonSet", "Node"):
                    last[pod.node] = max(last.get(pod.node, 0.0), pod.last)
            for facts in left:
                loaded = last.get(facts.name, 0.0) >= (facts.deleting or facts.last) - self.step
                facts.reason = "Underutilized" if loaded else "Empty"
            return
        for at, count, pool, reason in sorted(self._rises()):
            near = [
                facts
                for facts in left
                if facts.pool == pool and not facts.reason and abs((facts.deleting or 0.0) - at) <= 2 * self.step + 15
            ]
            near.sort(key=lambda facts: (abs((facts.deleting or 0.0) - at), facts.name))
            for facts in near[:count]:
                facts.reason = _REASONS.get(reason.lower(), "")

    def _rises(self) -> Iterator[tuple[float, int, str, str]]:
        begins = min(each.first for each in self.series["nodes"])
        for each in self.series["disrupted"]:
            before: float | None = 0.0 if each.first > begins + 2 * self.step else None
            for run in each.runs:
                grown = run.value if before is None or run.value < before else run.value - before
                if before is not None and grown > 0:
                    yield (
                        run.first - self.step / 2,
                        round(grown),
                        each.by_name.get("nodepool", ""),
                        each.by_name.get("reason", ""),
                    )
                before = run.value

    def _launch_delay(self) -> float | None:
        """Return how long machines took from the pending pod to the node, where pods waited for one; else None."""
        earliest: dict[str, float] = {}
        for pod in self._pods.values():
            facts = self._nodes.get(pod.node)
            if facts is None or pod.created is None or pod.owner[0] in ("DaemonSet", "Node"):
                continue
            if 0 < facts.created - pod.created < _LAUNCH_MOST:
                earliest[facts.name] = min(earliest.get(facts.name, pod.created), pod.created)
        delays = [self._nodes[name].created - created for name, created in earliest.items()]
        return max(0.0, median(delays) - _BATCH_SECONDS) if delays else None

    def _node(self, facts: _NodeFacts, at: float) -> Node:
        ready = facts.ready is not None and facts.ready <= at
        conditions = (Condition(type="Ready", status="True", last_transition_time=_when(facts.ready)),) if ready else ()
        leaving = facts.deleting is not None and facts.deleting <= at
        meta = self._meta(facts, facts.created, leaving=leaving)
        if facts.pool:
            marks = {names.REGISTERED_LABEL: "true"} | ({names.INITIALIZED_LABEL: "true"} if ready else {})
            meta = msgspec.structs.replace(meta, labels=facts.labels | marks)
        return Node(
            metadata=meta,
            spec=NodeSpec(provider_id=facts.provider_id or f"imported:///{facts.name}", taints=facts.taints),
            status=NodeStatus(
                capacity=facts.capacity, allocatable=facts.allocatable or facts.capacity, conditions=conditions
            ),
        )

    def _claim(self, facts: _NodeFacts, at: float, delay: float | None) -> NodeClaim:
        created = facts.created - (delay or 0.0)
        conditions = [
            Condition(type=names.CONDITION_REGISTERED, status="True", last_transition_time=_when(facts.created))
        ]
        if delay is not None:
            conditions.append(Condition(type="Launched", status="True", last_transition_time=_when(created)))
        if facts.ready is not None and facts.ready <= at:
            conditions.append(
                Condition(type=names.CONDITION_INITIALIZED, status="True", last_transition_time=_when(facts.ready))
            )
        leaving = facts.deleting is not None and facts.deleting <= at
        if leaving and facts.reason:
            when = _when(facts.deleting)
            conditions.append(
                Condition(type="DisruptionReason", status="True", reason=facts.reason, last_transition_time=when)
            )
        pool = next((pool for pool in self.capture.node_pools if pool.metadata.name == facts.pool), None)
        template = pool.spec.template.spec if pool is not None else NodeClaimSpec()
        marks = {} if pool is None else pool.metadata.annotations
        hashes = {key: marks[key] for key in (names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION) if key in marks}
        node = self._node(facts, at)
        return NodeClaim(
            metadata=msgspec.structs.replace(self._meta(facts, created, leaving=leaving), annotations=hashes),
            spec=template,
            status=NodeClaimStatus(
                node_name=facts.name,
                provider_id=node.spec.provider_id,
                capacity=facts.capacity,
                allocatable=node.status.allocatable,
                conditions=tuple(conditions),
            ),
        )

    @staticmethod
    def _meta(facts: _NodeFacts, created: float, *, leaving: bool) -> ObjectMeta:
        return ObjectMeta(
            name=facts.name,
            uid=f"imported-{facts.name}",
            labels=facts.labels,
            creation_timestamp=_when(created),
            deletion_timestamp=_when(facts.deleting) if leaving else None,
        )

    def _node_events(self, delay: float | None) -> Iterator[RecordedChange]:
        if delay is None:
            self.guessed.add("how long machines take to start")
        for facts in self._nodes.values():
            times = {facts.created, facts.ready, facts.deleting}
            gone = self._gone(facts.last)
            for at in sorted(time for time in times if time is not None and (gone is None or time < gone)):
                yield _event(at, self._node(facts, at))
                if facts.pool:
                    yield _event(at, self._claim(facts, at, delay))
            if gone is not None:
                kinds = ("Node", "NodeClaim") if facts.pool else ("Node",)
                yield from (_vanish(gone, kind, "", facts.name) for kind in kinds)

    def _is_over(self, last: float) -> bool:
        return last < self._ends - self.step / 2

    def _gone(self, last: float) -> float | None:
        return last + self.step / 2 if self._is_over(last) else None

    # ------------------------------------------------------------ pods

    def _read_pods(self) -> None:
        for each in self.series["pods"]:
            labels = each.by_name
            key = _pod_key(labels)
            facts = self._pods.get(key)
            if facts is None:
                facts = self._pods[key] = _PodFacts(key, first=each.first, last=each.last, owner=_owner(labels))
            facts.first, facts.last = min(facts.first, each.first), max(facts.last, each.last)
            facts.node = labels.get("node", facts.node)
            facts.priority_class = labels.get("priority_class", facts.priority_class)
        for name, attribute in (("podCreated", "created"), ("podBound", "bound"), ("podFinished", "finished")):
            for facts, each in self._of_pods(name):
                setattr(facts, attribute, each.value)
        for facts, each in self._of_pods("podReady"):
            facts.ready = each.runs[0].value
        for facts, each in self._of_pods("podDeleting"):
            facts.deleting = max(facts.created or 0.0, min(each.first - self.step / 2, each.value))
        for facts, each in self._of_pods("podPhase"):
            facts.phase = each.by_name.get("phase", "")
            facts.finished = facts.finished or each.first
        for name in ("podRequests", "podInitRequests"):
            for facts, each in self._of_pods(name):
                wanted = facts.requests if name == "podRequests" else facts.init_requests
                wanted.setdefault(each.by_name.get("container", ""), {}).update(self._amount(each))
        for facts in self._pods.values():
            if facts.created is None:
                facts.created = facts.first
                self.guessed.add("when pods were created (kube_pod_created is missing)")
            if facts.node and facts.bound is None:
                facts.bound = facts.first
                self.guessed.add("when pods were bound (kube_pod_status_scheduled_time is missing)")

    def _of_pods(self, name: str) -> Iterator[tuple[_PodFacts, SeriesRuns]]:
        for each in self.series.get(name, ()):
            facts = self._pods.get(_pod_key(each.by_name))
            if facts is not None:
                yield facts, each

    def _pod_events(self) -> Iterator[RecordedChange]:
        for facts in self._pods.values():
            gone = self._gone(facts.last)
            node = self._nodes.get(facts.node)
            if gone is not None and node is not None:
                end = self._gone(node.last)
                gone = gone if end is None else min(gone, end)
            created = facts.created or facts.first
            self._order_ends(facts, node)
            if gone is not None and facts.deleting is not None:
                gone = max(gone, facts.deleting + 0.1)
            times = {created, facts.bound, facts.ready, facts.deleting, facts.finished}
            for at in sorted(time for time in times if time is not None and (gone is None or time < gone)):
                yield _event(at, self._pod(facts, at))
            if gone is not None:
                yield _vanish(max(gone, created), "Pod", facts.key[0], facts.key[1])

    def _order_ends(self, facts: _PodFacts, node: _NodeFacts | None) -> None:
        """Let a pod that may have ended after its node began to leave have done so: samples are too far apart to tell.

        A node that was removed because it was empty evicted none.
        """
        if node is None or node.deleting is None or node.reason == "Empty":
            return
        if facts.deleting is not None:
            if facts.deleting < node.deleting <= facts.deleting + self.step / 2:
                facts.deleting = node.deleting
        elif self._is_over(facts.last) and facts.last <= node.deleting <= facts.last + self.step:
            facts.deleting = node.deleting

    def _pod(self, facts: _PodFacts, at: float) -> Pod:
        namespace, name, uid = facts.key
        meta, spec = self._class_of(facts)
        kind, owner = facts.owner
        references = (OwnerReference(kind=kind, name=owner, controller=True),) if kind else ()
        conditions = [
            Condition(type=what, status="True", last_transition_time=_when(time))
            for what, time in (("PodScheduled", facts.bound), ("Ready", facts.ready))
            if time is not None and time <= at
        ]
        ended = facts.finished is not None and facts.finished <= at
        bound = facts.bound is not None and facts.bound <= at
        phase = (facts.phase or "Succeeded") if ended else "Running" if bound else "Pending"
        deleting = facts.deleting if facts.deleting is not None and facts.deleting <= at else None
        return Pod(
            metadata=ObjectMeta(
                name=name,
                namespace=namespace,
                uid=uid,
                labels=meta.labels,
                annotations=meta.annotations,
                creation_timestamp=_when(facts.created),
                deletion_timestamp=_when(deleting),
                owner_references=references,
            ),
            spec=msgspec.structs.replace(spec, node_name=facts.node if bound else ""),
            status=PodStatus(phase=phase, conditions=tuple(conditions)),
        )

    def _class_of(self, facts: _PodFacts) -> tuple[ObjectMeta, PodSpec]:
        """Return labels and spec of a pod: the capture's for its owner, else what its series say."""
        kind, owner = facts.owner
        requests = msgspec.json.encode((facts.requests, facts.init_requests)).decode()
        key = (facts.key[0], kind, owner if kind in (*_SETS, "DaemonSet") else "", requests)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = self._captured_class(facts) or self._series_class(facts)
        return found

    def _captured_class(self, facts: _PodFacts) -> tuple[ObjectMeta, PodSpec] | None:
        kind, owner = facts.owner
        namespace = facts.key[0]
        for pod in self.capture.pods:
            of = next((each for each in pod.metadata.owner_references if each.controller), None)
            same = of is not None and (of.kind, of.name) == (kind, owner)
            if pod.metadata.namespace == namespace and (same or (not kind and pod.metadata.name == facts.key[1])):
                return pod.metadata, pod.spec
        template = self._template(namespace, kind, owner)
        if template is not None:
            return ObjectMeta(labels=template.metadata.labels, annotations=template.metadata.annotations), template.spec
        return None

    def _template(self, namespace: str, kind: str, owner: str) -> PodTemplate | None:
        capture = self.capture
        sets: dict[str, Sequence[ReplicaSet | StatefulSet | DaemonSet]] = {
            "ReplicaSet": capture.replica_sets,
            "StatefulSet": capture.stateful_sets,
            "DaemonSet": capture.daemon_sets,
        }
        for each in sets.get(kind, ()):
            if (each.metadata.namespace, each.metadata.name) == (namespace, owner):
                return each.spec.template
        return self._sibling(namespace, owner) if kind == "ReplicaSet" else None

    def _sibling(self, namespace: str, owner: str) -> PodTemplate | None:
        """Return the template of another revision of the same Deployment."""
        deployments = {
            (labels.get("namespace", ""), labels.get("replicaset", "")): labels.get("owner_name", "")
            for labels in (each.by_name for each in self.series["replicaSetOwners"])
        }
        wanted = deployments.get((namespace, owner))
        for each in self.capture.replica_sets if wanted else ():
            owners = {reference.name for reference in each.metadata.owner_references if reference.controller}
            if each.metadata.namespace == namespace and wanted in owners:
                self.guessed.add("constraints of earlier revisions: those of the captured one")
                return each.spec.template
        return None

    def _series_class(self, facts: _PodFacts) -> tuple[ObjectMeta, PodSpec]:
        self.guessed.add("labels and scheduling constraints of owners that are not in the capture: none")
        node = self._nodes.get(facts.node)
        taints = node.taints if node is not None else ()
        tolerations = tuple(
            Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect) for taint in taints
        )
        return ObjectMeta(), PodSpec(
            containers=_containers(facts.requests),
            init_containers=_containers(facts.init_requests),
            priority_class_name=facts.priority_class,
            tolerations=tolerations,
        )

    # ------------------------------------------------------------ workloads, pools and the rest

    def _set_events(self) -> Iterator[RecordedChange]:
        of_set: dict[tuple[str, str, str], list[_PodFacts]] = {}
        for facts in sorted(self._pods.values(), key=lambda facts: (facts.created or facts.first, facts.key)):
            if facts.owner[0] in _SETS:
                of_set.setdefault((facts.key[0], *facts.owner), []).append(facts)
        for series, label, kind in (
            ("replicaSets", "replicaset", "ReplicaSet"),
            ("statefulSets", "statefulset", "StatefulSet"),
        ):
            for each in self.series[series]:
                labels = each.by_name
                namespace, name = labels.get("namespace", ""), labels.get(label, "")
                pods = of_set.get((namespace, kind, name))
                if pods is None:
                    continue  # it never had a pod in this time
                meta, spec = self._class_of(pods[0])
                template = self._template(namespace, kind, name) or PodTemplate(
                    metadata=ObjectMeta(labels=meta.labels), spec=msgspec.structs.replace(spec, node_name="")
                )
                before: ValueRun | None = None
                for run in each.runs:
                    item = _SETS[kind](
                        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"imported-{namespace}-{name}"),
                        spec=WorkloadSpec(replicas=round(run.value), template=template),
                    )
                    yield _event(self._scaled_at(before, run, pods), item)
                    before = run
                gone = self._gone(each.last)
                if gone is not None:
                    yield _vanish(gone, kind, namespace, name)

    def _scaled_at(self, before: ValueRun | None, run: ValueRun, pods: Sequence[_PodFacts]) -> float:
        """Return when a set got its size: when the first pod came that is new since the sample before, if one did."""
        if before is None:
            return min(run.first, pods[0].created or run.first)
        if run.value > before.value:
            for facts in pods:
                if facts.created is not None and before.last - 1 < facts.created <= run.first:
                    return facts.created
        return run.first - self.step / 2

    def _captured(self) -> Iterator[AnyObject]:
        capture = self.capture
        for kinds in (
            capture.priority_classes,
            capture.namespaces,
            capture.storage_classes,
            capture.pvs,
            capture.pvcs,
            capture.pdbs,
            capture.services,
            capture.node_pools,
            capture.daemon_sets,
        ):
            yield from kinds

    def _pools(self) -> Iterator[NodePool]:
        """Yield a guess for every pool that the capture does not have."""
        known = {pool.metadata.name for pool in self.capture.node_pools}
        for name in sorted({facts.pool for facts in self._nodes.values() if facts.pool} - known):
            self.guessed.add(f"NodePool {name}: Karpenter's defaults, with the types that were seen")
            nodes = [facts for facts in self._nodes.values() if facts.pool == name]
            taints = set(nodes[0].taints).intersection(*(facts.taints for facts in nodes))
            requirements = tuple(
                SelectorRequirement(
                    key=key,
                    operator="In",
                    values=tuple(sorted({facts.labels[key] for facts in nodes if key in facts.labels})),
                )
                for key in (names.INSTANCE_TYPE, names.CAPACITY_TYPE, "kubernetes.io/arch", "kubernetes.io/os")
                if any(key in facts.labels for facts in nodes)
            )
            ordered = tuple(sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect)))
            template = NodeClaimTemplate(spec=NodeClaimSpec(requirements=requirements, taints=ordered))
            policy = DisruptionSpec(
                consolidation_policy="WhenEmptyOrUnderutilized",
                consolidate_after="0s",
                budgets=(BudgetSpec(nodes="10%"),),
            )
            yield NodePool(
                metadata=ObjectMeta(name=name, uid=f"imported-{name}"),
                spec=NodePoolSpec(template=template, disruption=policy),
            )

    def _daemons(self) -> Iterator[DaemonSet]:
        """Yield the DaemonSets that only the pods show."""
        known = {(each.metadata.namespace, each.metadata.name) for each in self.capture.daemon_sets}
        for facts in self._pods.values():
            key = (facts.key[0], facts.owner[1])
            if facts.owner[0] != "DaemonSet" or key in known:
                continue
            known.add(key)
            _, spec = self._class_of(facts)
            everywhere = msgspec.structs.replace(spec, node_name="", tolerations=(Toleration(operator="Exists"),))
            yield DaemonSet(
                metadata=ObjectMeta(name=key[1], namespace=key[0], uid=f"imported-{key[0]}-{key[1]}"),
                spec=WorkloadSpec(template=PodTemplate(spec=everywhere)),
            )

    def _note(self) -> None:
        """Name what an import never has."""
        self.missing.add(f"pods that lived for less than {self.step:g} s")
        self.guessed.add("names of NodeClaims: those of their nodes")
        self.guessed.add(f"ends of pods and nodes: to the nearest {self.step:g} s")
        if self.capture.node_pools:
            self.guessed.add("NodePools and PDBs: as captured, all the time")
        if not self.capture.pdbs:
            self.missing.add("PodDisruptionBudget")
        if not self.series["karpenterNodes"]:
            self.missing.add("Karpenter's own series (karpenter_nodes_allocatable)")

    # ------------------------------------------------------------ time

    def _stretches(
        self, spans: Sequence[tuple[float, float]], standing: Sequence[AnyObject], events: Sequence[RecordedChange]
    ) -> Iterator[ImportedStretch]:
        ordered = sorted(events, key=lambda event: (event.at, event.object is not None, event.kind, event.name))
        position = 0
        for number, (first, last) in enumerate(spans):
            begins, ends = _when(first), _when(last)
            assert begins is not None
            assert ends is not None
            found = [_event(first, item) for item in standing] if number == 0 else []
            while position < len(ordered) and (ordered[position].at <= ends or number == len(spans) - 1):
                event = ordered[position]
                position += 1
                found.append(event)
            yield ImportedStretch(begins=begins, ends=ends, events=tuple(found))


def _joined_spans(spans: Sequence[tuple[float, float]], most: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for first, last in spans:
        if found and first <= found[-1][1] + most:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _containers(requests: Mapping[str, ResourceList]) -> tuple[Container, ...]:
    return tuple(
        Container(name=name, resources=ResourceRequirements(requests=amounts))
        for name, amounts in sorted(requests.items())
    )


def _pod_key(labels: Mapping[str, str]) -> PodKey:
    return (labels.get("namespace", ""), labels.get("pod", ""), labels.get("uid", ""))


def _owner(labels: Mapping[str, str]) -> tuple[str, str]:
    return (labels.get("created_by_kind", ""), labels.get("created_by_name", ""))


def _when(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


def _event(at: float, item: AnyObject) -> RecordedChange:
    when = _when(at)
    assert when is not None
    meta = item.metadata
    return RecordedChange(at=when, kind=_KINDS[type(item)], namespace=meta.namespace, name=meta.name, object=item)


def _vanish(at: float, kind: str, namespace: str, name: str) -> RecordedChange:
    return RecordedChange(at=datetime.fromtimestamp(at, UTC), kind=kind, namespace=namespace, name=name, object=None)


def write_import(folder: Path, found: Import, fold: Fold) -> int:
    """Write the files of an import into a folder; return how many."""
    files = 0
    for stretch in found.stretches:
        events = iter(stretch.events)
        event = next(events, None)
        while event is not None and event.at <= stretch.begins:
            _learn(fold, event)
            event = next(events, None)
        begins = stretch.begins.replace(microsecond=0)
        while begins < stretch.ends:
            ends = min(stretch.ends, begins.replace(minute=0, second=0) + timedelta(hours=1))
            file = new_file(folder, begins)
            files += 1
            try:
                file.write(fold.begin(begins, missing=found.missing, guessed=found.guessed))
                while event is not None and event.at < ends:
                    file.write(_lines(fold, event))
                    event = next(events, None)
                file.close(ends)
            finally:
                file.abandon()
            begins = ends
        while event is not None:
            _learn(fold, event)
            event = next(events, None)
    return files


def _learn(fold: Fold, event: RecordedChange) -> None:
    if event.object is not None:
        fold.learn(event.object, event.at)
    else:
        fold.vanish(event.kind, event.namespace, event.name, event.at)


def _lines(fold: Fold, event: RecordedChange) -> Sequence[Line]:
    if event.object is not None:
        return fold.observe(event.object, event.at)
    return fold.vanish(event.kind, event.namespace, event.name, event.at)
