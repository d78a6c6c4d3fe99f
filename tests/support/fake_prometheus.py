"""A Prometheus over HTTP with the series that kube-state-metrics and Karpenter would have shown of a recording."""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from dovetail.model import names
from dovetail.model.objects import Node, ReplicaSet, StatefulSet
from dovetail.model.quantity import resource_amount
from dovetail.recordings.read import ClusterRecording, PodLife

Sample = tuple[dict[str, str], float]
Respond = Callable[[str, dict[str, str]], "tuple[int, bytes] | None"]
KARPENTER = ("karpenter_nodes_allocatable", "karpenter_nodeclaims_disrupted_total")


@dataclass(slots=True)
class RecordedSeries:
    """The series at any time. `lacking`: metrics that nobody scrapes; `down`: times of which there is nothing."""

    recording: ClusterRecording
    lacking: tuple[str, ...] = ()
    down: tuple[tuple[datetime, datetime], ...] = ()
    extra: dict[str, str] = field(default_factory=dict)
    _states: dict[tuple[str, datetime], list[Any]] = field(default_factory=dict)

    def samples(self, metric: str, at: datetime) -> Iterator[Sample]:
        """Yield labels and value of every series of a metric at a time."""
        if metric in self.lacking or any(first <= at < last for first, last in self.down):
            return
        found: Iterator[Sample] = iter(())
        if metric.startswith("kube_pod_"):
            found = (sample for life in self.recording.pods if life.is_there(at) for sample in _pod(metric, life, at))
        elif metric.startswith("kube_node_"):
            found = (sample for node in self._there("Node", at) for sample in self._node(metric, node, at))
        elif metric == "kube_replicaset_spec_replicas":
            found = (_size(item, "replicaset") for item in self._there("ReplicaSet", at))
        elif metric == "kube_statefulset_replicas":
            found = (_size(item, "statefulset") for item in self._there("StatefulSet", at))
        elif metric == "karpenter_nodes_allocatable":
            found = (sample for node in self._there("Node", at) for sample in _karpenter_node(node))
        elif metric == "karpenter_nodeclaims_disrupted_total":
            found = self._disrupted(at)
        yield from (({**labels, **self.extra}, value) for labels, value in found)

    def _there(self, kind: str, at: datetime) -> list[Any]:
        known = self._states.get((kind, at))
        if known is None:
            objects: dict[tuple[str, str], Any] = {}
            for change in self.recording.changes:
                if change.at > at:
                    break
                if change.kind == kind and change.object is not None:
                    objects[change.namespace, change.name] = change.object
                elif change.kind == kind:
                    objects.pop((change.namespace, change.name), None)
            known = self._states[kind, at] = list(objects.values())
        return known

    def _node(self, metric: str, node: Node, at: datetime) -> Iterator[Sample]:
        meta, name = node.metadata, {"node": node.metadata.name}
        if metric == "kube_node_info":
            yield {**name, "provider_id": node.spec.provider_id}, 1.0
        elif metric == "kube_node_created" and meta.creation_timestamp is not None:
            yield name, meta.creation_timestamp.timestamp()
        elif metric == "kube_node_deletion_timestamp" and meta.deletion_timestamp is not None:
            yield name, meta.deletion_timestamp.timestamp()
        elif metric in ("kube_node_status_capacity", "kube_node_status_allocatable"):
            amounts = node.status.capacity if metric.endswith("capacity") else node.status.allocatable
            for key, amount in amounts.items():
                value = resource_amount(key, amount) / (1000 if key == "cpu" else 1)
                yield {**name, "resource": key.replace("-", "_")}, value
        elif metric == "kube_node_spec_taint":
            for taint in node.spec.taints:
                yield {**name, "key": taint.key, "value": taint.value, "effect": taint.effect}, 1.0
        elif metric == "kube_node_status_condition":
            for condition in node.status.conditions:
                if condition.type == "Ready" and condition.status == "True":
                    yield name, 1.0
        elif metric == "kube_node_labels" and "kube_node_labels" not in self.lacking:
            keys = (names.NODEPOOL, names.INSTANCE_TYPE, names.ZONE, names.CAPACITY_TYPE)
            labels = {f"label_{re.sub('[^a-zA-Z0-9]', '_', key)}": meta.labels.get(key, "") for key in keys}
            yield {**name, **labels}, 1.0

    def _disrupted(self, at: datetime) -> Iterator[Sample]:
        counts: dict[tuple[str, str], int] = {}
        for claim in self.recording.claims:
            if claim.reason and claim.deleting is not None and claim.deleting <= at:
                key = (claim.node_pool, claim.reason.lower())
                counts[key] = counts.get(key, 0) + 1
        for (pool, reason), count in counts.items():
            yield {"nodepool": pool, "reason": reason}, float(count)


def _pod(metric: str, life: PodLife, at: datetime) -> Iterator[Sample]:
    uid = f"{life.name}-{life.created.timestamp():.0f}"
    labels = {"namespace": life.namespace, "pod": life.name, "uid": uid}
    kind, owner = life.pod_class.owner
    if not kind and life.owner:
        kind, _, owner = life.owner.partition("/")
    stamps = {
        "kube_pod_created": life.created,
        "kube_pod_status_scheduled_time": life.bound,
        "kube_pod_status_ready_time": life.ready,
        "kube_pod_completion_time": life.finished,
        "kube_pod_deletion_timestamp": life.deleting,
    }
    if metric == "kube_pod_info":
        node = life.node if life.bound is not None and life.bound <= at else ""
        yield {**labels, "node": node, "created_by_kind": kind, "created_by_name": owner}, 1.0
    elif metric == "kube_pod_container_resource_requests":
        for number, container in enumerate(life.pod_class.pod.spec.containers):
            for key, amount in container.resources.requests.items():
                value = resource_amount(key, amount) / (1000 if key == "cpu" else 1)
                yield {**labels, "container": f"c{number}", "resource": key.replace("-", "_")}, value
    elif metric == "kube_pod_status_phase" and life.finished is not None and life.finished <= at:
        yield {**labels, "phase": "Failed" if life.why == "failed" else "Succeeded"}, 1.0
    else:
        stamp = stamps.get(metric)
        if stamp is not None and stamp <= at:
            grace = timedelta(seconds=30) if metric == "kube_pod_deletion_timestamp" else timedelta(0)
            yield labels, (stamp + grace).timestamp()


def _size(item: ReplicaSet | StatefulSet, label: str) -> Sample:
    return {"namespace": item.metadata.namespace, label: item.metadata.name}, float(item.spec.replicas or 0)


def _karpenter_node(node: Node) -> Iterator[Sample]:
    labels = node.metadata.labels
    if names.NODEPOOL in labels:
        yield (
            {
                "node_name": node.metadata.name,
                "nodepool": labels[names.NODEPOOL],
                "instance_type": labels.get(names.INSTANCE_TYPE, ""),
                "zone": labels.get(names.ZONE, ""),
                "capacity_type": labels.get(names.CAPACITY_TYPE, ""),
            },
            1.0,
        )


@dataclass(slots=True)
class FakePrometheus:
    """The server. `respond` may answer a request itself; `asked` lists what was asked for."""

    series: RecordedSeries | None
    respond: Respond = lambda what, params: None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def answer(self, what: str, params: dict[str, str]) -> tuple[int, bytes]:
        """Return status and body of one request."""
        self.asked.append((what, params))
        own = self.respond(what, params)
        if own is not None:
            return own
        metric = next(iter(re.findall(r"\((kube_\w+|karpenter_\w+)", params["query"])), "")
        if what == "query":
            at = datetime.fromtimestamp(float(params["time"]), UTC)
            clusters = {labels.get("cluster", "") for labels, _ in self._samples(metric, at)}
            return _success([{"metric": {"cluster": name} if name else {}} for name in sorted(clusters)])
        first, last, step = (float(params[key]) for key in ("start", "end", "step"))
        rows: dict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = {}
        at = first
        while at <= last:
            for labels, value in self._samples(metric, datetime.fromtimestamp(at, UTC)):
                rows.setdefault(tuple(sorted(labels.items())), []).append((at, repr(value)))
            at += step
        return _success([{"metric": dict(labels), "values": values} for labels, values in rows.items()])

    def _samples(self, metric: str, at: datetime) -> Sequence[Sample]:
        return [] if self.series is None else list(self.series.samples(metric, at))


def _success(rows: list[dict[str, Any]]) -> tuple[int, bytes]:
    return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}}).encode()


@contextlib.contextmanager
def fake_prometheus(
    series: RecordedSeries | None, respond: Respond = lambda what, params: None
) -> Iterator[FakePrometheus]:
    """Serve on a port of its own."""
    fake = FakePrometheus(series, respond)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            params = {key: values[0] for key, values in parse_qs(body).items()}
            status, raw = fake.answer(self.path.rsplit("/", 1)[1], params)
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
