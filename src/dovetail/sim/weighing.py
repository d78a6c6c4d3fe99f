"""How restarts are weighed against the bill: the rule by which `whatif` and `sweep` recommend.

A policy's score is its bill plus a fixed price for each pod restart; less is better. Two policies whose scores differ
by less than twice the standard error of that difference over the seeds count as equal: the cheaper is chosen then.
Pure. Sits in sim.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Final

RESTART_PRICE: Final = 0.02
"""Dollars: what one more or one fewer pod restart weighs."""

RULE: Final = (
    f"Rule: least bill plus ${RESTART_PRICE:.2f} for each pod restart; of policies that the scatter over the seeds "
    "leaves undecided (two standard errors), the cheaper."
)


def score(cost: float, restarts: float) -> float:
    """Return the bill plus the price of the restarts, in dollars."""
    return cost + RESTART_PRICE * restarts


def undecided(some: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether two policies' scores, seed by seed, differ by no more than chance does."""
    apart = [one - other for one, other in zip(some, others, strict=True)]
    if not apart:
        return False
    if len(apart) == 1:
        return apart[0] == 0
    return abs(mean(apart)) <= 2 * stdev(apart) / sqrt(len(apart))
