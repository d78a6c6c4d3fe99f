"""Promises about health: a pool waits for pods it moved, and repairs only ill nodes (docs/rules.md#health, #repair).

Counts independently from the objects of the simulated cluster and the engines' instructions. What a decision could not
know yet, within the lag, does not count as a violation. Sits in sim, beside the other checkers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dovetail.lifecycle.messages import DeleteNodeClaim, EvictPod, Instruction, SurgeDeployment, UntaintNode
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import Node, Pod, ReplicaSet, StatefulSet, condition, is_true
from dovetail.model.policies.policy import DisruptionPolicy, Reason
from dovetail.sim.checks.control_checkers import ControlChecker
from dovetail.sim.world.host import Host
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Memory, Watch

_LEAVES: Final = (DeleteNodeClaim, EvictPod, SurgeDeployment)
_BREAKER_PERCENT: Final = 20


@dataclass(slots=True)
class _Moved:
    """A command whose pods leave: who asked for it, what its owners had, and when the last of its nodes went."""

    life: tuple[str, int]
    nodes: dict[str, set[str]]
    ready: dict[str, int]
    leaving: frozenset[str]
    gone: bool = False
    pools: set[str] = field(default_factory=set)


class HealthChecker(ControlChecker):
    """Nothing voluntary starts in a pool while pods that it moved are missing (movedPodsReadyWithin).

    An engine that has restarted since then is excused: only a halt survives a restart.
    """

    rule = "health"
    follows = ("Node", "Pod", "ReplicaSet", "StatefulSet")

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._moved: dict[str, _Moved] = {}
        self._missing: Memory = {}

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Count the owners' ready pods when a command's first pod is asked to leave; forget released nodes."""
        super().asked(host, instruction)
        if isinstance(instruction, UntaintNode) and instruction.command_id in self._moved:
            self._release(instruction.command_id, instruction.node)
        if isinstance(instruction, _LEAVES) and instruction.command_id not in self._moved:
            start = self.starts.get(instruction.command_id)
            if start is not None:
                self._begin_to_move(host, instruction.command_id, start.nodes)

    def _begin_to_move(self, host: Host, ident: str, nodes: dict[str, set[str]]) -> None:
        pools = {pool for pool in nodes if any(_within(policy) for policy in self.policies(pool))}
        if not pools:
            return
        pods = [pod for names_ in nodes.values() for node in sorted(names_) for pod in self._pods_on(node)]
        owners = {owner for pod in pods for owner in _owners(pod)}
        self._moved[ident] = _Moved(
            life=(host.name, host.starts),
            nodes={pool: set(names_) for pool, names_ in nodes.items()},
            ready={owner: count for owner, count in self._ready(frozenset()).items() if owner in owners},
            leaving=frozenset(pod.metadata.uid for pod in pods),
            pools=pools,
        )

    def _release(self, ident: str, node: str) -> None:
        """Take back a node that a command releases, with the pods that stay there."""
        moved = self._moved[ident]
        for nodes in moved.nodes.values():
            nodes.discard(node)
        moved.leaving -= {pod.metadata.uid for pod in self._pods_on(node)}
        if not any(moved.nodes.values()):
            del self._moved[ident]

    def changed(self, change: Change) -> None:
        """Follow the end of nodes, and whether owners miss pods."""
        if not self._moved:
            return
        for ident, moved in tuple(self._moved.items()):
            if not moved.gone:
                left = any(node in self.store.nodes for part in moved.nodes.values() for node in part)
                moved.gone = not left
            if moved.gone:
                self._follow(ident, moved)

    def _follow(self, ident: str, moved: _Moved) -> None:
        ready, wanted = self._ready(moved.leaving), self._wanted()
        short = [key for key, count in moved.ready.items() if ready.get(key, 0) < min(count, wanted.get(key, 0))]
        if not short:
            del self._moved[ident]
            return
        self.watch.remember(self._missing, ident, len(short))

    def began(self, host: Host, pool: str, reason: Reason) -> None:
        """Look whether pods have been missing for longer than the engine may not know it."""
        if reason is Reason.UNHEALTHY or host.engine.settings.rules.plays_karpenter:
            return
        for ident, moved in self._moved.items():
            same_engine = moved.life == (host.name, host.starts)
            if moved.gone and pool in moved.pools and same_engine and self._is_long_missing(ident):
                self.broken(f"{pool}: a command for {reason.value} starts while pods that {ident} moved are missing")

    def _is_long_missing(self, ident: str) -> bool:
        entries = self._missing.get(ident, [])
        return bool(entries) and entries[0][0] <= self.world.now - self.watch.lag

    def _pods_on(self, node: str) -> list[Pod]:
        return [pod for _, pod in sorted(self.store.pods_on.get(node, {}).items())]

    def _ready(self, without: frozenset[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for pod in self.store.pods.values():
            stays = pod.metadata.deletion_timestamp is None and pod.metadata.uid not in without
            if stays and pod.spec.node_name and is_true(pod.status.conditions, "Ready"):
                for owner in _owners(pod):
                    found[owner] = found.get(owner, 0) + 1
        return found

    def _wanted(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for kind in ("ReplicaSet", "StatefulSet"):
            for item in self.store.by_kind[kind].values():
                assert isinstance(item, ReplicaSet | StatefulSet)
                found[item.metadata.uid] = 1 if item.spec.replicas is None else item.spec.replicas
        return found


def _owners(pod: Pod) -> list[str]:
    return [owner.uid for owner in pod.metadata.owner_references if owner.kind in ("ReplicaSet", "StatefulSet")]


def _within(policy: DisruptionPolicy) -> bool:
    return policy.health is not None and policy.health.moved_pods_ready_within is not None


class RepairChecker(ControlChecker):
    """Only nodes that have been ill for long enough are repaired, and none while too many are ill."""

    rule = "repair"
    follows = ("Node",)

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._ill: Memory = {}
        self._nodes: Memory = {}

    def changed(self, change: Change) -> None:
        """Remember the node, and how many nodes of each pool are ill, of how many."""
        if isinstance(change.new, Node):
            self.watch.remember(self._nodes, change.key, change.new)
        else:
            self._nodes.pop(change.key, None)
        for pool in sorted(self.store.pools):
            rules = [rule for policy in self.policies(pool) for rule in policy.repair]
            if not rules:  # nobody repairs there: the nodes need not be counted at every change of one
                self._ill.pop(pool, None)
                continue
            nodes = [node for node in self.store.nodes.values() if node.metadata.labels.get(names.NODEPOOL) == pool]
            ill = sum(any(_has(node, rule.condition, rule.status) for rule in rules) for node in nodes)
            self.watch.remember(self._ill, pool, (ill, len(nodes)))

    def took(self, host: Host, method: Method, node: Node, pool: str) -> None:
        """Look how long the node has been ill, and how many others are."""
        if method is not Method.UNHEALTHY:
            return
        lately = self.watch.lately(self._nodes, node.metadata.name) or [node]  # it may have recovered a moment ago
        if not any(self._is_due(host, policy, seen) for policy in self.policies(pool) for seen in lately):
            self.broken(f"{node.metadata.name} is repaired and has not been ill for long enough")
        counts = self.watch.lately(self._ill, pool)
        if counts and all(ill > -(-_BREAKER_PERCENT * total // 100) for ill, total in counts):
            self.broken(
                f"{pool}: {node.metadata.name} is repaired while {counts[-1][0]} of {counts[-1][1]} nodes are ill"
            )

    def _is_due(self, host: Host, policy: DisruptionPolicy, node: Node) -> bool:
        for rule in policy.repair:
            entry = condition(node.status.conditions, rule.condition)
            since = None if entry is None or entry.status != rule.status else entry.last_transition_time
            if since is not None:
                age = max(at - since for at in self.instants(host)).total_seconds()
                if age * 1e9 + self.watch.lag + self.skew >= rule.lasting:
                    return True
        return False


def _has(node: Node, kind: str, status: str) -> bool:
    entry = condition(node.status.conditions, kind)
    return entry is not None and entry.status == status
