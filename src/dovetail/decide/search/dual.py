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
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price import UNPAYABLE
from dovetail.decide.search.sums import machine_prices
from dovetail.model.money import UNIT
from dovetail.scheduling.pods.movers import Movers

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_FIRST_STEP: Final = 0.5
_LAST_STEP: Final = 0.004
"""How far a price is moved at first and at last, as a share of what the resource costs alone."""
_TRIES_MAX: Final = 400
_UNITS_MAX: Final = 20_000
"""Up to how many units of a resource it is looked up which sums the pods can come to."""
SLACK: Final = 1e-9
"""What rounding may make of nothing."""


class ValueBound:
    """The bound for one set of candidates; arrays have one row per node, machine or kind of pod."""

    def __init__(self, context: RoundContext, candidates: Sequence[NodeFacts], *, free: bool = False) -> None:
        """Start a search; `free`: the nodes have to save only what is required after enough waste (section 22)."""
        frame = context.snapshot.frame
        placed = [(facts, place) for facts in candidates if (place := context.index_of(facts)) >= 0]
        places = [place for _, place in placed]
        movers = [context.snapshot.movers(place) for place in places]
        specs = {info.id: info for each in movers for info, _ in each.specs}
        row_of = {need: row for row, need in enumerate(dict.fromkeys(info.need for info in specs.values()))}
        needs = list(row_of)
        columns = sorted({column for need in needs for column, _ in need})
        at = {column: index for index, column in enumerate(columns)}
        self._needs = np.zeros((len(needs), len(columns)))
        for row, need in enumerate(needs):
            for column, amount in need:
                self._needs[row, at[column]] = amount
        rows = {number: row_of[info.need] for number, info in specs.items()}
        self._asks = _counts(movers, rows, len(needs)) @ self._needs
        self._worth = np.array([_worth(context, facts, free=free) for facts, _ in placed])
        takes = frame.open.copy()
        takes[list(context.closed)] = False
        room: Floats = np.where(takes[:, None], np.maximum(frame.room, 0), 0)[:, columns].astype(np.float64)
        stays = np.ones(len(room), dtype=np.bool_)
        stays[places] = False
        self._candidates = _Rooms(room[places], self._needs)
        self._others = _Rooms(room[stays], self._needs)
        prices = machine_prices(frame)
        sizes = frame.machines.allocatable
        has = [index for index, column in enumerate(columns) if column < sizes.shape[1]]
        self._sizes = np.zeros((len(prices), len(columns)))
        self._sizes[:, has] = sizes[list(prices)][:, [columns[index] for index in has]]
        self._prices = np.array(list(prices.values()))
        self._machines = _Rooms(self._sizes, self._needs)

    def at_most(self, enough: float = 0.0) -> float:
        """Return an upper bound on the value of all commands together, in dollars per hour.

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
        over = float((self._machines.worth(prices) / self._prices).max(initial=0.0))
        prices = prices / over if over > 1 else prices
        going = self._worth - self._asks @ prices
        value = np.maximum(going, self._candidates.worth(prices)).sum() + self._others.worth(prices).sum()
        return float(value), prices


def _counts(movers: Sequence[Movers], row_of: Mapping[int, int], rows: int) -> Floats:
    """Return how many pods of each node are in each row; `row_of`: the row of each spec, by its id."""
    flat = [0] * (len(movers) * rows)
    for place, each in enumerate(movers):
        for info, count in each.specs:
            flat[place * rows + row_of[info.id]] += count
    return np.array(flat, dtype=np.float64).reshape(len(movers), rows)


def _worth(context: RoundContext, facts: NodeFacts, *, free: bool) -> float:
    """Return the value of removing a node without a replacement, in dollars per hour."""
    if free:
        return facts.price / UNIT - context.settings.waste_floor / UNIT * facts.disruption_cost_float(context.now)
    if context.haste.waits_for_jobs(facts):
        return -float(UNPAYABLE)
    required, unit = context.haste.asked_savings(facts)
    return facts.price / UNIT - required / (unit * UNIT)


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
    return rows[np.unique(found, return_index=True)[1]], found


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
