"""Small clusters at random, from a seed: every rule of the placement turns up, a few of them at a time.

Each cluster draws some features and sprinkles them over its pools, nodes and pods; the rest stays plain, so that what
differs between two packers can be read off a short list.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.cluster import Cluster, cluster_of
from dovetail.model.money import parse_money
from dovetail.model.objects import (
    AnyObject,
    Condition,
    CSINode,
    CsiNodeDriver,
    CsiNodeSpec,
    Namespace,
    Node,
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeClaimTemplate,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    SelectorRequirement,
    Taint,
    TemplateMeta,
    VolumeNodeResources,
)
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, MinValuesPolicy, PreferencePolicy, Settings
from tests.reference.workloads import Workloads

NOW = datetime(2026, 5, 13, 15, 30, tzinfo=UTC)
ZONES = ("zone-a", "zone-b", "zone-c")
FEATURES = (
    "affinity-terms",
    "anti-affinity",
    "availability",
    "daemons",
    "extended-resources",
    "host-ports",
    "init-containers",
    "leaving",
    "limits",
    "min-values",
    "node-states",
    "odd-pods",
    "operators",
    "pdbs",
    "pending",
    "pod-affinity",
    "preferences",
    "prefer-no-schedule",
    "reserved",
    "schedule-anyway",
    "selectors",
    "spread",
    "spread-policies",
    "taints",
    "unmanaged",
    "volumes",
    "weights",
)


@dataclass(frozen=True)
class Sample:
    """A cluster and the questions to ask about it."""

    seed: int
    features: tuple[str, ...]
    cluster: Cluster
    catalogue: Catalogue
    settings: Settings
    now: datetime
    questions: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


def sample(seed: int, features: Sequence[str] | None = None) -> Sample:
    """Return the cluster of a seed. Questions are pairs: nodes that would go, nodes that are closed to their pods."""
    rng = random.Random(seed)
    chosen = tuple(sorted(rng.sample(FEATURES, rng.randint(2, 6)))) if features is None else tuple(features)
    return _Builder(rng, seed, chosen).build()


class _Builder:
    def __init__(self, rng: random.Random, seed: int, features: tuple[str, ...]) -> None:
        self.rng = rng
        self.seed = seed
        self.features = features
        self.objects: list[AnyObject] = []
        self.kinds: list[InstanceType] = []
        self.marked: list[str] = []

    def has(self, feature: str, chance: float = 0.5) -> bool:
        """Return whether a feature strikes here."""
        return feature in self.features and self.rng.random() < chance

    def build(self) -> Sample:
        """Return all of it, in an order that is fixed by the seed."""
        # Most clusters are small, so that a difference is easy to read; some are crowded, so that orders matter.
        crowded = self.rng.random() < 0.1
        self.kinds = [self._kind(index) for index in range(self.rng.randint(2, 6))]
        pools = [self._pool(name) for name in ("blue", "green", "red")[: self.rng.randint(1, 3)]]
        self.objects += pools
        self.objects += [
            Namespace(metadata=ObjectMeta(name="default", labels={"kind": "common"})),
            Namespace(metadata=ObjectMeta(name="prod", labels={"kind": "special"})),
        ]
        nodes = [
            name for index in range(self.rng.randint(1, 12 if crowded else 6)) if (name := self._node(index, pools))
        ]
        workloads = Workloads(self.rng, self.has, nodes, ZONES, NOW, apps=12 if crowded else 4)
        self.objects += workloads.build()
        cluster = cluster_of(self.objects)
        return Sample(
            seed=self.seed,
            features=self.features,
            cluster=cluster,
            catalogue=Catalogue(instance_types=tuple(self.kinds)),
            settings=self._settings(),
            now=NOW,
            questions=self._questions(cluster),
        )

    def _settings(self) -> Settings:
        base = self.rng.choice((KARPENTER_1_15, DOVETAIL))
        policy = PreferencePolicy.IGNORE if self.rng.random() < 0.15 else PreferencePolicy.RESPECT
        strict = MinValuesPolicy.BEST_EFFORT if self.rng.random() < 0.3 else MinValuesPolicy.STRICT
        marked = tuple(self.marked)
        return replace(base, preference_policy=policy, min_values_policy=strict, marked_for_deletion_nodes=marked)

    def _questions(self, cluster: Cluster) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
        leaving = {claim.status.node_name for claim in cluster.node_claims if claim.metadata.deletion_timestamp}
        names = [
            node.metadata.name
            for node in cluster.nodes
            if node.metadata.name not in leaving
            and node.metadata.name not in self.marked
            and node.metadata.deletion_timestamp is None
            and node.metadata.labels.get("karpenter.sh/initialized") == "true"
            and not any(taint.key == "karpenter.sh/disruption" for taint in node.spec.taints)
        ]
        questions = []
        for _ in range(2 if names else 0):
            goes = tuple(sorted(self.rng.sample(names, min(len(names), self.rng.choice((1, 1, 1, 2, 3))))))
            closed = tuple(name for name in names if name not in goes and self.rng.random() < 0.15)
            questions.append((goes, closed))
        return tuple(questions)

    # Instance types

    def _kind(self, index: int) -> InstanceType:
        rng = self.rng
        size = rng.choice((1, 2, 4, 8, 16))
        family = rng.choice(("c", "m"))
        arch = "arm64" if self.has("selectors", 0.3) else "amd64"
        name = f"{family}{index}.{size}"
        zones = sorted(rng.sample(ZONES, rng.choice((1, 2, 3, 3))))
        capacity = {"cpu": size * 1000, "memory": size * (2 if family == "c" else 4) * 2**30, "pods": 4 + 4 * size}
        if self.has("extended-resources", 0.4):
            capacity["example.com/gpu"] = rng.choice((1, 2, 4))
        if self.has("extended-resources", 0.2):
            capacity["hugepages-2Mi"] = 2**30
        requirements = [
            SelectorRequirement(key="kubernetes.io/arch", operator="In", values=(arch,)),
            SelectorRequirement(key="kubernetes.io/os", operator="In", values=("linux",)),
            SelectorRequirement(key="example.com/family", operator="In", values=(family,)),
            SelectorRequirement(key="example.com/size", operator="In", values=(str(size),)),
            SelectorRequirement(key="node.kubernetes.io/instance-type", operator="In", values=(name,)),
            SelectorRequirement(key="topology.kubernetes.io/zone", operator="In", values=tuple(zones)),
        ]
        offerings = [offering for zone in zones for offering in self._offerings(size, zone)]
        types = tuple(sorted({offering.capacity_type for offering in offerings}))
        requirements.append(SelectorRequirement(key="karpenter.sh/capacity-type", operator="In", values=types))
        return InstanceType(
            name=name,
            requirements=tuple(requirements),
            capacity=capacity,
            overhead={"cpu": 100, "memory": 2**28} if rng.random() < 0.7 else {},
            offerings=tuple(offerings),
        )

    def _offerings(self, size: int, zone: str) -> list[Offering]:
        found = [self._offering("on-demand", zone, size * 0.05)]
        if self.rng.random() < 0.6:
            found.append(self._offering("spot", zone, size * self.rng.choice((0.01, 0.02, 0.03))))
        if self.has("reserved", 0.5):
            identifier = f"r-{self.rng.randint(1, 2)}"
            reserved = self._offering("reserved", zone, 0.0001)
            capacity = self.rng.choice((0, 1, 1, 2))
            found.append(replace(reserved, reservation_id=identifier, reservation_capacity=capacity))
        return found

    def _offering(self, capacity_type: str, zone: str, price: float) -> Offering:
        return Offering(
            capacity_type=capacity_type,
            zone=zone,
            price=parse_money(f"{price:.4f}"),
            price_float=float(f"{price:.4f}"),
            available=not self.has("availability", 0.4),
        )

    # Pools

    def _pool(self, name: str) -> NodePool:
        rng = self.rng
        requirements = [self._capacity_types()]
        if self.has("operators", 0.7):
            requirements.append(rng.choice(_POOL_OPERATORS))
        if self.has("min-values", 0.7):
            key = rng.choice(("example.com/family", "example.com/size", "node.kubernetes.io/instance-type"))
            requirements.append(SelectorRequirement(key=key, operator="Exists", min_values=rng.choice((1, 2, 2, 3))))
        labels = {"team": rng.choice(("one", "two"))} if rng.random() < 0.5 else {}
        ready = Condition(type="Ready", status="False" if self.has("weights", 0.1) else "True")
        return NodePool(
            metadata=ObjectMeta(name=name, uid=f"pool-{name}"),
            spec=NodePoolSpec(
                template=NodeClaimTemplate(
                    metadata=TemplateMeta(labels=labels),
                    spec=NodeClaimSpec(
                        requirements=tuple(requirements),
                        taints=self._pool_taints(),
                        startup_taints=(Taint(key="starting", effect="NoSchedule"),) if self.has("node-states") else (),
                        node_class_ref=NodeClassReference(
                            group="karpenter.k8s.aws", kind="EC2NodeClass", name="default"
                        ),
                    ),
                ),
                limits=self._limits(),
                weight=rng.choice((1, 10, 50)) if self.has("weights", 0.7) else None,
            ),
            status=NodePoolStatus(conditions=(ready,)),
        )

    def _capacity_types(self) -> SelectorRequirement:
        choices = [("on-demand",), ("spot",), ("on-demand", "spot")]
        if "reserved" in self.features:
            choices += [("reserved",), ("on-demand", "reserved"), ("on-demand", "reserved", "spot")]
        key = "karpenter.sh/capacity-type"
        return SelectorRequirement(key=key, operator="In", values=self.rng.choice(choices))

    def _pool_taints(self) -> tuple[Taint, ...]:
        taints = []
        if self.has("taints", 0.4):
            taints.append(Taint(key="dedicated", value=self.rng.choice(("x", "y")), effect="NoSchedule"))
        if self.has("prefer-no-schedule", 0.5):
            taints.append(Taint(key="rather-not", effect="PreferNoSchedule"))
        return tuple(taints)

    def _limits(self) -> dict[str, str | int | float]:
        if not self.has("limits", 0.7):
            return {}
        choices: list[dict[str, str | int | float]] = [
            {"cpu": self.rng.choice(("4", "8", "20", "40"))},
            {"memory": "32Gi"},
            {"nodes": self.rng.choice((1, 2, 4))},
            {"cpu": "16", "nodes": 3},
        ]
        return self.rng.choice(choices)

    # Nodes

    def _node(self, index: int, pools: Sequence[NodePool]) -> str | None:
        rng = self.rng
        name = f"node-{index}"
        kind = rng.choice(self.kinds)
        offering = rng.choice(kind.offerings)
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": offering.zone,
            "node.kubernetes.io/instance-type": kind.name,
            "karpenter.sh/capacity-type": offering.capacity_type,
        }
        labels |= {item.key: item.values[0] for item in kind.requirements if item.key.startswith("example.com/")}
        labels["kubernetes.io/arch"] = kind.requirements[0].values[0]
        if rng.random() < 0.4:
            labels["rack"] = rng.choice(("r1", "r2"))
        if self.has("node-states", 0.15):
            del labels["kubernetes.io/hostname"]
        amounts = {"capacity": dict(kind.capacity), "allocatable": kind.allocatable()}
        if self.has("unmanaged", 0.4):
            self._add_node(name, labels, (), amounts, provider="")
            return name
        pool = rng.choice(pools)
        labels |= {"karpenter.sh/nodepool": pool.metadata.name, **pool.spec.template.metadata.labels}
        return self._managed(name, labels, pool, amounts)

    def _managed(
        self, name: str, labels: dict[str, str], pool: NodePool, amounts: dict[str, dict[str, int]]
    ) -> str | None:
        state = self.rng.choice(_STATES) if self.has("node-states", 0.6) else "ready"
        taints = list(pool.spec.template.spec.taints) if self.rng.random() < 0.8 else []
        if self.has("prefer-no-schedule", 0.3):
            taints.append(Taint(key="rather-not", effect="PreferNoSchedule"))
        going = self.has("leaving", 0.3)
        claim = NodeClaim(
            metadata=ObjectMeta(
                name=f"claim-{name}",
                uid=f"claim-{name}",
                labels=dict(labels),
                deletion_timestamp=NOW - timedelta(seconds=30) if going and self.rng.random() < 0.5 else None,
            ),
            spec=NodeClaimSpec(
                taints=pool.spec.template.spec.taints, startup_taints=pool.spec.template.spec.startup_taints
            ),
            status=NodeClaimStatus(
                node_name=name,
                provider_id=f"provider://{name}",
                capacity=_written(amounts["capacity"]),
                allocatable=_written(amounts["allocatable"]),
                conditions=(
                    Condition(
                        type="Initialized",
                        status="True" if state == "ready" else "False",
                        last_transition_time=NOW - timedelta(hours=2),
                    ),
                ),
            ),
        )
        self.objects.append(claim)
        if going and claim.metadata.deletion_timestamp is None:
            self.marked.append(name)
        if state == "no-node":
            return None
        if state != "unregistered":
            labels = labels | {"karpenter.sh/registered": "true"}
        if state == "ready":
            labels = labels | {"karpenter.sh/initialized": "true"}
        else:
            taints += [Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")]
            taints += list(pool.spec.template.spec.startup_taints)
            amounts = {which: values | {"memory": 0} for which, values in amounts.items()}
        self._add_node(name, labels, taints, amounts, provider=f"provider://{name}")
        return name

    def _add_node(
        self,
        name: str,
        labels: dict[str, str],
        taints: Sequence[Taint],
        amounts: dict[str, dict[str, int]],
        *,
        provider: str,
    ) -> None:
        if self.has("taints", 0.2):
            taints = [*taints, Taint(key="dedicated", value="x", effect="NoSchedule")]
        self.objects.append(
            Node(
                metadata=ObjectMeta(name=name, uid=f"uid-{name}", labels=labels),
                spec=NodeSpec(provider_id=provider, taints=tuple(taints)),
                status=NodeStatus(
                    capacity=_written(amounts["capacity"]),
                    allocatable=_written(amounts["allocatable"]),
                    conditions=(Condition(type="Ready", status="True"),),
                ),
            )
        )
        if self.has("volumes", 0.6):
            limit = VolumeNodeResources(count=self.rng.choice((1, 2, None)))
            driver = CsiNodeDriver(name="ebs.csi.aws.com", allocatable=limit)
            self.objects.append(CSINode(metadata=ObjectMeta(name=name), spec=CsiNodeSpec(drivers=(driver,))))


_STATES = ("ready", "uninitialized", "uninitialized", "unregistered", "no-node")
_POOL_OPERATORS = (
    SelectorRequirement(key="example.com/size", operator="Gt", values=("1",)),
    SelectorRequirement(key="example.com/size", operator="Lt", values=("16",)),
    SelectorRequirement(key="example.com/size", operator="Gte", values=("2",)),
    SelectorRequirement(key="example.com/size", operator="Lte", values=("8",)),
    SelectorRequirement(key="topology.kubernetes.io/zone", operator="NotIn", values=("zone-c",)),
    SelectorRequirement(key="topology.kubernetes.io/zone", operator="In", values=("zone-a", "zone-b")),
    SelectorRequirement(key="example.com/family", operator="Exists"),
    SelectorRequirement(key="example.com/family", operator="In", values=("c",)),
    SelectorRequirement(key="rack", operator="In", values=("r1", "r3")),
    SelectorRequirement(key="rack", operator="NotIn", values=("r2",)),
)

Dice = Callable[[str, float], bool]


def _written(amounts: dict[str, int]) -> dict[str, str | int | float]:
    return {name: f"{amount}m" if name == "cpu" else amount for name, amount in amounts.items()}
