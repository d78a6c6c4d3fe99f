"""The promise of `quietBeforeHaste`: where load comes and goes, what goes at once saves half as much again.

Counts for itself which nodes came after which commands, from objects and calls, never from the engine's memory. What
the engine may not have seen yet, or may have forgotten by a restart, is not held against it. Sits in sim, beside the
other checkers.
"""

from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, cast

from dovetail.api.policy import effective_policy
from dovetail.lifecycle.commands.records import Record, decode_record
from dovetail.lifecycle.messages import CreateNodeClaim, DeleteNodeClaim, Instruction, TaintNode
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import NodeClaim
from dovetail.model.settings import DOVETAIL
from dovetail.sim.checks.command_checkers import SavingsChecker
from dovetail.sim.checks.promises import COST
from dovetail.sim.world.clock import MINUTE
from dovetail.sim.world.host import Host
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch

_SAVING: Final = (*COST, Method.EMPTY)
_HALF_AS_MUCH_AGAIN: Final = Fraction(3, 2)
_SEEN_WITHIN: Final = MINUTE
"""How long before its first taint a command may have been judged."""
_KEPT: Final = 32
"""How many commands, and how many new nodes of a pool, are remembered."""


@dataclass(slots=True, kw_only=True)
class _Taking:
    """A command that takes nodes away to save money: whose, of which pools, when it began and when a node went."""

    host: Host
    pools: frozenset[str]
    began: int
    went: int | None = None


class HasteChecker(SavingsChecker):
    """A cost action in a restless pool saves half as much again, unless its nodes may have wasted enough."""

    rule = "quiet-before-haste"
    follows = ("Pod", "Node", "NodeClaim")

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._takings: dict[str, _Taking] = {}
        self._ordered: set[str] = set()
        self._opened: dict[str, deque[tuple[int, str]]] = {}
        self._gone: dict[str, int] = {}
        self._host: Host | None = None

    def changed(self, change: Change) -> None:
        """Note the nodes that no command ordered."""
        if change.kind != "NodeClaim":
            super().changed(change)
        elif change.new is None:
            self._gone[change.key] = self.world.now
        elif change.old is None and change.key not in self._ordered:
            pool = cast("NodeClaim", change.new).metadata.labels.get(names.NODEPOOL, "")
            self._opened.setdefault(pool, deque(maxlen=_KEPT)).append((self.world.now, change.key))

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Note what commands take away and order, and judge those that begin."""
        self._host = host
        super().asked(host, instruction)
        if isinstance(instruction, CreateNodeClaim):
            self._ordered.add(instruction.name)
        elif isinstance(instruction, DeleteNodeClaim):
            taking = self._takings.get(instruction.command_id)
            if taking is not None and taking.went is None and taking.host is host:
                taking.went = self.world.now
        elif isinstance(instruction, TaintNode) and instruction.command_id not in self._takings:
            record = decode_record(instruction.record)
            if record is not None and record.method in _SAVING:
                pools = frozenset(entry.pool for entry in record.nodes)
                self._takings[record.id] = _Taking(host=host, pools=pools, began=self.world.now)
                for ident in list(self._takings)[:-_KEPT]:
                    del self._takings[ident]

    def _begin(self, record: Record) -> None:
        if any(self._is_restless(entry.pool) for entry in record.nodes):
            super()._begin(record)

    def _required(self, node: str, claim_name: str) -> Fraction:
        asked = super()._required(node, claim_name)
        claim = self.store.claims.get(claim_name)
        pool = "" if claim is None else claim.metadata.labels.get(names.NODEPOOL, "")
        return asked * _HALF_AS_MUCH_AGAIN if self._is_restless(pool) else asked

    def _wasting(self, born: int) -> int:
        """Return for how long a node may have wasted money: what an engine knows of it ends with the engine."""
        since = born if self._host is None else max(born, self._host.up_since)
        return self.world.now - since

    def _is_restless(self, pool: str) -> bool:
        """Return whether the engine must know that two nodes of a priced pool came soon after others had gone."""
        host = self._host
        quiet = 0 if host is None else host.engine.settings.quiet_before_haste
        policies = [effective_policy(entry, DOVETAIL) for entry in self.watch.pools_lately(pool)]
        if not quiet or not policies or any(policy.disruption_price is None for policy in policies):
            return False
        now = self.world.now
        seen = now - 2 * self.watch.lag - _SEEN_WITHIN
        return (
            sum(now - quiet < at <= seen and self._counts(pool, at, key) for at, key in self._opened.get(pool, ())) > 1
        )

    def _counts(self, pool: str, at: int, claim: str) -> bool:
        """Return whether a node was there for long enough to be seen, and came soon after a command of this engine."""
        host, lag = self._host, self.watch.lag
        if host is None or host.engine.settings.rules.plays_karpenter or self._gone.get(claim, at + lag) < at + lag:
            return False
        return any(
            taking.host is host
            and pool in taking.pools
            and taking.began >= host.up_since
            and taking.went is not None
            and taking.went < at < taking.began + host.engine.settings.quiet_before_haste - lag
            for taking in self._takings.values()
        )
