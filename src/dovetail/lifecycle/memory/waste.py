"""What nodes have wasted, kept from round to round (docs/rules.md#waste). In memory: a restart only delays.

A node's waste is the integral over time of what removing it would have saved, as computed by the rounds; between two
rounds the smaller value counts. It is reset when a round finds that the node could not go, and kept while no round
checks. Sits in lifecycle, below `engine`.
"""

from collections.abc import Mapping
from datetime import datetime

from dovetail.lifecycle.store import Store
from dovetail.model.money import Money
from dovetail.model.objects import Node
from dovetail.model.waste import Wasted, wasted_by


class WasteBook:
    """What each node has wasted so far."""

    def __init__(self) -> None:
        self._wasted: dict[str, Wasted] = {}

    def known(self) -> Mapping[str, Wasted]:
        """Return what every node has wasted, by name."""
        return dict(self._wasted)

    def update(self, could_save: Mapping[str, Money | None], store: Store, now: datetime) -> None:
        """Add the result of a round."""
        self._wasted = wasted_by(self._wasted, could_save, now)
        for name in [name for name in self._wasted if store.get(Node, name) is None]:
            del self._wasted[name]

    def forget(self) -> None:
        """Forget all: another process leads."""
        self._wasted = {}
