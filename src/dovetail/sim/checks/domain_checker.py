"""The checker of sequential topology budgets: a domain is finished before drift begins in the next.

Design: topology-budgets. Follows taints, drifted nodes and the NodePools' annotations in the store of the world; only
the parser of budgets and annotations is shared with the decisions. What a decision could not know yet (within the lag)
is no violation. Sits in sim, beside the other checkers.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from dovetail.api.policy import effective_policy
from dovetail.api.rolling import NO_DOMAIN, read_rolling, read_rollout
from dovetail.lifecycle.messages import BeginDomain, Instruction, TaintNode
from dovetail.model import names
from dovetail.model.objects import Node, NodeClaim, is_true
from dovetail.model.policies.managed import managed_pools
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import DOVETAIL
from dovetail.sim.checks.budget_checker import names_reason
from dovetail.sim.checks.promises import Checker, record_on
from dovetail.sim.world.host import Host
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch


@dataclass(frozen=True, slots=True)
class _Place:
    """A domain of a pool, by the label that separates them."""

    pool: str
    key: str
    domain: str


class DomainChecker(Checker):
    """Zones are rolled in turn: each is finished, or left behind after its patience, before the next begins.

    The NodePool names the domain before a node there is tainted, and nothing of the roll is left on it at the end.
    """

    rule = "domain-order"
    follows = ("Node", "NodeClaim")

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._at_work: dict[str, _Place] = {}
        self._decided: dict[str, int] = {}
        self._drifted: dict[str, int] = {}
        self._busy_until: dict[_Place, int] = {}
        self._leaving: dict[str, _Place] = {}
        self._finished: dict[_Place, int] = {}
        self._patience = 0

    def changed(self, change: Change) -> None:
        """Follow which nodes have drifted, until when nodes of a domain were leaving, and when it was finished.

        A domain may also be finished by a machine that dies.
        """
        if change.kind == "NodeClaim":
            claim = cast("NodeClaim | None", change.new)
            if claim is None or not is_true(claim.status.conditions, names.CONDITION_DRIFTED):
                self._drifted.pop(change.key, None)
            else:
                self._drifted.setdefault(change.key, self.world.now)
        elif change.new is None and change.key in self._leaving:
            self._busy_until[self._leaving.pop(change.key)] = self.world.now
        item = cast("Node | NodeClaim", change.new or change.old)
        place = self._at_work.get(item.metadata.labels.get(names.NODEPOOL, ""))
        if place is not None and place not in self._finished and not self._of(place):
            self._finished[place] = self.world.now

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Judge every node that a command for drift taints."""
        self._patience = host.engine.settings.domain_patience
        if isinstance(instruction, BeginDomain):
            self._decided.setdefault(instruction.command_id, self.world.now)
        elif isinstance(instruction, TaintNode) and not self.watch.is_karpenters(instruction.command_id):
            self._decided.setdefault(instruction.command_id, self.world.now)
            node = self.store.nodes.get(instruction.node)
            record = None if node is None else record_on(node)
            is_new = record is None or record.id != instruction.command_id
            if node is not None and is_new and '"method":"drifted"' in instruction.record:
                self._taken(node, self._decided[instruction.command_id])

    def _taken(self, node: Node, decided: int) -> None:
        pool = node.metadata.labels.get(names.NODEPOOL, "")
        keys = {self._key(pool, lately) for lately in range(len(self.watch.pools_lately(pool)))}
        if len(keys) != 1 or None in keys:
            self._at_work.pop(pool, None)  # no sequential budget, or one that has just come, gone or changed
            return
        key = str(keys.pop())
        place = _Place(pool, key, node.metadata.labels.get(key, NO_DOMAIN))
        before = self._at_work.get(pool)
        self._at_work[pool] = self._leaving[node.metadata.name] = place
        self._finished.pop(place, None)
        self._judge_mark(place)
        if before is not None and before.key == key and before != place:
            self._judge_change(before, place, decided)

    def _key(self, pool: str, lately: int) -> str | None:
        policy = effective_policy(self.watch.pools_lately(pool)[lately], DOVETAIL)
        now = self.world.clock.instant()
        for budget in policy.budgets:
            active = budget.window is None or budget.window.active(now)
            if budget.sequential and budget.problem is None and active and names_reason(budget, Reason.DRIFTED):
                return budget.topology_key
        return None

    def _judge_mark(self, place: _Place) -> None:
        marks = [read_rolling(pool) for pool in self.watch.pools_lately(place.pool)]
        if not any(mark is not None and (mark.key, mark.domain) == (place.key, place.domain) for mark in marks):
            self.broken(
                f"{place.pool}: a node of {place.domain} is tainted for drift, and the NodePool does not say so"
            )

    def _judge_change(self, before: _Place, place: _Place, decided: int) -> None:
        known = min(decided - self.watch.lag, self._finished.pop(before, decided))  # what drifted later has to wait
        left = [name for name in self._of(before) if self._drifted[name] <= known]
        if not left:
            return
        idle = decided - self._busy_until.get(before, 0)
        behind = any(before.domain in read_rollout(pool).left_behind for pool in self.watch.pools_lately(before.pool))
        if not behind or idle + self.watch.lag < self._patience:
            self.broken(
                f"{before.pool}: drift begins in {place.domain} while {before.domain} has drifted nodes "
                f"({', '.join(sorted(left)[:3])}), {idle // 10**9} s after the last one left there"
            )

    def _of(self, place: _Place) -> list[str]:
        """Return the drifted nodes of a domain that budgets count and that no command takes."""
        found = []
        for name in self._drifted:
            claim, node = self.store.claims.get(name), self.store.nodes.get(name)
            if claim is None or node is None or claim.metadata.deletion_timestamp is not None:
                continue
            labels = node.metadata.labels
            same = labels.get(names.NODEPOOL) == place.pool and labels.get(place.key, NO_DOMAIN) == place.domain
            if same and names.INITIALIZED_LABEL in labels and record_on(node) is None:
                found.append(name)
        return found

    def ended(self) -> None:
        """Check that nothing of a roll is left on a pool without drifted nodes."""
        pools = managed_pools(tuple(self.store.pools.values()), DOVETAIL)
        for name in pools:
            drifted = [
                node
                for node, item in self.store.nodes.items()
                if item.metadata.labels.get(names.NODEPOOL) == name and node in self._drifted
            ]
            left = {names.ROLLING_DOMAIN, names.ROLLOUT} & set(self.store.pools[name].metadata.annotations)
            if left and not drifted:
                self.broken(f"{name}: no node has drifted, and {', '.join(sorted(left))} is left on the NodePool")
