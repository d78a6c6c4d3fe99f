"""Is a saving worth the restarts? What a node's going must earn while the saving lasts (docs/rules.md#one-price).

A cost command earns savings per hour x the time for which they last. It costs the restarts of its pods
(`restartPrice` x disruption cost), a few minutes in which the nodes that go and those that take over are both paid,
and, for every replacement, some minutes of its own price (`launchPrice`). Divided by the duration this is a bar for the
savings per hour, so the gates and the search compare it like the savings threshold. All constants are times and only
the price of a restart may be dollars: multiplying every price changes no decision. Sits in decide, below the scene.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from dovetail.decide.calm import shown_by_objects
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.question import Question
from dovetail.model.persistence import UNKNOWN, Persistence, was_calm
from dovetail.model.timing.duration import DAY, HOUR, MINUTE, later

PAID_TWICE: Final = 2 * MINUTE
"""For how long a node is paid after its pods have begun to leave: drain and shutdown."""
LEAST: Final = MINUTE
LONGEST: Final = DAY
"""The shortest and the longest duration that is ever expected."""
PATIENT: Final = 45 * MINUTE
"""The least duration that is assumed for savings once as much was wasted as the restarts are worth."""
Ratio = tuple[int, int]


class AskedEarnings(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's going has to earn: the price of its restarts and of moving (money as a ratio), and how long it has.

    `duration` is for going at once, `patient` for going after enough was wasted; nanoseconds. `pool`: what the node's
    pool has shown.
    """

    restarts: Ratio
    moving: Ratio
    duration: int
    patient: int
    pool: Persistence

    def at_once(self) -> Ratio:
        """Return the savings per hour that are enough to go at once, without a replacement."""
        return self._rate(self.duration)

    def later(self) -> Ratio:
        """Return the savings per hour that are enough to go once enough was wasted, without a replacement."""
        return self._rate(self.patient)

    def _rate(self, lasts: int) -> Ratio:
        (price, unit), (more, whole) = self.restarts, self.moving
        return (price * whole + more * unit) * HOUR, unit * whole * lasts

    def when_it_lasts(self, asked: int, now: datetime) -> datetime | None:
        """Return when savings are expected to last that long, if nothing happens until then; None: never."""
        if asked > LONGEST:
            return None
        if asked <= self.pool.learned:
            return now
        return None if self.pool.calm_since is None else max(now, later(self.pool.calm_since, was_calm(asked)))


def is_priced(facts: NodeFacts) -> bool:
    """Return whether a node's pool says what a restart is worth."""
    policy = facts.policy
    return policy is not None and (policy.disruption_price is not None or policy.restart_price is not None)


class RestartPrices:
    """The answers for one question."""

    def __init__(self, question: Question) -> None:
        self._now, self._launch = question.now, question.settings.launch_price
        self._question, self._earning = question, question.earning
        self._by_objects: Mapping[str, Persistence] | None = None

    def shown(self, pool: str) -> Persistence:
        """Return what a pool has shown; if nobody has watched it, what its objects say."""
        found = self._question.persistence.get(pool)
        if found is not None:
            return found
        if self._by_objects is None:
            self._by_objects = shown_by_objects(self._question.cluster, self._now)
        return self._by_objects.get(pool, UNKNOWN)

    def applies(self, facts: NodeFacts) -> bool:
        """Return whether a node's pool prices restarts."""
        policy = facts.policy
        return policy is not None and policy.restart_price is not None and not policy.static

    def asked(self, facts: NodeFacts) -> AskedEarnings | None:
        """Return what a node's going has to earn; None: its pool doesn't price restarts."""
        policy = facts.policy
        if policy is None or policy.restart_price is None or policy.static:
            return None
        pool = self.shown(facts.pool_name)
        lasts = max(LEAST, min(LONGEST, pool.expected(self._now)))
        return AskedEarnings(
            restarts=facts.restarts_worth(self._now),
            moving=(PAID_TWICE * facts.price, HOUR),
            duration=lasts,
            patient=max(PATIENT, lasts),
            pool=pool,
        )

    def launch_shares(self, asked: AskedEarnings) -> tuple[Ratio, Ratio]:
        """Return launchPrice over the duration: for going at once, and for going later."""
        return (self._launch, asked.duration), (self._launch, asked.patient)

    @property
    def any_earns(self) -> bool:
        """Return whether a node that a cost command launched has not earned what it cost."""
        return bool(self._earning)

    def earning_until(self, facts: NodeFacts) -> datetime | None:
        """Return until when a node that a cost command launched has not earned what it cost; None: it has.

        Only in pools that say what a restart is worth, by `restartPrice` or `disruptionPrice`.
        """
        if not self._earning or facts.claim is None or facts.empty or not is_priced(facts):
            return None
        until = self._earning.get(facts.claim.metadata.name)
        return until if until is not None and self._now < until else None
