"""Applies the bounds, and what is certain about starting nodes, to many nodes at once.

A round may have to ask the same of thousands of nodes, because room came up somewhere. The pods of a node rarely change
between rounds, so their counts and requests are kept here as rows of numbers, and a few array operations answer for all
rows what `Bounds.replacement_at_least` and `Unready.destination` answer for one node. Where these would look closer (a
node that is itself counted as room), the sieve says nothing. Exact: it never disagrees with them. Sits in decide, above
bounds and unready, below standing, which owns it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.refusals.bounds import Bounds
from dovetail.decide.refusals.launches import Launches, Least
from dovetail.decide.refusals.unready import STARTING, Unready
from dovetail.scheduling.pods.classes import PodClass, SpecInfo
from dovetail.scheduling.pods.movers import Demand, Mark, Movers
from dovetail.scheduling.result import LaunchPrice

_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_Number = TypeVar("_Number", bound=np.generic)

_ENOUGH: Final = 2**62
KINDS_MAX: Final = 64
"""A node with pods of more kinds has no row."""
MARKS_MAX: Final = 10_000
"""Once there are so many different demands, a node with another one has no row."""
_NEEDS_MAX: Final = 100_000
NO_ROW: Final = -1
_BY_KIND: Final = ("specs", "spec_counts", "kinds", "kind_counts", "homeless")


class Possible(msgspec.Struct, frozen=True, gc=False):
    """Only what it saves can still refuse a node; `launch`: the minimum price of a machine for its pods, if known."""

    launch: LaunchPrice | None


_NOTHING_NEEDED: Final = Possible(None)
Found = Refusal | Possible | None
"""What is certain about a node; None: nothing is known yet."""
Refuse = Callable[[int, int, LaunchPrice | None], Refusal | None]
"""Refuses the node with a number in the question if it needs so many new nodes, of at least this price, if known."""
_Into = tuple[Refuse, list[Found]]


class Sieve:
    """The started pods of nodes, a row for each; `launches`: what machines for them cost."""

    def __init__(self, width: int, launches: Launches) -> None:
        self.launches = launches
        self.infos: dict[int, SpecInfo] = {}
        self.classes: dict[int, PodClass] = {}
        self.classes_end = 0
        self.marks: list[Mark] = []
        self.needs = np.zeros((1, width), dtype=np.int64)
        """The requests of one pod of each spec; numbers of specs and classes begin with 1 here, 0 is no pod."""
        self.specs, self.spec_counts = _no_rows(), _no_rows()
        self.kinds, self.kind_counts = _no_rows(), _no_rows()
        self.demand = np.zeros((0, width), dtype=np.int64)
        self.mark = np.zeros(0, dtype=np.int64)
        self._mark_numbers: dict[Mark, int] = {}
        self.refusals: list[Refusal | None] = []
        """The refusal of each row that rests only on pods that fit on no other node, and which of its specs these are.

        It is valid whenever the pods of the same specs fit nowhere.
        """
        self.homeless: _Flags = np.zeros((0, 1), dtype=np.bool_)
        self.answers: list[Refusal | LaunchPrice | None] = []
        """What the bounds said about each row when its new nodes had to hold `answered`; -1: nothing yet."""
        self.answered = np.zeros((0, 3, width), dtype=np.int64)
        self._least: dict[bytes, Least] = {}
        self._free: list[int] = []

    def add(self, movers: Movers) -> int:
        """Add the pods of a node and return their row; -1 if they don't go into one."""
        specs, demand = movers.specs, movers.started_demand
        classes = Counter([cls.id + 1 for cls in movers.classes])
        if movers.started is not specs or len(classes) > KINDS_MAX:
            return NO_ROW
        if any(amount >= _ENOUGH for amount in demand.total.values()):
            return NO_ROW
        if demand.mark not in self._mark_numbers and len(self.marks) >= MARKS_MAX:
            return NO_ROW
        self._learn(specs, movers.classes)
        row = self._new_row(max(len(classes), len(specs)))
        _fill(self.specs[row], [info.id + 1 for info, _ in specs])
        _fill(self.spec_counts[row], [count for _, count in specs])
        _fill(self.kinds[row], list(classes))
        _fill(self.kind_counts[row], list(classes.values()))
        self.demand[row] = 0
        for column, amount in demand.total.items():
            self.demand[row, column] = amount
        number = self._mark_numbers.setdefault(demand.mark, len(self.marks))
        if number == len(self.marks):
            self.marks.append(demand.mark)
        self.mark[row] = number
        self.refusals[row] = None
        self.answered[row] = -1
        return row

    def remove(self, row: int | None) -> None:
        """Remove a row that `add` returned; None: there is none."""
        if row is not None and row != NO_ROW:
            self._free.append(row)

    def keep(self, row: int, refusal: Refusal, homeless: _Flags) -> None:
        """Keep the refusal of a row that holds whenever pods of the same specs fit nowhere."""
        self.refusals[row], self.homeless[row] = refusal, homeless

    def stands(self, rows: _Ints, needs: _Ints) -> list[bool]:
        """Return whether the answers about rows are about these needs.

        They hold as long as the row: `standing` uses another one when the node's pods or its price are others, and
        another sieve when the prices of machines or the settings are.
        """
        found: list[bool] = (self.answered[rows] == needs).all(axis=(1, 2)).tolist()
        return found

    def answer(self, row: int, needs: _Ints, answer: Refusal | LaunchPrice | None) -> None:
        """Keep what the bounds said about a row with these needs."""
        self.answered[row], self.answers[row] = needs, answer

    def least_for(self, mark: bytes, need: _Ints) -> Least:
        """Return the machines that a need takes at least, and the price of one for all; `mark`: its bytes."""
        found = self._least.get(mark)
        if found is None:
            if len(self._least) >= _NEEDS_MAX:
                self._least.clear()
            amounts: list[int] = need.tolist()
            found = self.launches.least_for({column: amount for column, amount in enumerate(amounts) if amount})
            self._least[mark] = found
        return found

    def _learn(self, specs: Sequence[tuple[SpecInfo, int]], classes: Sequence[PodClass]) -> None:
        for info, _ in specs:
            if info.id not in self.infos:
                self.infos[info.id] = info
                if info.id + 1 >= len(self.needs):
                    self.needs = _cover(self.needs, 2 * (info.id + 1))
                for column, amount in info.need:
                    self.needs[info.id + 1, column] = amount
        for cls in classes:
            if cls.id not in self.classes:
                self.classes[cls.id] = cls
                self.classes_end = max(self.classes_end, cls.id + 1)

    def _new_row(self, kinds: int) -> int:
        if kinds > self.specs.shape[1]:
            more = min(KINDS_MAX, 2 * kinds)
            for name in _BY_KIND:
                old: npt.NDArray[np.generic] = getattr(self, name)
                setattr(self, name, np.pad(old, ((0, 0), (0, more - old.shape[1]))))
        if not self._free:
            count = len(self.mark)
            size = max(64, 2 * count)
            for name in (*_BY_KIND, "demand", "mark", "answered"):
                setattr(self, name, _cover(getattr(self, name), size))
            self.refusals.extend([None] * (size - count))
            self.answers.extend([None] * (size - count))
            self._free = list(range(size - 1, count - 1, -1))
        return self._free.pop()


def _no_rows() -> _Ints:
    return np.zeros((0, 1), dtype=np.int64)


def _fill(row: _Ints, values: Sequence[int]) -> None:
    row[: len(values)] = values
    row[len(values) :] = 0


class SieveView:
    """What is certain about rows of a sieve in one context."""

    def __init__(self, sieve: Sieve, bounds: Bounds, unready: Unready) -> None:
        self._sieve, self._unready = sieve, unready
        self._shelter, self._planned = bounds.for_moved, bounds.planned
        self._nodes = len(self._planned.room)
        self._fit = np.full(1, _ENOUGH, dtype=np.int64)
        self._asked = np.ones(1, dtype=np.bool_)
        self._limits = np.full(1, _ENOUGH, dtype=np.int64)
        self._sure = np.ones(1, dtype=np.bool_)
        self._looked_up = np.ones(1, dtype=np.bool_)
        self._takers: set[int] = set()

    def rule_out(self, rows: Sequence[int], places: Sequence[int], refuse: Refuse) -> list[Found]:
        """Return what is certain about the pods of rows, on nodes at these places; None: look closer."""
        sieve, at, there = self._sieve, np.array(rows, dtype=np.int64), np.array(places, dtype=np.int64)
        fit = self._fit_of(sieve.specs[at])
        closer = self._among(self._shelter.counted, there)
        stands = (sieve.homeless[at] == (fit == 0)).all(axis=1) & ~closer
        kept = sieve.refusals
        pairs = zip(rows, stands.tolist(), strict=True)
        found: list[Found] = [kept[row] if is_valid else None for row, is_valid in pairs]
        left = np.array([told is None for told in found], dtype=np.bool_) & ~closer
        if left.any():
            numbers = np.flatnonzero(left)
            self._look_at_needs(numbers, at[numbers], there[numbers], fit[numbers], (refuse, found))
        return found

    # ------------------------------------------------------------ room and prices

    def _look_at_needs(self, numbers: _Ints, rows: _Ints, places: _Ints, fit: _Ints, into: _Into) -> None:
        """Refuse rows by the new nodes that they need at least; look at the others for starting nodes."""
        refuse, found = into
        short = self._short_of(rows, places)
        needy = np.flatnonzero((fit < self._sieve.spec_counts[rows]).any(axis=1) | short.any(axis=1))
        launches: dict[int, LaunchPrice | None] = {}
        chosen = rows[needy]
        needs = self._needs(chosen, fit[needy], short[needy])
        stands = self._sieve.stands(chosen, needs)
        columns = needy.tolist(), chosen.tolist(), numbers[needy].tolist(), stands
        for at, (place, row, number, is_valid) in enumerate(zip(*columns, strict=True)):
            if is_valid:
                answer = self._sieve.answers[row]
            else:
                answer, alone = self._ask(needs[at], partial(refuse, number))
                self._sieve.answer(row, needs[at], answer)
                if alone and isinstance(answer, Refusal):
                    self._sieve.keep(row, answer, fit[place] == 0)
            if isinstance(answer, Refusal):
                found[number] = answer
            else:
                launches[number] = answer
        left = np.flatnonzero(np.array([found[number] is None for number in numbers.tolist()]))
        lands = self._starting(rows[left], places[left])
        for number, landing in zip(numbers[left].tolist(), lands, strict=True):
            launch = launches.get(number)
            if landing is not None:
                found[number] = STARTING if landing else _NOTHING_NEEDED if launch is None else Possible(launch)

    def _needs(self, rows: _Ints, fit: _Ints, short: _Ints) -> _Ints:
        """Return what the new nodes of rows must hold by each bound, as `Bounds.replacement_at_least` does.

        The first rests only on pods that fit on no other node; each is at least the one before.
        """
        counts, needs = self._sieve.spec_counts[rows], self._sieve.needs[self._sieve.specs[rows]]
        homeless = np.einsum("rk,rkw->rw", np.where(fit == 0, counts, 0), needs)
        few = np.einsum("rk,rkw->rw", np.maximum(counts - fit, 0), needs)  # some of the others, too
        both = np.maximum(homeless, short)
        return np.stack((homeless, both, np.maximum(both, few)), axis=1)

    def _ask(
        self, needs: _Ints, refuse: Callable[[int, LaunchPrice | None], Refusal | None]
    ) -> tuple[Refusal | LaunchPrice | None, bool]:
        """Refuse a row by its bounds, or return the price of the last; also whether only the first was necessary."""
        launch, before = None, bytes(needs[0].nbytes)
        for count, need in enumerate(needs):
            mark = need.tobytes()
            if mark != before:
                least, launch = self._sieve.least_for(mark, need)
                refusal = refuse(least, launch)
                if refusal is not None:
                    return refusal, count == 0
            before = mark
        return launch, False

    def _fit_of(self, specs: _Ints) -> _Ints:
        """Return how many pods of each spec fit on all nodes together."""
        size = len(self._sieve.needs)
        self._fit, self._asked = _cover(self._fit, size), _cover(self._asked, size)
        for number in _new_in(specs, self._asked):
            self._fit[number] = min(self._shelter.count(self._sieve.infos[number - 1]), _ENOUGH)
        return self._fit[specs]

    def _short_of(self, rows: _Ints, places: _Ints) -> _Ints:
        """Return what the pods of each row ask for beyond the room of all nodes that fit the smallest of them."""
        demand, marks = self._sieve.demand[rows], self._sieve.mark[rows]
        own = self._planned.room[places]
        room = np.empty_like(demand)
        for number in np.flatnonzero(np.bincount(marks)).tolist():
            total, fits = self._shelter.usable(Demand({}, self._sieve.marks[number]))
            at = np.flatnonzero(marks == number)
            here = np.array(total, dtype=np.int64 if max(total, default=0) <= _ENOUGH else object)
            room[at] = np.minimum(here - np.where(fits[places[at]][:, None], own[at], 0), _ENOUGH)
        return np.where(demand > 0, np.maximum(demand - room, 0), 0)

    # ------------------------------------------------------------ starting nodes

    def _starting(self, rows: _Ints, places: _Ints) -> list[bool | None]:
        """Return whether a pod of each row surely goes to a node that is not initialized; None: look closer."""
        if not self._unready.any or not len(rows):
            return [False] * len(rows)
        kinds, counts = self._sieve.kinds[rows], self._sieve.kind_counts[rows]
        lands = np.zeros(len(rows), dtype=np.bool_)
        closer = np.zeros(len(rows), dtype=np.bool_)
        planned = self._among(self._planned.nodes, places)  # of these, nothing is certain
        left = np.flatnonzero(~planned)
        for column in range(kinds.shape[1]):
            left = left[(kinds[left, column] > 0) & ~lands[left]]
            if not len(left):
                break
            kind = kinds[left, column]
            self._look_up(kind)
            over = self._limits[kind] < counts[left, column]
            lands[left[over & self._sure[kind]]] = True
            closer[left[over & ~self._sure[kind]]] = True
        closer = (closer & ~lands) | (self._among(self._takers, places) & ~planned)
        pairs = zip(lands.tolist(), closer.tolist(), strict=True)
        return [None if look_closer else landing for landing, look_closer in pairs]

    def _look_up(self, kinds: _Ints) -> None:
        """Ask how many pods of each class initialized nodes take before one has to go to a starting node."""
        size = self._sieve.classes_end + 1
        self._limits, self._sure = _cover(self._limits, size), _cover(self._sure, size)
        self._looked_up = _cover(self._looked_up, size)
        for number in _new_in(kinds, self._looked_up):
            takers = self._unready.takers_of(self._sieve.classes[number - 1], exempt=False)
            self._limits[number], self._sure[number] = _ENOUGH, True
            if takers is not None:
                self._takers.update(takers.nodes)
                self._sure[number] = takers.filled is not None
                self._limits[number] = _ENOUGH if takers.filled else min(takers.fit, _ENOUGH)

    def _among(self, nodes: Mapping[int, object] | set[int] | frozenset[int], places: _Ints) -> _Flags:
        flags = np.zeros(self._nodes, dtype=np.bool_)
        flags[list(nodes)] = True
        return flags[places]


def _cover(values: npt.NDArray[_Number], size: int) -> npt.NDArray[_Number]:
    """Return at least so many rows."""
    if len(values) >= size:
        return values
    found: npt.NDArray[_Number] = np.zeros((size, *values.shape[1:]), dtype=values.dtype)
    found[: len(values)] = values
    return found


def _new_in(numbers: _Ints, asked: _Flags) -> list[int]:
    """Return the numbers that were not asked for before, and note them."""
    new = numbers[~asked[numbers]]
    if not new.size:
        return []
    asked[new] = True
    return sorted(set(new.tolist()))
