"""Whose turn it is: the one domain in which a sequential topology budget lets drift work, and what to keep of that.

Design: topology-budgets. A domain is finished before the next begins: the domain with nodes in flight for drift (of
several the one that was begun), else the one that was begun and still has drifted nodes, else one with nodes in flight
for another reason, else the one with the oldest drift. The domain that was begun is on the NodePool (`api.rolling`). If
their own gates hold all its drifted nodes for `domainPatience`, it is left behind and has another turn after the
others. While Karpenter may still find more drift, a domain is not finished either. Writes nothing: it returns what the
NodePool should say. Sits in decide, below `drifted`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain
from typing import Final

import msgspec
from msgspec.structs import replace

from dovetail.api.rolling import NOT_ROLLING, RollingDomain, Rollout, read_rolling, read_rollout
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.budgets import domain_of
from dovetail.decide.methods.leaving import alone
from dovetail.decide.work import Work
from dovetail.model.cached import cached
from dovetail.model.command import Command, Method
from dovetail.model.objects import NodePool
from dovetail.model.policies.policy import Budget, Reason
from dovetail.model.timing.duration import MINUTE, later
from dovetail.model.verdicts import Gate

METHOD: Final = Method.DRIFTED
OF_POOLS: Final = (Gate.MANAGED, Gate.PAUSED, Gate.HEALTH, Gate.WINDOW, Gate.BUDGET, Gate.BACK_OFF)
"""Gates that hold a whole pool and stop the clock of `domainPatience`; all others are gates of the node itself."""
PASSING: Final = (Gate.NOMINATED, Gate.UNINITIALIZED_DESTINATION)
"""Gates that open by themselves soon, when pods have come or a node is ready: they stop that clock too."""
DRIFT_CHECK: Final = 5 * MINUTE
"""How long after a roll began Karpenter may need to look at every NodeClaim: until then more nodes may drift."""
_MICROSECOND: Final = timedelta(microseconds=1)


class _Standstill(Enum):
    """Why nothing more is done in a domain just now, if that is so."""

    BUSY = "nodes of it are leaving"
    STOPPED = "a gate of the pool holds it"
    IDLE = "its nodes' own gates hold all of them"
    OPEN = "a node can go"


class TurnOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a NodePool should say about its domains; the fields are those of `RollChange`."""

    domain: RollingDomain | None
    rollout: Rollout
    left_behind: tuple[str, ...] = ()
    finished: str = ""


class PoolTurn:
    """The turn of one pool with a sequential budget. `candidates`: its drifted nodes that pass gates 1 to 7."""

    def __init__(self, work: Work, pool: NodePool, budget: Budget, candidates: Sequence[NodeFacts]) -> None:
        self._work, self._scene, self._name, self._budget = work, work.scene, pool.metadata.name, budget
        self._key = budget.topology_key
        self._candidates: dict[str, list[NodeFacts]] = {}
        for facts in candidates:
            self._candidates.setdefault(domain_of(facts, self._key), []).append(facts)
        self._members = work.scene.ledger.domains(self._name, self._key)
        mark = read_rolling(pool)
        self._mark = mark if mark is not None and mark.key == self._key else None
        self._rollout = read_rollout(pool)

    # ------------------------------------------------------------ whose turn

    @cached
    def active(self) -> str | None:
        """Return the domain in which drift may work now; None: in none."""
        in_drift, busy = self._busy
        if in_drift is not None:
            return in_drift
        if self._mark is not None and not self._gives_up and self._is_unfinished(self._mark.domain):
            return self._mark.domain
        return busy if busy is not None else self._next

    @cached
    def _busy(self) -> tuple[str | None, str | None]:
        return self._scene.ledger.busy_domains(self._members, None if self._mark is None else self._mark.domain)

    def _drifted(self, domain: str) -> list[NodeFacts]:
        """Return the drifted nodes of a domain, those in flight included."""
        return [facts for facts in self._members.get(domain, ()) if facts.drifted]

    def _is_unfinished(self, domain: str) -> bool:
        """Return whether a domain has drifted nodes, or may have some soon: Karpenter finds them one by one."""
        began = self._rollout.began
        if self._drifted(domain) or began is None or self._scene.now >= later(began, DRIFT_CHECK):
            return bool(self._drifted(domain))
        return any(facts.created is not None and facts.created < began for facts in self._members.get(domain, ()))

    @cached
    def _next(self) -> str | None:
        """Return the domain to begin: that of the oldest drift, then by name.

        Domains that had their turn come after the others: the first of them in which a node can go.
        """
        had = {*self._rollout.turns, *([] if self._mark is None else [self._mark.domain])}
        ordered = sorted(self._candidates, key=lambda domain: (self._oldest(domain), domain))
        fresh = [domain for domain in ordered if domain not in had]
        again = (domain for domain in ordered if self._standstill(domain) is _Standstill.OPEN)
        return fresh[0] if fresh else next(again, None)

    def _oldest(self, domain: str) -> datetime:
        return min(facts.drifted_since for facts in self._candidates[domain] if facts.drifted_since is not None)

    @cached
    def _gives_up(self) -> bool:
        """Return whether the domain that was begun loses its turn: nothing could be done there for too long."""
        mark, until = self._mark, self.patient_until
        if mark is None or until is None or self._scene.now < until:
            return False
        return self._standstill(mark.domain) is _Standstill.IDLE

    @property
    def patient_until(self) -> datetime | None:
        """Return until when the domain that was begun keeps its turn though nothing can be done there; None: no end."""
        if self._mark is None or self._mark.idle_since is None:
            return None
        return later(self._mark.idle_since, self._scene.settings.domain_patience)

    # ------------------------------------------------------------ patience

    def _standstill(self, domain: str) -> _Standstill:
        """Return what holds the drifted nodes of a domain: gates of the pool, or their own."""
        if any(facts.marked for facts in self._members.get(domain, ())):
            return _Standstill.BUSY
        if self._is_held or self._is_closed(domain):
            return _Standstill.STOPPED
        gates = []
        for facts in self._candidates.get(domain, ()):
            outcome = alone(self._work, METHOD, facts)
            if isinstance(outcome, Command):
                return _Standstill.OPEN
            gates.append(outcome.gate)
        return _Standstill.STOPPED if any(gate in (*OF_POOLS, *PASSING) for gate in gates) else _Standstill.IDLE

    @cached
    def _is_held(self) -> bool:
        """Return whether budgets, windows or the health of the pool let no drifted node go."""
        nothing = self._budget.amount == 0 or self._budget.problem is not None
        return nothing or self._scene.ledger.allowance(self._name, Reason.DRIFTED).left <= 0

    def _is_closed(self, domain: str) -> bool:
        """Return whether a drifted node of a domain stops at such a gate among gates 1 to 7: a pause, for example.

        A node that backs off after its own command was rolled back is held by its own gate.
        """
        drifted = [facts for facts in self._drifted(domain) if facts.resting is None]
        ends = (self._scene.chains.of(facts.name, METHOD).results[-1] for facts in drifted)
        return any(not last.passed and last.gate in (*OF_POOLS, *PASSING) for last in ends)

    # ------------------------------------------------------------ what to keep

    def outcome(self, *, tried: bool) -> "TurnOutcome":
        """Return what the NodePool should say about its domains from now on.

        `tried`: this round tried every candidate of the active domain, so a look at each costs nothing.
        """
        mark, rollout, left, done = self._mark, self._begun, tuple[str, ...](), ""
        if mark is not None and (self._gives_up or not self._is_unfinished(mark.domain)):
            left = tuple(facts.name for facts in self._drifted(mark.domain))
            done = "" if left else mark.domain
            rollout = rollout.after(mark.domain, left_behind=bool(left))
            mark = None
        if mark is None and not any(map(self._drifted, self._members)):
            rollout = NOT_ROLLING
        elif mark is None and self.active is not None:
            mark = self._first_mark(self.active, tried=tried)
        elif mark is not None and mark.domain == self.active and self._drifted(mark.domain):
            mark = self._with_clock(mark, tried=tried)
        if mark is not None:
            rollout = rollout.again_in(mark.domain)
        return TurnOutcome(domain=mark, rollout=rollout, left_behind=left, finished=done)

    @property
    def _begun(self) -> Rollout:
        """Return what is kept of the roll, from its first drifted node on."""
        stamps = [facts.drifted_since for facts in chain.from_iterable(self._members.values()) if facts.drifted_since]
        if self._rollout.began is not None or not stamps:
            return self._rollout
        return replace(self._rollout, began=min(*stamps, self._scene.now))

    def _first_mark(self, domain: str, *, tried: bool) -> RollingDomain | None:
        """Return the mark of a domain that is at work without one, or that has the turn and can't use it."""
        begun = RollingDomain(key=self._key, domain=domain, since=self._scene.now)
        if domain == self._busy[0]:
            return begun
        idle = tried and domain in self._candidates and self._standstill(domain) is _Standstill.IDLE
        return replace(begun, idle_since=begun.since) if idle else None

    def _with_clock(self, mark: RollingDomain, *, tried: bool) -> RollingDomain:
        """Return the mark with its clock: it runs while nothing can be done, and a gate of the pool stops it."""
        now, is_busy = self._scene.now, any(facts.marked for facts in self._members.get(mark.domain, ()))
        if not tried and not is_busy and not self._is_held:
            return mark
        match self._standstill(mark.domain):
            case _Standstill.STOPPED:
                ran = 0 if mark.idle_since is None else max(0, (now - mark.idle_since) // _MICROSECOND * 1000)
                return replace(mark, idle_since=None, idle_for=mark.idle_for + ran)
            case _Standstill.IDLE:
                since = mark.idle_since or now - timedelta(microseconds=mark.idle_for // 1000)
                return replace(mark, idle_since=since, idle_for=0)
            case _:
                return replace(mark, idle_since=None, idle_for=0)


def turns_of(work: Work, found: Sequence[NodeFacts]) -> dict[str, PoolTurn]:
    """Return the turns of all pools that have an active sequential budget, by name; `found`: the drift candidates."""
    scene = work.scene
    by_pool: dict[str, list[NodeFacts]] = {}
    for facts in found:
        by_pool.setdefault(facts.pool_name, []).append(facts)
    turns = {}
    for pool in scene.snapshot.cluster.node_pools:
        name = pool.metadata.name
        _, budget = scene.ledger.topology_budgets(name)
        if budget is not None:
            turns[name] = PoolTurn(work, pool, budget, by_pool.get(name, ()))
    return turns


def active_domains(work: Work) -> dict[str, str]:
    """Return the domains in which sequential budgets let drift work now, by pool."""
    if not any(budget.sequential for policy in work.scene.policies.values() for budget in policy.budgets):
        return {}
    turns = turns_of(work, work.scene.passing(METHOD))
    return {name: turn.active for name, turn in turns.items() if turn.active is not None}
