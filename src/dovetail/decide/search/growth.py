"""Searches for the set of greatest value: sets grow along orders, then single nodes are dropped or exchanged.

Knows indexes of candidates, a bound on the value of a set (`Sums`) and a judge that returns its value; nothing of
clusters. Bounded by what is judged, not by time: the same question always takes the same path. Sits in decide, below
`by_value`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

Chosen = tuple[int, ...]
"""Places of candidates, sorted."""
Value = float | None
"""What a set is worth, as a share of the highest price of a node; None: it does not pass."""

_FRACTIONS: Final = (1.0, 0.92, 0.84, 0.76, 0.66, 0.55, 0.42, 0.3, 0.18)
"""Which parts are tried of the prefix with the best bound."""
_SKIPS_MAX: Final = 12
"""How many nodes in a row may fail to join a set before it stops growing."""
_EXCHANGES_MAX: Final = 24
"""How many exchanges are tried before a set counts as the best of its kind."""
_LEAVERS_MAX: Final = 24
_JOINERS_MAX: Final = 48
"""How many nodes of a set, and how many others, take part in exchanges."""
_IMPROVED_MAX: Final = 12
"""How many times the best set is improved by an exchange."""
_EPSILON: Final = 1e-9


class Bound(Protocol):
    """Bounds on the value of sets, from sums."""

    def at_most(self, chosen: Sequence[int]) -> float:
        """Return an upper bound on the value of a set."""
        ...

    def prefixes_at_most(self, order: Sequence[int]) -> Sequence[float]:
        """Return the bound for every prefix."""
        ...

    def each_at_most(self, chosen: Sequence[int], others: Sequence[int]) -> Sequence[float]:
        """Return the bound for a set with each of some other nodes added."""
        ...


class SearchLimits(Protocol):
    """Which sets a search may propose."""

    def allows(self, chosen: Sequence[int]) -> bool:
        """Return whether a set is allowed."""
        ...

    def along(self, order: Sequence[int]) -> Sequence[int]:
        """Return the nodes of an order that are allowed as one set, taken greedily."""
        ...


class Growth:
    """One search. `judge` returns a set's value, or None; `spent`: stop now."""

    def __init__(
        self, bound: Bound, judge: Callable[[Chosen], Value], limits: SearchLimits, *, spent: Callable[[], bool]
    ) -> None:
        self._bound, self._judge = bound, judge
        self._allows, self._along, self._spent = limits.allows, limits.along, spent
        self.best: Chosen = ()
        self.best_value = 0.0

    def run(self, orders: Sequence[Sequence[int]], known: Sequence[Chosen] = ()) -> Chosen:
        """Return the best set found; `known`: sets that pass already."""
        for chosen in known:
            self._try(chosen)
        for order in orders:
            if self._spent():
                break
            self._follow(order)
        self.improve([place for order in orders[:1] for place in order])
        return self.best

    def _try(self, places: Sequence[int]) -> float | None:
        """Judge a set; keep it if it is the best so far."""
        chosen = tuple(sorted(places))
        value = self._judge(chosen)
        if value is not None and value > self.best_value + _EPSILON:
            self.best, self.best_value = chosen, value
        return value

    def _follow(self, order: Sequence[int]) -> None:
        """Try parts of an order's most promising prefix, then let the best of them grow along the order."""
        allowed = self._along(order)
        if not allowed:
            return
        limits = self._bound.prefixes_at_most(allowed)
        peak = max(range(len(allowed)), key=lambda at: (limits[at], -at)) + 1
        size, value = 0, 0.0
        for tried in dict.fromkeys(max(1, round(peak * share)) for share in _FRACTIONS):
            if self._spent():
                return
            if limits[tried - 1] <= max(value, 0.0) + _EPSILON:
                continue
            found = self._try(allowed[:tried])
            if found is not None and found > value:
                size, value = tried, found
                if value >= limits[peak - 1] * 0.97:
                    break
        self._grow(list(allowed[:size]), value, allowed[size:])

    def _grow(self, chosen: list[int], value: float, rest: Sequence[int]) -> tuple[list[int], float]:
        """Add nodes of an order while that adds value: several at a time while it succeeds, else one by one."""
        at, chunk, skipped = 0, 4, 0
        while at < len(rest) and skipped < _SKIPS_MAX and not self._spent():
            more = [place for place in rest[at : at + chunk] if place not in chosen]
            trial = [*chosen, *more]
            promising = bool(more) and self._allows(trial) and self._bound.at_most(trial) > value + _EPSILON
            found = self._try(trial) if promising else None
            if found is not None and found > value + _EPSILON:
                chosen, value, at, chunk, skipped = trial, found, at + chunk, chunk * 2, 0
            elif chunk > 1:
                chunk = max(1, chunk // 2)
            else:
                at += 1
                skipped += 1 if promising else 0
        return chosen, value

    def improve(self, order: Sequence[int]) -> None:
        """Drop or exchange single nodes of the best set until nothing helps any more."""
        for _ in range(_IMPROVED_MAX):
            if not self.best or self._spent():
                return
            before = self.best_value
            for trial in self._neighbours(order):
                if self._spent():
                    return
                found = self._try(trial)
                if self.best_value > before + _EPSILON and found is not None:
                    break
            else:
                return
            inside = frozenset(self.best)
            outside = [place for place in order if place not in inside]
            self._grow(list(self.best), self.best_value, outside)

    def _neighbours(self, order: Sequence[int]) -> Iterator[list[int]]:
        """Yield sets that differ in one node, the most promising first."""
        best, inside = list(self.best), frozenset(self.best)
        outside = [place for place in order if place not in inside][:_JOINERS_MAX]
        rank = {place: at for at, place in enumerate(order)}
        least = self.best_value + _EPSILON
        found: list[tuple[float, list[int]]] = []
        # The last node in the order is likeliest to be worth less than another.
        for leaver in sorted(best, key=lambda place: -rank[place])[:_LEAVERS_MAX]:
            rest = [place for place in best if place != leaver]
            limit = self._bound.at_most(rest)
            if limit > least:
                found.append((limit, rest))
            limits = self._bound.each_at_most(rest, outside) if outside else ()
            found.extend((limits[at], [*rest, outside[at]]) for at in range(len(limits)) if limits[at] > least)
        found.sort(key=lambda entry: (-entry[0], entry[1]))
        yield from (trial for _, trial in found[:_EXCHANGES_MAX] if self._allows(trial))
