"""Apply a command to a captured cluster with the planned result: nodes gone, pods bound, replacements initialized.

A pure function of cluster, catalogue and time, for `plan.to_end`. Later effects are ignored: moved pods don't restart
timers, and nothing fails. A replacement becomes the machine that its command's savings count with, created and
initialized at the time of the plan. A static pool that lost a node is refilled from its template, as Karpenter does: by
the same machine again, if the template still admits it, since the command promises no savings.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from msgspec.structs import replace as change

from dovetail.api.policy import effective_policy
from dovetail.api.rolling import annotations_of, begin_domain
from dovetail.decide.gates.budgets import domain_at_turn
from dovetail.decide.methods.static import template_replacement
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType
from dovetail.model.cluster import Cluster
from dovetail.model.command import Command, Method, Replacement
from dovetail.model.money import Money
from dovetail.model.objects import (
    Condition,
    Node,
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodePool,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    SelectorRequirement,
)
from dovetail.model.quantity import format_amount
from dovetail.scheduling.launch.purchase import Machine, cheapest, counted_on, labels_of, single_values
from dovetail.scheduling.pods.pod import is_reschedulable

_PASSING = (names.INITIALIZED_LABEL, names.REGISTERED_LABEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A node that a plan opens: its name, pool, and the machine of the launch (None: none is available)."""

    node: str
    node_pool: str
    machine: Machine | None

    @property
    def price(self) -> Money:
        """Return what it costs per hour."""
        return 0 if self.machine is None else self.machine.offering.price


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The cluster after some commands, and the nodes that they opened, command by command."""

    cluster: Cluster
    launched: tuple[tuple[Launched, ...], ...]


def apply_commands(
    cluster: Cluster,
    commands: Sequence[Command],
    catalogue: Catalogue,
    now: datetime,
    first: int = 1,
    *,
    hopeful: bool = False,
) -> Applied:
    """Return the cluster once all commands have ended; new nodes are numbered from `first`.

    `hopeful`: savings count with the cheapest offering, as under Karpenter's rules, not with the dearest of a type.
    """
    buy = cheapest if hopeful else counted_on
    kinds = {kind.name: kind for kind in catalogue.instance_types}
    taken = {node.metadata.name for node in cluster.nodes}
    launched: list[tuple[Launched, ...]] = []
    for command in commands:
        cluster, opened = _apply(cluster, command, _Shop(kinds, buy), now, _Names(taken, first))
        taken.update(entry.node for entry in opened)
        first += len(opened)
        launched.append(opened)
    return Applied(cluster=cluster, launched=tuple(launched))


def keep_rolls(question: Question, result: RoundResult) -> Cluster:
    """Return the question's cluster with what its NodePools say about their rolls after a round.

    Design: topology-budgets. What the round found goes first; then the domains that its drift commands begin. The clock
    stands still, so no more nodes will drift: nothing waits for them.
    """
    annotations = {pool.metadata.name: dict(pool.metadata.annotations) for pool in question.cluster.node_pools}
    for roll in result.rolling:
        _annotate(annotations[roll.node_pool], annotations_of(roll.domain, change(roll.rollout, began=None)))
    pools = {pool.metadata.name: pool for pool in question.cluster.node_pools}
    drifted = {name for command in result.commands if command.method is Method.DRIFTED for name in command.nodes}
    for node in question.cluster.nodes if drifted else ():
        pool = pools.get(node.metadata.labels.get(names.NODEPOOL, ""))
        if node.metadata.name not in drifted or pool is None:
            continue
        policy = effective_policy(pool, question.settings)
        begun = domain_at_turn(policy, node.metadata.labels, question.settings, question.now)
        if begun is not None:
            known = annotations[pool.metadata.name]
            _annotate(known, begin_domain(known, *begun, question.now))
    return replace(question.cluster, node_pools=tuple(_with(pools[name], kept) for name, kept in annotations.items()))


def _annotate(annotations: dict[str, str], changes: Mapping[str, str | None]) -> None:
    for key, value in changes.items():
        if value is None:
            annotations.pop(key, None)
        else:
            annotations[key] = value


def _with(pool: NodePool, annotations: dict[str, str]) -> NodePool:
    if annotations == pool.metadata.annotations:
        return pool
    return change(pool, metadata=change(pool.metadata, annotations=annotations))


class _Names:
    """Generates names for new nodes: the pool's name, `new`, and an unused number."""

    def __init__(self, taken: Iterable[str], first: int) -> None:
        self._taken, self._next = set(taken), first

    def next(self, pool: str) -> str:
        while (name := f"{pool}-new-{self._next}") in self._taken:
            self._next += 1
        self._next += 1
        return name


@dataclass(frozen=True, slots=True)
class _Shop:
    """The types that can be launched, and which machine a launch becomes."""

    kinds: Mapping[str, InstanceType]
    buy: Callable[[Iterable[SelectorRequirement], Mapping[str, int], Iterable[InstanceType]], Machine | None]


def _apply(
    cluster: Cluster, command: Command, shop: _Shop, now: datetime, new_names: _Names
) -> tuple[Cluster, tuple[Launched, ...]]:
    pools = {pool.metadata.name: pool for pool in cluster.node_pools}
    gone = frozenset(command.nodes)
    bound = {pod: entry.node for entry in command.placements for pod in entry.pods}
    leaving = [node.metadata.labels for node in cluster.nodes if node.metadata.name in gone]
    launched: list[Launched] = []
    nodes: list[Node] = []
    claims: list[NodeClaim] = []
    for wanted in (*command.replacements, *_refills(cluster, command, pools)):
        pool = pools[wanted.node_pool]
        name = new_names.next(wanted.node_pool)
        machine = _bought(wanted, shop, leaving)
        launched.append(Launched(node=name, node_pool=wanted.node_pool, machine=machine))
        if machine is not None:
            bound.update(dict.fromkeys(wanted.pods, name))
            claim = _claim(pool, name, wanted, machine, now)
            claims.append(claim)
            nodes.append(_node(claim, machine))
    spare = nodes[0].metadata.name if nodes else ""  # a template's node takes what no simulation placed
    providers = {node.spec.provider_id for node in cluster.nodes if node.metadata.name in gone}
    changed = replace(
        cluster,
        nodes=_sorted((*(node for node in cluster.nodes if node.metadata.name not in gone), *nodes)),
        node_claims=_sorted(
            (*(claim for claim in cluster.node_claims if claim.status.provider_id not in providers), *claims)
        ),
        pods=tuple(_moved(cluster.pods, gone, bound, spare)),
    )
    return changed, tuple(launched)


def _sorted(items: Iterable) -> tuple:  # type: ignore[type-arg]
    return tuple(sorted(items, key=lambda item: item.metadata.name))


def _moved(pods: Iterable[Pod], gone: frozenset[str], bound: dict[str, str], spare: str) -> Iterable[Pod]:
    for pod in pods:
        here = pod.spec.node_name in gone
        target = bound.get(pod.metadata.key) if here or bound else None
        if target is not None:
            yield _on(pod, target)
        elif not here:
            yield pod
        elif is_reschedulable(pod):
            yield _on(pod, spare) if spare else _waiting(pod)


def _on(pod: Pod, node: str) -> Pod:
    """Return the pod as it runs on its new node: a StatefulSet's pod that was terminating comes back."""
    metadata = pod.metadata
    if metadata.deletion_timestamp is not None:
        metadata = change(metadata, deletion_timestamp=None, deletion_grace_period_seconds=None)
    conditions = tuple(entry for entry in pod.status.conditions if entry.type != "PodScheduled")
    status = change(pod.status, phase="Running", conditions=conditions, nominated_node_name="")
    return change(pod, metadata=metadata, spec=change(pod.spec, node_name=node), status=status)


def _waiting(pod: Pod) -> Pod:
    unschedulable = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    status = change(pod.status, phase="Pending", conditions=(unschedulable,))
    return change(pod, spec=change(pod.spec, node_name=""), status=status)


def _refills(cluster: Cluster, command: Command, pools: dict[str, NodePool]) -> list[Replacement]:
    """Return what static pools launch to come back to their replicas."""
    if command.replacements:
        return []
    pool_of = {node.metadata.name: node.metadata.labels.get(names.NODEPOOL, "") for node in cluster.nodes}
    lost = [pools[name] for node in command.nodes if (name := pool_of.get(node, "")) in pools]
    found = []
    for pool in lost:
        if pool.spec.replicas is not None:
            left = sum(name == pool.metadata.name for name in pool_of.values()) - len(lost)
            if left < pool.spec.replicas:
                found.append(template_replacement(pool))
    return found


def _bought(wanted: Replacement, shop: _Shop, leaving: Sequence[Mapping[str, str]]) -> Machine | None:
    asked = [entry for entry in wanted.requirements if entry.key not in _PASSING]
    for key, values in ((names.ZONE, wanted.zones), (names.CAPACITY_TYPE, wanted.capacity_types)):
        if values:
            asked.append(SelectorRequirement(key=key, operator="In", values=values))
    chosen = [shop.kinds[name] for name in wanted.instance_types if name in shop.kinds] or shop.kinds.values()
    if not wanted.instance_types:  # from a static pool's template
        for labels in leaving:
            same = [
                _exactly(key, labels.get(key, "")) for key in (names.INSTANCE_TYPE, names.ZONE, names.CAPACITY_TYPE)
            ]
            if labels.get(names.NODEPOOL) == wanted.node_pool and (again := shop.buy([*asked, *same], {}, chosen)):
                return again
    return shop.buy(asked, wanted.requests, chosen)


def _exactly(key: str, value: str) -> SelectorRequirement:
    return SelectorRequirement(key=key, operator="In", values=(value,))


def _claim(pool: NodePool, name: str, wanted: Replacement, machine: Machine, now: datetime) -> NodeClaim:
    template = pool.spec.template
    labels = {
        **template.metadata.labels,
        **{key: value for key, value in single_values(wanted.requirements).items() if key not in _PASSING},
        **labels_of(machine, template.spec.node_class_ref.group),
        names.NODEPOOL: pool.metadata.name,
    }
    born = (names.CONDITION_LAUNCHED, names.CONDITION_REGISTERED, names.CONDITION_INITIALIZED)
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            labels=labels,
            annotations=dict(template.metadata.annotations),
            creation_timestamp=now,
            owner_references=(
                OwnerReference(
                    api_version="karpenter.sh/v1", kind="NodePool", name=pool.metadata.name, uid=pool.metadata.uid
                ),
            ),
        ),
        spec=NodeClaimSpec(
            requirements=tuple(entry for entry in wanted.requirements if entry.key not in _PASSING),
            taints=wanted.taints,
            node_class_ref=template.spec.node_class_ref,
            expire_after=template.spec.expire_after,
            termination_grace_period=template.spec.termination_grace_period,
        ),
        status=NodeClaimStatus(
            node_name=name,
            provider_id=f"planned:///{name}",
            capacity=_written(machine.kind.capacity),
            allocatable=_written(machine.kind.allocatable()),
            conditions=tuple(Condition(type=kind, status="True", last_transition_time=now) for kind in born),
        ),
    )


def _node(claim: NodeClaim, machine: Machine) -> Node:
    name = claim.metadata.name
    labels = {**claim.metadata.labels, names.HOSTNAME: name, **dict.fromkeys(_PASSING, "true")}
    ready = Condition(type="Ready", status="True", last_transition_time=claim.metadata.creation_timestamp)
    return Node(
        metadata=ObjectMeta(
            name=name,
            labels=labels,
            annotations=claim.metadata.annotations,
            creation_timestamp=claim.metadata.creation_timestamp,
        ),
        spec=NodeSpec(provider_id=claim.status.provider_id, taints=claim.spec.taints),
        status=NodeStatus(
            capacity=_written(machine.kind.capacity),
            allocatable=_written(machine.kind.allocatable()),
            conditions=(ready,),
        ),
    )


def _written(amounts: dict[str, int]) -> dict[str, str | int | float]:
    return {key: format_amount(key, amount) for key, amount in sorted(amounts.items())}
