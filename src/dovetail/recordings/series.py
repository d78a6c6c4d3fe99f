"""The series of a Prometheus that make a recording: which are asked for, and samples as runs of one value.

A run is a stretch in which a series had one value at every step. Runs are what the import keeps of an answer, so that a
week of a large cluster stays small. Pure; `live.prometheus` asks, `recordings.imported` makes objects of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Labels = tuple[tuple[str, str], ...]
_POD: Final = ("namespace", "pod", "uid")
_NODE: Final = ("node",)
EXPORTED: Final = "exported_"
"""Put before a label by Prometheus where the scraped target has a label of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesQuery:
    """One question: a selector, and the labels that are kept of it. `positive`: only samples above 0 count."""

    name: str
    metric: str
    by: tuple[str, ...]
    where: str = ""
    positive: bool = False

    def promql(self, match: str = "") -> str:
        """Return the expression; several exporters of one thing count as one."""
        inside = ", ".join(part for part in (self.where, match) if part)
        labels = ", ".join([*self.by, *(EXPORTED + label for label in self.by)])
        return f"max by ({labels}) ({self.metric}{{{inside}}}{' > 0' if self.positive else ''})"


def _node_label(key: str) -> str:
    return "label_" + "".join(letter if letter.isalnum() else "_" for letter in key)


NODE_LABELS: Final = {
    _node_label(key): key
    for key in (
        "karpenter.sh/nodepool",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "karpenter.sh/capacity-type",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "topology.kubernetes.io/region",
    )
}
KARPENTER_LABELS: Final = {
    "nodepool": "karpenter.sh/nodepool",
    "instance_type": "node.kubernetes.io/instance-type",
    "zone": "topology.kubernetes.io/zone",
    "capacity_type": "karpenter.sh/capacity-type",
    "arch": "kubernetes.io/arch",
    "os": "kubernetes.io/os",
    "region": "topology.kubernetes.io/region",
}
QUERIES: Final = (
    SeriesQuery(
        name="pods",
        metric="kube_pod_info",
        by=(*_POD, "node", "created_by_kind", "created_by_name", "priority_class"),
    ),
    SeriesQuery(name="podCreated", metric="kube_pod_created", by=_POD),
    SeriesQuery(name="podBound", metric="kube_pod_status_scheduled_time", by=_POD),
    SeriesQuery(name="podReady", metric="kube_pod_status_ready_time", by=_POD),
    SeriesQuery(name="podDeleting", metric="kube_pod_deletion_timestamp", by=_POD),
    SeriesQuery(name="podFinished", metric="kube_pod_completion_time", by=_POD),
    SeriesQuery(
        name="podPhase",
        metric="kube_pod_status_phase",
        by=(*_POD, "phase"),
        where='phase=~"Succeeded|Failed"',
        positive=True,
    ),
    SeriesQuery(name="podRequests", metric="kube_pod_container_resource_requests", by=(*_POD, "container", "resource")),
    SeriesQuery(
        name="podInitRequests", metric="kube_pod_init_container_resource_requests", by=(*_POD, "container", "resource")
    ),
    SeriesQuery(name="replicaSets", metric="kube_replicaset_spec_replicas", by=("namespace", "replicaset")),
    SeriesQuery(name="replicaSetOwners", metric="kube_replicaset_owner", by=("namespace", "replicaset", "owner_name")),
    SeriesQuery(name="statefulSets", metric="kube_statefulset_replicas", by=("namespace", "statefulset")),
    SeriesQuery(name="nodes", metric="kube_node_info", by=(*_NODE, "provider_id")),
    SeriesQuery(name="nodeCreated", metric="kube_node_created", by=_NODE),
    SeriesQuery(name="nodeLabels", metric="kube_node_labels", by=(*_NODE, *NODE_LABELS)),
    SeriesQuery(name="nodeCapacity", metric="kube_node_status_capacity", by=(*_NODE, "resource")),
    SeriesQuery(name="nodeAllocatable", metric="kube_node_status_allocatable", by=(*_NODE, "resource")),
    SeriesQuery(name="nodeDeleting", metric="kube_node_deletion_timestamp", by=_NODE),
    SeriesQuery(name="nodeTaints", metric="kube_node_spec_taint", by=(*_NODE, "key", "value", "effect")),
    SeriesQuery(
        name="nodeReady",
        metric="kube_node_status_condition",
        by=_NODE,
        where='condition="Ready", status="true"',
        positive=True,
    ),
    SeriesQuery(
        name="karpenterNodes",
        metric="karpenter_nodes_allocatable",
        by=("node_name", *KARPENTER_LABELS),
        where='resource_type="cpu"',
    ),
    SeriesQuery(name="disrupted", metric="karpenter_nodeclaims_disrupted_total", by=("nodepool", "reason")),
)


@dataclass(slots=True)
class ValueRun:
    """A stretch in which a series had one value: seconds since the epoch of its first and its last sample."""

    first: float
    last: float
    value: float


@dataclass(slots=True)
class SeriesRuns:
    """One series of an answer."""

    labels: Labels
    runs: list[ValueRun] = field(default_factory=list)

    @property
    def by_name(self) -> dict[str, str]:
        """Return the labels as a mapping."""
        return dict(self.labels)

    @property
    def first(self) -> float:
        """Return when it was first there."""
        return self.runs[0].first

    @property
    def last(self) -> float:
        """Return when it was last there."""
        return self.runs[-1].last

    @property
    def value(self) -> float:
        """Return its latest value."""
        return self.runs[-1].value


def runs_of(matrix: Iterable[Mapping[str, Any]], step: float) -> list[SeriesRuns]:
    """Return the series of a range query's answer as runs; raise ValueError or KeyError if it is not one."""
    found: dict[Labels, list[ValueRun]] = {}
    for entry in matrix:
        labels = _own_labels(entry["metric"])
        runs: list[ValueRun] = []
        for at, text in entry["values"]:
            value = float(text)
            if value != value:  # not a number: nothing is known of it
                continue
            _extend(runs, ValueRun(float(at), float(at), value), step)
        if runs:
            known = found.get(labels)
            found[labels] = runs if known is None else _merged(known, runs, step)
    return [SeriesRuns(labels, runs) for labels, runs in sorted(found.items())]


def _own_labels(metric: Mapping[str, str]) -> Labels:
    """Return the exporter's own labels: those of the target that it was scraped from give way."""
    own = {key: value for key, value in metric.items() if not key.startswith(EXPORTED)}
    own |= {key.removeprefix(EXPORTED): value for key, value in metric.items() if key.startswith(EXPORTED)}
    return tuple(sorted((key, value) for key, value in own.items() if value and value != "<none>"))


def _extend(runs: list[ValueRun], run: ValueRun, step: float) -> None:
    if runs and run.first <= runs[-1].last + 1.5 * step and runs[-1].value == run.value:
        runs[-1].last = max(runs[-1].last, run.last)
    else:
        runs.append(run)


def _merged(one: Sequence[ValueRun], other: Sequence[ValueRun], step: float) -> list[ValueRun]:
    found: list[ValueRun] = []
    for run in sorted([*one, *other], key=lambda run: (run.first, run.last)):
        _extend(found, ValueRun(run.first, run.last, run.value), step)
    return found


def joined(parts: Iterable[Iterable[SeriesRuns]], step: float) -> list[SeriesRuns]:
    """Join the series of consecutive windows."""
    found: dict[Labels, SeriesRuns] = {}
    for part in parts:
        for series in part:
            known = found.get(series.labels)
            if known is None:
                found[series.labels] = SeriesRuns(series.labels, list(series.runs))
            else:
                for run in series.runs:
                    _extend(known.runs, run, step)
    return list(found.values())
