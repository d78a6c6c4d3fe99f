"""A cluster that Karpenter runs, with its nodes and pods already there, and the course of scale steps over it.

Machines of eight cores that are well filled by ReplicaSets of many sizes. Nodes, NodeClaims and pods go straight into
etcd (`etcd_fill`), made hours ago as far as anybody can see; the rest through the API. The same number gives the same
cluster.
"""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.control_plane import Client, ControlPlane
from tests.support.e2e_world import claim, replica_set
from tests.support.karpenter import PRICES, ZONES, kwok_pool

from benchmarks.etcd_fill import fill
from benchmarks.processes import wait_for

Tree = dict[str, Any]
POOL = "bench"
_SIZES = (500, 750, 1000, 1500, 2000)  # milli-cores of the pods of an app
_ROOM = 7900
_NODES_PER_APP = 25
_AGE = timedelta(hours=6)
_BUDGET = "10%"

STEPS: tuple[tuple[float, str, float], ...] = (
    (0.0, "half of the apps go down to 50 %", 0.5),
    (120.0, "a quarter of them come back to 120 % of what they were", 1.2),
    (200.0, "the other half go down to 60 %", 0.6),
)
SECONDS = 360.0


def apps_of(step: int, apps: list[str]) -> list[str]:
    """Return the apps that a step scales."""
    return (apps[::2], apps[::8], apps[1::2])[step]


def make_cluster(plane: ControlPlane, nodes: int, *, managed: bool) -> dict[str, int]:
    """Create the cluster and return how many pods each app has."""
    rng = random.Random(20)
    born = datetime.now(UTC) - _AGE
    with plane.client() as api:
        tree = kwok_pool(POOL, managed=managed, consolidateAfter="Never", budgets=[{"nodes": _BUDGET}])
        pool = _made(api, tree)
        apps = {f"app-{number:03d}": _SIZES[number % len(_SIZES)] for number in range(max(8, nodes // _NODES_PER_APP))}
        names = list(apps)
        on: list[tuple[str, str]] = []
        for number in range(nodes):
            room, tries = _ROOM, 0
            while room >= _SIZES[0] and tries < 8:
                app = rng.choice(names)
                if apps[app] <= room:
                    on.append((f"{POOL}-{number:05d}", app))
                    room -= apps[app]
                tries += 1
        counts = {name: sum(app == name for _, app in on) for name in names}
        sets = {
            name: _made(api, replica_set(name, counts[name], f"{apps[name]}m", **_memory(apps[name]))) for name in names
        }
    items = []
    for number in range(nodes):
        items += _machine(f"{POOL}-{number:05d}", pool, ZONES[number % len(ZONES)], born)
    items += [_pod(f"{app}-{index:05d}", app, node, sets[app], born) for index, (node, app) in enumerate(on)]
    made = fill(plane.etcd_port, items)
    paths = {"Pod": "/api/v1/pods", "Node": "/api/v1/nodes", "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims"}
    wait_for(lambda: all(_served(plane, path) >= made[kind] for kind, path in paths.items()), "the API server sees all")
    return counts


def _served(plane: ControlPlane, path: str) -> int:
    with plane.client() as api:
        page = api.request("GET", path, limit="1")[1]
        return int(page["metadata"].get("remainingItemCount", 0)) + len(page["items"])


def _memory(milli: int) -> Tree:
    """Return the spec of a pod of that size, as `replica_set` takes it."""
    requests = {"cpu": f"{milli}m", "memory": f"{milli}Mi"}
    return {"containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}]}


def _made(api: Client, tree: Tree) -> Tree:
    status, answer = api.create(tree)
    if status != 201:
        raise RuntimeError(f"{tree['kind']}: {answer}")
    return dict(answer)


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _true(at: datetime, *kinds: str) -> list[Tree]:
    return [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": "",
            "lastTransitionTime": _stamp(at),
            "observedGeneration": 1,
        }
        for kind in kinds
    ]


def _machine(name: str, pool: Tree, zone: str, born: datetime) -> list[Tree]:
    """Return a NodeClaim, its Node and its kubelet's Lease as Karpenter and the kubelet write them."""
    labels = {
        "karpenter.sh/nodepool": POOL, "pool": POOL, "node.kubernetes.io/instance-type": "large",
        "topology.kubernetes.io/zone": zone, "karpenter.sh/capacity-type": "on-demand",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "karpenter.kwok.sh/kwoknodeclass": "default",
    }  # fmt: skip
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "20Gi"}
    room = {**capacity, "cpu": "7900m", "memory": "16374Mi"}
    made = claim(name, pool, "large", zone)
    made["metadata"] |= {
        "uid": f"claim-{name}", "creationTimestamp": _stamp(born), "finalizers": ["karpenter.sh/termination"],
        "generation": 1, "labels": labels,
    }  # fmt: skip
    made["status"] = {
        "nodeName": name, "providerID": f"kwok://{name}", "capacity": capacity, "allocatable": room,
        "lastPodEventTime": _stamp(born), "conditions": _true(born, "Launched", "Registered", "Initialized", "Ready"),
    }  # fmt: skip
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": name, "uid": f"claim-{name}"}
    ready = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true", "kubernetes.io/hostname": name}
    node = {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": f"node-{name}", "creationTimestamp": _stamp(born), "labels": {**labels, **ready},
            "annotations": {"kwok.x-k8s.io/node": "fake"}, "finalizers": ["karpenter.sh/termination"],
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        },
        "spec": {"providerID": f"kwok://{name}"},
        "status": {"capacity": capacity, "allocatable": room, "conditions": _true(born, "Ready")},
    }  # fmt: skip
    lease = {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
    }  # fmt: skip
    return [made, node, lease]


def _pod(name: str, app: str, node: str, owner: Tree, born: datetime) -> Tree:
    """Return a running pod that belongs to its ReplicaSet."""
    reference = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": owner["metadata"]["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    meta = {
        "name": name, "namespace": "default", "uid": f"pod-{name}", "creationTimestamp": _stamp(born),
        "labels": {"app": app}, "ownerReferences": [reference],
    }  # fmt: skip
    status = {
        "phase": "Running", "startTime": _stamp(born),
        "conditions": _true(born, "PodScheduled", "Initialized", "ContainersReady", "Ready"),
    }  # fmt: skip
    spec = {**owner["spec"]["template"]["spec"], "nodeName": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def allow(api: Client) -> None:
    """Allow consolidation of nodes from now on."""
    change = {"spec": {"disruption": {"consolidateAfter": "30s"}}}
    path = f"/apis/karpenter.sh/v1/nodepools/{POOL}"
    status, answer = api.request("PATCH", path, change, kind="application/merge-patch+json")
    if status != 200:
        raise RuntimeError(f"NodePool: {answer}")


def take_step(api: Client, number: int, counts: dict[str, int]) -> None:
    """Scale the apps of a step."""
    share = STEPS[number][2]
    for app in apps_of(number, list(counts)):
        path = f"/apis/apps/v1/namespaces/default/replicasets/{app}"
        body = {"spec": {"replicas": round(counts[app] * share)}}
        status, answer = api.request("PATCH", path, body, kind="application/merge-patch+json")
        if status != 200:
            raise RuntimeError(f"scaling {app}: {answer}")


def has_settled(plane: ControlPlane, number: int, counts: dict[str, int]) -> bool:
    """Return whether the pods of a step that scales down are gone, if it is the first one."""
    share, scaled = STEPS[number][2], apps_of(number, list(counts))
    wanted = sum(round(count * share) if app in scaled else count for app, count in counts.items())
    return _served(plane, "/api/v1/pods") == wanted


def dollars(claims: list[Tree], begin: float, end: float) -> float:
    """Return the cost of the machines between two moments of a recording."""
    total = 0.0
    for each in claims:
        life = min(each.get("gone", end), end) - max(each["seen"], begin)
        total += max(0.0, life) / 3600 * PRICES.get(each["type"], 0.0)
    return round(total, 2)


def per_hour(claims: list[Tree], at: float) -> float:
    """Return the hourly cost of the machines at a moment."""
    there = (each for each in claims if each["seen"] <= at < each.get("gone", float("inf")))
    return round(sum(PRICES.get(each["type"], 0.0) for each in there), 2)
