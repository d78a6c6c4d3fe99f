"""The checker of budgets: no pool and no topology domain ever loses more nodes at once than it allows.

Counts independently from nodes, taints and NodeClaims; only the parser of a budget is shared with the decisions. What a
decision could not know yet (within the lag) does not count as a violation. See docs/rules.md#budgets; topology-budgets,
disruption-controls.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, cast

from dovetail.api.policy import effective_policy
from dovetail.model import names
from dovetail.model.command import REASON_OF
from dovetail.model.objects import Node, NodeClaim, is_true
from dovetail.model.policies.policy import Budget, DisruptionPolicy, Reason
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.sim.checks.promises import Checker, is_tainted, record_on
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch


@dataclass(slots=True)
class _Leaving:
    pool: str
    reason: Reason
    domain_labels: dict[str, str]
    karpenter: bool


class BudgetChecker(Checker):
    """No budget is exceeded at any instant, flat and per topology domain.

    Design: docs/rules.md#budgets; topology-budgets, disruption-controls.
    """

    rule = "budget"
    follows = ("Node", "NodeClaim")

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self.leaving: dict[str, _Leaving] = {}
        self._counts: dict[str, list[tuple[int, int]]] = {}
        self._counted: dict[str, str] = {}
        self._down: dict[str, int] = {}

    def changed(self, change: Change) -> None:
        """Follow nodes and claims; check each node that a command taints."""
        if change.kind == "Node":
            self._node(change.key, cast("Node | None", change.old), cast("Node | None", change.new))
        else:
            claim = cast("NodeClaim | None", change.new)
            if claim is None or is_true(claim.status.conditions, names.CONDITION_INSTANCE_TERMINATING):
                self._uncount(change.key)
                self.leaving.pop(change.key, None)
                self._down.pop(change.key, None)
            elif claim.metadata.deletion_timestamp is not None:
                self._down.setdefault(change.key, self.world.now)

    def _uncount(self, name: str) -> None:
        pool = self._counted.pop(name, None)
        if pool is not None:
            self.watch.remember(self._counts, pool, self._counts[pool][-1][1] - 1)

    def _node(self, name: str, old: Node | None, new: Node | None) -> None:
        if new is None:
            self._uncount(name)
            self.leaving.pop(name, None)
            self._down.pop(name, None)
            return
        pool = new.metadata.labels.get(names.NODEPOOL, "")
        if name not in self._counted and names.INITIALIZED_LABEL in new.metadata.labels and pool:
            known = self._counts.get(pool)
            self._counted[name] = pool
            self.watch.remember(self._counts, pool, (known[-1][1] if known else 0) + 1)
        if is_true(new.status.conditions, "Ready"):
            claim = self.store.claims.get(name)
            if claim is not None and claim.metadata.deletion_timestamp is None:
                self._down.pop(name, None)
        elif name in self._counted:
            self._down.setdefault(name, self.world.now)
        if is_tainted(new) and not is_tainted(old):
            self._closed(name, new, pool)
        elif is_tainted(old) and not is_tainted(new):
            self.leaving.pop(name, None)

    def _closed(self, name: str, node: Node, pool: str) -> None:
        record = record_on(node)
        if record is None or pool not in self.store.pools:
            return
        reason = REASON_OF[record.method]
        karpenter = self.watch.is_karpenters(record.id)
        self.leaving[name] = _Leaving(pool, reason, node.metadata.labels, karpenter)
        if not self.watch.has_begun:
            return
        self._judge_flat(pool, reason, karpenter)
        if reason is Reason.DRIFTED and not karpenter:
            self._judge_domains(name, pool)

    def _policies_of(self, pool: str, karpenter: bool) -> list[DisruptionPolicy]:
        settings = KARPENTER_1_15 if karpenter else DOVETAIL
        return [effective_policy(entry, settings) for entry in self.watch.pools_lately(pool)]

    def _instants(self) -> tuple[datetime, datetime]:
        clock = self.world.clock
        return clock.instant(), clock.instant_of(max(0, clock.now - self.watch.lag))

    def _judge_flat(self, pool: str, reason: Reason, karpenter: bool) -> None:
        own = sum(entry.pool == pool for entry in self.leaving.values())
        edge = self.world.now - self.watch.lag
        others = sum(
            since <= edge and name not in self.leaving and self._counted.get(name) == pool
            for name, since in self._down.items()
            if reason is not Reason.UNHEALTHY  # nodes that are not ready are the ones to repair
        )
        nodes = max(self.watch.lately(self._counts, pool), default=0)
        allowed = max(
            _allowed(policy, nodes, reason, instant)
            for policy in self._policies_of(pool, karpenter)
            for instant in self._instants()
        )
        if own + others > allowed:
            self.broken(f"{pool}: {own} nodes leave at once for {reason} and {others} are down; {allowed} may")

    def _judge_domains(self, name: str, pool: str) -> None:
        problems = [
            self._domain_problem(name, pool, policy, instant)
            for policy in self._policies_of(pool, karpenter=False)
            for instant in self._instants()
        ]
        if all(problems):
            self.broken(f"{pool}: {problems[0]}")

    def _domain_problem(self, name: str, pool: str, policy: DisruptionPolicy, now: datetime) -> str:
        drifting = {n: e for n, e in self.leaving.items() if e.pool == pool and e.reason is Reason.DRIFTED}
        active = [
            b
            for b in policy.budgets
            if b.topology_key and b.problem is None and names_reason(b, Reason.DRIFTED) and _is_active(b, now)
        ]
        sequential = [b for b in active if b.sequential][:1]
        for budget in sequential or active:
            key = budget.topology_key
            mine = self.leaving[name].domain_labels.get(key, "")
            total = sum(
                self.store.nodes[n].metadata.labels.get(key, "") == mine
                for n, p in self._counted.items()
                if p == pool and n in self.store.nodes
            )
            allowed = _amount(budget, total + len(drifting))  # nodes that left within the lag still counted then
            inside = sum(entry.domain_labels.get(key, "") == mine for entry in drifting.values())
            if inside > allowed:
                return f"{inside} nodes of domain {mine or 'none'} drift at once; {allowed} may"
            if budget.sequential and inside != len(drifting):
                return f"nodes of several domains of {key} drift at once; one domain after the other was promised"
        return ""


def names_reason(budget: Budget, reason: Reason) -> bool:
    """Return whether the budget applies to the reason; no reasons: all."""
    return not budget.reasons or reason in budget.reasons


def _is_active(budget: Budget, now: datetime) -> bool:
    return budget.window is None or budget.window.active(now)


def _amount(budget: Budget, nodes: int) -> int:
    if budget.problem is not None:
        return 0
    return -(-budget.amount * nodes // 100) if budget.is_percent else budget.amount


def _allowed(policy: DisruptionPolicy, nodes: int, reason: Reason, now: datetime) -> int:
    amounts = [
        _amount(budget, nodes)
        for budget in policy.budgets
        if not budget.topology_key
        and budget.per is None
        and names_reason(budget, reason)
        and (budget.problem is not None or _is_active(budget, now))
    ]
    return min(amounts, default=2**31 - 1)
