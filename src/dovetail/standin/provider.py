"""Plays Karpenter, the cloud and the kubelets on a cluster that has none: for test clusters and trying things out.

Launches NodeClaims as simulated nodes, keeps them ready, starts and ends their pods, drains and removes deleted claims
through the eviction API, opens nodes for pending pods, and writes the status fields that Karpenter would
(lastPodEventTime, Consolidatable, Drifted by hash). Runs beside the controller in one process, on its own view of the
cluster; decides nothing about disruption. See docs/rules.md#karpenter.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from dovetail.api.policy import effective_policy
from dovetail.api.pool_hash import POOL_HASH_VERSION, pool_hash
from dovetail.lifecycle.effects.node_claims import node_claim_tree
from dovetail.lifecycle.messages import Event, ObjectObserved, ObjectVanished
from dovetail.lifecycle.store import Store
from dovetail.live.kubernetes.client import JSON, ApiClient, ApiError
from dovetail.live.kubernetes.resources import BY_KIND
from dovetail.live.observability.logs import Log
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.command import Replacement
from dovetail.model.objects import Node, NodeClaim, NodePool, Pod, condition, is_true
from dovetail.model.settings import Settings
from dovetail.scheduling.pods.pod import event_nodes, is_terminal
from dovetail.scheduling.result import NewNode
from dovetail.scheduling.simulate import place
from dovetail.scheduling.snapshot import Snapshot
from dovetail.standin.kubelets import StandInKubelets
from dovetail.standin.machines import Machine, amounts, cheapest_machine, machine_labels, node_tree
from dovetail.standin.trees import Tree, condition_tree, ready_condition, stamp, true_condition
from dovetail.standin.writer import Work, Writer

if TYPE_CHECKING:
    from dovetail.live.run import Controller

_TICK_SECONDS: Final = 0.5
_POD_EVENT_EVERY: Final = timedelta(seconds=10)
_PROVIDER: Final = "simulated:///"
_AWAITED_SECONDS: Final = 30.0
_STARTING: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.cloudprovider.kubernetes.io/uninitialized",
)


def simulated_provider(catalogue: Catalogue) -> "Callable[[Controller], Awaitable[None]]":
    """Return the provider as a background task of a controller."""

    async def provider(controller: "Controller") -> None:
        part = Provider(
            client=controller.client,
            catalogue=catalogue,
            settings=lambda: controller.engine.settings,
            log=controller.log,
            # Of several replicas the leader plays the cloud; in observe mode, without a leader, this one does.
            is_on=lambda: controller.may_act or controller.engine.observe,
        )
        controller.listeners.append(part.observe)
        await part.run()

    return provider


@dataclass(slots=True, kw_only=True)
class Provider:
    """A cloud, its kubelets and a provisioner over one API server.

    With `only_kubelets` it leaves everything else to another provider, whose nodes' provider IDs begin with `machines`.
    """

    client: ApiClient
    catalogue: Catalogue
    settings: Callable[[], Settings]
    log: Log
    is_on: Callable[[], bool] = lambda: True
    provisions: bool = True
    only_kubelets: bool = False
    machines: str = _PROVIDER
    launch_seconds: float = 0.0
    lease_seconds: float = 10.0
    store: Store = field(default_factory=Store)
    _snapshot: Snapshot | None = None
    _events: dict[str, datetime] = field(default_factory=dict)
    _awaited: dict[str, float] = field(default_factory=dict)
    _provisioned_at: int = -1
    writer: Writer = field(init=False)
    kubelets: StandInKubelets = field(init=False)

    def __post_init__(self) -> None:
        self.writer = Writer(client=self.client, log=self.log)
        self.kubelets = StandInKubelets(
            writer=self.writer, store=self.store, machines=self.machines, lease_seconds=self.lease_seconds
        )

    def observe(self, event: Event) -> None:
        """Update the view; record when pods arrive on and leave nodes."""
        if isinstance(event, ObjectObserved):
            item = event.object
            if isinstance(item, Pod):
                self._pod_event(self._known(item), item)
            self.store.observe(item)
        elif isinstance(event, ObjectVanished):
            gone = self.store.vanish(event.kind, event.namespace, event.name, event.uid)
            if isinstance(gone, Pod):
                self._pod_event(gone, None)

    def _known(self, pod: Pod) -> Pod | None:
        return self.store.get(Pod, pod.metadata.name, pod.metadata.namespace)

    def _pod_event(self, before: Pod | None, after: Pod | None) -> None:
        for node in event_nodes(before, after):
            self._events[node] = datetime.now(UTC)

    # ------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Look at everything twice a second, until cancelled."""
        while True:
            if self.is_on():
                whole = (self._pools, self._claims, self.kubelets.look, self._statuses, self._provision)
                for step in (self.kubelets.look,) if self.only_kubelets else whole:
                    await self.writer.attempt(step())
            await asyncio.sleep(_TICK_SECONDS)

    async def _claims(self) -> None:
        works: list[Work] = []
        for claim in self.store.node_claims():
            if claim.metadata.deletion_timestamp is not None:
                if names.TERMINATION_FINALIZER in claim.metadata.finalizers:
                    works.append(partial(self._terminate, claim))
            elif not claim.status.provider_id:
                works.append(partial(self._launch, claim))
            elif not is_true(claim.status.conditions, names.CONDITION_INITIALIZED):
                works.append(partial(self._initialize, claim))
        await self.writer.attempt_all(works)

    async def _launch(self, claim: NodeClaim) -> None:
        born = claim.metadata.creation_timestamp
        if born is not None and (datetime.now(UTC) - born).total_seconds() < self.launch_seconds:
            return
        machine = cheapest_machine(claim, self.catalogue)
        if machine is None:
            await self.writer.delete(BY_KIND["NodeClaim"], claim.metadata.name)
            self.log.warning("no machine fits the NodeClaim; it is given up", claim=claim.metadata.name)
            return
        name = claim.metadata.name
        if names.TERMINATION_FINALIZER not in claim.metadata.finalizers:
            patch = {
                "metadata": {
                    "resourceVersion": claim.metadata.resource_version,
                    "finalizers": [*claim.metadata.finalizers, names.TERMINATION_FINALIZER],
                    "labels": machine_labels(claim, machine),
                }
            }
            await self.writer.patch(BY_KIND["NodeClaim"], name, patch)
        await self._make_node(claim, machine)
        await self.writer.patch(BY_KIND["NodeClaim"], name, {"status": _launched_status(claim, machine)}, "status")

    async def _initialize(self, claim: NodeClaim) -> None:
        """Initialize as Karpenter does: once the node is ready and its startup taints are gone."""
        node = self.store.get(Node, claim.status.node_name)
        if node is None or not is_true(node.status.conditions, "Ready"):
            return
        starting = {*_STARTING, *(taint.key for taint in claim.spec.startup_taints)}
        if any(taint.key in starting for taint in node.spec.taints):
            return
        labels = {names.INITIALIZED_LABEL: "true"}
        await self.writer.patch(BY_KIND["Node"], node.metadata.name, {"metadata": {"labels": labels}})
        conditions = [condition_tree(entry) for entry in claim.status.conditions]
        conditions += [true_condition(kind) for kind in (names.CONDITION_INITIALIZED, "Ready")]
        version = {"resourceVersion": claim.metadata.resource_version}
        tree = {"metadata": version, "status": {"conditions": conditions}}
        await self.writer.patch(BY_KIND["NodeClaim"], claim.metadata.name, tree, "status")

    async def _make_node(self, claim: NodeClaim, machine: Machine) -> None:
        tree = node_tree(claim, machine)
        try:
            await self.client.request("POST", BY_KIND["Node"].path(), body=msgspec.json.encode(tree), content_type=JSON)
        except ApiError as error:
            if error.status != 409:
                raise
        status = {**tree["status"], "conditions": [ready_condition()]}
        await self.writer.patch(BY_KIND["Node"], claim.metadata.name, {"status": status}, "status")

    async def _terminate(self, claim: NodeClaim) -> None:
        """Taint, evict, wait for the pods to go or for the end of the drain, remove the node, let the claim go."""
        name = claim.status.node_name or claim.metadata.name
        node = self.store.get(Node, name)
        if node is not None:
            if not any(taint.key == names.DISRUPTED_TAINT for taint in node.spec.taints):
                taints = [msgspec.to_builtins(taint) for taint in node.spec.taints]
                taints.append({"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"})
                version = {"resourceVersion": node.metadata.resource_version}
                await self.writer.patch(BY_KIND["Node"], name, {"metadata": version, "spec": {"taints": taints}})
            waiting = False
            for pod in tuple(self.store.pods_on(name)):
                if _stays(pod):
                    continue
                if _is_overdue(claim):
                    await self.writer.delete(BY_KIND["Pod"], pod.metadata.name, pod.metadata.namespace, at_once=True)
                    continue
                waiting = True
                if pod.metadata.deletion_timestamp is None:
                    await self._evict(pod)
            if waiting:
                return
            for pod in tuple(self.store.pods_on(name)):
                await self.writer.delete(BY_KIND["Pod"], pod.metadata.name, pod.metadata.namespace, at_once=True)
            await self.writer.delete(BY_KIND["Node"], name)
        kept = [entry for entry in claim.metadata.finalizers if entry != names.TERMINATION_FINALIZER]
        await self.writer.patch(BY_KIND["NodeClaim"], claim.metadata.name, {"metadata": {"finalizers": kept}})
        self.kubelets.forget(name)

    async def _evict(self, pod: Pod) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        }
        path = BY_KIND["Pod"].path(pod.metadata.name, pod.metadata.namespace, "eviction")
        try:
            await self.client.request("POST", path, body=msgspec.json.encode(body), tries=1)
        except ApiError as error:
            if error.status not in (404, 429):  # refused by a PDB: retried in the next pass
                raise

    # ------------------------------------------------------------ what Karpenter writes

    async def _pools(self) -> None:
        """Write the hash of each pool's template on the pool, and that it is ready."""
        for pool in self.store.node_pools():
            now = pool_hash(pool)
            if pool.metadata.annotations.get(names.NODEPOOL_HASH) != now:
                annotations = {names.NODEPOOL_HASH: now, names.NODEPOOL_HASH_VERSION: POOL_HASH_VERSION}
                await self.writer.patch(
                    BY_KIND["NodePool"], pool.metadata.name, {"metadata": {"annotations": annotations}}
                )
            if not is_true(pool.status.conditions, "Ready"):
                conditions = [true_condition(kind) for kind in ("ValidationSucceeded", "NodeClassReady", "Ready")]
                await self.writer.patch(
                    BY_KIND["NodePool"], pool.metadata.name, {"status": {"conditions": conditions}}, "status"
                )

    async def _statuses(self) -> None:
        """Write lastPodEventTime, Consolidatable and Drifted of every claim, where they have changed."""
        now = datetime.now(UTC)
        works: list[Work] = []
        for claim in self.store.node_claims():
            pool = self.store.get(NodePool, claim.metadata.labels.get(names.NODEPOOL, ""))
            if pool is None or not claim.status.provider_id or claim.metadata.deletion_timestamp is not None:
                continue
            patch: Tree = {}
            seen = self._events.get(claim.status.node_name)
            last = claim.status.last_pod_event_time
            if seen is not None and (last is None or seen - last > _POD_EVENT_EVERY):
                last = seen.replace(microsecond=0)
                patch["lastPodEventTime"] = stamp(last)
            conditions = self._conditions(claim, pool, last, now)
            if conditions is not None:
                patch["conditions"] = conditions
            if patch:
                version = {"resourceVersion": claim.metadata.resource_version}
                tree = {"metadata": version, "status": patch}
                works.append(partial(self.writer.patch, BY_KIND["NodeClaim"], claim.metadata.name, tree, "status"))
        await self.writer.attempt_all(works)

    def _conditions(self, claim: NodeClaim, pool: NodePool, last: datetime | None, now: datetime) -> list[Tree] | None:
        wanted: dict[str, str | None] = {}
        after = effective_policy(pool, self.settings()).consolidate_after
        initialized = condition(claim.status.conditions, names.CONDITION_INITIALIZED)
        since = last or (initialized.last_transition_time if initialized is not None else None)
        quiet = after is not None and since is not None and (now - since) >= timedelta(microseconds=after // 1000)
        wanted[names.CONDITION_CONSOLIDATABLE] = "True" if quiet else None
        hashes = (
            claim.metadata.annotations.get(names.NODEPOOL_HASH),
            pool.metadata.annotations.get(names.NODEPOOL_HASH),
        )
        drifted = None not in hashes and hashes[0] != hashes[1]
        wanted[names.CONDITION_DRIFTED] = "True" if drifted else None
        have = {entry.type: entry.status for entry in claim.status.conditions}
        if all(have.get(kind) == status for kind, status in wanted.items()):
            return None
        kept = [
            condition_tree(entry)
            for entry in claim.status.conditions
            if entry.type not in wanted or wanted[entry.type] == entry.status
        ]
        fresh = [
            true_condition(kind) for kind, status in wanted.items() if status is not None and have.get(kind) != status
        ]
        return kept + fresh

    # ------------------------------------------------------------ provisioning

    async def _provision(self) -> None:
        """Open nodes for pending pods that fit nowhere; not while machines are still starting."""
        now = time.monotonic()
        self._awaited = {
            name: until
            for name, until in self._awaited.items()
            if until > now and self.store.get(NodeClaim, name) is None
        }
        waiting = any(_unschedulable(pod) for pod in self.store.pending_pods())
        coming = bool(self._awaited) or any(
            not is_true(claim.status.conditions, names.CONDITION_INITIALIZED) for claim in self.store.node_claims()
        )
        if not self.provisions or not waiting or coming or self._provisioned_at == self.store.version:
            return
        self._provisioned_at = self.store.version
        cluster, settings = self.store.cluster(), self.settings()
        for node in await asyncio.to_thread(self._place, cluster, settings):
            await self._order(node)

    def _place(self, cluster: Cluster, settings: Settings) -> tuple[NewNode, ...]:
        self._snapshot = Snapshot(cluster, self.catalogue, settings, datetime.now(UTC), self._snapshot)
        return place(self._snapshot).new

    async def _order(self, node: NewNode) -> None:
        pool = msgspec.json.decode(await self.client.request("GET", BY_KIND["NodePool"].path(node.pool)))
        replacement = Replacement(
            node_pool=node.pool,
            instance_types=tuple(kind.name for kind in node.instance_types),
            requirements=node.requirements,
            requests=node.requests,
        )
        tree = node_claim_tree("", replacement, pool, {})
        tree["metadata"]["generateName"] = f"{node.pool}-"
        del tree["metadata"]["name"]
        body = msgspec.json.encode(tree)
        made = await self.client.request("POST", BY_KIND["NodeClaim"].path(), body=body, content_type=JSON)
        self._awaited[msgspec.json.decode(made)["metadata"]["name"]] = time.monotonic() + _AWAITED_SECONDS


def _is_overdue(claim: NodeClaim) -> bool:
    """Return whether the drain's time is over: then Karpenter waits for no eviction and no kubelet."""
    text = claim.metadata.annotations.get(names.TERMINATION_TIMESTAMP, "")
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        return False
    return until.tzinfo is not None and datetime.now(UTC) >= until


def _stays(pod: Pod) -> bool:
    """Return whether a drain ignores a pod: of a DaemonSet, of the node itself, or ended."""
    owned = any(owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references)
    return owned or is_terminal(pod)


def _unschedulable(pod: Pod) -> bool:
    scheduled = condition(pod.status.conditions, "PodScheduled")
    return scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable"


def _launched_status(claim: NodeClaim, machine: Machine) -> Tree:
    return {
        "providerID": f"{_PROVIDER}{claim.metadata.name}",
        "nodeName": claim.metadata.name,
        "capacity": amounts(machine.kind.capacity),
        "allocatable": amounts(machine.kind.allocatable()),
        "conditions": [true_condition(kind) for kind in ("Launched", "Registered")],
    }
