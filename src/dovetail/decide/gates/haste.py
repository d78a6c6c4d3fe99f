"""What a node must save to go at once, and what it must waste to go later (docs/rules.md#waste).

Two things make a node wait although it saves enough: pods of Jobs, which end by themselves (`jobsWait`), and a restless
pool, in which nodes were opened again soon after others were removed (`quietBeforeHaste`; found by
`lifecycle.memory.restlessness`). Only in pools with a `disruptionPrice` or a `restartPrice`, whose own bars
(`gates.restart_price`) hold beside the threshold. Sits in decide, below the scene.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import numpy as np

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price import UNPAYABLE
from dovetail.decide.gates.restart_price import Ratio, RestartPrices, is_priced
from dovetail.decide.gates.table import Exact, GateTable
from dovetail.decide.question import Question

Ratios = tuple[Exact, Exact]
"""A column of exact ratios: amounts and units."""
JOBS_ASK: Final = 2
"""How many times the waste is required where pods of Jobs run, with `jobsWait`."""
RESTLESS: Final = (3, 2)
"""How many times the savings are required at once in a restless pool, as a ratio."""


class Haste:
    """The answers for one question."""

    def __init__(self, question: Question) -> None:
        self._settings, self._now, self._restless = question.settings, question.now, question.restless
        self.restarts = RestartPrices(question)

    def waits_for_jobs(self, facts: NodeFacts) -> bool:
        """Return whether a node goes by waste only, because pods of Jobs run on it."""
        return self._settings.jobs_wait and is_priced(facts) and facts.has_jobs

    def restless_until(self, facts: NodeFacts) -> datetime | None:
        """Return until when a node's pool is restless; None: it is not."""
        until = self._restless.get(facts.pool_name)
        return until if until is not None and self._now < until and is_priced(facts) else None

    def bar(self, facts: NodeFacts) -> Ratio:
        """Return what a node must save to go at once, as a ratio; unlimited if it never may."""
        if self.waits_for_jobs(facts) or self.restarts.earning_until(facts) is not None:
            return UNPAYABLE.numerator, 1
        return self.asked_savings(facts)

    def floor(self, facts: NodeFacts) -> Ratio:
        """Return what a node must save even after it has wasted enough, as a ratio."""
        asked = self.restarts.asked(facts)
        if asked is not None:
            return _larger(asked.later(), self.own_threshold(facts))
        floor = self._settings.waste_floor * facts.disruption_cost(self._now) if self._settings.waste_floor else 0
        return floor.numerator, floor.denominator

    def own_threshold(self, facts: NodeFacts) -> Ratio:
        """Return what a node must save, whatever was wasted, as its pool sets a threshold and no `disruptionPrice`."""
        policy = facts.policy
        return (0, 1) if policy is None or policy.disruption_price is not None else facts.required_savings(self._now)

    def asked_savings(self, facts: NodeFacts) -> Ratio:
        """Return what a node must save to go at once, as a ratio; Jobs are not considered here."""
        ratio = self._raised(facts, facts.required_savings(self._now))
        asked = self.restarts.asked(facts)
        return ratio if asked is None else _larger(ratio, asked.at_once())

    # ------------------------------------------------------------ many nodes at once

    def bars(self, nodes: Sequence[NodeFacts], table: GateTable) -> Ratios:
        """Return the `bar` of each of many nodes: what its pool asks for a unit of its disruption cost, times that."""
        amounts, units = self._times_costs(nodes, table, self._at_once, self.bar)
        waiting: list[int] = []
        if self._settings.jobs_wait:
            waiting += [place for place, facts in enumerate(nodes) if facts.has_jobs and is_priced(facts)]
        if self.restarts.any_earns:
            waiting += [place for place, facts in enumerate(nodes) if self.restarts.earning_until(facts) is not None]
        amounts[waiting], units[waiting] = UNPAYABLE.numerator, 1
        return amounts, units

    def floors(self, nodes: Sequence[NodeFacts], table: GateTable) -> Ratios:
        """Return the `floor` of each of many nodes."""
        return self._times_costs(nodes, table, lambda _: (self._settings.waste_floor, 1), self.floor)

    def go_by_waste(self, nodes: Sequence[NodeFacts]) -> list[bool]:
        """Return for which of many nodes `asked_waste` is known."""
        if not self._settings.rules.waste:
            return [False] * len(nodes)
        pools = {facts.pool_name: facts for facts in nodes}
        each = self.restarts.any_earns  # what a node has earned counts, and not only its pool
        asked = {pool: self.asked_waste(facts) is not None for pool, facts in pools.items()}
        return [self.asked_waste(facts) is not None if each else asked[facts.pool_name] for facts in nodes]

    def _times_costs(
        self,
        nodes: Sequence[NodeFacts],
        table: GateTable,
        asked: Callable[[NodeFacts], Ratio],
        alone: Callable[[NodeFacts], Ratio],
    ) -> Ratios:
        """Return what pools ask for a unit of disruption cost, times the cost of each node.

        `alone`: asked of nodes in pools that price restarts, where more than that counts.
        """
        rows = table.rows_of(nodes)
        amounts, units = table.exact_costs(rows, self._now)
        pools = table.pools[rows]
        for code in np.flatnonzero(np.bincount(pools)).tolist() if len(pools) else ():
            at = np.flatnonzero(pools == code)
            first = nodes[at[0]]
            if self.restarts.applies(first):
                for place in at.tolist():
                    amounts[place], units[place] = alone(nodes[place])
            else:
                factor, unit = asked(first)
                amounts[at] *= factor
                units[at] *= unit
        return amounts, units

    def _at_once(self, facts: NodeFacts) -> Ratio:
        """Return what a node's pool asks for a unit of disruption cost, for going at once."""
        policy = facts.policy
        threshold = 0 if policy is None or policy.static else policy.savings_threshold
        return self._raised(facts, (threshold, 1))

    # ------------------------------------------------------------ one node

    def falls_by(self, facts: NodeFacts) -> Ratio:
        """Return by how much ageing lowers that: an amount of money in a number of nanoseconds."""
        return self._raised(facts, facts.falls_by)

    def _raised(self, facts: NodeFacts, ratio: Ratio) -> Ratio:
        if self.restless_until(facts) is None:
            return ratio
        return ratio[0] * RESTLESS[0], ratio[1] * RESTLESS[1]

    def asked_waste(self, facts: NodeFacts) -> Ratio | None:
        """Return the money that a node must waste to go for less than its threshold, as a ratio; None: never."""
        if not self._settings.rules.waste or self.restarts.earning_until(facts) is not None:
            return None
        asked = facts.asked_waste(self._now)
        if self.restarts.applies(facts):
            worth = facts.restarts_worth(self._now)
            asked = worth if asked is None else _larger(asked, worth)
        return (asked[0] * JOBS_ASK, asked[1]) if asked is not None and self.waits_for_jobs(facts) else asked


def _larger(one: Ratio, other: Ratio) -> Ratio:
    return one if one[0] * other[1] >= other[0] * one[1] else other
