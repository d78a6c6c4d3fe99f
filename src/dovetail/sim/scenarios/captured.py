"""Starts a world from a captured cluster: what `kubectl get` or `dovetail snapshot` wrote is the state at time zero.

Nodes and NodeClaims continue (expiry, drift, consolidation timers); pods stay where they were, and their owners
recreate them after an eviction; a pod without a known owner is recreated under a numbered name. Machines of types that
are not in the catalogue run without a price. Decides nothing about disruption.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from dovetail.api.reading.decode import load_cluster
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType
from dovetail.model.cluster import Cluster
from dovetail.model.money import Money, nearest
from dovetail.model.objects import Node, NodeClaim, NodePool, ObjectMeta, Pod
from dovetail.model.settings import Tariff
from dovetail.scheduling.pods.pod import is_active
from dovetail.sim.scenarios.scenario import Scenario, ScenarioError
from dovetail.sim.world.cloud import Instance
from dovetail.sim.world.karpenter.node_objects import span_of, with_condition
from dovetail.sim.world.metering import TariffMeter
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


def cost_per_hour(cluster: Cluster, catalogue: Catalogue, tariff: Tariff) -> Money:
    """Return what the machines of a captured cluster cost per hour; those without a known price cost nothing here."""
    kinds = {kind.name: kind for kind in catalogue.instance_types}
    found = [machine for claim in cluster.node_claims if (machine := _machine(claim, kinds, 0)) is not None]
    return nearest(TariffMeter(tariff, lambda: cluster)(found, catalogue))


def _machine(claim: NodeClaim, kinds: Mapping[str, InstanceType], started: int) -> Instance | None:
    """Return the machine of a NodeClaim; None if its type is not in the catalogue."""
    labels = claim.metadata.labels
    kind = kinds.get(labels.get(names.INSTANCE_TYPE, ""))
    if kind is None:
        return None
    return Instance(
        claim=claim.metadata.name,
        kind=kind,
        zone=labels.get(names.ZONE, ""),
        capacity_type=labels.get(names.CAPACITY_TYPE, names.ON_DEMAND),
        started=started,
        pool=labels.get(names.NODEPOOL, ""),
        region=labels.get(names.REGION, ""),
    )


def start_from(
    world: World, cluster: Cluster, adapt: Callable[[NodePool], NodePool], manages: Callable[[str], bool]
) -> None:
    """Add a captured cluster; its pools pass `adapt`, which puts the policy under test on them.

    Marks of a controller that does not run under that policy (`manages`: whether Dovetail manages a pool) are removed
    from nodes and NodeClaims: nobody else would.
    """
    for field in _PLAIN:
        for item in getattr(cluster, field):
            world.put(item)
    for pool in cluster.node_pools:
        if pool.metadata.name not in world.store.pools:
            world.add_pool(adapt(pool))
    kinds = {kind.name: kind for kind in world.cloud.catalogue.instance_types}
    for claim in cluster.node_claims:
        if claim.metadata.deletion_timestamp is None:
            _adopt_claim(world, replace(claim, metadata=_without_notes(claim.metadata, manages)), kinds)
    for node in cluster.nodes:
        if node.metadata.deletion_timestamp is None:
            world.put(replace(_without_taints(node, manages), metadata=_without_notes(node.metadata, manages)))
    for found in cluster.daemon_sets:
        world.workloads.adopt_daemons(found)
    for name in sorted(world.store.claims):
        world.karpenter.resume(name)
    world.provisioner.taken_names = frozenset(world.store.claims)
    for pod in cluster.pods:
        if is_active(pod):
            _adopt_pod(world, pod)


def _without_notes(meta: ObjectMeta, manages: Callable[[str], bool]) -> ObjectMeta:
    """Return metadata without Dovetail's hold and record, if Dovetail is not there to take them up again."""
    held = names.HOLD in meta.annotations
    gone = (names.COMMAND, names.HOLD, *((names.DO_NOT_DISRUPT,) if held else ()))
    if manages(meta.labels.get(names.NODEPOOL, "")) or not any(key in meta.annotations for key in gone):
        return meta
    return replace(meta, annotations={key: value for key, value in meta.annotations.items() if key not in gone})


def _without_taints(node: Node, manages: Callable[[str], bool]) -> Node:
    """Return a node without taints that nobody would remove.

    Karpenter's own always: it forgets its commands when it restarts. Dovetail's if it does not manage the pool.
    """
    gone: tuple[str, ...] = (names.DISRUPTED_TAINT,)
    if not manages(node.metadata.labels.get(names.NODEPOOL, "")):
        gone = (*gone, names.DISRUPTION_TAINT, names.CLOSING_TAINT)
    if not any(taint.key in gone for taint in node.spec.taints):
        return node
    return replace(node, spec=replace(node.spec, taints=tuple(t for t in node.spec.taints if t.key not in gone)))


def _adopt_claim(world: World, claim: NodeClaim, kinds: dict[str, InstanceType]) -> None:
    if claim.status.node_name:
        # In this world a node and its NodeClaim share one name; nothing decides by it.
        claim = replace(claim, metadata=replace(claim.metadata, name=claim.status.node_name))
    born = claim.metadata.creation_timestamp
    machine = _machine(claim, kinds, world.clock.since_start(born) if born is not None else world.now)
    if machine is not None:
        world.cloud.adopt(machine)
    world.put(claim)
    expire = span_of(claim.spec.expire_after)
    if expire is not None and born is not None:
        due = world.clock.since_start(born) + expire
        world.clock.at(due, world.karpenter.expire, claim.metadata.name, claim.metadata.uid)


def _adopt_pod(world: World, pod: Pod) -> None:
    if pod.spec.node_name and pod.spec.node_name not in world.store.nodes:
        if any(owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references):
            return  # it goes with its node
        pod = replace(pod, spec=replace(pod.spec, node_name=""), status=replace(pod.status, phase="Pending"))
    if not pod.spec.node_name:
        conditions = with_condition((), "PodScheduled", "False", world.clock.instant(), "Unschedulable")
        pod = replace(pod, status=replace(pod.status, phase="Pending", conditions=conditions))
    elif pod.status.phase in ("", "Running"):
        conditions = with_condition(pod.status.conditions, "Ready", "True", world.clock.instant())
        pod = replace(pod, status=replace(pod.status, phase="Running", conditions=conditions))
    world.workloads.adopt(pod)
