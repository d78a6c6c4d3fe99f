"""An upper bound on the value of any commands, by prices on resources.

Give every resource a price so that no launchable machine is worth more than it costs. A node's pods are then worth what
they request, and so is the room that other nodes have for them. Removing a node gains at most its own price less the
worth of its pods, and a node that stays takes in at most the worth of its room; the sum over all nodes bounds every set
of nodes, over any number of rounds. It is a bound for all such prices, so a short search takes the least sum it finds
(weak duality; no solver is needed). Room that whole pods can't fill is worth nothing. Labels, taints, topology,
DaemonSets, budgets and whole machines only lower the true value. Uses rounded numbers: it skips work and says how good
a plan is, and approves nothing. Sits in decide, below the search.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.scene import Scene
from dovetail.decide.search.sums import machine_prices

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_FIRST_STEP: Final = 0.5
_LAST_STEP: Final = 0.004
"""How far a price is moved at first and at last, as a share of what the resource costs alone."""
_TRIES_MAX: Final = 400
_UNITS_MAX: Final = 20_000
"""Up to how many units of a resource the sums that pods can reach are tabulated."""
SLACK: Final = 1e-9
"""The largest rounding error of a value of 0."""


class ValueBound:
    """The bound for one set of candidates; arrays have one row per node, machine or kind of pod."""

    def __init__(self, scene: Scene, candidates: Sequence[NodeFacts], *, free: bool = False) -> None:
        """Start a search; `free`: they need to save only what is required after enough waste (docs/rules.md#waste)."""
        frame, rows = scene.snapshot.frame, scene.needs
        index = scene.snapshot.index
        placed = [facts for facts in candidates if facts.name in index]
        places = [index[facts.name] for facts in placed]
        own = rows.of(placed, scene.snapshot)
        asked = sorted(set(map(tuple, rows.each[_numbers_in(rows.specs[own])].tolist())))
        each = np.array(asked, dtype=np.int64).reshape(len(asked), rows.width)
        columns = np.flatnonzero(each.any(axis=0)).tolist()
        self._needs: Floats = each[:, columns].astype(np.float64)
        self._asks: Floats = rows.demand[own][:, columns].astype(np.float64)
        self._worth = worths(scene, placed, free=free)
        room: Floats = scene.room_for_moved[:, columns].astype(np.float64)
        stays = np.ones(len(room), dtype=np.bool_)
        stays[places] = False
        self._candidates = _Rooms(room[places], self._needs)
        self._others = _Rooms(room[stays], self._needs)
        prices = machine_prices(frame, scene.price_scale)
        sizes = frame.machines.allocatable
        has = [index for index, column in enumerate(columns) if column < sizes.shape[1]]
        self._sizes = np.zeros((len(prices), len(columns)))
        self._sizes[:, has] = sizes[list(prices)][:, [columns[index] for index in has]]
        self._prices = np.array(list(prices.values()))
        self._machines = _Rooms(self._sizes, self._needs)

    def at_most(self, enough: float = 0.0) -> float:
        """Return an upper bound on the value of all commands together, as a share of the scene's `price_scale`.

        `enough`: stop once the bound is this low.
        """
        best = float(self._worth[self._worth > 0].sum())
        alone = self._alone
        prices: Floats = np.zeros(len(alone))
        starts = [alone * row * share for row in np.eye(len(alone)) for share in (1.0, 0.5)]
        tries = 0
        for start in (*starts, alone / max(1, len(alone))):
            value, found = self._under(start)
            best, prices = (value, found) if value < best else (best, prices)
        step = _FIRST_STEP
        while step > _LAST_STEP and best > enough + SLACK and tries < _TRIES_MAX:
            before = best
            for index in range(len(alone)):
                for sign in (step, -step):
                    trial = prices.copy()
                    trial[index] = max(0.0, trial[index] + sign * alone[index])
                    value, found = self._under(trial)
                    best, prices = (value, found) if value < best - SLACK else (best, prices)
                    tries += 1
            if best >= before:
                step /= 2
        return max(0.0, best)

    @property
    def _alone(self) -> Floats:
        """Return the lowest unit price of each resource, as if a machine were bought for it alone."""
        shares = np.divide(
            self._prices[:, None], self._sizes, out=np.full(self._sizes.shape, np.inf), where=self._sizes > 0
        )
        least: Floats = shares.min(axis=0, initial=np.inf)
        return np.where(np.isfinite(least), least, 1.0)

    def _under(self, prices: Floats) -> tuple[float, Floats]:
        """Return the bound under prices of resources, lowered until no machine is worth more than it costs."""
        worth = self._machines.worth(prices)
        free = np.where(worth > 0, np.inf, 0.0)  # a machine that commitments pay for: any worth is more than it costs
        over = float(np.divide(worth, self._prices, out=free, where=self._prices > 0).max(initial=0.0))
        prices = prices / over if over > 1 else prices
        going = self._worth - self._asks @ prices
        value = np.maximum(going, self._candidates.worth(prices)).sum() + self._others.worth(prices).sum()
        return float(value), prices


def _numbers_in(specs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers of all specs in some rows; 0 is no pod."""
    found = np.flatnonzero(np.bincount(specs.ravel()))
    return found[found > 0]


def worths(scene: Scene, nodes: Sequence[NodeFacts], *, free: bool) -> Floats:
    """Return the value of removing each node without a replacement, as a share of `price_scale`."""
    haste, table = scene.haste, scene.table
    required, units = haste.floors(nodes, table) if free else haste.bars(nodes, table)
    prices = np.array([facts.price for facts in nodes], dtype=object)
    found: Floats = ((prices * units - required) / (units * scene.price_scale)).astype(np.float64)
    return found


def _usable(rooms: Floats, needs: Floats) -> Floats:
    """Return how much of each resource of each room whole pods can fill at most: sums of their requests."""
    found = rooms.copy()
    for index in range(rooms.shape[1]):
        asks = sorted({int(amount) for amount in needs[:, index] if amount > 0})
        unit = math.gcd(*asks)
        if not unit or not len(rooms):
            continue
        units = rooms[:, index] // unit  # still floats: a node may say that it has 2^63 bytes
        reached = _sums_up_to([amount // unit for amount in asks], int(min(units.max(), _UNITS_MAX)))
        small = units < len(reached)
        units[small] = reached[units[small].astype(np.int64)]
        found[:, index] = units * float(unit)
    return found


def _sums_up_to(amounts: Sequence[int], most: int) -> npt.NDArray[np.int64]:
    """Return, for every number up to a limit, the greatest sum of amounts not above it; amounts may repeat."""
    bits, mask = 1, (1 << (most + 1)) - 1
    for amount in amounts:
        step = amount
        while step <= most:
            bits |= (bits << step) & mask
            step *= 2
    there = np.frombuffer(bits.to_bytes(most // 8 + 1, "little"), dtype=np.uint8)
    numbers = np.arange(most + 1, dtype=np.int64)
    sums: npt.NDArray[np.int64] = np.where(np.unpackbits(there, bitorder="little")[: most + 1] > 0, numbers, 0)
    return np.maximum.accumulate(sums)


def _distinct(rows: Mask) -> tuple[Mask, npt.NDArray[np.int64]]:
    """Return the distinct rows, and which of them each row is."""
    packed = np.packbits(rows, axis=1)
    width, data = packed.shape[1], packed.tobytes()
    known: dict[bytes, int] = {}
    which = [known.setdefault(data[at : at + width], len(known)) for at in range(0, len(data), max(1, width))]
    found = np.array(which, dtype=np.int64)
    firsts = np.flatnonzero(np.diff(np.maximum.accumulate(found), prepend=-1))
    return rows[firsts], found


class _Rooms:
    """Rooms, and an upper bound on the worth of the pods in each."""

    def __init__(self, rooms: Floats, needs: Floats) -> None:
        rooms = _usable(rooms, needs)
        fits: Mask = np.all(needs[None, :, :] <= rooms[:, None, :], axis=2)
        self._number = len(rooms)
        used = fits.any(axis=1)
        self._rooms, self._used, self._needs = rooms[used], used, needs
        self._fits, self._alike = _distinct(fits[used])

    def worth(self, prices: Floats) -> Floats:
        """Return an upper bound on the worth of the pods in each room: by all resources, and by each one alone."""
        pods = self._needs @ prices
        best: Floats = self._rooms @ prices
        for index in range(len(prices)):
            asks = self._needs[:, index]
            dense = np.divide(pods, asks, out=np.full(len(pods), np.inf), where=asks > 0)
            densest = np.where(self._fits, dense, 0.0).max(axis=1, initial=0.0)[self._alike]
            alone = np.multiply(self._rooms[:, index], densest, out=best.copy(), where=np.isfinite(densest))
            best = np.minimum(best, alone)
        found: Floats = np.zeros(self._number)
        found[self._used] = best
        return found
