"""Copies of a question in which something that holds nodes back is gone: vetoes, policies, settings, buffers.

`gate_lifts` yields one for every gate and pool that holds nodes back; settings and CapacityBuffers hold for all pools,
so their lifts name none. Nothing is asked of the round here (`decide.held_back`). Sits in decide.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from dovetail.api.policy_change import mended, with_policy_field
from dovetail.decide.facts.drainability import Guards, protection
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.question import Question
from dovetail.decide.scene import Scene
from dovetail.model import names
from dovetail.model.objects import Container as PodContainer
from dovetail.model.objects import Node, NodeClaim, NodePool, Pod, PodDisruptionBudget
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import Settings
from dovetail.model.verdicts import Gate, NodeVerdict
from dovetail.scheduling.pods.requests import uses_resource_claims

POOL_FIELDS: Final[Mapping[Gate, tuple[str, Any]]] = {
    Gate.POOL_POLICY: ("consolidationPolicy", "WhenEmptyOrUnderutilized"),
    Gate.CONSOLIDATE_AFTER: ("consolidateAfter", "0s"),
    Gate.GRACE_PERIOD: ("consolidationGracePeriod", "Never"),
    Gate.MIN_NODE_AGE: ("minNodeAge", "0s"),
    Gate.WINDOW: ("windows", []),
    Gate.HEALTH: ("health", {}),
    Gate.BUDGET: ("budgets", [{"nodes": "100%"}]),
    Gate.TOPOLOGY_BUDGET: ("budgets", [{"nodes": "100%"}]),
    Gate.SAVINGS_THRESHOLD: ("consolidationSavingsThreshold", "0"),
    Gate.BALANCED: ("consolidationPolicy", "WhenEmptyOrUnderutilized"),
}
"""The field of a pool's policy that opens a gate, and the value that does."""
_SETTINGS: Final[Mapping[Gate, Callable[[Settings], Settings]]] = {
    Gate.PAUSED: lambda settings: replace(settings, paused=False),
    Gate.SPOT_TO_SPOT: lambda settings: replace(settings, spot_to_spot_consolidation=True),
    Gate.SPOT_FLEXIBILITY: lambda settings: replace(settings, spot_minimum_types=1),
}
_VETOES: Final = (names.DO_NOT_DISRUPT, names.ALWAYS_DO_NOT_DISRUPT)
Item = TypeVar("Item", Pod, Node, NodeClaim, NodePool)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLift:
    """A question without a gate. `node_pool`: for whose nodes; empty: for all. `nodes`: those that stop at the gate."""

    node_pool: str
    gate: Gate
    nodes: tuple[str, ...]
    question: Question


def gate_lifts(question: Question, scene: Scene, verdicts: Iterable[NodeVerdict]) -> Iterator[GateLift]:
    """Yield every gate of a pool, setting and CapacityBuffer that holds nodes back, lifted, by pool and gate.

    Gates that nobody can lift, such as pods that fit nowhere, are left out.
    """
    pools = {pool.metadata.name: pool for pool in question.cluster.node_pools}
    held: dict[tuple[str, str], list[str]] = {}
    for entry in verdicts:
        if entry.node_pool in pools:
            held.setdefault((entry.node_pool, entry.verdict), []).append(entry.node)
    lifting = _Lifting(question, scene)
    for (name, verdict), nodes in sorted(held.items()):
        gate = next((gate for gate in Gate if gate.value == verdict), None)
        lifted = None if gate is None else lifting.of_pool(name, gate, nodes)
        if gate is not None and lifted is not None:
            yield GateLift(node_pool=name, gate=gate, nodes=tuple(nodes), question=lifted)
    for gate in (*_SETTINGS, Gate.CAPACITY_BUFFER):
        nodes = sorted(node for (_, verdict), some in held.items() if verdict == gate.value for node in some)
        if nodes and (gate is not Gate.PAUSED or question.settings.paused):
            yield GateLift(node_pool="", gate=gate, nodes=tuple(nodes), question=lifting.of_all(gate))


class _Lifting:
    """Lifts gates of one question."""

    def __init__(self, question: Question, scene: Scene) -> None:
        self._question, self._scene = question, scene

    def of_pool(self, name: str, gate: Gate, nodes: Sequence[str]) -> Question | None:
        """Return the question without a gate for nodes of a pool; None: it can't be lifted for a pool."""
        policy = self._scene.policies[name]
        if gate is Gate.CONSOLIDATE_AFTER and policy.closed:
            return with_mended_pool(self._question, name, policy)
        if gate in POOL_FIELDS:
            return None if policy.static else with_pool_field(self._question, name, gate)
        match gate:
            case Gate.PAUSED:
                return None if self._question.settings.paused else resumed(self._question, name)
            case Gate.NODE_DO_NOT_DISRUPT:
                return without_node_vetoes(self._question, [self._scene.by_name[name] for name in nodes])
            case Gate.POD_DO_NOT_DISRUPT:
                return without_protection(self._question, self._protected(nodes))
            case Gate.PDB:
                return self._without_pdbs(nodes)
            case Gate.DYNAMIC_RESOURCES:
                return with_pods(self._question, {pod.metadata.key for pod in self._pods(nodes)}, without_claims)
            case _:
                return None

    def of_all(self, gate: Gate) -> Question:
        """Return the question without a setting's gate, or without CapacityBuffers."""
        question = self._question
        if gate in _SETTINGS:
            return replace(question, settings=_SETTINGS[gate](question.settings))
        return replace(question, cluster=replace(question.cluster, capacity_buffers=()))

    def _pods(self, nodes: Iterable[str]) -> Iterator[Pod]:
        scene = self._scene
        for name in nodes:
            place = scene.index_of(scene.by_name[name])
            yield from scene.snapshot.pods_on[place] if place >= 0 else ()

    def _protected(self, nodes: Iterable[str]) -> set[str]:
        durations, now = self._question.settings.rules.protection_durations, self._question.now
        return {pod.metadata.key for pod in self._pods(nodes) if protection(pod, now, durations=durations) is not None}

    def _without_pdbs(self, nodes: Iterable[str]) -> Question:
        """Let every PDB that refuses a pod allow one; of several PDBs of a pod, drop the last."""
        guards = Guards(self._question.cluster.pdbs, durations=self._question.settings.rules.protection_durations)
        allow: dict[str, None] = {}
        drop: dict[str, None] = {}
        for pod in self._pods(nodes):
            veto = guards.veto(pod, self._question.now)
            if veto is not None:
                several = len(veto.pdbs) > 1
                allow.update(dict.fromkeys(veto.pdbs[:-1] if several else veto.pdbs))
                drop.update(dict.fromkeys(veto.pdbs[-1:] if several else ()))
        return with_pdbs(self._question, tuple(allow), tuple(drop))


# ---------------------------------------------------------------- changed questions


def with_pool_field(question: Question, name: str, gate: Gate) -> Question:
    """Return the question with a pool whose policy opens a gate."""
    return _with_pool(question, name, lambda pool: with_policy_field(pool, *POOL_FIELDS[gate]))


def with_mended_pool(question: Question, name: str, policy: DisruptionPolicy) -> Question:
    """Return the question with a pool without what can't be read of its policy."""
    return _with_pool(question, name, lambda pool: mended(pool, policy.unreadable))


def _with_pool(question: Question, name: str, change: Callable[[NodePool], NodePool]) -> Question:
    pools = tuple(change(pool) if pool.metadata.name == name else pool for pool in question.cluster.node_pools)
    return replace(question, cluster=replace(question.cluster, node_pools=pools))


def resumed(question: Question, name: str) -> Question:
    """Return the question as `dovetail resume` leaves a pool: neither paused nor halted."""
    keys = (names.PAUSED, names.PAUSED_REASON, names.HALTED)
    pools = tuple(_without(pool, keys) if pool.metadata.name == name else pool for pool in question.cluster.node_pools)
    return replace(question, cluster=replace(question.cluster, node_pools=pools))


def with_pods(question: Question, wanted: Container[str], change: Callable[[Pod], Pod]) -> Question:
    """Return the question with some pods changed, by `namespace/name`."""
    pods = tuple(change(pod) if pod.metadata.key in wanted else pod for pod in question.cluster.pods)
    return replace(question, cluster=replace(question.cluster, pods=pods))


def without_protection(question: Question, wanted: Container[str]) -> Question:
    """Return the question with pods that have no do-not-disrupt."""
    return with_pods(question, wanted, lambda pod: _without(pod, (names.DO_NOT_DISRUPT,)))


def with_pdbs(question: Question, allow: Container[str], drop: Container[str]) -> Question:
    """Return the question with PDBs that allow a disruption, and without others, by `namespace/name`."""
    pdbs = []
    for pdb in question.cluster.pdbs:
        key = pdb.metadata.key
        if key not in drop:
            pdbs.append(_allowing(pdb) if key in allow else pdb)
    return replace(question, cluster=replace(question.cluster, pdbs=tuple(pdbs)))


def _allowing(pdb: PodDisruptionBudget) -> PodDisruptionBudget:
    status = msgspec.structs.replace(pdb.status, disruptions_allowed=max(1, pdb.status.disruptions_allowed))
    return msgspec.structs.replace(pdb, status=status)


def without_node_vetoes(question: Question, wanted: Iterable[NodeFacts]) -> Question:
    """Return the question with nodes, and their claims, that have no do-not-disrupt."""
    cluster, ids = question.cluster, {id(item) for facts in wanted for item in (facts.node, facts.claim)}
    nodes = tuple(without_vetoes(node) if id(node) in ids else node for node in cluster.nodes)
    claims = tuple(without_vetoes(claim) if id(claim) in ids else claim for claim in cluster.node_claims)
    return replace(question, cluster=replace(cluster, nodes=nodes, node_claims=claims))


def without_vetoes(item: Item) -> Item:
    """Return an object without do-not-disrupt of any kind."""
    return _without(item, _VETOES)


def _without(item: Item, unwanted: Collection[str]) -> Item:
    if not any(name in item.metadata.annotations for name in unwanted):
        return item
    kept = {key: text for key, text in item.metadata.annotations.items() if key not in unwanted}
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, annotations=kept))


def without_claims(pod: Pod) -> Pod:
    """Return a pod without its resource claims, as if every node had its devices."""
    if not uses_resource_claims(pod.spec):
        return pod
    spec = msgspec.structs.replace(
        pod.spec,
        resource_claims=(),
        containers=tuple(map(_without_devices, pod.spec.containers)),
        init_containers=tuple(map(_without_devices, pod.spec.init_containers)),
    )
    return msgspec.structs.replace(pod, spec=spec)


def _without_devices(container: PodContainer) -> PodContainer:
    resources = msgspec.structs.replace(container.resources, claims=())
    return msgspec.structs.replace(container, resources=resources)
