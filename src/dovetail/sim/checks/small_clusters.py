"""The small clusters of the swarm: a seed determines the offered machines, the pools and the workloads.

Each aspect that was added later has its own random stream, so that a seed still gives the same cluster as before. Sits
in sim, below `swarm`.
"""

import random
from dataclasses import replace
from typing import Any, Final

import msgspec

from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.objects import (
    Affinity,
    BudgetSpec,
    Container,
    DisruptionSpec,
    LabelSelectorSpec,
    NodeClaimSpec,
    NodeClaimTemplate,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    ObjectMeta,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodSpec,
    ResourceList,
    ResourceRequirements,
    SelectorRequirement,
    TopologySpreadConstraint,
)
from dovetail.sim.scenarios.sections import OfferedType
from dovetail.sim.scenarios.simulated_cloud import offered
from dovetail.sim.world.clock import SECOND, seconds
from dovetail.sim.world.workloads import Workload
from dovetail.sim.world.world import World, managed

ZONES: Final = ("zone-a", "zone-b", "zone-c")
KINDS: Final = (
    ("small", 2, "4Gi", 0.05, 0.02),
    ("small-b", 2, "4Gi", 0.048, 0.019),
    ("medium", 4, "8Gi", 0.10, 0.04),
    ("medium-b", 4, "8Gi", 0.093, 0.035),
    ("large", 8, "16Gi", 0.20, 0.075),
)


def small_catalogue(*, spot: bool = False) -> Catalogue:
    """Return five types whose prices lie close together, in three zones."""
    return Catalogue(
        instance_types=tuple(
            offered(
                OfferedType(name=name, cpu=cpu, memory=memory, price=price, spot=spot_price if spot else None), ZONES
            )
            for name, cpu, memory, price, spot_price in KINDS
        ),
        source="swarm",
    )


def draw_pool(world: World, dice: random.Random, name: str, *, spot: bool) -> NodePool:
    """Draw a managed pool."""
    budgets: list[dict[str, Any]] = [{"nodes": dice.choice(("1", "20%", "50%", "100%"))}]
    if dice.random() < 0.3:
        budgets.append(
            {"nodes": dice.choice(("1", "50%")), "topologyKey": names.ZONE, "sequential": dice.random() < 0.7}
        )
    disruption: dict[str, Any] = {
        "consolidationPolicy": dice.choice(("WhenEmptyOrUnderutilized",) * 4 + ("WhenEmpty", "Balanced")),
        "consolidateAfter": dice.choice(("0s", "15s", "1m", "4m")),
        "consolidationSavingsThreshold": dice.choice((0, 0, 0.005, 0.01)),
        "budgets": budgets,
    }
    if dice.random() < 0.3:
        disruption["consolidationGracePeriod"] = dice.choice(("3m", "10m"))
    if dice.random() < 0.2:
        disruption["expireAfter"] = dice.choice(("2h", "4h"))
    price = world.dice.stream(f"price/{name}").choice((None, None, 0.0005, 0.005))
    if price is not None:
        disruption["disruptionPrice"] = price
    disruption |= _controls(world, name, budgets)
    values = (names.ON_DEMAND, names.SPOT) if spot else (names.ON_DEMAND,)
    grace = dice.choice((None, None, "5m"))
    life = world.dice.stream(f"expiry/{name}").choice(("720h", "720h", "720h", "5h", "7h"))
    if life != "720h":
        grace = "5m"  # without it a PDB that allows nothing holds up Karpenter's own expiry for ever
    pool = NodePool(
        metadata=ObjectMeta(name=name),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(
                spec=NodeClaimSpec(
                    requirements=(SelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=values),),
                    node_class_ref=NodeClassReference(group="sim", kind="SimNodeClass", name="default"),
                    expire_after=life,
                    termination_grace_period=grace,
                )
            ),
            disruption=msgspec.convert(disruption, DisruptionSpec),
        ),
    )
    return managed(pool)


def _controls(world: World, name: str, budgets: list[dict[str, Any]]) -> dict[str, Any]:
    """Draw the operators' controls of a pool, by dice of their own: other draws stay what they were."""
    dice = world.dice.stream(f"controls/{name}")
    found: dict[str, Any] = {}
    if dice.random() < 0.25:
        per = {"nodes": dice.choice(("1", "2", "30%")), "per": dice.choice(("5m", "10m", "1h"))}
        found["budgets"] = [*budgets, per]
    if dice.random() < 0.15:
        begin = dice.randrange(60)
        found["windows"] = [{"schedule": f"{begin}/20 * * * *", "duration": dice.choice(("5m", "12m"))}]
    if dice.random() < 0.15:
        found["minNodeAge"] = dice.choice(("5m", "20m", "1h"))
    if dice.random() < 0.4:
        within = dice.choice(("20s", "3m"))
        found["health"] = {"notReadyNodes": dice.choice(("0", "20%")), "movedPodsReadyWithin": within}
    dice = world.dice.stream(f"repair/{name}")
    if dice.random() < 0.5:
        rule: dict[str, Any] = {"condition": "Ready", "status": "Unknown", "for": dice.choice(("1m", "5m"))}
        bounded = dice.choice((None, "0s", "2m"))
        deadlock = {"condition": "KernelDeadlock", "status": "True", "for": "2m"}
        found["repair"] = [rule if bounded is None else {**rule, "drainFor": bounded}, deadlock]
    return found


def add_zones(world: World, dice: random.Random, pool: str) -> None:
    """Let a pool roll one zone at a time: a sequential budget, and in every zone nodes and a workload of its own.

    In some clusters a PDB allows no eviction in one of the zones for a while.
    """
    found = world.store.pools[pool]
    nodes = dice.choice(("1", "1", "2", "50%"))
    budget: dict[str, Any] = {"nodes": nodes, "topologyKey": names.ZONE, "sequential": True}
    if dice.random() < 0.5:
        budget["reasons"] = ["Drifted"]
    kept = [entry for entry in found.spec.disruption.budgets or () if not entry.topology_key]
    budgets = (*kept, msgspec.convert(budget, BudgetSpec))
    disruption = msgspec.structs.replace(found.spec.disruption, budgets=budgets)
    world.put(msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, disruption=disruption)))
    full = dice.choice((None, None, *ZONES))
    for zone in ZONES:
        for _ in range(dice.randrange(1, 4)):
            world.add_node(pool, "medium", zone, names.ON_DEMAND, age=dice.randrange(5, 300) * 60 * SECOND)
        _add_zonal(world, dice, pool, zone, full=zone == full)


def _add_zonal(world: World, dice: random.Random, pool: str, zone: str, *, full: bool) -> None:
    """Add a workload that runs in one zone of a pool only; `full`: its PDB allows nothing for a while."""
    name = f"{pool}-{zone}"
    labels = {"app": name}
    resources = ResourceRequirements(requests={"cpu": "700m", "memory": "512Mi"})
    world.workloads.add(
        Workload(
            kind="ReplicaSet",
            name=name,
            replicas=dice.randrange(2, 7),
            labels=labels,
            spec=PodSpec(
                node_selector={names.ZONE: zone, names.NODEPOOL: pool},
                containers=(Container(name="main", resources=resources),),
            ),
            start=seconds(1, 6),
            stop=seconds(1, 8),
        )
    )

    def guard(allowed: int) -> None:
        spec = PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels=labels), max_unavailable=allowed)
        world.put(PodDisruptionBudget(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))

    if full:
        guard(0)
        world.clock.after(dice.randrange(5, 30) * 60 * SECOND, guard, 1)


def add_workload(world: World, dice: random.Random, index: int) -> None:
    """Draw a workload, and a PDB for some, and add them to the world."""
    name = f"app-{index}"
    labels = {"app": name}
    spread: tuple[TopologySpreadConstraint, ...] = ()
    if dice.random() < 0.4:
        spread = (
            TopologySpreadConstraint(
                topology_key=dice.choice((names.ZONE, names.HOSTNAME)),
                max_skew=dice.choice((1, 2)),
                when_unsatisfiable=dice.choice(("ScheduleAnyway", "DoNotSchedule")),
                label_selector=LabelSelectorSpec(match_labels=labels),
            ),
        )
    affinity = None
    if dice.random() < 0.2:
        term = PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=LabelSelectorSpec(match_labels=labels))
        affinity = Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    requests: ResourceList = {
        "cpu": dice.choice(("150m", "400m", "900m")),
        "memory": dice.choice(("128Mi", "512Mi", "1Gi")),
    }
    kind = dice.choice(("ReplicaSet",) * 5 + ("StatefulSet",))
    work = Workload(
        kind=kind,
        name=name,
        replicas=dice.randrange(1, 6),
        labels=labels,
        spec=PodSpec(
            topology_spread_constraints=spread,
            affinity=affinity,
            termination_grace_period_seconds=30,
            containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
        ),
        start=seconds(1, 6),
        stop=seconds(1, 8),
    )
    if dice.random() < 0.4 and work.replicas > 1:
        world.put(
            PodDisruptionBudget(
                metadata=ObjectMeta(name=name, namespace="default"),
                spec=PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels=labels), max_unavailable=1),
            )
        )
    if world.dice.stream(f"surge/{name}").random() < 0.25 and kind == "ReplicaSet":
        _add_surging(world, work)
        return
    world.workloads.add(work)


def _add_surging(world: World, work: Workload) -> None:
    """Add a workload that rolls instead of being evicted: behind a PDB that allows nothing."""
    guard = PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels=work.labels), min_available=work.replicas)
    world.put(PodDisruptionBudget(metadata=ObjectMeta(name=work.name, namespace="default"), spec=guard))
    world.rollouts.add(replace(work, surges=True))
