"""How many machines pods need at least, and the least that one for them costs: asked round after round.

Knows the pools' templates and the instance types only, and neither nodes nor pods; as long as these are the same, so
are the answers. Sits in decide, below bounds and memory.
"""

from dovetail.model.listing import are_the_same
from dovetail.scheduling.frame import Frame
from dovetail.scheduling.result import LaunchPrice

_KEPT_MAX = 100_000

Least = tuple[int, LaunchPrice | None]


class Launches:
    """What launches cost under a frame's templates."""

    def __init__(self, frame: Frame) -> None:
        self._machines = frame.machines
        self._templates = frame.templates
        self._largest: list[int] = frame.machines.allocatable.max(axis=0, initial=0).tolist()
        self._least: dict[tuple[tuple[int, int], ...], Least] = {}

    def serves(self, frame: Frame) -> bool:
        """Return whether another frame has the very same templates and types."""
        return (
            frame.machines is self._machines
            and are_the_same(frame.templates, self._templates)
            and frame.machines.allocatable.shape[1] == len(self._largest)
        )

    def count_for(self, need: dict[int, int]) -> int:
        """Return how many of the largest machines it takes, at least."""
        largest = self._largest
        counts = (-(-amount // largest[at]) for at, amount in need.items() if at < len(largest) and largest[at])
        return max(counts, default=0)

    def least_for(self, need: dict[int, int]) -> Least:
        """Return how many machines it takes, one at least, and the price of the cheapest that holds all; None: none."""
        mark = tuple(sorted(need.items()))
        found = self._least.get(mark)
        if found is None:
            if len(self._least) >= _KEPT_MAX:
                self._least.clear()
            found = self._least[mark] = max(1, self.count_for(need)), self._cheapest_for(need)
        return found

    def _cheapest_for(self, need: dict[int, int]) -> LaunchPrice | None:
        best: LaunchPrice | None = None
        for template in self._templates:
            types = template.types
            for column, amount in need.items():
                if column < len(template.room):
                    types &= template.room[column].at_least(amount)
            kinds = template.reqs.table.kinds
            for place in template.reqs.order:
                if types >> place & 1:
                    price = template.reqs.prices(kinds[place])[1]
                    if price is not None and (best is None or price.amount < best.amount):
                        best = price
                    break
        return best
