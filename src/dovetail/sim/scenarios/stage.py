"""Builds a world from a scenario and runs its steps: catalogue, pools, nodes, workloads, curves, steps, traces.

Random numbers come from streams that no policy uses, so that all policies of a scenario get the same workloads, curves
and steps. Decides nothing about disruption.
"""

import fnmatch
import math
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from msgspec.structs import replace as change

from dovetail.api.policy_change import with_policy_fields
from dovetail.model import names
from dovetail.model.money import parse_money
from dovetail.model.objects import (
    LabelSelectorSpec,
    NodePool,
    ObjectMeta,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
)
from dovetail.sim.scenarios.arrivals import add_arrivals, as_of, window_of
from dovetail.sim.scenarios.captured import load_captured, start_from
from dovetail.sim.scenarios.recorded_load import add_recorded_load
from dovetail.sim.scenarios.recorded_times import recorded_pod_times, recorded_times
from dovetail.sim.scenarios.scenario import Policy, Scenario, ScenarioError
from dovetail.sim.scenarios.scenario_objects import disruption_of, pod_spec, pool_of
from dovetail.sim.scenarios.sections import CurveSection, SickStep, StepSection, WorkloadSection
from dovetail.sim.scenarios.simulated_cloud import catalogue_of, times_of
from dovetail.sim.scenarios.spans import span
from dovetail.sim.scenarios.traces import add_trace
from dovetail.sim.scenarios.turnover import add_turnover
from dovetail.sim.world.clock import HOUR
from dovetail.sim.world.workloads import Workload
from dovetail.sim.world.world import World, WorldConfig, managed, unmanaged


class Stage:
    """A scenario on a world."""

    def __init__(self, scenario: Scenario, policy: Policy, seed: int) -> None:
        self.scenario = scenario
        self.policy = policy
        tariff = policy.settings.tariff if scenario.tariff is None else scenario.tariff
        file, start = scenario.file, scenario.start
        self._cluster = scenario.captured
        if self._cluster is None and file.cluster is not None:
            self._cluster = load_captured(scenario, file.cluster)
        self._begin: datetime | None = None
        if self._cluster is not None and scenario.arrivals is not None:
            self._begin = window_of(self._cluster, scenario.arrivals, str(file.cluster))[0]
            start = self._begin - timedelta(microseconds=scenario.warm_up // 1000)
        self.world = World(
            WorldConfig(
                catalogue=catalogue_of(scenario),
                seed=seed,
                start=start,
                times=times_of(file.cloud) if scenario.recorded is None else recorded_times(scenario.recorded),
                tariff=tariff,
            )
        )
        self._dice = self.world.dice.stream("workloads")
        self._steps = self.world.dice.stream("steps")
        self.sizes: dict[str, int] = {}
        self._jobs = 0

    def build(self) -> World:
        """Add everything; the steps are on the clock."""
        file, world = self.scenario.file, self.world
        for pool in file.pools:
            world.add_pool(pool_of(pool, self.policy))
        world.karpenter.images["default"] = "image-1"
        for group in file.nodes:
            zones = group.zones or file.zones
            for index in range(group.count):
                age = span(group.age).draw(self._dice)
                world.add_node(group.pool, group.type, zones[index % len(zones)], group.capacity_type, age=age)
        if self._cluster is not None and self._begin is None:
            start_from(world, self._cluster, self._adapt, self.policy.manages)
            if self.scenario.recorded is not None:
                world.kubelets.times = recorded_pod_times(self.scenario.recorded)
                add_recorded_load(world, self.scenario.recorded, self.scenario.start, self._adapt)
            if self.scenario.turnover is not None:
                add_turnover(world, self._cluster, self.scenario.start, self.scenario.turnover)
        elif self._cluster is not None and self._begin is not None:
            start_from(world, as_of(self._cluster, self._begin), self._adapt, self.policy.manages)
            add_arrivals(world, self._cluster, self._begin)
        for work in file.workloads:
            for index in range(work.count):
                self._add(work, index)
        if file.trace is not None:
            add_trace(world, self.scenario, file.trace)
        for step in file.steps:
            self._plan(step)
        return world

    def _adapt(self, pool: NodePool) -> NodePool:
        """Return a captured pool under the policy."""
        policy = self.policy
        if policy.disruption and (not policy.pools or pool.metadata.name in policy.pools):
            try:
                pool = with_policy_fields(pool, policy.disruption)
            except (msgspec.ValidationError, ValueError) as error:
                raise ScenarioError(f"disruption: {error}; write it as in a NodePool's spec.disruption") from None
        return managed(pool) if policy.manages(pool.metadata.name) else unmanaged(pool)

    def _draw(self, options: Any) -> Any:
        return options[self._dice.randrange(len(options))] if isinstance(options, tuple) else options

    def _add(self, work: WorkloadSection, index: int) -> None:
        name = work.name if work.count == 1 else f"{work.name}-{index:02d}"
        labels = work.labels or {"app": name}
        spec = pod_spec(work, labels, self._draw(work.cpu), self._draw(work.memory))
        replicas = int(self._draw(work.replicas))
        kind = "ReplicaSet" if work.kind == "Deployment" else work.kind
        made = Workload(
            kind=kind,
            name=name,
            namespace=work.namespace,
            replicas=replicas,
            labels=labels,
            annotations=work.annotations,
            spec=spec,
            start=span(work.start),
            stop=span(work.stop),
            duration=span(work.duration) if work.duration is not None else None,
            surges=work.surge and work.kind == "Deployment",
        )
        if work.pdb is not None:
            self.world.put(
                PodDisruptionBudget(
                    metadata=ObjectMeta(name=name, namespace=work.namespace),
                    spec=PodDisruptionBudgetSpec(
                        selector=LabelSelectorSpec(match_labels=labels),
                        min_available=work.pdb.min_available,
                        max_unavailable=work.pdb.max_unavailable,
                    ),
                )
            )
        if kind == "Job":
            self._batch(made, work)
            return
        if work.curve is not None:
            made = replace(made, replicas=self._on_curve(work.curve, 0.0))
        if made.surges:
            self.world.rollouts.add(made)
        else:
            self.world.workloads.add(made)
        if kind != "DaemonSet":
            self.sizes[f"{kind}|{made.key}"] = made.replicas
        if work.curve is not None:
            self._follow(kind, made.key, work.curve)

    def _batch(self, made: Workload, work: WorkloadSection) -> None:
        """Add Jobs that recur, with some variation, or run once at the start."""
        if work.every is None:
            self.world.workloads.add(made)
            return
        pause = span(work.every)
        dice = self.world.dice.stream(f"jobs/{made.key}")

        def arrive() -> None:
            self._jobs += 1
            size = work.batch if isinstance(work.batch, int) else work.batch[dice.randrange(len(work.batch))]
            self.world.outside("a job arrives")
            self.world.workloads.add(replace(made, name=f"{made.name}-{self._jobs:05d}", replicas=size))
            self.world.clock.after(pause.draw(dice), arrive)

        self.world.clock.after(pause.draw(dice), arrive)

    # ------------------------------------------------------------ curves

    def _on_curve(self, curve: CurveSection, noise: float) -> int:
        now = self.world.clock.instant()
        day = span(curve.period).low / HOUR
        hours = (now - now.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds() / 3600
        peak = span(curve.peak).low / HOUR
        share = (1 + math.cos(2 * math.pi * (hours - peak) / day)) / 2
        if now.weekday() >= 5:
            share *= curve.weekend
        wanted = curve.low + (curve.high - curve.low) * share * (1 + noise)
        return max(curve.low, min(curve.high, round(wanted)))

    def _follow(self, kind: str, key: str, curve: CurveSection) -> None:
        dice = self.world.dice.stream(f"curve/{key}")
        pause = span(curve.every)

        def sync() -> None:
            noise = dice.gauss(0.0, curve.noise) if curve.noise else 0.0
            wanted = self._on_curve(curve, noise)
            if wanted != self.world.workloads.desired(kind, key):
                self.world.scale(kind, key, wanted)
            self.world.clock.after(pause.draw(dice), sync)

        self.world.clock.after(pause.draw(dice), sync)

    # ------------------------------------------------------------ steps

    def _plan(self, step: StepSection) -> None:
        """Put a step on the clock; times count from the end of the warm-up."""
        zero = self.scenario.warm_up
        if step.at is not None:
            self.world.clock.at(zero + span(step.at).low, self._do, step)
            return
        assert step.every is not None
        pause = span(step.every)
        end = zero + (span(step.until).low if step.until is not None else self.scenario.until)

        def again() -> None:
            self._do(step)
            due = self.world.now + pause.draw(self._steps)
            if due <= end:
                self.world.clock.at(due, again)

        self.world.clock.at(zero + span(step.from_).low, again)

    def _do(self, step: StepSection) -> None:
        if step.scale is not None:
            for name, replicas in step.scale.items():
                self._scale(name, replicas)
        elif step.change is not None:
            self._change(step)
        elif step.image is not None:
            within = span(step.image.within).low
            self.world.set_image(step.image.node_class, step.image.id, bad=step.image.bad, within=within)
        elif step.out_of_stock is not None:
            self._dry(step)
        elif step.price is not None:
            self._price(step)
        elif step.pool is not None:
            self._pool(step)
        elif step.kill is not None:
            for _ in range(step.kill.nodes):
                alive = sorted(self.world.cloud.instances)
                if alive:
                    self.world.kill(alive[self._steps.randrange(len(alive))])
        elif step.sick is not None:
            self._sicken(step.sick)

    def _sicken(self, step: SickStep) -> None:
        """Start an illness on some healthy nodes."""
        nodes = self.world.store.nodes
        ill = self.world.sickness.nodes
        well = [
            name
            for name in sorted(nodes)
            if name not in ill and (not step.pool or nodes[name].metadata.labels.get(names.NODEPOOL) == step.pool)
        ]
        for _ in range(min(step.nodes, len(well))):
            chosen = well.pop(self._steps.randrange(len(well)))
            self.world.fall_ill(chosen, step.condition, step.status, span(step.for_).low)

    def _matching(self, pattern: str) -> list[str]:
        return [key for key in self.sizes if not pattern or fnmatch.fnmatch(key.rpartition("/")[2], pattern)]

    def _set_size(self, key: str, replicas: int) -> None:
        kind, _, name = key.partition("|")
        self.sizes[key] = replicas
        self.world.scale(kind, name, replicas)

    def _scale(self, pattern: str, replicas: int) -> None:
        for key in self._matching(pattern):
            self._set_size(key, replicas)

    def _change(self, step: StepSection) -> None:
        wanted = step.change
        assert wanted is not None
        keys = self._matching(wanted.matching)
        chosen = self._steps.sample(keys, min(wanted.workloads, len(keys)))
        for key in chosen:
            by = wanted.by if isinstance(wanted.by, int) else wanted.by[self._steps.randrange(len(wanted.by))]
            self._set_size(key, max(wanted.least, self.sizes[key] + by))

    def _offerings(self, kind: str, zone: str, capacity_type: str) -> list[tuple[str, str, str]]:
        return [
            (entry.name, offering.zone, offering.capacity_type)
            for entry in self.world.cloud.catalogue.instance_types
            if fnmatch.fnmatch(entry.name, kind)
            for offering in entry.offerings
            if zone in ("", offering.zone) and capacity_type in ("", offering.capacity_type)
        ]

    def _dry(self, step: StepSection) -> None:
        wanted = step.out_of_stock
        assert wanted is not None
        self.world.outside(f"{wanted.type} out of stock")
        until = self.world.now + span(wanted.for_).low
        for offering in self._offerings(wanted.type, wanted.zone, wanted.capacity_type):
            self.world.cloud.run_dry(offering, until)

    def _price(self, step: StepSection) -> None:
        wanted = step.price
        assert wanted is not None
        exact = parse_money(Decimal(str(wanted.price)))
        for offering in self._offerings(wanted.type, wanted.zone, wanted.capacity_type):
            self.world.cloud.set_price(offering, exact, wanted.price)

    def _pool(self, step: StepSection) -> None:
        wanted = step.pool
        assert wanted is not None
        if wanted.labels:
            self.world.set_template_labels(wanted.name, wanted.labels, within=span(wanted.within).low)
        if not wanted.disruption:
            return
        pool = self.world.store.pools[wanted.name]
        section = next(entry for entry in self.scenario.file.pools if entry.name == wanted.name)
        spec = disruption_of({**section.disruption, **wanted.disruption}, self.policy.disruption)
        self.world.set_pool(change(pool, spec=change(pool.spec, disruption=spec)))
