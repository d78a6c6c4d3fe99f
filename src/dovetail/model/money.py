"""Money as exact integers: dollars in units of 10^-18, so that ``1.00 - 0.90 >= 0.10`` holds.

Design: docs/rules.md#price, savings-threshold.

Decides how a price is read, written and compared with what a move must save. Knows nothing of nodes or catalogues.
Sits at the bottom of the model.

Prices and thresholds are decimals, hence integers here. Disruption costs are not decimals but rational numbers: a pod's
cost is a multiple of 2^-27, and the remaining share of a lifetime is a ratio of two integers. A `Fraction` holds their
products exactly, so required savings stay a `Fraction` of this unit until they are written down.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

Money: TypeAlias = int
"""An amount of dollars, in units of 10^-18."""

PLACES = 18
UNIT: int = 10**PLACES
"""One dollar."""

HOURS_A_MONTH = 730
"""How many hours a bill's month has."""

_DIGITS_MAX = 30  # digits before the point; more than that is a mistake, and "1e999999" must not cost memory


class MoneyError(ValueError):
    """A value that is not an amount of dollars; the message says what to write instead."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(f"{value!r} is not an amount of dollars; write a decimal number such as 0.096")


def parse_money(value: str | float | int | Decimal) -> Money:
    """Read an amount of dollars exactly; a float as the shortest decimal that stands for it.

    Digits beyond the eighteenth place are rounded, half to even.
    """
    # The cache compares by equality, where True is 1 and Decimal("0.1") is not 0.1: only texts share entries.
    if isinstance(value, bool):
        raise MoneyError(value)
    return _parse(value if isinstance(value, str) else str(value))


@lru_cache(maxsize=1 << 15)
def _parse(text: str) -> Money:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise MoneyError(text) from None
    if not number.is_finite() or (number and number.adjusted() >= _DIGITS_MAX):
        raise MoneyError(text)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    mantissa = int("".join(map(str, digits)))
    shift = exponent + PLACES
    if shift < -len(digits) - 1:
        return 0
    power: int = 10 ** abs(shift)
    amount = mantissa * power if shift >= 0 else round(Fraction(mantissa, power))
    return -amount if sign else amount


def format_money(amount: Money, places: int | None = None) -> str:
    """Write dollars as a plain decimal, never with an exponent.

    All digits without trailing zeros, or with ``places`` exactly that many digits, rounded half to even.
    """
    digits = PLACES if places is None else places
    if digits < PLACES:
        amount = round(Fraction(amount, 10 ** (PLACES - digits)))
    else:
        amount *= 10 ** (digits - PLACES)
    whole, part = divmod(abs(amount), 10**digits)
    shown = f"{part:0{digits}d}" if digits else ""
    if places is None:
        shown = shown.rstrip("0")
    return f"{'-' if amount < 0 else ''}{whole}{'.' if shown else ''}{shown}"


def required(threshold: Money, cost: Fraction | int | float) -> Fraction:
    """Return the savings that a move must bring: threshold x disruption cost, exact, in units of `Money`.

    Those of several pools add up. A float counts as the exact binary fraction that it is, so a cost that went through
    float arithmetic is only as exact as that.
    """
    return threshold * Fraction(cost)


def at_least(savings: Money, threshold: Money, cost: Fraction | int | float) -> bool:
    """Return whether the savings reach threshold x disruption cost; equality is enough."""
    return savings >= required(threshold, cost)


def times(threshold: Decimal | Fraction | int | str, cost: Fraction | int | float) -> Money:
    """Return dollars per unit of cost, times a cost, as money: 0.01 x 5.0 is 0.05, to the last digit."""
    return nearest(Fraction(threshold) * UNIT * Fraction(cost))


def nearest(amount: Fraction | int) -> Money:
    """Return the money nearest to an exact amount, half to even: for writing it down, not for comparing."""
    return round(amount)


def as_float(amount: Money) -> float:
    """Return the float nearest to the amount in dollars: for plots and for formats that have only floats."""
    return float(amount / UNIT)
