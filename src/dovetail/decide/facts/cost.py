"""The cost of disruption: eviction cost of a pod, disruption cost of a node, exact.

See docs/rules.md#cost; savings-threshold, Context. A pod's cost is a whole number of 2^-27, because both divisors of
the formula are powers of two; so sums are exact integers and a node's cost is an exact fraction. The profile
`karpenter-1.15` repeats Karpenter's own two costs and its float arithmetic. Knows nothing of prices and pools. Sits in
decide, at the bottom.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from dovetail.model import names
from dovetail.model.objects import Pod
from dovetail.model.rules import Rules

UNIT: Final = 1 << 27
"""One pod of default priority, in the unit of eviction costs."""
_LIMIT: Final = 10 * UNIT
_INT32: Final = re.compile(r"[+-]?[0-9]+")  # what Go's ParseInt reads in base 10
_NUMBER: Final = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?|inf|infinity)", re.IGNORECASE)
MICROSECOND: Final = timedelta(microseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=1024)
def _int32(text: str) -> int | None:
    if not _INT32.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << 31) <= number < (1 << 31) else None


@lru_cache(maxsize=1024)
def _any_number(text: str) -> int | None:
    """Read what Go's ParseFloat reads, rounded to the unit of eviction costs; None: it is not a number."""
    if not _NUMBER.fullmatch(text):
        return None
    return round(max(-4.0 * _LIMIT, min(4.0 * _LIMIT, float(text))))


class CostReading(NamedTuple):
    """How a pod's annotations state its cost.

    `keys`: the annotations that are read, the first one wins. `fractional`: any number counts, not only an integer.
    """

    keys: tuple[str, ...] = (names.DISRUPTION_COST, names.POD_DELETION_COST)
    fractional: bool = False


ORDINARY: Final = CostReading()


def cost_reading(rules: Rules, *, ranked: bool) -> CostReading:
    """Return how costs are read.

    `ranked`: Karpenter writes its own ranks as pod deletion costs (gate PodDeletionCostManagement); those are not
    costs.
    """
    own = (names.DISRUPTION_COST,) if rules.cost_annotation else ()
    return CostReading((*own, *(() if ranked else (names.POD_DELETION_COST,))), rules.fractional_costs)


def deletion_cost(annotations: Mapping[str, str], reading: CostReading = ORDINARY) -> tuple[int, str | None]:
    """Read the deletion cost of a pod: the number, and the value that could not be read, if any.

    A value that Dovetail wrote for steering (docs/rules.md#steering) is no cost. If a value is unreadable it counts as
    0, as in Karpenter, and a warning says so.
    """
    steered = annotations.get(names.STEERING_MARK)
    for key in reading.keys:
        text = annotations.get(key)
        if text is not None and (steered is None or text != steered or key != names.POD_DELETION_COST):
            number = _any_number(text) if reading.fractional else _int32(text)
            return (0, f"{key}: {text!r}") if number is None else (number, None)
    return 0, None


def eviction_cost(pod: Pod, reading: CostReading = ORDINARY) -> int:
    """Return the eviction cost of the pod, in units of 2^-27, from -10 to 10 pods (docs/rules.md#cost)."""
    annotations = pod.metadata.annotations
    priority = pod.spec.priority
    if not annotations and not priority:
        return UNIT
    extra = deletion_cost(annotations, reading)[0] if annotations else 0
    cost = UNIT + extra + (priority or 0) * 4  # 2^27 / 2^25
    return cost if -_LIMIT <= cost <= _LIMIT else max(-_LIMIT, min(_LIMIT, cost))


def unreadable_cost(pod: Pod, reading: CostReading = ORDINARY) -> str | None:
    """Return the deletion cost that is not a 32-bit integer and therefore ignored."""
    return deletion_cost(pod.metadata.annotations, reading)[1] if pod.metadata.annotations else None


def lifetime_remaining(expire_after: int | None, created: datetime | None, now: datetime) -> Fraction:
    """Return the remaining share of a node's lifetime, from 1 (new, or never expires) to 0 (expired).

    savings-threshold, Context, "Lifetime remaining". `expire_after` in nanoseconds.
    """
    return Fraction(*_life_left(expire_after, created, now))


def _life_left(expire_after: int | None, created: datetime | None, now: datetime) -> tuple[int, int]:
    """Return the remaining and the total lifetime."""
    if expire_after is None or created is None:
        return 1, 1
    if expire_after <= 0:
        return 0, 1
    age = (now - created) // MICROSECOND * 1000
    return min(expire_after, max(0, expire_after - age)), expire_after


def lifetime_remaining_float(expire_after: int | None, created: datetime | None, now: datetime) -> float:
    """Return the same in Karpenter's float arithmetic (a lifetime of 0 s at age 0 gives its NaN)."""
    if expire_after is None or created is None:
        return 1.0
    total = expire_after / 1e9
    left = total - (now - created).total_seconds()
    share = left / total if total else left * math.inf
    return max(min(share, 1.0), 0.0)  # in this order, which keeps a NaN


def node_cost(pod_costs: int, expire_after: int | None, created: datetime | None, now: datetime) -> tuple[int, int]:
    """Return the disruption cost of a node, the sum of its pods' costs (in units) x lifetime remaining, as a ratio."""
    if not pod_costs:
        return 0, 1
    left, whole = _life_left(expire_after, created, now)
    return pod_costs * left, UNIT * whole


Ageing = tuple[int, int, int, int, int]
"""How the cost of a node falls: a factor, its lifetime, how much of that goes by in a microsecond, the divisor of
factor x remaining lifetime, and the microsecond in which it was created."""


def ageing(pod_costs: int, expire_after: int | None, created: datetime | None) -> Ageing:
    """Return how the cost of a node falls; in the smallest whole numbers, which are divided fastest."""
    if expire_after is None or created is None:
        return pod_costs, 1, 0, UNIT, 0
    since, whole, step, unit = (created - EPOCH) // MICROSECOND, max(expire_after, 0), 1000, UNIT
    if whole % step == 0:
        whole, step = whole // step, 1
    if pod_costs % unit == 0:
        pod_costs, unit = pod_costs // unit, 1
    return pod_costs, whole, step, unit * (whole or 1), since


def rescheduling_cost(positive_costs: int) -> Fraction:
    """Return 1 + the sum of positive pod costs, by which Karpenter v1.15 orders and scores."""
    return 1 + Fraction(positive_costs, UNIT)
