"""What a method waits for in a pool or at a node, whatever the budgets say: the holds that earlier actions leave.

Cost actions wait for the last action in their pool to settle (docs/rules.md#stabilization) and where the last cost
action did not hold; repair waits where too many nodes are ill at once (docs/rules.md#repair). The methods, the verdicts
and the validation of a command all ask here. Knows no budget and no simulation. Sits in decide, above facts, below the
scene.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.gate_results import stopped
from dovetail.decide.question import CostHold, Question
from dovetail.decide.words import clock, seconds
from dovetail.model.cached import cached
from dovetail.model.command import COST_METHODS, Method
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.verdicts import Gate, GateResult

BREAKER_PERCENT: Final = 20
"""The share of a pool's nodes, rounded up, that may have a covered condition before nothing is repaired."""


class Waits:
    """The holds of one round."""

    def __init__(
        self, question: Question, policies: Mapping[str, DisruptionPolicy], nodes: Iterable[NodeFacts]
    ) -> None:
        self._now, self._policies, self._nodes = question.now, policies, nodes
        self._pools = _running(question.settling, self._now)
        self._sources = _running(question.settling_nodes, self._now)
        self._regrown = {pool: until for pool, until in question.in_flight.regrown.items() if self._now < until}

    def open_to_cost(self, candidates: tuple[NodeFacts, ...]) -> tuple[NodeFacts, ...]:
        """Return the cost candidates that nothing makes wait, in the same order."""
        if not self._pools and not self._sources and not self._regrown:
            return candidates
        return tuple(facts for facts in candidates if self._of_cost(facts) is None)

    def of(self, method: Method, facts: NodeFacts) -> GateResult | None:
        """Return what a method waits for before it takes a node; None: nothing."""
        if method is Method.UNHEALTHY:
            return self._breakers.get(facts.pool_name)
        return self._of_cost(facts) if method in COST_METHODS else None

    def _of_cost(self, facts: NodeFacts) -> GateResult | None:
        pool = facts.pool_name
        hold = self._pools.get(pool)
        if hold is not None:
            return _settling(hold, self._now, f"cost actions in NodePool {pool} wait for the pool to settle")
        hold = self._sources.get(facts.name)
        if hold is not None:
            return _settling(hold, self._now, "no cost action takes this node, which it touched")
        until = self._regrown.get(pool)
        return None if until is None else _did_not_hold(pool, until, self._now)

    def times(self) -> Iterator[datetime]:
        """Yield when each wait of cost actions ends."""
        yield from (hold.until for holds in (self._pools, self._sources) for hold in holds.values())
        yield from self._regrown.values()

    @cached
    def ill(self) -> tuple[tuple[str, int, int], ...]:
        """Return the pools in which too many nodes have a covered condition, with that number and the total.

        NodeClaims that have not joined don't count: they would make the ill nodes look few.
        """
        counts = {pool: [0, 0] for pool, policy in sorted(self._policies.items()) if policy.repair}
        for facts in self._nodes if counts else ():
            count = counts.get(facts.pool_name)
            if count is not None and facts.claim is not None and facts.node is not None:
                count[0] += facts.sickness is not None
                count[1] += 1
        return tuple(
            (pool, ill, all_) for pool, (ill, all_) in counts.items() if ill > -(-BREAKER_PERCENT * all_ // 100)
        )

    @cached
    def _breakers(self) -> dict[str, GateResult]:
        return {
            pool: stopped(
                Gate.HEALTH, f"In NodePool {pool} {tripped(ill, all_)}.", nodePool=pool, unhealthy=ill, nodes=all_
            )
            for pool, ill, all_ in self.ill
        }


def tripped(ill: int, nodes: int) -> str:
    """Return why nothing is repaired in a pool."""
    return f"{ill} of {nodes} nodes are unhealthy, more than {BREAKER_PERCENT} %: nothing is repaired"


def _running(holds: Mapping[str, CostHold], now: datetime) -> dict[str, CostHold]:
    return {name: hold for name, hold in holds.items() if now < hold.until}


@lru_cache(maxsize=256)
def _settling(hold: CostHold, now: datetime, what: str) -> GateResult:
    """Return the same result for all nodes of a pool."""
    after = f"{hold.after[0].upper()}{hold.after[1:]}"
    why = f"{after} has just finished: {what}, {seconds(hold.until - now)} more."
    return stopped(Gate.STABILIZATION, why, until=clock(hold.until))


@lru_cache(maxsize=256)
def _did_not_hold(pool: str, until: datetime, now: datetime) -> GateResult:
    left = seconds(until - now)
    why = f"The last cost action in NodePool {pool} did not hold, a node came back; it waits {left} more."
    return stopped(Gate.STABILIZATION, why, until=clock(until))
