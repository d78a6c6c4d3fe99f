"""Formats money, times and durations for the reasons that people read. Decides nothing."""

from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache

from dovetail.model.money import Money

_DOLLAR = 10**18
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def dollars(amount: Money | Fraction, *, bare: bool = False, more: int = 0) -> str:
    """Write money: `$0.0512` in sentences, with at most four significant digits; bare for figures, with ten places.

    An amount that would round to 0 keeps two significant digits. `more`: so many digits more.
    """
    places = 10 if bare else _places(abs(amount.numerator) // amount.denominator) + more
    if not bare and amount and abs(amount.numerator) * 10**places < _DOLLAR * amount.denominator:
        size, whole = abs(amount.numerator), _DOLLAR * amount.denominator
        places = min(12, next(more for more in range(places, 19) if size * 10**more >= whole or more == 18) + 1)
    written = _written if isinstance(amount, int) else _written.__wrapped__  # prices repeat, sums hardly ever
    return written(amount, bare, places)


def _places(amount: Money) -> int:
    """Return how many places behind the point four significant digits need; cents from a dollar on."""
    return 4 if amount < _DOLLAR else 2 if amount < 100 * _DOLLAR else 1 if amount < 1000 * _DOLLAR else 0


def cents(amount: Money | Fraction) -> str:
    """Write money for a column of a table: in cents, without them from 1,000 dollars on."""
    size = abs(amount.numerator) // amount.denominator
    places = 2 if size < 100 * _DOLLAR else 1 if size < 1000 * _DOLLAR else 0
    return _written.__wrapped__(amount, False, places)


def two_sums(one: Money | Fraction, other: Money | Fraction) -> tuple[str, str]:
    """Write two different sums so that they look different."""
    for more in range(8):
        texts = dollars(one, more=more), dollars(other, more=more)
        if texts[0] != texts[1]:
            break
    return texts


@lru_cache(maxsize=1 << 12)
def _written(amount: Money | Fraction, bare: bool, places: int) -> str:
    text = f"{_nearest(amount.numerator * 10**places, amount.denominator * _DOLLAR):+d}"
    sign, digits = ("-" if text[0] == "-" else ""), text[1:].rjust(places + 1, "0")
    whole, part = digits[: len(digits) - places], digits[len(digits) - places :].rstrip("0")
    if bare:
        return f"{sign}{whole}.{part.ljust(2, '0')}"
    fraction = f".{part.ljust(2, '0') if places > 1 else part}" if part or places > 1 else ""
    return f"{sign}${int(whole):,}{fraction}"


def _nearest(amount: int, unit: int) -> int:
    """Divide and round, halves to the even number."""
    whole, rest = divmod(amount, unit)
    return whole + (2 * rest > unit or (2 * rest == unit and whole % 2 == 1))


def seconds(span: timedelta) -> str:
    """Write a period in short form: `2h5m`, `14m`, `30s`."""
    left = max(0, span.days * 86400 + span.seconds + (span.microseconds > 0))
    text = ""
    for length, unit in _UNITS:
        if left >= length:
            text += f"{left // length}{unit}"
            left %= length
    return text or "0s"


@lru_cache(maxsize=256)
def nanoseconds(span: int) -> str:
    """Write a duration of nanoseconds in short form."""
    return seconds(timedelta(microseconds=span // 1000))


@lru_cache(maxsize=4096)
def clock(when: datetime) -> str:
    """Write an instant, in UTC, to the second."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
