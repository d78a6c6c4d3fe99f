"""Small clusters for the seeds' examples: a few lines each, whole objects underneath.

A `Town` is a cluster that a test may change between rounds: nodes come and go, pods move, time passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from dovetail.decide.in_flight import InFlight, LeavingNode
from dovetail.decide.question import CostHold, Question
from dovetail.decide.round import RoundResult, plan_round
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.cluster import Cluster, cluster_of
from dovetail.model.command import Command, Method
from dovetail.model.money import parse_money
from dovetail.model.objects import AnyObject, Node, NodeClaim, NodePool, Pod, PodDisruptionBudget, SelectorRequirement
from dovetail.model.settings import DOVETAIL, Settings
from dovetail.plan.apply import keep_rolls
from dovetail.scheduling.snapshot import Snapshot

NOW = datetime(2026, 5, 13, 15, 30, tzinfo=UTC)
GIB = 1 << 30
ZONES = ("a", "b", "c")


def stamp(when: datetime) -> str:
    """Write a time as Kubernetes does."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def kind(
    name: str, price: str, *, cpu: int = 4, memory: int = 16, spot: str | None = None, zones: Iterable[str] = ZONES
) -> InstanceType:
    """Return an instance type: on-demand at a price and, where given, spot at another, in every zone."""
    prices = {names.ON_DEMAND: price, **({names.SPOT: spot} if spot is not None else {})}
    offers = tuple(
        Offering(capacity_type=capacity, zone=zone, price=parse_money(text), price_float=float(text))
        for capacity, text in prices.items()
        for zone in zones
    )
    return InstanceType(
        name=name,
        requirements=(
            SelectorRequirement(key=names.INSTANCE_TYPE, values=(name,)),
            SelectorRequirement(key=names.ARCH, values=("amd64",)),
            SelectorRequirement(key=names.OS, values=("linux",)),
            SelectorRequirement(key=names.ZONE, values=tuple(zones)),
            SelectorRequirement(key=names.CAPACITY_TYPE, values=tuple(sorted(prices))),
        ),
        capacity={"cpu": cpu * 1000, "memory": memory * GIB, "pods": 110, "ephemeral-storage": 100 * GIB},
        overhead={},
        offerings=offers,
    )


def spot_kind(name: str, price: str, *, cpu: int = 4, memory: int = 16) -> InstanceType:
    """Return an instance type that is offered as spot only."""
    made = kind(name, price, cpu=cpu, memory=memory)
    spot = tuple(
        Offering(capacity_type=names.SPOT, zone=o.zone, price=o.price, price_float=o.price_float)
        for o in made.offerings
    )
    entries = tuple(
        SelectorRequirement(key=names.CAPACITY_TYPE, values=(names.SPOT,)) if r.key == names.CAPACITY_TYPE else r
        for r in made.requirements
    )
    return InstanceType(name=name, requirements=entries, capacity=made.capacity, overhead=made.overhead, offerings=spot)


class Town:
    """A cluster in the making."""

    def __init__(self, *kinds: InstanceType, settings: Settings = DOVETAIL, now: datetime = NOW) -> None:
        self.kinds = {entry.name: entry for entry in kinds}
        self.settings, self.now = settings, now
        self.pools: dict[str, NodePool] = {}
        self.nodes: dict[str, Node] = {}
        self.claims: dict[str, NodeClaim] = {}
        self.pods: dict[str, Pod] = {}
        self.others: list[AnyObject] = []
        self.leaving: dict[str, LeavingNode] = {}
        self.nominated: tuple[str, ...] = ()
        self.stabilized_until: datetime | None = None

    # ------------------------------------------------------------ building

    def pool(self, name: str = "default", *, capacity: Iterable[str] = (names.ON_DEMAND,), **spec: Any) -> None:
        """Add a pool; `disruption=...`, `annotations=...` and other keys of its spec as in a manifest.

        No savings threshold by default.
        """
        disruption = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}], **spec.pop("disruption", {})}
        tree = {
            "metadata": {"name": name, "uid": name, "annotations": spec.pop("annotations", {})},
            "spec": {
                "disruption": disruption,
                "template": {
                    "spec": {
                        "expireAfter": spec.pop("expireAfter", "Never"),
                        "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
                        "requirements": [
                            {"key": names.CAPACITY_TYPE, "operator": "In", "values": list(capacity)},
                            *spec.pop("requirements", ()),
                        ],
                    }
                },
                **spec,
            },
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(self.now)}]},
        }
        self.pools[name] = msgspec.convert(tree, NodePool, strict=False)

    def node(
        self,
        name: str,
        kind_name: str,
        *,
        pool: str = "default",
        zone: str = "a",
        capacity: str = names.ON_DEMAND,
        age: timedelta = timedelta(hours=1),
        idle: timedelta | None = timedelta(hours=1),
        drifted: timedelta | None = None,
        life: str = "Never",
        ready: bool = True,
        labels: Mapping[str, str] | None = None,
        without: Iterable[str] = (),
        conditions: Iterable[Mapping[str, str]] = (),
        annotations: Mapping[str, str] | None = None,
        launch: timedelta = timedelta(),
    ) -> None:
        """Add a node with its claim: `idle` since the last pod event, `drifted` for so long, a `life` (expireAfter).

        `launch`: how long it took from its claim to its initialized node.
        """
        made = self.kinds[kind_name]
        own = {
            names.NODEPOOL: pool,
            names.INSTANCE_TYPE: kind_name,
            names.ZONE: zone,
            names.CAPACITY_TYPE: capacity,
            names.HOSTNAME: name,
            names.ARCH: "amd64",
            names.OS: "linux",
            names.INITIALIZED_LABEL: "true",
            names.REGISTERED_LABEL: "true",
            **(labels or {}),
        }
        own = {key: value for key, value in own.items() if key not in without}
        amounts = {"cpu": f"{made.capacity['cpu']}m", "memory": str(made.capacity["memory"]), "pods": "110"}
        born = stamp(self.now - age)
        self.nodes[name] = msgspec.convert(
            {
                "metadata": {
                    "name": name,
                    "uid": name,
                    "labels": own,
                    "annotations": dict(annotations or {}),
                    "creationTimestamp": born,
                },
                "spec": {"providerID": f"cloud:///{name}"},
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                },
            },
            Node,
            strict=False,
        )
        said = [
            {"type": "Initialized", "status": "True", "lastTransitionTime": stamp(self.now - age + launch)},
            *conditions,
        ]
        if drifted is not None:
            said.append({"type": "Drifted", "status": "True", "lastTransitionTime": stamp(self.now - drifted)})
        status: dict[str, Any] = {"providerID": f"cloud:///{name}", "nodeName": name, "conditions": said}
        if idle is not None:
            status["lastPodEventTime"] = stamp(self.now - idle)
        self.claims[name] = msgspec.convert(
            {
                "metadata": {"name": f"claim-{name}", "uid": f"c-{name}", "labels": own, "creationTimestamp": born},
                "spec": {"expireAfter": life, "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                "status": status,
            },
            NodeClaim,
            strict=False,
        )

    def pod(self, name: str, node: str = "", *, cpu: str = "100m", memory: str = "64Mi", **parts: Any) -> None:
        """Add a pod, bound where a node is given; `spec=`, `annotations=` and `labels=` as in a manifest."""
        spec = {
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
            **parts.pop("spec", {}),
        }
        status: dict[str, Any] = {"phase": "Running", "startTime": stamp(self.now - timedelta(hours=1))}
        if not node:
            unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            status = {"phase": "Pending", "conditions": [unscheduled]}
        self.pods[name] = msgspec.convert(
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": name,
                    "creationTimestamp": stamp(self.now - timedelta(hours=1)),
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs"}],
                    **parts,
                },
                "spec": spec,
                "status": status,
            },
            Pod,
            strict=False,
        )

    def fill(self, node: str, count: int, **parts: Any) -> None:
        """Put this many pods on a node."""
        for number in range(count):
            self.pod(f"{node}-{number:02d}", node, **parts)

    def pdb(self, name: str, labels: Mapping[str, str], allowed: int) -> None:
        """Add a PodDisruptionBudget."""
        tree = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": dict(labels)}, "minAvailable": 1},
            "status": {"disruptionsAllowed": allowed},
        }
        self.others.append(msgspec.convert(tree, PodDisruptionBudget, strict=False))

    # ------------------------------------------------------------ living

    def event(self, node: str) -> None:
        """Let a pod come or go on a node now."""
        claim = self.claims[node]
        status = msgspec.structs.replace(claim.status, last_pod_event_time=self.now)
        self.claims[node] = msgspec.structs.replace(claim, status=status)

    def mark(self, command: Command) -> None:
        """Start a command: its nodes are in flight."""
        for name in command.nodes:
            self.leaving[name] = LeavingNode(node=name, method=command.method, since=self.now)

    def remove(self, name: str) -> None:
        """End what was in flight for a node: it is gone, its pods with it."""
        self.leaving.pop(name, None)
        del self.nodes[name], self.claims[name]
        self.pods = {key: pod for key, pod in self.pods.items() if pod.spec.node_name != name}

    # ------------------------------------------------------------ asking

    @property
    def cluster(self) -> Cluster:
        """Return the objects as they are now."""
        objects: list[AnyObject] = [*self.pools.values(), *self.nodes.values(), *self.claims.values()]
        return cluster_of([*objects, *self.pods.values(), *self.others])

    @property
    def catalogue(self) -> Catalogue:
        """Return the instance types."""
        return Catalogue(instance_types=tuple(self.kinds[name] for name in sorted(self.kinds)))

    @property
    def in_flight(self) -> InFlight:
        """Return what is in progress."""
        return InFlight(leaving=tuple(self.leaving[name] for name in sorted(self.leaving)), nominated=self.nominated)

    def snapshot(self) -> Snapshot:
        """Look at the cluster."""
        return self.question().snapshot()

    def question(self, **changes: Any) -> Question:
        """Return the question that a round is asked, with some of its parts replaced."""
        until = self.stabilized_until
        parts: dict[str, Any] = {
            "cluster": self.cluster,
            "catalogue": self.catalogue,
            "settings": self.settings,
            "now": self.now,
            "in_flight": self.in_flight,
            "settling": {} if until is None else {name: CostHold(until=until) for name in self.pools},
        }
        return Question(**{**parts, **changes})

    def round(self, *, every_method: bool = False, every_candidate: bool = False, **changes: Any) -> RoundResult:
        """Run a round."""
        return plan_round(self.question(**changes), every_method=every_method, every_candidate=every_candidate)

    def act(self, *, keeps_rolls: bool = False) -> Command | None:
        """Run a round and return its one command, or None; `keeps_rolls`: write what it says about rolls on pools."""
        result = self.round()
        if keeps_rolls:
            kept = keep_rolls(self.question(), result).node_pools
            self.pools = {pool.metadata.name: pool for pool in kept}
        commands = result.commands
        assert len(commands) <= 1
        return commands[0] if commands else None

    def verdicts(self) -> dict[str, str]:
        """Return every node's verdict."""
        return {entry.node: entry.verdict for entry in self.round(every_method=True).verdicts}


def moved(command: Command | None) -> tuple[str, tuple[str, ...]] | None:
    """Return the action and nodes of a command."""
    return None if command is None else (command.action.value, command.nodes)


__all__ = ["NOW", "ZONES", "Method", "Town", "kind", "moved", "spot_kind"]
