"""Starts a world from a captured cluster: what `kubectl get` or `dovetail snapshot` wrote is the state at time zero.

Nodes and NodeClaims continue (expiry, drift, consolidation timers); pods stay where they were, and their owners
recreate them after an eviction; a pod without a known owner is recreated under a numbered name. Machines of types that
are not in the catalogue run without a price. Decides nothing about disruption.
"""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from dovetail.api.reading.decode import load_cluster
from dovetail.model import names
from dovetail.model.catalogue import InstanceType
from dovetail.model.cluster import Cluster
from dovetail.model.objects import NodeClaim, NodePool, Pod
from dovetail.scheduling.pods.pod import is_active
from dovetail.sim.scenarios.scenario import Scenario, ScenarioError
from dovetail.sim.world.karpenter.node_objects import span_of, with_condition
from dovetail.sim.world.world import World

_PLAIN = (
    "namespaces",
    "priority_classes",
    "storage_classes",
    "pvs",
    "pvcs",
    "csi_nodes",
    "daemon_sets",
    "replica_sets",
    "stateful_sets",
    "pdbs",
)


def captured_path(scenario: Scenario, name: str) -> Path:
    """Return where the capture is: beside the scenario's file, or as given."""
    path = Path(name)
    folder = scenario.folder
    return path if path.is_absolute() or folder is None else folder / path


def load_captured(scenario: Scenario, name: str) -> Cluster:
    """Return the captured cluster that a scenario starts from."""
    path = captured_path(scenario, name)
    if not path.is_file():
        raise ScenarioError(
            f"{path}: there is no such file; write the path of a capture, as `dovetail snapshot` makes it"
        )
    return load_cluster([path])


def start_from(world: World, cluster: Cluster, adapt: Callable[[NodePool], NodePool]) -> None:
    """Add a captured cluster; its pools pass `adapt`, which puts the policy under test on them."""
    for field in _PLAIN:
        for item in getattr(cluster, field):
            world.put(item)
    for pool in cluster.node_pools:
        if pool.metadata.name not in world.store.pools:
            world.add_pool(adapt(pool))
    kinds = {kind.name: kind for kind in world.cloud.catalogue.instance_types}
    for claim in cluster.node_claims:
        if claim.metadata.deletion_timestamp is None:
            _adopt_claim(world, claim, kinds)
    for node in cluster.nodes:
        if node.metadata.deletion_timestamp is None:
            world.put(node)
    for name in sorted(world.store.claims):
        world.karpenter.resume(name)
    for pod in cluster.pods:
        if is_active(pod):
            _adopt_pod(world, pod)


def _adopt_claim(world: World, claim: NodeClaim, kinds: dict[str, InstanceType]) -> None:
    if claim.status.node_name:
        # In this world a node and its NodeClaim share one name; nothing decides by it.
        claim = replace(claim, metadata=replace(claim.metadata, name=claim.status.node_name))
    labels, born = claim.metadata.labels, claim.metadata.creation_timestamp
    known = kinds.get(labels.get(names.INSTANCE_TYPE, ""))
    if known is not None:
        zone, capacity_type = labels.get(names.ZONE, ""), labels.get(names.CAPACITY_TYPE, names.ON_DEMAND)
        started = world.clock.since_start(born) if born is not None else world.now
        world.cloud.adopt(claim.metadata.name, known, zone, capacity_type, started)
    world.put(claim)
    expire = span_of(claim.spec.expire_after)
    if expire is not None and born is not None:
        due = world.clock.since_start(born) + expire
        world.clock.at(due, world.karpenter.expire, claim.metadata.name, claim.metadata.uid)


def _adopt_pod(world: World, pod: Pod) -> None:
    if pod.spec.node_name and pod.spec.node_name not in world.store.nodes:
        pod = replace(pod, spec=replace(pod.spec, node_name=""), status=replace(pod.status, phase="Pending"))
    if not pod.spec.node_name:
        conditions = with_condition((), "PodScheduled", "False", world.clock.instant(), "Unschedulable")
        pod = replace(pod, status=replace(pod.status, phase="Pending", conditions=conditions))
    elif pod.status.phase in ("", "Running"):
        conditions = with_condition(pod.status.conditions, "Ready", "True", world.clock.instant())
        pod = replace(pod, status=replace(pod.status, phase="Running", conditions=conditions))
    world.workloads.adopt(pod)
