"""What nodes have wasted, kept from round to round (spec section 22). In memory: a restart only delays.

A node's waste is the integral over time of what removing it would have saved, as computed by the rounds; between two
rounds the smaller value counts. It is reset when a round finds that the node could not go, and kept while no round
checks. Sits in lifecycle, below `engine`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from dovetail.lifecycle.store import Store
from dovetail.model.money import Money
from dovetail.model.objects import Node
from dovetail.model.waste import Wasted

UNSEEN_MAX: Final = timedelta(minutes=15)
"""How long nobody may have looked at a node for the time in between to count."""


class WasteBook:
    """What each node has wasted so far."""

    def __init__(self) -> None:
        self._wasted: dict[str, Wasted] = {}

    def known(self) -> Mapping[str, Wasted]:
        """Return what every node has wasted, by name."""
        return dict(self._wasted)

    def update(self, could_save: Mapping[str, Money | None], store: Store, now: datetime) -> None:
        """Add the result of a round."""
        for name, rate in could_save.items():
            if rate is None:
                self._wasted.pop(name, None)
                continue
            old = self._wasted.get(name)
            amount = 0 if old is None else _grown(old, rate, now)
            self._wasted[name] = Wasted(amount=amount, rate=rate, at=now)
        for name in [name for name in self._wasted if store.get(Node, name) is None]:
            del self._wasted[name]

    def forget(self) -> None:
        """Forget all: another process leads."""
        self._wasted = {}


def _grown(old: Wasted, rate: Money, now: datetime) -> Money:
    """Return the waste by now: at the smaller of both rates, and not for a time without rounds."""
    until = min(now, old.at + UNSEEN_MAX)
    return Wasted(amount=old.amount, rate=min(old.rate, rate), at=old.at).by(until)
