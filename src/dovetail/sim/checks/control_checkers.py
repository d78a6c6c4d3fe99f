"""The promises of the operators' controls: rates, allow windows, a minimum age, a pause (docs/rules.md#controls).

Counts independently from the engines' instructions. A command starts with its first instruction, which is when it was
finally decided; what a decision could not know yet, within the lag, does not count as a violation. Sits in sim, beside
the other checkers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from dovetail.api.policy import effective_policy
from dovetail.api.pool_marks import read_pause
from dovetail.lifecycle.commands.records import decode_record
from dovetail.lifecycle.messages import (
    BeginDomain,
    Instruction,
    NoteDisruption,
    SurgeDeployment,
    TaintNode,
    UntaintNode,
)
from dovetail.model import names
from dovetail.model.command import REASON_OF, Method
from dovetail.model.objects import Node, Pod, is_true
from dovetail.model.policies.policy import DisruptionPolicy, Reason
from dovetail.model.settings import DOVETAIL
from dovetail.scheduling.pods.surge import Surges
from dovetail.sim.checks.budget_checker import names_reason
from dovetail.sim.checks.promises import Checker, record_on
from dovetail.sim.world.clock import HOUR
from dovetail.sim.world.host import Host
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch

_DAY: Final = 24 * HOUR
_CONSOLIDATES: Final = (Method.EMPTY, Method.MULTI_NODE, Method.SINGLE_NODE)


@dataclass(slots=True)
class _Start:
    """A command that has started: when, by which date on its engine's wall, why, and which nodes of each pool leave."""

    at: int
    dated: datetime
    reason: Reason
    nodes: dict[str, set[str]]


class ControlChecker(Checker):
    """Base: called for the start of every command, once for each pool, and for every node that it removes."""

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self.starts: dict[str, _Start] = {}
        self._begun: set[tuple[str, str]] = set()
        self._taken: set[str] = set()
        self.skew = 0
        """By how much a wall clock was off at most: a history is dated by the clocks of those who wrote it."""

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Follow commands from their first instruction on."""
        self.skew = max(self.skew, abs(self.world.clock.since_start(host.now()) - self.world.now))
        if isinstance(instruction, NoteDisruption):
            self._begin(host, instruction.command_id, instruction.node_pool, Reason(instruction.reason))
        elif isinstance(instruction, BeginDomain):
            self._begin(host, instruction.command_id, instruction.node_pool, Reason.DRIFTED)
        elif isinstance(instruction, TaintNode) and instruction.id not in self._taken:
            self._taken.add(instruction.id)
            self._taint(host, instruction)
        elif isinstance(instruction, UntaintNode):
            self.starts.pop(instruction.command_id, None)  # rolled back: it no longer counts

    def _taint(self, host: Host, instruction: TaintNode) -> None:
        record, node = decode_record(instruction.record), self.store.nodes.get(instruction.node)
        if record is None or node is None or self.watch.is_karpenters(instruction.command_id):
            return
        pool = node.metadata.labels.get(names.NODEPOOL, "")
        self._begin(host, instruction.command_id, pool, REASON_OF[record.method])
        self.starts[instruction.command_id].nodes.setdefault(pool, set()).add(instruction.node)
        self.took(host, record.method, node, pool)

    def _begin(self, host: Host, ident: str, pool: str, reason: Reason) -> None:
        if ident not in self.starts:
            self.starts[ident] = _Start(self.world.now, host.now(), reason, {})
        if (ident, pool) not in self._begun:
            self._begun.add((ident, pool))
            self.began(host, pool, reason)

    def began(self, host: Host, pool: str, reason: Reason) -> None:
        """Check a command that starts in a pool."""

    def took(self, host: Host, method: Method, node: Node, pool: str) -> None:
        """Check a node that a command removes."""

    def policies(self, pool: str) -> list[DisruptionPolicy]:
        """Return the policies that a decision may have seen."""
        return [effective_policy(entry, DOVETAIL) for entry in self.watch.pools_lately(pool)]

    def instants(self, host: Host) -> Iterator[datetime]:
        """Yield the times that a decision may have used: now, a moment ago, and the engine's own wall clock."""
        clock = self.world.clock
        yield clock.instant()
        yield clock.instant_of(max(0, clock.now - self.watch.lag))
        yield host.now()


class RateChecker(ControlChecker):
    """No more nodes begin to leave within any `per` than a rate budget allows (docs/rules.md#rates)."""

    rule = "rate"

    def took(self, host: Host, method: Method, node: Node, pool: str) -> None:
        """Count the starts of the last span."""
        name = node.metadata.name
        own = next(start for start in reversed(self.starts.values()) if name in start.nodes.get(pool, ()))
        problems = [self._problem(policy, pool, own, host) for policy in self.policies(pool)]
        if problems and all(problems):
            self.broken(problems[0])

    def _problem(self, policy: DisruptionPolicy, pool: str, own: _Start, host: Host) -> str:
        for budget in policy.budgets:
            if budget.per is None or budget.problem is not None or not names_reason(budget, own.reason):
                continue
            if budget.window is not None and not all(budget.window.active(at) for at in self.instants(host)):
                continue
            edge = self.world.now - budget.per + self.watch.lag + self.skew
            recent = sum(
                len(start.nodes.get(pool, ()))
                for start in self.starts.values()
                if start.at > edge and not _is_ahead(start, own) and names_reason(budget, start.reason)
            )
            total = sum(item.metadata.labels.get(names.NODEPOOL) == pool for item in self.store.nodes.values()) + recent
            allowed = -(-budget.amount * total // 100) if budget.is_percent else budget.amount
            if recent > allowed:
                return f"{pool}: {recent} nodes began to leave within a span in which {allowed} may"
        return ""


def _is_ahead(earlier: _Start, own: _Start) -> bool:
    """Return whether a command that started earlier is dated later, since a wall clock was set back in between.

    A rate counts starts at `t <= now` (docs/rules.md#rates), by the dates in the history: a decision does not count one
    that is still to come by its own clock. Only such a start is let off; one that started later counts whatever its
    date.
    """
    return earlier.at < own.at and earlier.dated > own.dated


class WindowChecker(ControlChecker):
    """Nothing starts for a reason outside its allow windows (docs/rules.md#windows)."""

    rule = "window"

    def began(self, host: Host, pool: str, reason: Reason) -> None:
        """Look whether a window was open."""
        closed = [all(not _may(policy, reason, at) for at in self.instants(host)) for policy in self.policies(pool)]
        if closed and all(closed):
            self.broken(f"{pool}: a command for {reason.value} starts while no window is open")


def _may(policy: DisruptionPolicy, reason: Reason, now: datetime) -> bool:
    naming = [entry for entry in policy.windows if entry.names(reason)]
    if any(entry.window is None for entry in naming):
        return False
    return not naming or any(entry.window is not None and entry.window.active(now) for entry in naming)


class MinAgeChecker(ControlChecker):
    """No node younger than minNodeAge is consolidated (docs/rules.md#min-node-age)."""

    rule = "min-node-age"

    def took(self, host: Host, method: Method, node: Node, pool: str) -> None:
        """Look how old its NodeClaim is."""
        claim = self.store.claims.get(node.metadata.name)
        if method not in _CONSOLIDATES or claim is None or claim.metadata.creation_timestamp is None:
            return
        asked = min((policy.min_node_age or 0 for policy in self.policies(pool)), default=0)
        age = max(at - claim.metadata.creation_timestamp for at in self.instants(host)).total_seconds()
        if asked and age * 1e9 + self.watch.lag < asked:
            self.broken(f"{node.metadata.name} is taken {age:.0f} s after its birth; it had to be older")


class ExpiryChecker(ControlChecker):
    """No node expires before its pool's expireAfter, or Karpenter's own less the lead (docs/rules.md#expiry)."""

    rule = "expiry"

    def took(self, host: Host, method: Method, node: Node, pool: str) -> None:
        """Look how old its NodeClaim is."""
        claim = self.store.claims.get(node.metadata.name)
        if method is not Method.EXPIRED or claim is None or claim.metadata.creation_timestamp is None:
            return
        spans = [policy.expire_after for policy in self.policies(pool)]
        own = self.world.karpenter.expiry_of(claim)
        if own is not None:
            lead = host.engine.settings.expiry_lead
            spans.append(own - (min(_DAY, own // 10) if lead is None else lead))
        age = max(at - claim.metadata.creation_timestamp for at in self.instants(host)).total_seconds()
        known = [span for span in spans if span is not None]
        if not known or age * 1e9 + self.watch.lag < min(known):
            self.broken(f"{node.metadata.name} is taken as expired {age:.0f} s after its birth, which is too soon")


class PauseChecker(ControlChecker):
    """Nothing starts in a paused pool (docs/rules.md#pause)."""

    rule = "pause"

    def began(self, host: Host, pool: str, reason: Reason) -> None:
        """Check whether the pool was paused at every time that a decision may have used."""
        pauses = [read_pause(entry) for entry in self.watch.pools_lately(pool)]
        held = [pause is not None and all(pause.holds(at) for at in self.instants(host)) for pause in pauses]
        if held and all(held):
            self.broken(f"{pool}: a command for {reason.value} starts although the pool is paused")


class SurgeChecker(Checker):
    """A Deployment that surges never has fewer ready pods than it wants because of a command (docs/rules.md#surge).

    Its only pod is never evicted, and while a command lets it roll it keeps the ready pods that it had. What happens
    from outside meanwhile, and an eviction that its PodDisruptionBudget allows, ends the watch over its rollout.
    """

    rule = "surge"
    follows = ("Pod",)

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._rolling: dict[str, int] = {}
        self.world.on_forced(self._forced)

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Count the ready pods when a rollout begins."""
        if isinstance(instruction, SurgeDeployment):
            key = f"{instruction.namespace}/{instruction.name}"
            if key not in self._rolling and self._is_there(key):
                self._rolling[key] = self._ready(key)

    def changed(self, change: Change) -> None:
        """Count them again."""
        for key, before in tuple(self._rolling.items()):
            wanted = min(before, self.world.workloads.desired("ReplicaSet", key))
            ready = self._ready(key)
            if ready < wanted:
                del self._rolling[key]
                self.broken(f"Deployment {key} rolls and has {ready} ready pods; {wanted} were to stay")

    def outside(self) -> None:
        """Note that something else may take pods now."""
        self._rolling.clear()

    def evicted(self, key: str, pod: Pod) -> None:
        """Look whether the pod's Deployment surges and wants it alone, on a node that a command removes."""
        if not self.store.by_kind["Deployment"]:
            return
        surge = Surges.build(self.store.cluster()).of(pod)
        if surge is None:
            return
        self._rolling.pop(surge.name, None)
        if surge.is_single and self._is_ours(pod.spec.node_name):
            self.broken(f"{key}, the only pod of Deployment {surge.name}, is evicted instead of rolled")

    def _forced(self, key: str, pod: Pod) -> None:
        """End the watch over a rollout that loses a pod with a node which no command deletes, or not yet."""
        node = pod.spec.node_name
        claim = self.store.claims.get(node)
        if claim is not None and claim.metadata.deletion_timestamp is not None and self._is_ours(node):
            return
        for name in [name for name in self._rolling if key in self.world.workloads.pods_of("ReplicaSet", name)]:
            del self._rolling[name]

    def _is_ours(self, name: str) -> bool:
        """Return whether a command of Dovetail removes a node."""
        node = self.store.nodes.get(name)
        record = None if node is None else record_on(node)
        return record is not None and not self.watch.is_karpenters(record.id)

    def _is_there(self, key: str) -> bool:
        return key in self.world.workloads.keys("ReplicaSet")

    def _ready(self, key: str) -> int:
        pods = [self.store.pods.get(name) for name in self.world.workloads.pods_of("ReplicaSet", key)]
        return sum(
            pod is not None and pod.metadata.deletion_timestamp is None and is_true(pod.status.conditions, "Ready")
            for pod in pods
        )
