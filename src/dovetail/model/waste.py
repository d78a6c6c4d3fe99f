"""What a node has wasted: money that removing it would have saved (spec section 22). `lifecycle.waste` keeps it."""

from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

import msgspec

from dovetail.model.money import Money

_HOUR: Final = 3600 * 10**6
_MICROSECOND: Final = timedelta(microseconds=1)


class Wasted(msgspec.Struct, frozen=True, kw_only=True):
    """Money wasted up to a time, and how much per hour from then on."""

    amount: Money
    rate: Money
    at: datetime

    def by(self, now: datetime) -> Money:
        """Return the amount wasted by a later time, rounded down."""
        passed = max(0, (now - self.at) // _MICROSECOND)
        return self.amount + self.rate * passed // _HOUR

    def when(self, asked: Fraction) -> datetime | None:
        """Return when the amount will be wasted; None: never."""
        missing = asked - self.amount
        if missing <= 0:
            return self.at
        if self.rate <= 0:
            return None
        wait = missing * _HOUR / self.rate
        return self.at + timedelta(microseconds=-(-wait.numerator // wait.denominator))
