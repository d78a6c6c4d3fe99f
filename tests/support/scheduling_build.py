"""Small clusters for tests: each helper makes one object with just what a rule looks at."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.cluster import cluster_of
from dovetail.model.money import parse_money
from dovetail.model.objects import AnyObject, Node, NodeClaim, NodePool, Pod, SelectorRequirement
from dovetail.model.settings import DOVETAIL, Settings
from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.result import PlacementResult, SimulationResult
from dovetail.scheduling.simulate import place, simulate
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.under_way import NOTHING_UNDER_WAY, UnderWay

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
READY = {"type": "Ready", "status": "True"}


def kind(name: str, cpu: int, price: str = "0.1", *, zones: str = "ab", memory: int = 64, **more: Any) -> InstanceType:
    """Return an instance type that is offered on demand in each zone."""
    offerings = tuple(
        Offering(
            capacity_type=more.get("capacity_type", "on-demand"),
            zone=zone,
            price=parse_money(price),
            price_float=float(price),
        )
        for zone in zones
    )
    return InstanceType(
        name=name,
        requirements=tuple(more.get("requirements", ())),
        capacity={"cpu": cpu * 1000, "memory": memory * 2**30, "pods": 110, **more.get("capacity", {})},
        overhead={},
        offerings=more.get("offerings", offerings),
    )


KINDS = (kind("c.2", 2, "0.1"), kind("c.4", 4, "0.2"), kind("c.8", 8, "0.4"), kind("c.16", 16, "0.8"))


def pool(name: str = "p", **spec: Any) -> NodePool:
    """Return a pool; `requirements`, `taints`, `labels`, `limits`, `weight`, `group` (of its class)."""
    template = {
        "metadata": {"labels": spec.get("labels", {})},
        "spec": {
            "requirements": spec.get("requirements", []),
            "taints": spec.get("taints", []),
            "startupTaints": spec.get("startup_taints", []),
            "nodeClassRef": {"group": spec.get("group", "g"), "kind": "NodeClass", "name": "default"},
        },
    }
    tree = {
        "kind": "NodePool",
        "metadata": {"name": name, **spec.get("meta", {})},
        "spec": {
            "template": template,
            "limits": spec.get("limits", {}),
            **{key: spec[key] for key in ("weight", "replicas") if key in spec},
        },
        "status": {"conditions": spec.get("conditions", [READY])},
    }
    return msgspec.convert(tree, NodePool)


def node(name: str, cpu: float = 8, *, zone: str = "a", pool: str = "p", **more: Any) -> list[AnyObject]:
    """Return a node with its claim (none where `pool` is empty)."""
    started = more.get("started", True)
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": zone,
        "node.kubernetes.io/instance-type": more.get("type", "c.8"),
        "karpenter.sh/capacity-type": "on-demand",
        **({"karpenter.sh/nodepool": pool, "karpenter.sh/registered": "true"} if pool else {}),
        **({"karpenter.sh/initialized": "true"} if pool and started else {}),
        **more.get("labels", {}),
    }
    room = {"cpu": str(cpu), "memory": "64Gi", "pods": "110", **more.get("room", {})}
    found: list[AnyObject] = [
        msgspec.convert(
            {
                "kind": "Node",
                "metadata": {"name": name, "labels": labels, **more.get("meta", {})},
                "spec": {"providerID": f"x://{name}", "taints": more.get("taints", [])},
                "status": {"allocatable": room, "capacity": room, "conditions": [READY]},
            },
            Node,
        )
    ]
    if pool:
        found.append(
            msgspec.convert(
                {
                    "kind": "NodeClaim",
                    "metadata": {"name": f"claim-{name}", "labels": labels, **more.get("claim_meta", {})},
                    "spec": {"startupTaints": more.get("startup_taints", [])},
                    "status": {"providerID": f"x://{name}", "nodeName": name, "allocatable": room, "capacity": room},
                },
                NodeClaim,
            )
        )
    return found


def pod(name: str, cpu: str = "1", *, on: str = "", **more: Any) -> Pod:
    """Return a pod; without `on` it waits for a node. Further fields of its spec by their names in the API."""
    owner = more.pop("owner", ("apps/v1", "ReplicaSet"))
    meta = {
        "name": name,
        "namespace": more.pop("namespace", "default"),
        "uid": f"uid-{name}",
        "labels": more.pop("labels", {"app": name.partition("-")[0]}),
        "annotations": more.pop("annotations", {}),
        "ownerReferences": [{"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "o", "controller": True}],
        "creationTimestamp": more.pop("created", "2026-05-01T10:00:00Z"),
        **more.pop("meta", {}),
    }
    requests = {"cpu": cpu, "memory": "1Gi", **more.pop("requests", {})}
    ports = more.pop("ports", [])
    waiting = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    status = {"phase": "Running"} if on else {"phase": "Pending", "conditions": waiting}
    spec = {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": requests}, "ports": ports}], **more}
    return msgspec.convert({"kind": "Pod", "metadata": meta, "spec": spec, "status": status}, Pod)


def spread(key: str = "topology.kubernetes.io/zone", app: str = "a", **more: Any) -> dict[str, Any]:
    """Return a topology spread constraint over the pods of an app."""
    return {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


def near(kind: str, key: str = "kubernetes.io/hostname", app: str = "a", **more: Any) -> dict[str, Any]:
    """Return an affinity with one required pod term: `kind` is podAffinity or podAntiAffinity."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def node_affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    """Required node affinity: terms joined by OR, each a list of expressions."""
    written = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": written}}


def wants(key: str, operator: str, *values: str, **more: Any) -> dict[str, Any]:
    """Return one expression on a label."""
    return {"key": key, "operator": operator, "values": list(values), **more}


def snapshot(
    *objects: AnyObject | list[AnyObject],
    kinds: tuple[InstanceType, ...] = KINDS,
    settings: Settings = DOVETAIL,
    previous: Snapshot | None = None,
) -> Snapshot:
    """Return the snapshot of some objects."""
    flat: list[AnyObject] = []
    for item in objects:
        flat.extend(item if isinstance(item, list) else [item])
    return Snapshot(cluster_of(flat), Catalogue(instance_types=kinds), settings, NOW, previous)


def without(seen: Snapshot, *names: str, under_way: UnderWay = NOTHING_UNDER_WAY, **more: Any) -> SimulationResult:
    """Return what happens when nodes go."""
    indexes = [seen.index.get(name) for name in names]
    assert None not in indexes
    return simulate(seen, [index for index in indexes if index is not None], SimulationOptions(**more), under_way)


def homes(result: SimulationResult | PlacementResult) -> dict[str, str]:
    """Return each placed pod's new home: a node's name, or `new POOL #n`."""
    existing = result.placements if isinstance(result, SimulationResult) else result.existing
    new = result.new_nodes if isinstance(result, SimulationResult) else result.new
    found = {pod.metadata.name: where.node for where in existing for pod in where.pods}
    for number, fresh in enumerate(new, 1):
        found.update({pod.metadata.name: f"new {fresh.pool} #{number}" for pod in fresh.pods})
    return found


def placed(*objects: AnyObject | list[AnyObject], **more: Any) -> dict[str, str]:
    """Return where the pending pods of some objects go."""
    return homes(place(snapshot(*objects, **more)))


def unplaced(result: SimulationResult | PlacementResult) -> dict[str, str]:
    """Return each pod without a place, with the sentence that says why."""
    return {item.pod.metadata.name: item.why for item in result.unplaced}


def selector(key: str, operator: str, *values: str) -> SelectorRequirement:
    """Return a requirement as a catalogue or a pool has it."""
    return SelectorRequirement(key=key, operator=operator, values=values)


def class_of(seen: Snapshot, wanted: Pod) -> PodClass:
    """Return the class of a pod of the cluster."""
    return seen.bindings.class_at(next(at for at, item in enumerate(seen.cluster.pods) if item is wanted))
