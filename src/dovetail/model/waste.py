"""What a node has wasted: money that removing it would have saved (docs/rules.md#waste). `lifecycle.waste` keeps it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

import msgspec

from dovetail.model.money import Money

_HOUR: Final = 3600 * 10**6
_MICROSECOND: Final = timedelta(microseconds=1)
UNSEEN_MAX: Final = timedelta(minutes=15)
"""How long nobody may have looked at a node for the time in between to count."""


class Wasted(msgspec.Struct, frozen=True, kw_only=True):
    """Money wasted up to a time, and how much per hour from then on."""

    amount: Money
    rate: Money
    at: datetime

    def by(self, now: datetime) -> Money:
        """Return the amount wasted by a later time, rounded up: `when` then never comes a moment too early."""
        passed = max(0, (now - self.at) // _MICROSECOND)
        return self.amount - (-self.rate * passed // _HOUR)

    def when(self, asked: Fraction) -> datetime | None:
        """Return when the amount will be wasted; None: never."""
        missing = asked - self.amount
        if missing <= 0:
            return self.at
        if self.rate <= 0:
            return None
        wait = missing * _HOUR / self.rate
        return self.at + timedelta(microseconds=-(-wait.numerator // wait.denominator))


def wasted_by(known: Mapping[str, Wasted], could_save: Mapping[str, Money | None], now: datetime) -> dict[str, Wasted]:
    """Return what every node has wasted after a round that found what removing each could save; None: it can't go."""
    found = dict(known)
    for name, rate in could_save.items():
        if rate is None:
            found.pop(name, None)
            continue
        old = found.get(name)
        found[name] = Wasted(amount=0 if old is None else _grown(old, rate, now), rate=rate, at=now)
    return found


def _grown(old: Wasted, rate: Money, now: datetime) -> Money:
    """Return the waste by now: at the smaller of both rates, and not for a time without rounds."""
    until = min(now, old.at + UNSEEN_MAX)
    return Wasted(amount=old.amount, rate=min(old.rate, rate), at=old.at).by(until)
