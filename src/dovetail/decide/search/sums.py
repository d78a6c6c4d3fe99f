"""An upper bound on the value of a set of nodes, by sums alone, and orders for proposals; no decision.

Removing a node removes its free room, and its pods need room elsewhere: together this consumes the cluster's room. What
is missing has to be launched, and no launch is cheaper than the cheapest share of a machine. Labels, taints, topology
and whole pods only lower the true value. Uses rounded numbers: the exact simulation and the price gates judge each
proposal. Sits in decide, below the search.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.scene import Scene
from dovetail.model.money import Money
from dovetail.scheduling.frame import Frame

Floats = npt.NDArray[np.float64]
RULED = 5
"""The effort of placing a pod with topology rules, ports or volumes, in plain pods."""


FREE = 1e-3
"""The weight of what only waste allows, compared with what may go at once."""
SIZES_MAX = 6
"""How many sets of smaller machines are tried."""


class Sums:
    """Candidates as rows: the value and the consumption of each. Sets are lists of their indexes."""

    def __init__(self, scene: Scene, candidates: Sequence[NodeFacts], *, free: bool = False) -> None:
        """Start with no node; `free`: their disruption is paid for already (docs/rules.md#waste)."""
        frame = scene.snapshot.frame
        count = frame.room.shape[1]
        room = scene.room_for_moved.astype(np.float64)
        places = [scene.index_of(facts) for facts in candidates]
        movers = [scene.snapshot.movers(place) for place in places]
        self.demand: Floats = scene.needs.demand_of(candidates, scene.snapshot).astype(np.float64)
        self.consumes = self.demand + room[places].reshape(len(places), count)
        leaving = [scene.by_name[scene.snapshot.states[at].name] for at, _ in scene.snapshot.leaving]
        going = scene.needs.demand_of(leaving, scene.snapshot)
        self.room = np.maximum(room.sum(axis=0) - going.sum(axis=0, dtype=np.float64), 0.0)
        required = [source.required for source in scene.sources(candidates)]
        unit = scene.price_scale
        self.price = np.array([facts.price / unit for facts in candidates])
        self.required = np.array([float(amount / unit) for amount in required])
        least = np.array([float(source.least / unit) for source in scene.sources(candidates)])
        self.worth = (self.price - least) * FREE if free else self.price - self.required
        first = frame.first
        self.work = [sum(1 if first(cls).simple else RULED for cls in each.classes) for each in movers]
        self._scale = FREE if free else 1.0
        self._machines = machine_prices(frame, unit)
        self._kinds = frame.machines.kinds
        self.unit_price = _unit_prices(frame, self._machines, count)
        self.least_launch = min(self._machines.values(), default=1e9)

    def at_most(self, chosen: Sequence[int]) -> float:
        """Return an upper bound on the value of removing these, as a share of `price_scale`."""
        places = list(chosen)
        short = np.maximum(self.consumes[places].sum(axis=0) - self.room, 0.0)
        return float(self.worth[places].sum() - self._launch_at_least(short[None, :])[0])

    def prefixes_at_most(self, order: Sequence[int]) -> list[float]:
        """Return the bound for every prefix of an order, the shortest first."""
        places = list(order)
        short = np.maximum(np.cumsum(self.consumes[places], axis=0) - self.room, 0.0)
        best: list[float] = (np.cumsum(self.worth[places]) - self._launch_at_least(short)).tolist()
        return best

    def each_at_most(self, chosen: Sequence[int], others: Sequence[int]) -> list[float]:
        """Return the bound for a set with each of some other nodes added."""
        places, more = list(chosen), list(others)
        base = self.consumes[places].sum(axis=0)
        short = np.maximum(base + self.consumes[more] - self.room, 0.0)
        best: list[float] = (self.worth[places].sum() + self.worth[more] - self._launch_at_least(short)).tolist()
        return best

    def _launch_at_least(self, short: Floats) -> Floats:
        share: Floats = (short * self.unit_price).max(axis=1, initial=0.0)
        launch: Floats = np.where(share > 0, np.maximum(share, self.least_launch), 0.0)
        return launch * self._scale

    def smaller(self) -> list[tuple[str, ...]]:
        """Return sets of machines without the priciest, larger sets first: several small may cost less than one big."""
        steps = sorted(set(self._machines.values()))
        if len(steps) > SIZES_MAX:
            at = [round((index + 1) * (len(steps) - 1) / (SIZES_MAX + 1)) for index in range(SIZES_MAX)]
            steps = [steps[place] for place in dict.fromkeys(at)] + steps[-1:]
        return [
            tuple(sorted(self._kinds[place].name for place, price in self._machines.items() if price <= most))
            for most in reversed(steps[:-1])
        ]

    def orders(self) -> list[list[int]]:
        """Return orders in which sets may grow: highest value per consumption or disruption first."""
        total = self.room + self.demand.sum(axis=0)
        scarce = np.where(total > 0, self.consumes.sum(axis=0) / np.maximum(total, 1.0), 0.0)
        shares = np.where(total > 0, self.consumes / np.maximum(total, 1.0), 0.0)
        kinds = [int(at) for at in np.argsort(-scarce, kind="stable")[:3] if scarce[at] > 0]
        replaced = (self.demand * self.unit_price).max(axis=1, initial=0.0)
        rankings = [
            self.worth / np.maximum(shares.max(axis=1, initial=0.0), 1e-12),
            *(self.worth / np.maximum(shares[:, kind], 1e-12) for kind in kinds),
            self.worth - replaced,
            (self.worth - replaced) / np.maximum(self.price, 1e-12),
            self.price / np.maximum(self.required, 1e-12),
        ]
        found = [[int(at) for at in np.argsort(-ranking, kind="stable")] for ranking in rankings]
        return [list(order) for order in dict.fromkeys(map(tuple, found))]


def machine_prices(frame: Frame, unit: Money) -> dict[int, float]:
    """Return the cheapest price of every machine that some pool could launch, by index; in that unit."""
    prices: dict[int, float] = {}
    for template in frame.templates:
        for place in template.reqs.order:
            launch = template.reqs.prices(frame.machines.kinds[place])[1]
            if template.types >> place & 1 and launch is not None:
                amount = launch.amount / unit
                prices[place] = min(prices.get(place, amount), amount)
    return prices


def _unit_prices(frame: Frame, prices: dict[int, float], count: int) -> Floats:
    """Return the lowest unit price of each resource on a new machine; a very high one if no machine has it."""
    unit = np.full(count, 1e9)
    allocatable = frame.machines.allocatable[:, :count].astype(np.float64)  # a later round may have added resources
    width = allocatable.shape[1]
    for place, amount in prices.items():
        has = allocatable[place]
        share = np.divide(amount, has, out=np.full(width, 1e9), where=has > 0)
        unit[:width] = np.minimum(unit[:width], share)
    return unit
