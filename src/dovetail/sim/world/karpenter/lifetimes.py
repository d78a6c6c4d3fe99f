"""Karpenter's own part of the simulated cluster, but for its decisions: a NodeClaim's life from creation to its end.

Launch, registration, initialization; the conditions and times that Karpenter v1.15 writes (Launched, Registered,
Initialized, Consolidatable, Drifted, InstanceTerminating, lastPodEventTime with its ten-second dedupe); its own expiry;
launch and registration time-outs; garbage collection of machines that died. `draining` drains nodes; the engine decides
what to disrupt. Facts: Karpenter v1.15's source, read for its behaviour.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, cast

from msgspec.structs import replace

from dovetail.model import names
from dovetail.model.catalogue import InstanceType
from dovetail.model.objects import (
    Condition,
    Node,
    NodeClaim,
    NodeClaimStatus,
    Pod,
    ResourceList,
    condition,
    is_true,
)
from dovetail.scheduling.pods.pod import event_nodes
from dovetail.sim.world.clock import MINUTE, SECOND, Alarm, Clock, Dice, Span
from dovetail.sim.world.cloud import INTERRUPTION_NOTICE, Cloud, Instance
from dovetail.sim.world.karpenter.draining import Draining
from dovetail.sim.world.karpenter.node_objects import (
    NOT_READY,
    labels_of,
    node_of,
    not_ready,
    resource_list,
    span_of,
    with_condition,
    without_condition,
)
from dovetail.sim.world.steps import CAME, MOVES
from dovetail.sim.world.store import Change, WorldStore

POD_EVENT_DEDUPE: Final = timedelta(seconds=10)
DRIFT_CHECK: Final = 5 * MINUTE
REGISTRATION_TIMEOUT: Final = 15 * MINUTE
COLLECT_AFTER: Final = 2 * MINUTE
NOT_READY_AFTER: Final = 40 * SECOND
_QUICK: Final = SECOND // 10


class Karpenter:
    """NodeClaims and their Nodes."""

    def __init__(self, store: WorldStore, clock: Clock, cloud: Cloud, draining: Draining, dice: Dice) -> None:
        self.store = store
        self.clock = clock
        self.cloud = cloud
        self.draining = draining
        self.outage = draining.outage
        self.dice = dice
        self.images: dict[str, str] = {}
        self.bad_images: set[str] = set()
        self.is_deaf = False
        """Return whether it misses pod events, as it does now and then: nothing is written down for them."""
        self.stillborn: set[str] = set()
        self.ready_from = 0
        self.ready_gap = Span(0, 0)
        self.on_registered: Callable[[Node], None] = lambda node: None
        self.on_failed_launch: Callable[[str], None] = lambda claim: None
        self.on_expired: Callable[[str], None] = lambda claim: None
        self.dead: set[str] = set()
        self._consolidatable: dict[str, Alarm] = {}
        self._resources: dict[str, tuple[InstanceType, ResourceList, ResourceList]] = {}
        draining.on_drained = self._shut_down
        store.listen_to_pods(self._on_pod_change, MOVES & ~CAME)
        store.listen(self._on_pool_change, "NodePool")

    # ------------------------------------------------------------ birth

    def created(self, name: str) -> None:
        """Handle a new NodeClaim, whoever created it."""
        claim = self.store.claims[name]
        self._launch_later(name, claim.metadata.uid)
        expire = span_of(claim.spec.expire_after)
        if expire is not None:
            self.clock.after(expire, self.expire, name, claim.metadata.uid)

    def _launch_later(self, name: str, uid: str) -> None:
        wait = self.cloud.times.create.draw(self.dice.stream("launch"))
        self.clock.after(wait, self._launch, name, uid)

    def _mine(self, name: str, uid: str) -> NodeClaim | None:
        claim = self.store.claims.get(name)
        return claim if claim is not None and claim.metadata.uid == uid else None

    def _launch(self, name: str, uid: str) -> None:
        if self.outage.puts_off(self._launch, name, uid):
            return
        claim = self._mine(name, uid)
        if claim is None or claim.metadata.deletion_timestamp is not None or name in self.cloud.instances:
            return
        instance = self.cloud.launch(claim)
        if instance is None:
            self.on_failed_launch(name)
            self.delete(name)  # out of stock: Karpenter gives the claim up, and asks for another one
            return
        now = self.clock.instant()
        capacity, allocatable = self._resources_of(instance.kind)
        image = self.images.get(claim.spec.node_class_ref.name, "")
        status = NodeClaimStatus(
            provider_id=f"sim:///{instance.zone}/{name}",
            image_id=image,
            capacity=capacity,
            allocatable=allocatable,
            conditions=with_condition(claim.status.conditions, names.CONDITION_LAUNCHED, "True", now),
        )
        labels = {**claim.metadata.labels, **labels_of(instance, claim)}
        self.store.put(replace(claim, metadata=replace(claim.metadata, labels=labels), status=status))
        self.clock.after(REGISTRATION_TIMEOUT, self._give_up, name, uid)
        if name not in self.stillborn and image not in self.bad_images:
            wait = self.cloud.times.register.draw(self.dice.stream("launch"))
            self.clock.after(wait, self._register, name, uid)

    def _resources_of(self, kind: InstanceType) -> tuple[ResourceList, ResourceList]:
        """Return the capacity and the allocatable amounts of a type; its nodes share them."""
        known = self._resources.get(kind.name)
        if known is None or known[0].capacity is not kind.capacity or known[0].overhead is not kind.overhead:
            known = kind, resource_list(kind.capacity), resource_list(kind.allocatable())
            self._resources[kind.name] = known
        return known[1:]

    def _give_up(self, name: str, uid: str) -> None:
        if self.outage.puts_off(self._give_up, name, uid):
            return
        claim = self._mine(name, uid)
        if claim is not None and not is_true(claim.status.conditions, names.CONDITION_REGISTERED):
            self.delete(name)

    def _register(self, name: str, uid: str) -> None:
        if self.outage.puts_off(self._register, name, uid):
            return
        claim = self._mine(name, uid)
        if claim is None or claim.metadata.deletion_timestamp is not None or name in self.dead:
            return
        node = node_of(claim, self.clock.instant())
        self.store.put(node)
        self._set(claim, names.CONDITION_REGISTERED, "True", node_name=name)
        wait = self.cloud.times.ready.draw(self.dice.stream("launch"))
        due = self.clock.now + wait
        if due < self.ready_from:
            due = self.ready_from
            self.ready_from += self.ready_gap.draw(self.dice.stream("launch"))
        self.clock.at(due, self._ready, name, uid)

    def _ready(self, name: str, uid: str) -> None:
        if self.outage.puts_off(self._ready, name, uid):
            return
        claim, node = self._mine(name, uid), self.store.nodes.get(name)
        if claim is None or node is None or name in self.dead:
            return
        now = self.clock.instant()
        startup = {(taint.key, taint.effect) for taint in claim.spec.startup_taints}
        taints = tuple(t for t in node.spec.taints if t.key != NOT_READY.key and (t.key, t.effect) not in startup)
        labels = {**node.metadata.labels, names.INITIALIZED_LABEL: "true"}
        status = replace(node.status, conditions=with_condition(node.status.conditions, "Ready", "True", now))
        node = replace(node, metadata=replace(node.metadata, labels=labels), spec=replace(node.spec, taints=taints))
        self.store.put(replace(node, status=status))
        if claim.metadata.deletion_timestamp is None:
            self._set(claim, names.CONDITION_INITIALIZED, "True")
            self._judge_consolidatable(name)
        self.on_registered(self.store.nodes[name])

    def adopt(self, claim: NodeClaim, instance: Instance, born: datetime) -> None:
        """Take over a node that was up before the simulation began."""
        name = claim.metadata.name
        conditions: tuple[Condition, ...] = ()
        for kind in (names.CONDITION_LAUNCHED, names.CONDITION_REGISTERED, names.CONDITION_INITIALIZED):
            conditions = with_condition(conditions, kind, "True", born)
        capacity, allocatable = self._resources_of(instance.kind)
        status = NodeClaimStatus(
            node_name=name,
            provider_id=f"sim:///{instance.zone}/{name}",
            image_id=self.images.get(claim.spec.node_class_ref.name, ""),
            capacity=capacity,
            allocatable=allocatable,
            conditions=conditions,
        )
        labels = {**claim.metadata.labels, **labels_of(instance, claim)}
        claim = replace(claim, metadata=replace(claim.metadata, labels=labels), status=status)
        self.store.put(claim)
        node = node_of(claim, born)
        taints = tuple(taint for taint in claim.spec.taints)
        ready = Condition(type="Ready", status="True", last_transition_time=born)
        labels = {**node.metadata.labels, names.INITIALIZED_LABEL: "true"}
        self.store.put(
            replace(
                node,
                metadata=replace(node.metadata, labels=labels),
                spec=replace(node.spec, taints=taints),
                status=replace(node.status, conditions=(ready,)),
            )
        )
        expire = span_of(claim.spec.expire_after)
        if expire is not None:
            due = self.clock.since_start(born) + expire
            self.clock.at(due, self.expire, name, self.store.claims[name].metadata.uid)
        self._judge_consolidatable(name)

    def resume(self, name: str) -> None:
        """Resume the life of a captured NodeClaim: a launched one that has not joined yet still may."""
        claim = self.store.claims[name]
        if is_true(claim.status.conditions, names.CONDITION_INITIALIZED):
            self._judge_consolidatable(name)
        elif not claim.status.provider_id:
            self._launch_later(name, claim.metadata.uid)
        elif name not in self.store.nodes:
            self.clock.after(SECOND, self._register, name, claim.metadata.uid)
        else:
            self.clock.after(SECOND, self._ready, name, claim.metadata.uid)

    # ------------------------------------------------------------ conditions

    def _set(self, claim: NodeClaim, kind: str, status: str, node_name: str | None = None) -> None:
        conditions = with_condition(claim.status.conditions, kind, status, self.clock.instant())
        changed = replace(claim.status, conditions=conditions)
        if node_name is not None:
            changed = replace(changed, node_name=node_name)
        self.store.put(replace(claim, status=changed))

    def _on_pod_change(self, change: Change) -> None:
        old, new = cast("Pod | None", change.old), cast("Pod | None", change.new)
        if old is not None and new is not None and not old.spec.node_name and self._heard_lately(new.spec.node_name):
            return  # as usual: one of many pods that are bound at once
        for node in event_nodes(old, new):
            self._pod_event(node)

    def _on_pool_change(self, change: Change) -> None:
        if change.new is not None and change.old is not None:
            for name in sorted(self.store.claims):
                self._judge_consolidatable(name)

    def _heard_lately(self, node: str) -> bool:
        """Return whether a pod event on a node is too soon after the last one to be written down."""
        name = self.store.claim_of.get(node)
        last = self.store.claims[name].status.last_pod_event_time if name is not None else None
        return last is not None and self.clock.instant() - last < POD_EVENT_DEDUPE

    def _pod_event(self, node: str) -> None:
        name = self.store.claim_of.get(node)
        if name is None or self.is_deaf or self.outage.is_on or self._heard_lately(node):
            return
        claim = self.store.claims[name]
        status = replace(claim.status, last_pod_event_time=self.clock.instant())
        after = self._consolidate_after(claim)
        if after is None or after > 0:
            status = replace(status, conditions=without_condition(status.conditions, names.CONDITION_CONSOLIDATABLE))
        self.store.put(replace(claim, status=status))
        self._judge_consolidatable(name)

    def _consolidate_after(self, claim: NodeClaim) -> int | None:
        pool = self.store.pools.get(claim.metadata.labels.get(names.NODEPOOL, ""))
        return span_of(pool.spec.disruption.consolidate_after, 0) if pool is not None else None

    def _judge_consolidatable(self, name: str) -> None:
        """Set or clear Consolidatable now, and ask to be woken when it could change."""
        if self.outage.puts_off(self._judge_consolidatable, name):
            return
        timer = self._consolidatable.pop(name, None)
        if timer is not None:
            timer.cancel()
        claim = self.store.claims.get(name)
        if claim is None:
            return
        after = self._consolidate_after(claim)
        initialized = condition(claim.status.conditions, names.CONDITION_INITIALIZED)
        known = condition(claim.status.conditions, names.CONDITION_CONSOLIDATABLE) is not None
        wanted = False
        if after is not None and initialized is not None and initialized.status == "True":
            last = claim.status.last_pod_event_time or initialized.last_transition_time
            due = after + (self.clock.since_start(last) if last is not None else 0)
            wanted = self.clock.now >= due
            if not wanted:
                self._consolidatable[name] = self.clock.at(due, self._judge_consolidatable, name)
        if wanted and not known:
            self._set(claim, names.CONDITION_CONSOLIDATABLE, "True")
        elif known and not wanted:
            status = replace(
                claim.status, conditions=without_condition(claim.status.conditions, names.CONDITION_CONSOLIDATABLE)
            )
            self.store.put(replace(claim, status=status))

    # ------------------------------------------------------------ drift, expiry, interruption, death

    def set_image(self, node_class: str, image: str, *, bad: bool = False, within: int = DRIFT_CHECK) -> None:
        """Roll out a machine image: nodes of another one drift, each when Karpenter next looks at it, `within` that."""
        self.images[node_class] = image
        if bad:
            self.bad_images.add(image)
        claims = self.store.claims
        old = [name for name in sorted(claims) if claims[name].spec.node_class_ref.name == node_class]
        self._look_for_drift(old, f"drift/{image}", within)

    def template_changed(self, pool: str, *, within: int = DRIFT_CHECK) -> None:
        """Look at the nodes of a pool whose template has changed: those of an older one drift."""
        claims = self.store.claims
        old = [name for name in sorted(claims) if claims[name].metadata.labels.get(names.NODEPOOL) == pool]
        self._look_for_drift(old, f"drift/{pool}", within)

    def _look_for_drift(self, claims: list[str], why: str, within: int) -> None:
        for name in claims:
            wait = self.dice.of(why, name).randrange(within) if within else 0
            self.clock.after(wait, self._judge_drift, name, self.store.claims[name].metadata.uid)

    def _judge_drift(self, name: str, uid: str) -> None:
        if self.outage.puts_off(self._judge_drift, name, uid):
            return
        claim = self._mine(name, uid)
        if claim is None or not is_true(claim.status.conditions, names.CONDITION_LAUNCHED):
            return
        image = self.images.get(claim.spec.node_class_ref.name, claim.status.image_id)
        pool = self.store.pools.get(claim.metadata.labels.get(names.NODEPOOL, ""))
        written = claim.metadata.annotations.get(names.NODEPOOL_HASH)
        template = None if pool is None else pool.metadata.annotations.get(names.NODEPOOL_HASH)
        old = claim.status.image_id != image or (written is not None and template is not None and written != template)
        known = is_true(claim.status.conditions, names.CONDITION_DRIFTED)
        if old and not known:
            self._set(claim, names.CONDITION_DRIFTED, "True")
        elif known and not old:
            status = replace(
                claim.status, conditions=without_condition(claim.status.conditions, names.CONDITION_DRIFTED)
            )
            self.store.put(replace(claim, status=status))

    def expiry_of(self, claim: NodeClaim) -> int | None:
        """Return a NodeClaim's own expireAfter; None: never."""
        return span_of(claim.spec.expire_after)

    def expire(self, name: str, uid: str) -> None:
        """End a NodeClaim whose own expireAfter has passed: Karpenter's expiry asks no budget and no hold."""
        if self.outage.puts_off(self.expire, name, uid):
            return
        claim = self._mine(name, uid)
        if claim is not None:
            if claim.metadata.deletion_timestamp is None:
                self.on_expired(name)
            self.delete(name)

    def interrupted(self, name: str) -> None:
        """Interrupt a spot machine: drained at once, gone in two minutes whatever is left on it."""
        claim = self.store.claims.get(name)
        if claim is not None:
            if not self.outage.puts_off(self.delete, name):
                self.delete(name)
            self.clock.after(INTERRUPTION_NOTICE, self._seized, name, claim.metadata.uid)

    def _seized(self, name: str, uid: str) -> None:
        if self._mine(name, uid) is not None:
            self.die(name)

    def die(self, name: str) -> None:
        """Kill a machine: its node is not ready first, then Karpenter finds that it is gone."""
        claim = self.store.claims.get(name)
        if claim is None or name in self.dead:
            return
        self.dead.add(name)
        self.draining.silence(name)
        self.cloud.terminate(name)
        self.clock.after(NOT_READY_AFTER, self._not_ready, name)
        wait = self.dice.of("collect", name).randrange(COLLECT_AFTER) + NOT_READY_AFTER
        self.clock.after(wait, self._collect, name, claim.metadata.uid)

    def _not_ready(self, name: str) -> None:
        node = self.store.nodes.get(name)
        if node is None:
            return
        self.store.put(not_ready(node, "Unknown", self.clock.instant()))

    def _collect(self, name: str, uid: str) -> None:
        if self.outage.puts_off(self._collect, name, uid):
            return
        if self._mine(name, uid) is not None:
            self.draining.abandon(name)
            self._end(name, uid)

    # ------------------------------------------------------------ end

    def delete(self, name: str) -> None:
        """Delete a NodeClaim: drain its node, terminate the machine, remove both."""
        claim = self.store.claims.get(name)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return
        self.store.mark_deleting(claim, self.clock.instant())
        self.clock.after(_QUICK, self._begin_end, name, claim.metadata.uid)

    def _begin_end(self, name: str, uid: str) -> None:
        if self.outage.puts_off(self._begin_end, name, uid):
            return
        claim = self._mine(name, uid)
        if claim is None:
            return
        if name in self.store.nodes:
            grace = span_of(claim.spec.termination_grace_period)
            self.draining.begin(name, None if grace is None else self.clock.now + grace)
        else:
            self._shut_down(name)

    def _shut_down(self, name: str) -> None:
        if self.outage.puts_off(self._shut_down, name):
            return
        claim = self.store.claims.get(name)
        if claim is None:
            return
        if is_true(claim.status.conditions, names.CONDITION_LAUNCHED):
            self._set(claim, names.CONDITION_INSTANCE_TERMINATING, "True")
        wait = self.cloud.times.shutdown.draw(self.dice.stream("launch")) if name in self.cloud.instances else _QUICK
        self.clock.after(wait, self._end, name, claim.metadata.uid)

    def _end(self, name: str, uid: str) -> None:
        if self.outage.puts_off(self._end, name, uid):
            return
        if self._mine(name, uid) is None:
            return
        self.cloud.terminate(name)
        self.draining.forget(name)
        self.dead.discard(name)
        self.store.remove("Node", name)
        self.store.remove("NodeClaim", name)
