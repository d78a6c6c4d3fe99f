"""What a node must save to go at once, and what it must waste to go later (spec section 22).

Two things make a node wait although it saves enough: pods of Jobs, which end by themselves (`jobsWait`), and a restless
pool, in which nodes were opened again soon after others were removed (`quietBeforeHaste`; found by
`lifecycle.memory.restlessness`). Only in pools with a `disruptionPrice`. Sits in decide, below the context.
"""

from datetime import datetime
from fractions import Fraction
from typing import Final

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.question import Question

JOBS_ASK: Final = 2
"""How many times the waste is required where pods of Jobs run, with `jobsWait`."""
RESTLESS: Final = (3, 2)
"""How many times the savings are required at once in a restless pool, as a ratio."""


class Haste:
    """The answers for one question."""

    def __init__(self, question: Question) -> None:
        self._settings, self._now, self._restless = question.settings, question.now, question.restless

    def waits_for_jobs(self, facts: NodeFacts) -> bool:
        """Return whether a node goes by waste only, because pods of Jobs run on it."""
        return self._settings.jobs_wait and _is_priced(facts) and facts.has_jobs

    def restless_until(self, facts: NodeFacts) -> datetime | None:
        """Return until when a node's pool is restless; None: it is not."""
        until = self._restless.get(facts.pool_name)
        return until if until is not None and self._now < until and _is_priced(facts) else None

    def asked_savings(self, facts: NodeFacts) -> tuple[int, int]:
        """Return what a node must save to go at once, as a ratio; Jobs are not considered here."""
        return self._raised(facts, facts.required_savings(self._now))

    def falls_by(self, facts: NodeFacts) -> tuple[int, int]:
        """Return by how much ageing lowers that: an amount of money in a number of nanoseconds."""
        return self._raised(facts, facts.falls_by)

    def _raised(self, facts: NodeFacts, ratio: tuple[int, int]) -> tuple[int, int]:
        if self.restless_until(facts) is None:
            return ratio
        return ratio[0] * RESTLESS[0], ratio[1] * RESTLESS[1]

    def asked_waste(self, facts: NodeFacts) -> Fraction | None:
        """Return the money that a node must waste to go for less than its threshold; None: it never does."""
        asked = facts.asked_waste(self._now) if self._settings.rules.waste else None
        return None if asked is None else asked * (JOBS_ASK if self.waits_for_jobs(facts) else 1)


def _is_priced(facts: NodeFacts) -> bool:
    return facts.policy is not None and facts.policy.disruption_price is not None
