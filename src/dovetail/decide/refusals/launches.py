"""Lower bounds on the machines that pods need and on their price, cached between rounds.

Knows only the pools' templates and the instance types; while these stay the same, so do the answers. Sits in decide,
below bounds.
"""

import numpy as np
from msgspec.structs import replace

from dovetail.model.cached import cached
from dovetail.model.listing import are_the_same
from dovetail.model.money import UNIT
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
        self._one: dict[bytes, Least] = {}
        self._several: dict[bytes, Least] = {}

    def serves(self, frame: Frame) -> bool:
        """Return whether another frame has the same templates and types."""
        return (
            frame.machines is self._machines
            and are_the_same(frame.templates, self._templates)
            and frame.machines.allocatable.shape[1] == len(self._largest)
        )

    def count_for(self, need: dict[int, int]) -> int:
        """Return the minimum number of machines, counted in the largest ones."""
        largest = self._largest
        counts = (-(-amount // largest[at]) for at, amount in need.items() if at < len(largest) and largest[at])
        return max(counts, default=0)

    def least_for(self, need: bytes) -> Least:
        """Return how many machines a need takes, at least one, and the price of the cheapest for all; None: none.

        `need`: the amount of each resource, as 64-bit integers.
        """
        found = self._one.get(need)
        if found is None:
            amounts = _amounts(need)
            found = _keep(self._one, need, (max(1, self.count_for(amounts)), self._cheapest_for(amounts)))
        return found

    def least_of_several(self, need: bytes) -> Least:
        """Return how many machines a need takes, at least one, and the least price of any number; None: impossible."""
        found = self._several.get(need)
        if found is None:
            amounts = _amounts(need)
            found = _keep(self._several, need, (max(1, self.count_for(amounts)), self.share_for(amounts)))
        return found

    def share_for(self, need: dict[int, int]) -> LaunchPrice | None:
        """Return a lower bound on the price of any machines for a need, by the cheapest shares; None: impossible."""
        best: LaunchPrice | None = None
        for column, amount in need.items():
            found = self._shares.get(column)
            if found is None:
                return None
            price, size = found
            least = price.amount * amount // size
            if best is None or least > best.amount:
                best = replace(price, amount=least, as_float=least / UNIT)
        return best

    @cached
    def _shares(self) -> dict[int, tuple[LaunchPrice, int]]:
        """Return for each resource the machine with the lowest unit price: its price and its amount."""
        best: dict[int, tuple[LaunchPrice, int]] = {}
        rows: list[list[int]] = self._machines.allocatable.tolist()
        for template in self._templates:
            kinds = template.reqs.table.kinds
            for place in template.reqs.order:
                price = template.reqs.prices(kinds[place])[1] if template.types >> place & 1 else None
                for column, size in enumerate(rows[place]) if price is not None else ():
                    known = best.get(column)
                    if (
                        price is not None
                        and size > 0
                        and (known is None or price.amount * known[1] < known[0].amount * size)
                    ):
                        best[column] = (price, size)
        return best

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


def _amounts(need: bytes) -> dict[int, int]:
    amounts: list[int] = np.frombuffer(need, dtype=np.int64).tolist()
    return {column: amount for column, amount in enumerate(amounts) if amount}


def _keep(known: dict[bytes, Least], need: bytes, found: Least) -> Least:
    if len(known) >= _KEPT_MAX:
        known.clear()
    known[need] = found
    return found
