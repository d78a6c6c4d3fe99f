"""The node table: one row for each node, in the order of the names, with all that a round asks of all nodes at once.

`until[row, rule]` is the instant until which a rule's gate is closed for a node. Which nodes pass, where each one stops
and when that next changes by time alone are expressions over these columns, so time needs no alarms. A row is computed
when its node's facts change; the next table takes the other rows over. Tables are immutable: an earlier round may still
be read. Sits in decide, above the rules, below the scene.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.decide.facts.cost import EPOCH, MICROSECOND, Ageing
from dovetail.decide.facts.node_facts import NodeFacts, Timer, odd_spans
from dovetail.decide.gates import node_rules
from dovetail.decide.gates.candidates import RULES, lifts_pod_rules
from dovetail.decide.gates.gate_results import NEVER, GateContext
from dovetail.model import names
from dovetail.model.cached import cached
from dovetail.model.command import Method
from dovetail.model.objects import is_true
from dovetail.model.settings import CandidateOrder, Settings

_Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint32]
Exact = npt.NDArray[np.object_]
"""A column of Python's integers, which don't overflow."""

_name: Final = attrgetter("name")
_OPEN: Final = -(2**63)
_NEVER: Final = 2**63 - 1
_AGAIN, _CONSOLIDATE, _GRACE, _PAUSE, _ROLL, _MOVED_PODS = range(len(RULES), len(RULES) + 6)
"""The columns after the rules: when the row has to be computed again; four times at which a round is asked again even
if the profile's rules ignore them; and until when a cost action may not move pods to the node."""
_COUNTED, _USED, REPAIRS, LIFTS_REPAIR, LIFTS_OTHERS, _UNREADABLE, _NOTED, _CLAIMED, _ROLLS = (
    1 << bit for bit in range(9)
)
_FEW: Final = 16
_SHARE: Final = 8
"""Up to one node of so many is exchanged in place; with more, sorting all of them is faster."""
_EXACT: Final = 2**53
"""Whole numbers below this are exact as floats, and so the quotient of two is rounded only once."""
_TOO_LARGE: Final[Ageing] = (0, 0, 0, 0, 0)


def _instant(until: datetime | bool | None) -> int:
    """Return a time in microseconds."""
    if not until:
        return _OPEN
    return _NEVER if until is True or until == NEVER else (until - EPOCH) // MICROSECOND


def _row(facts: NodeFacts, gates: GateContext) -> list[int]:
    """Return the row of a node; one outside all pools stops at the first gate, whatever the others say."""
    if facts.policy is None:
        first = _instant(RULES[0].closed_until(facts, gates))
        return [first, *[_OPEN] * (len(RULES) - 1), _NEVER, *[_OPEN] * (_MOVED_PODS - _AGAIN)]
    row = [_instant(until) if (until := rule.closed_until(facts, gates)) else _OPEN for rule in RULES]
    idle, grace, pause, roll = facts.consolidate_after, facts.grace_period, facts.pause, facts.roll
    row.append(_instant(min(node_rules.window_edges(facts, gates), default=NEVER)))
    row.append(_OPEN if idle is None else _instant(idle.until))
    row.append(_OPEN if grace is None else _instant(grace.until))
    row.append(_OPEN if pause is None else _instant(pause.until))
    row.append(_OPEN if roll is None else _instant(roll.requested))
    row.append(_instant(moved_pods_until(facts, gates.settings)))
    return row


def moved_pods_until(facts: NodeFacts, settings: Settings) -> datetime | None:
    """Return when a cost action may move pods to a node again; None: it is not closed by a timer.

    Closed are nodes in their grace period (grace-period, Integration Points 2) and, as in Karpenter or if the setting
    says so, those within consolidateAfter. Their own pods and capacity still count: they are closed, not gone
    (docs/deviations.md).
    """
    until = facts.hidden_until if settings.rules.grace_period else None
    timer = _destination_timer(facts, settings) if settings.consolidate_after_hides_destinations else None
    if timer is None:
        return until
    return timer.until if until is None else max(until, timer.until)


def _destination_timer(facts: NodeFacts, settings: Settings) -> Timer | None:
    if not settings.rules.consolidatable_condition:
        return facts.consolidate_after
    # Karpenter requires condition Initialized on the claim and, unlike for sources, includes static pools.
    claim, policy = facts.claim, facts.policy
    if claim is None or policy is None:
        return None
    initialized = is_true(claim.status.conditions, names.CONDITION_INITIALIZED)
    return facts.timer(policy.consolidate_after) if initialized else None


def _flags(facts: NodeFacts, settings: Settings) -> int:
    claim, found = facts.claim, 0
    if facts.counted:
        found |= _COUNTED
    if facts.used:
        found |= _USED
    if facts.policy is not None and facts.policy.repair:
        found |= REPAIRS
        if lifts_pod_rules(Method.UNHEALTHY, facts):
            found |= LIFTS_REPAIR
    if facts.unreadable:
        found |= _UNREADABLE
    if claim is not None:
        found |= _CLAIMED
        if odd_spans(claim) or names.ROLL in claim.metadata.annotations:
            found |= _NOTED
        if settings.rules.roll_requests and (facts.drifted or facts.will_drift):
            found |= _ROLLS
        if lifts_pod_rules(Method.DRIFTED, facts):
            found |= LIFTS_OTHERS
    return found


def _ages(facts: NodeFacts) -> Ageing:
    """Return how the cost of a node falls; a divisor of 0: its numbers are too large for columns."""
    factor, whole, falls, divisor, _ = row = facts.ageing
    fits = falls <= 1 and max(abs(factor) * max(whole, 1), whole, divisor) < _EXACT
    return row if fits else _TOO_LARGE


class _Names:
    """The names of the rows; tables share them while no node comes or goes."""

    def __init__(self, nodes: Sequence[NodeFacts], *, has_namesakes: bool) -> None:
        self._nodes, self.has_namesakes = nodes, has_namesakes

    @cached
    def rows(self) -> Mapping[str, int]:
        """Return the rows by name; of namesakes (a node and a claim), the last one."""
        return {facts.name: row for row, facts in enumerate(self._nodes)}


class ByName(Mapping[str, NodeFacts]):
    """The nodes by name."""

    def __init__(self, nodes: Sequence[NodeFacts], rows: Mapping[str, int]) -> None:
        self._nodes, self._rows = nodes, rows

    def __getitem__(self, name: str) -> NodeFacts:
        return self._nodes[self._rows[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class Counted:
    """How many nodes of a pool budgets count, and how many of them use up budget; which ones is found if asked."""

    def __init__(self, pool: str, count: int, used: int, everybody: Sequence[NodeFacts]) -> None:
        self.count, self.used = count, used
        self._pool, self._everybody = pool, everybody

    @cached
    def nodes(self) -> Sequence[NodeFacts]:
        """Return these nodes, by name."""
        return [facts for facts in self._everybody if facts.counted and facts.pool_name == self._pool]


NOBODY: Final = Counted("", 0, 0, ())


class GateTable(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The rows of all nodes, by name.

    `terms`: what the rows depend on besides facts and settings. `at`: from when on the rows of nodes with windows hold.
    `pools`: each node's pool, by its number in `pool_codes`, which only grows. `ages`: how the costs fall.
    """

    terms: object = None
    at: int = _NEVER
    nodes: tuple[NodeFacts, ...] = ()
    names: _Names = _Names((), has_namesakes=False)
    until: _Ints = np.empty((0, _MOVED_PODS + 1), np.int64)
    flags: npt.NDArray[np.uint16] = np.empty(0, np.uint16)
    pools: _Ints = np.empty(0, np.int64)
    ages: _Ints = np.empty((0, len(_TOO_LARGE)), np.int64)
    ratios: npt.NDArray[np.float64] = np.empty(0)
    pool_codes: dict[str, int] = msgspec.field(default_factory=dict)

    def renewed(self, nodes: Iterable[NodeFacts], gates: GateContext) -> "GateTable":
        """Return the table of nodes in any order; of the same facts, the rows are taken over.

        `gates` knows nothing of PDBs and buffers: these are asked in every round.
        """
        after = tuple(sorted(nodes, key=_name))
        same = self.terms == _terms(gates)
        known = {facts: row for row, facts in enumerate(self.nodes)} if same else {}
        names = _Names(after, has_namesakes=len(set(map(_name, after))) < len(after))
        return self._with(after, names, np.array([known.get(facts, -1) for facts in after], np.int64), gates)

    def edited(self, gone: Sequence[NodeFacts], new: Sequence[NodeFacts], gates: GateContext) -> "GateTable":
        """Return the table without some of its nodes and with others."""
        nodes, coming = list(self.nodes), {facts.name: facts for facts in new}
        many = len(gone) + len(new) > _FEW + len(nodes) // _SHARE or len(coming) < len(new)
        if many or self.names.has_namesakes or self.terms != _terms(gates):
            return self._sorted_anew(gone, new, gates)
        rows, out = np.arange(len(nodes)), []
        for facts in gone:
            row = bisect_left(self.nodes, facts.name, key=_name)
            if facts.name in coming:
                nodes[row], rows[row] = coming.pop(facts.name), -1
            else:
                out.append(row)
        if not out and not coming:
            return self._with(tuple(nodes), self.names, rows, gates) if new else self._current(gates)
        for row in sorted(out, reverse=True):
            del nodes[row]
        places: list[int] = []
        for facts in sorted(coming.values(), key=_name):
            row = bisect_left(nodes, facts.name, key=_name)
            if row < len(nodes) and nodes[row].name == facts.name:
                return self._sorted_anew(gone, new, gates)
            places.append(row - len(places))
            nodes.insert(row, facts)
        after = tuple(nodes)
        return self._with(after, _Names(after, has_namesakes=False), np.insert(np.delete(rows, out), places, -1), gates)

    def _sorted_anew(self, gone: Sequence[NodeFacts], new: Sequence[NodeFacts], gates: GateContext) -> "GateTable":
        out = set(gone)
        return self.renewed([*(facts for facts in self.nodes if facts not in out), *new], gates)

    def _current(self, gates: GateContext) -> "GateTable":
        """Return the table of the same nodes, with the rows computed again whose windows opened or closed."""
        stale = self._stale(_instant(gates.now))
        if not stale:
            return self
        rows = np.arange(len(self.nodes))
        rows[stale] = -1
        return self._with(self.nodes, self.names, rows, gates)

    def _stale(self, now: int) -> list[int]:
        """Return the rows that don't hold at a time, which may be earlier than the last one."""
        again = self.until[:, _AGAIN]
        return np.flatnonzero(again < _NEVER if now < self.at else again <= now).tolist()

    def _with(self, nodes: tuple[NodeFacts, ...], names: _Names, rows: _Ints, gates: GateContext) -> "GateTable":
        """Return the table of these nodes; `rows`: the row of each in this table, -1: it is to be computed."""
        now = _instant(gates.now)
        if stale := self._stale(now):
            rows[np.isin(rows, stale)] = -1
        new, moved = np.flatnonzero(rows < 0), len(rows) != len(self.nodes) or names is not self.names
        until, flags, pools, ages, ratios = (
            _carried(column, rows if moved else None)
            for column in (self.until, self.flags, self.pools, self.ages, self.ratios)
        )
        coming, codes = [nodes[row] for row in new.tolist()], self.pool_codes
        if coming:
            until[new] = [_row(facts, gates) for facts in coming]
            flags[new] = [_flags(facts, gates.settings) for facts in coming]
            pools[new] = [codes.setdefault(facts.pool_name, len(codes)) for facts in coming]
            ages[new] = [_ages(facts) for facts in coming]
            ratios[new] = [facts.savings_ratio for facts in coming]
        return GateTable(
            terms=_terms(gates),
            at=now,
            nodes=nodes,
            names=names,
            until=until,
            flags=flags,
            pools=pools,
            ages=ages,
            ratios=ratios,
            pool_codes=codes,
        )

    def repriced(self, nodes: Sequence[NodeFacts]) -> "GateTable":
        """Return the table of the same nodes at other prices."""
        ratios = np.array([facts.savings_ratio for facts in nodes])
        return msgspec.structs.replace(self, nodes=tuple(nodes), ratios=ratios)

    @property
    def by_name(self) -> Mapping[str, NodeFacts]:
        """Return the nodes by name; of namesakes, the last one."""
        return ByName(self.nodes, self.names.rows)

    def next_change(self, now: datetime) -> datetime | None:
        """Return the earliest time after now at which a row could change; None: never by time alone."""
        times = self.until[:, :_MOVED_PODS]
        soonest = int(np.min(times, where=times > _instant(now), initial=_NEVER))
        return None if soonest == _NEVER else EPOCH + soonest * MICROSECOND

    def times_of(self, name: str) -> list[datetime]:
        """Return the times at which one node's row changes."""
        row = self.until[self.names.rows[name], :_MOVED_PODS]
        return [EPOCH + at * MICROSECOND for at in row.tolist() if _OPEN < at < _NEVER]

    def closed_to_moved_pods(self, now: datetime) -> list[NodeFacts]:
        """Return the nodes that a cost action may not move pods to, because of a timer."""
        return [self.nodes[row] for row in np.flatnonzero(self.until[:, _MOVED_PODS] > _instant(now)).tolist()]

    def members(self) -> dict[str, Counted]:
        """Return the nodes that budgets count, by pool."""
        used = self._by_pool(_COUNTED | _USED)
        return {
            pool: Counted(pool, count, used.get(pool, 0), self.nodes) for pool, count in self._by_pool(_COUNTED).items()
        }

    def _by_pool(self, flags: int) -> dict[str, int]:
        """Return how many nodes of each pool have all these flags, of the pools that have some."""
        found = np.bincount(self.pools[(self.flags & flags) == flags], minlength=len(self.pool_codes)).tolist()
        return {pool: found[code] for pool, code in self.pool_codes.items() if found[code]}

    def claimed_pools(self) -> Collection[str]:
        """Return the pools that have NodeClaims."""
        return self._by_pool(_CLAIMED)

    def rolling_pools(self) -> Collection[str]:
        """Return the pools that have nodes that drifted or will; none under Karpenter's rules, which roll nothing."""
        return self._by_pool(_ROLLS)

    def unreadable_values(self) -> list[str]:
        """Return the values of pods that can't be read, in words, by node."""
        rows = np.flatnonzero(self.flags & _UNREADABLE).tolist()
        return list(chain.from_iterable([self.nodes[row].unreadable for row in rows]))

    def may_be_noted(self, claims: int) -> bool:
        """Return whether one of so many NodeClaims may have an unreadable duration or a request to be replaced."""
        return bool((self.flags & _NOTED).any()) or int(((self.flags & _CLAIMED) > 0).sum()) != claims

    def in_cost_order(self, rows: Sequence[int], settings: Settings, now: datetime) -> tuple[NodeFacts, ...]:
        """Return the nodes of some rows as cost candidates are tried: see `in_cost_order`."""
        nodes = [self.nodes[row] for row in rows]
        if settings.candidate_order is CandidateOrder.SAVINGS_RATIO:
            keys = -self.ratios[rows]
        elif settings.rules.all_pods_order:
            keys = np.array([facts.karpenter_disruption_cost(now) for facts in nodes])
        else:
            keys = self._costs(rows, now)
        # Rows are sorted by name, and a stable sort keeps that for nodes of the same key.
        return tuple([nodes[place] for place in np.argsort(keys, kind="stable").tolist()])

    def rows_of(self, nodes: Sequence[NodeFacts]) -> _Ints:
        """Return the rows of some of its nodes."""
        if self.names.has_namesakes:
            known = {facts: row for row, facts in enumerate(self.nodes)}
            return np.fromiter((known[facts] for facts in nodes), dtype=np.int64, count=len(nodes))
        rows = self.names.rows
        return np.fromiter((rows[facts.name] for facts in nodes), dtype=np.int64, count=len(nodes))

    def exact_costs(self, rows: _Ints, now: datetime) -> tuple[Exact, Exact]:
        """Return the disruption costs of some rows, as ratios."""
        costs, divisor = self._ratios(rows, now)
        amounts, units = costs.astype(object), divisor.astype(object)
        for place in np.flatnonzero(divisor == 0).tolist():
            facts = self.nodes[rows[place]]
            amounts[place], units[place] = facts.cost_ratio(now)
        return amounts, units

    def _ratios(self, rows: Sequence[int] | _Ints, now: datetime) -> tuple[_Ints, _Ints]:
        """Return the disruption costs of some rows, as ratios; a divisor of 0: the numbers are too large."""
        factor, whole, falls, divisor, since = self.ages[rows].T
        left = np.clip(whole - ((now - EPOCH) // MICROSECOND - since) * falls, 0, whole)
        return factor * left, divisor

    def _costs(self, rows: Sequence[int], now: datetime) -> npt.NDArray[np.float64]:
        """Return the disruption costs of some rows: exact, then rounded once."""
        amounts, divisor = self._ratios(rows, now)
        costs: npt.NDArray[np.float64] = amounts / np.maximum(divisor, 1)
        if large := np.flatnonzero(divisor == 0).tolist():
            costs[large] = [self.nodes[rows[place]].disruption_cost_float(now) for place in large]
        return costs

    def closed(self, now: datetime) -> Bits:
        """Return the rules that are closed for each row, as bits; PDBs and buffers are open."""
        packed = np.packbits(self.until[:, : len(RULES)] > _instant(now), axis=1, bitorder="little")
        found: Bits = packed.view("<u4")[:, 0]
        return found


def _terms(gates: GateContext) -> object:
    return gates.managed_pools, gates.may_surge


def _carried(column: npt.NDArray[Any], rows: _Ints | None) -> npt.NDArray[Any]:
    """Return a column with its rows moved; None: all stay where they are."""
    if rows is None:
        return column.copy()
    found, kept = np.empty((len(rows), *column.shape[1:]), column.dtype), rows >= 0
    found[kept] = column[rows[kept]]
    return found


def in_cost_order(nodes: Sequence[NodeFacts], settings: Settings, now: datetime) -> tuple[NodeFacts, ...]:
    """Order a few nodes: by lowest disruption cost now, or by highest savings ratio; ties by name."""
    if settings.candidate_order is CandidateOrder.SAVINGS_RATIO:
        return tuple(sorted(nodes, key=lambda facts: (-facts.savings_ratio, facts.name)))
    return tuple(sorted(nodes, key=lambda facts: (facts.disruption_cost_float(now), facts.name)))
