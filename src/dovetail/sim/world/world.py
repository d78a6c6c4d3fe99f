"""The simulated cluster as a whole: connects its parts, and is what scenarios, faults and checkers use.

A seed and a configuration give one world; every policy that is tried in it meets the same arrivals, curves and prices.
Decides nothing by itself. Time passes only by `run`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace as change

from dovetail.api.pool_hash import POOL_HASH_VERSION, pool_hash
from dovetail.lifecycle.announce import VERDICTS_EVERY
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.engine_state import EngineRole
from dovetail.lifecycle.messages import Instruction, TaintNode
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType
from dovetail.model.cluster import Cluster
from dovetail.model.command import Replacement
from dovetail.model.objects import (
    AnyObject,
    NodePool,
    Pod,
)
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings, Tariff
from dovetail.sim.world.actuate import Actuator, claim_from
from dovetail.sim.world.clock import Clock, Dice
from dovetail.sim.world.cloud import Cloud, CloudTimes, Instance
from dovetail.sim.world.eviction import Evictions
from dovetail.sim.world.host import Host, Line
from dovetail.sim.world.karpenter.draining import Draining
from dovetail.sim.world.karpenter.lifetimes import DRIFT_CHECK, Karpenter
from dovetail.sim.world.karpenter.loop import ConsolidationState, LoopDecider
from dovetail.sim.world.karpenter.node_objects import with_condition
from dovetail.sim.world.karpenter.provisioner import Provisioner
from dovetail.sim.world.kubelet import Kubelets
from dovetail.sim.world.metering import TariffMeter
from dovetail.sim.world.placement.scheduler import Scheduler
from dovetail.sim.world.placement.shapes import Shapes
from dovetail.sim.world.rollouts import Rollouts
from dovetail.sim.world.sickness import NodeIllness
from dovetail.sim.world.store import WorldStore
from dovetail.sim.world.workloads import Workloads

PodListener = Callable[[str, Pod], None]
START: Final = datetime(2026, 1, 5, 0, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """What a world is made of before anything happens."""

    catalogue: Catalogue
    seed: int = 0
    start: datetime = START
    times: CloudTimes = field(default_factory=CloudTimes)
    tariff: Tariff = field(default_factory=Tariff)


class World:
    """All parts of a simulated cluster, wired."""

    def __init__(self, config: WorldConfig) -> None:
        self.config = config
        self.clock = Clock(config.start)
        self.dice = Dice(config.seed)
        self.store = WorldStore()
        self.shapes = Shapes()
        self.cloud = Cloud(config.catalogue, config.times, self.clock, self.dice)
        if config.tariff:
            self.cloud.meter = TariffMeter(config.tariff, self._pools_and_nodes)
        self.consolidation = ConsolidationState(self.store, self.clock)
        self.kubelets = Kubelets(self.store, self.clock, self.shapes, self.dice.stream("kubelet"))
        self.scheduler = Scheduler(self.store, self.clock, self.shapes, self.dice.stream("scheduler"))
        self.evictions = Evictions(self.store, self.shapes, self.kubelets)
        dice = self.dice.stream("drain")
        self.draining = Draining(self.store, self.clock, self.shapes, self.evictions, self.kubelets, dice)
        self.karpenter = Karpenter(self.store, self.clock, self.cloud, self.draining, self.dice)
        self.workloads = Workloads(self.store, self.clock, self.shapes, self.kubelets, self.dice)
        self.rollouts = Rollouts(self.store, self.clock, self.workloads)
        self.sickness = NodeIllness(self.store, self.clock, self.shapes, self.kubelets)
        self.provisioner = Provisioner(self.store, self.clock, self.cloud, self.karpenter, self.dice)
        self.sickness.on_leave = lambda node: self.outside(f"pods leave {node}, which is not ready")
        self.scheduler.on_bound = self.kubelets.start
        self.scheduler.on_unschedulable = self.provisioner.trigger
        self.scheduler.on_still_stuck = self.provisioner.trigger_stuck
        self.provisioner.on_nominated = self._tell_nominations
        self.cloud.on_catalogue = self._tell_catalogue
        self.cloud.on_interruption = self._interrupted
        self.cloud.on_gone = self._gone
        self.evictions.on_evicted = self._evicted
        self.draining.on_forced = self._forced
        self.karpenter.on_expired = lambda claim: self._lost(claim, "expired")
        self._outside: list[Callable[[str], None]] = []
        self._on_evicted: list[PodListener] = []
        self._on_forced: list[PodListener] = []
        self._on_gone: list[Callable[[Instance], None]] = []
        self._on_lost: list[Callable[[str, str], None]] = []
        self.hosts: list[Host] = []
        self._karpenter_hosts: list[tuple[Host, Settings]] = []

    def _pools_and_nodes(self) -> Cluster:
        return Cluster(node_pools=tuple(self.store.pools.values()), nodes=tuple(self.store.nodes.values()))

    # ------------------------------------------------------------ who wants to hear

    def on_outside(self, listener: Callable[[str], None]) -> None:
        """Register a listener for outside events: scaling, prices, images, stock, deaths, changed objects."""
        self._outside.append(listener)

    def on_evicted(self, listener: PodListener) -> None:
        """Register a listener for each eviction, called just before it happens."""
        self._on_evicted.append(listener)

    def on_forced(self, listener: PodListener) -> None:
        """Register a listener for each pod that ends with its node, or by force, called just before it is gone."""
        self._on_forced.append(listener)

    def on_gone(self, listener: Callable[[Instance], None]) -> None:
        """Register a listener for each machine that is gone."""
        self._on_gone.append(listener)

    def on_lost(self, listener: Callable[[str, str], None]) -> None:
        """Register a listener for each NodeClaim that ended without a decision: `interrupted`, `died` or `expired`."""
        self._on_lost.append(listener)

    def _lost(self, claim: str, how: str) -> None:
        for listener in self._on_lost:
            listener(claim, how)

    def outside(self, what: str) -> None:
        """Report an event that no controller caused."""
        for listener in self._outside:
            listener(what)

    def _evicted(self, key: str, pod: Pod) -> None:
        for listener in self._on_evicted:
            listener(key, pod)

    def _forced(self, key: str, pod: Pod) -> None:
        for listener in self._on_forced:
            listener(key, pod)

    def _gone(self, instance: Instance) -> None:
        for listener in self._on_gone:
            listener(instance)

    def _interrupted(self, claim: str) -> None:
        self.outside(f"spot interruption of {claim}")
        self._lost(claim, "interrupted")
        self.karpenter.interrupted(claim)

    @property
    def now(self) -> int:
        """Return nanoseconds since the start."""
        return self.clock.now

    def run(self, until: int) -> None:
        """Advance time."""
        self.clock.run(until)

    def close(self) -> None:
        """Drop all that the parts hold; the world can't be used afterwards.

        Parts refer to each other. Without this, only the cyclic garbage collector would free them, which takes three
        times as long.
        """
        parts = (self.clock, self.store, self.shapes, self.cloud, self.consolidation, self.kubelets, self.scheduler)
        karpenter = (self.evictions, self.draining, self.karpenter, self.provisioner)
        others = (self.workloads, self.rollouts, self.sickness)
        for part in (*(host.engine for host in self.hosts), *self.hosts, *parts, *karpenter, *others, self):
            vars(part).clear()

    # ------------------------------------------------------------ what is there from the start

    def put(self, item: AnyObject) -> AnyObject:
        """Add any object to the cluster."""
        return self.store.put(item)

    def add_pool(self, pool: NodePool) -> None:
        """Add a NodePool that is ready."""
        now = self.clock.instant()
        metadata = change(_with_hash(pool).metadata, creation_timestamp=pool.metadata.creation_timestamp or now)
        status = change(pool.status, conditions=with_condition(pool.status.conditions, "Ready", "True", now))
        self.store.put(change(pool, metadata=metadata, status=status))

    def add_node(self, pool: str, kind: str, zone: str, capacity_type: str, *, age: int = 0, name: str = "") -> str:
        """Add a node that has run for `age` nanoseconds already."""
        found = self._kind(kind)
        name = name or self.provisioner.new_name(pool)
        born = self.clock.instant_of(self.clock.now - age)
        claim = claim_from(self.store.pools[pool], name, Replacement(node_pool=pool, instance_types=(kind,)))
        claim = change(claim, metadata=change(claim.metadata, creation_timestamp=born))
        started = self.clock.now - age
        self.cloud.adopt(
            Instance(claim=name, kind=found, zone=zone, capacity_type=capacity_type, started=started, pool=pool)
        )
        self.karpenter.adopt(claim, self.cloud.instances[name], born)
        return name

    def _kind(self, name: str) -> InstanceType:
        for kind in self.cloud.catalogue.instance_types:
            if kind.name == name:
                return kind
        raise KeyError(name)

    # ------------------------------------------------------------ controllers

    def add_engine(
        self,
        settings: Settings = DOVETAIL,
        line: Line | None = None,
        name: str = "dovetail",
        verdicts_every: int = VERDICTS_EVERY,
    ) -> Host:
        """Add a controller; it is started by `Host.start`."""
        karpenter = settings.rules.plays_karpenter
        identity = name

        def build() -> Engine:
            kind = "karpenter" if karpenter else "dovetail"
            catalogue = self.cloud.seen_catalogue()
            decider = LoopDecider(self.consolidation, self.dice) if karpenter else None
            return Engine(
                settings,
                catalogue,
                EngineRole(identity=identity, holds=not karpenter, controller=kind),
                decider=decider,
                verdicts_every=verdicts_every,
            )

        actuator = Actuator(self.store, self.clock, self.karpenter, holds=not karpenter)
        host = Host(name, self.store, self.clock, self.cloud, actuator, build, line)
        self.hosts.append(host)
        if karpenter:
            self._karpenter_hosts.append((host, settings))
            host.on_instruction.append(self._nominate_destinations)
        return host

    def add_karpenter(self, line: Line | None = None, settings: Settings = KARPENTER_1_15) -> Host:
        """Add Karpenter's own disruption controller: the same engine, by Karpenter's rules, for all pools."""
        return self.add_engine(replace(settings, pools=tuple(sorted(self.store.pools))), line, name="karpenter")

    def scale(self, kind: str, key: str, replicas: int) -> None:
        """Change the number of pods of a workload, as a person or an autoscaler does."""
        self.outside(f"{key} scaled to {replicas}")
        self.workloads.scale(kind, key, replicas)
        self.rollouts.scaled(key, replicas)

    def set_image(self, node_class: str, image: str, *, bad: bool = False, within: int = DRIFT_CHECK) -> None:
        """Roll out a machine image; Karpenter looks at every node within that time."""
        self.outside(f"image {image}")
        self.karpenter.set_image(node_class, image, bad=bad, within=within)

    def set_template_labels(self, pool: str, labels: dict[str, str], *, within: int = DRIFT_CHECK) -> None:
        """Change a pool's template: all its nodes drift; Karpenter looks at every node within that time."""
        self.outside(f"template of {pool}")
        found = self.store.pools[pool]
        template = found.spec.template
        template = change(template, metadata=change(template.metadata, labels={**template.metadata.labels, **labels}))
        self.store.put(_with_hash(change(found, spec=change(found.spec, template=template))))
        self.karpenter.template_changed(pool, within=within)

    def kill(self, claim: str) -> None:
        """Kill a machine."""
        self.outside(f"{claim} dies")
        self._lost(claim, "died")
        self.karpenter.die(claim)

    def fall_ill(self, node: str, condition: str, status: str, length: int | None = None) -> None:
        """Start a node's illness, for a while or for good."""
        self.outside(f"{node} is ill: {condition} {status}")
        self.sickness.begin(node, condition, status)
        if length is not None:
            self.clock.after(length, self.sickness.end, node)

    def set_pool(self, pool: NodePool) -> None:
        """Change a NodePool."""
        self.outside(f"pool {pool.metadata.name} changed")
        self.store.put(pool)

    def _tell_catalogue(self, catalogue: Catalogue) -> None:
        self.outside("prices or stock")
        for host in self.hosts:
            host.catalogue_changed()

    def _tell_nominations(self) -> None:
        """Send the nominations of Karpenter's provisioner to its disruption: they share one memory."""
        nominated = tuple(sorted(self.provisioner.nominated))
        for host, settings in self._karpenter_hosts:
            host.settings(replace(settings, nominated_nodes=nominated))

    def _nominate_destinations(self, host: Host, asked: Instruction) -> None:
        """Nominate the destinations of a command's pods, as Karpenter does when it starts the command."""
        if isinstance(asked, TaintNode):
            run = next((run for run in host.engine.runs if run.id == asked.command_id), None)
            if run is not None:
                self.clock.after(0, self.provisioner.nominate, run.destinations)

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Schedule an outside event at a time."""
        self.clock.at(when, action)


def karpenter_settings(world: World) -> Settings:
    """Return Karpenter's profile, with every pool of the world as its own."""
    return replace(KARPENTER_1_15, pools=tuple(sorted(world.store.pools)))


def _with_hash(pool: NodePool) -> NodePool:
    """Return the pool with the hash of its template, as Karpenter writes it."""
    written = {names.NODEPOOL_HASH: pool_hash(pool), names.NODEPOOL_HASH_VERSION: POOL_HASH_VERSION}
    return change(pool, metadata=change(pool.metadata, annotations={**pool.metadata.annotations, **written}))


def managed(pool: NodePool) -> NodePool:
    """Return the pool, given to Dovetail."""
    return change(pool, metadata=change(pool.metadata, labels={**pool.metadata.labels, names.MANAGE: "true"}))


def unmanaged(pool: NodePool) -> NodePool:
    """Return the pool, left to Karpenter."""
    labels = {key: value for key, value in pool.metadata.labels.items() if key != names.MANAGE}
    return change(pool, metadata=change(pool.metadata, labels=labels))
