"""The search for the best set, step by step, with a judge and a bound supplied by the test."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from dovetail.decide.search import growth as module
from dovetail.decide.search.growth import Chosen, Growth
from tests.support.searches import Allowing


class _Sum:
    """Bound a set by the sum of its nodes' values times a factor."""

    def __init__(self, worth: Sequence[float], times: float = 1.0) -> None:
        self.worth, self.times = worth, times

    def at_most(self, chosen: Sequence[int]) -> float:
        return self.times * sum(self.worth[at] for at in chosen)

    def prefixes_at_most(self, order: Sequence[int]) -> list[float]:
        return [self.at_most(order[: size + 1]) for size in range(len(order))]

    def each_at_most(self, chosen: Sequence[int], others: Sequence[int]) -> list[float]:
        return [self.at_most([*chosen, other]) for other in others]


class _Search(Growth):
    """Search and record every set that is judged."""

    def __init__(
        self,
        worth: Sequence[float],
        judge: Callable[[Chosen], float | None] | None = None,
        *,
        allows: Callable[[Sequence[int]], bool] = lambda _: True,
        most: int = 10**6,
        times: float = 1.0,
    ) -> None:
        self.judged: list[Chosen] = []
        bound = _Sum(worth, times)

        def noted(chosen: Chosen) -> float | None:
            self.judged.append(chosen)
            return judge(chosen) if judge is not None else sum(worth[at] for at in chosen)

        super().__init__(bound, noted, Allowing(allows), spent=lambda: len(self.judged) >= most)


def test_all_of_a_good_order() -> None:
    """The prefix with the highest bound is tried first, and nothing else if it passes."""
    search = _Search([3.0, 2.0, 1.0])
    assert search.run([[0, 1, 2]]) == (0, 1, 2)
    assert search.judged == [(0, 1, 2)]
    assert search.best_value == 6.0


def test_the_peak_is_where_the_bound_is_highest() -> None:
    """Nodes that lower the bound are left out; of equal prefixes the shorter one wins."""
    search = _Search([3.0, 2.0, -1.0, 0.5])
    assert search.run([[0, 1, 2, 3]])[:2] == (0, 1)
    assert search.judged[0] == (0, 1)
    equal = _Search([3.0, 0.0, 0.0])
    equal.run([[0, 1, 2]])
    assert equal.judged[0] == (0,)


def test_parts_of_a_prefix() -> None:
    """Smaller and smaller parts are tried until one passes; then it grows along the order."""
    passing = {tuple(range(size)): float(size) for size in range(1, 7)}
    search = _Search([1.0] * 10, lambda chosen: passing.get(chosen))
    assert search.run([list(range(10))]) == (0, 1, 2, 3, 4, 5)
    assert [len(chosen) for chosen in search.judged[:5]] == [10, 9, 8, 7, 6]


def test_what_the_bound_rules_out_is_not_judged() -> None:
    """A part whose bound is not above the best value so far is skipped."""
    search = _Search([1.0] * 10, lambda chosen: 5.0 if len(chosen) == 8 else None)
    search.run([list(range(10))])
    sizes = [len(chosen) for chosen in search.judged]
    assert sizes[:5] == [10, 9, 8, 7, 6] or sizes[:4] == [10, 9, 8, 7]
    assert 5 not in sizes[:6]
    assert not any(size < 5 for size in sizes)


def test_nearly_the_bound_is_enough() -> None:
    """If a part reaches 97 % of the bound, no smaller part is tried."""
    for value, more in ((9.7, False), (9.69, True)):
        search = _Search([1.0] * 10, lambda chosen, value=value: value if len(chosen) == 10 else None)
        search._follow(list(range(10)))
        assert (len(search.judged) > 1) is (more and False)
    search = _Search([1.0] * 10, lambda chosen: 5.0 if len(chosen) == 10 else 6.0 if len(chosen) == 9 else None)
    search._follow(list(range(10)))
    assert [len(chosen) for chosen in search.judged[:3]] == [10, 9, 8]


def test_only_what_budgets_allow() -> None:
    """Nodes that the budgets refuse next to the others are skipped."""
    search = _Search([1.0] * 6, allows=lambda chosen: len([at for at in chosen if at % 2]) <= 1)
    assert search.run([[1, 3, 0, 5, 2, 4]]) == (0, 1, 2, 4)
    none = _Search([1.0] * 3, allows=lambda chosen: False)
    assert (none.run([[0, 1, 2]]), none.judged) == ((), [])


def _grown(search: _Search, chosen: list[int], value: float, rest: Sequence[int]) -> tuple[list[int], float, list[int]]:
    found, worth = search._grow(chosen, value, rest)
    return found, worth, [len(each) for each in search.judged]


def test_growing_by_more_and_more() -> None:
    """A set grows by four nodes, then eight; after a failure by half as many, down to one."""
    search = _Search([1.0] * 20)
    assert _grown(search, [], 0.0, range(20)) == (list(range(20)), 20.0, [4, 12, 20])
    bad = _Search([1.0] * 8, lambda chosen: float(len(chosen)) if 5 not in chosen else None)
    found, value, _ = _grown(bad, [], 0.0, range(8))
    assert (found, value) == ([0, 1, 2, 3, 4, 6, 7], 7.0)
    assert bad.judged == [
        (0, 1, 2, 3),
        (0, 1, 2, 3, 4, 5, 6, 7),
        (0, 1, 2, 3, 4, 5, 6, 7),
        (0, 1, 2, 3, 4, 5),
        (0, 1, 2, 3, 4),
        (0, 1, 2, 3, 4, 5, 6),
        (0, 1, 2, 3, 4, 5),
        (0, 1, 2, 3, 4, 6),
        (0, 1, 2, 3, 4, 6, 7),
    ]


def test_growing_skips_what_is_there() -> None:
    """A node that is in the set already is not added again."""
    search = _Search([1.0] * 4)
    assert _grown(search, [1], 1.0, [0, 1, 2, 3])[:2] == ([1, 0, 2, 3], 4.0)
    nothing = _Search([1.0] * 4)
    assert _grown(nothing, [0, 1], 2.0, [0, 1]) == ([0, 1], 2.0, [])


def test_growing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growing ends after a number of failures; nodes that the bound or budgets exclude are not failures."""
    monkeypatch.setattr(module, "_SKIPS_MAX", 2)
    search = _Search([1.0] * 9, lambda chosen: None)
    _grown(search, [], 0.0, range(9))
    assert search.judged[-1] == (1,)
    barred = _Search([1.0] * 9, lambda chosen: 9.0 if 8 in chosen else None, allows=lambda chosen: 8 in chosen)
    assert _grown(barred, [], 0.0, range(9))[1] == 9.0
    poor = _Search([0.0] * 8 + [1.0], lambda chosen: 9.0 if chosen == (8,) else None)
    assert _grown(poor, [], 0.0, range(9))[1] == 9.0


def test_what_is_spent_is_spent() -> None:
    """Nothing is judged after the limit is used up."""
    for most in (0, 1, 2, 3):
        search = _Search([1.0] * 10, lambda chosen: None, most=most)
        search.run([list(range(10)), list(reversed(range(10)))])
        assert len(search.judged) == most


def test_known_sets_are_tried_first() -> None:
    """Known sets are tried first and the best set is returned; a set without value is ignored."""
    search = _Search([1.0] * 3, lambda chosen: 5.0 if chosen == (0, 2) else None)
    assert search.run([[0, 1, 2]], known=[(2, 0), (1,)]) == (0, 2)
    assert search.judged[:2] == [(0, 2), (1,)]
    nothing = _Search([1.0] * 3, lambda chosen: 0.0)
    assert nothing.run([[0, 1, 2]], known=[(0,)]) == ()
    first = _Search([1.0] * 3, lambda chosen: 2.0)
    assert first.run([[0, 1, 2]], known=[(0,), (1,)]) == (0,)


def test_a_node_that_is_dropped() -> None:
    """The search drops a node if the best set is worth more without it."""
    values = {(0, 1, 2): 3.0, (0, 1): 4.0, (0,): 1.0}
    search = _Search([2.0, 2.0, 2.0], lambda chosen: values.get(chosen))
    search._try((0, 1, 2))
    search.improve([0, 1, 2])
    assert (search.best, search.best_value) == ((0, 1), 4.0)


def test_a_node_that_is_exchanged() -> None:
    """The search exchanges one node for another, the most promising first, and then grows again."""
    values = {(0, 1): 3.0, (0, 3): 5.0, (0, 2, 3): 7.0}
    search = _Search([2.0, 1.0, 2.0, 4.0], lambda chosen: values.get(chosen))
    search._try((0, 1))
    search.improve([0, 1, 2, 3])
    assert (search.best, search.best_value) == ((0, 2, 3), 7.0)
    assert search.judged[1] == (0, 3)


def _neighbours(search: _Search, best: Chosen, value: float, order: Sequence[int]) -> list[list[int]]:
    search.best, search.best_value = best, value
    return list(search._neighbours(order))


def test_neighbours() -> None:
    """Neighbours are all sets that the bound and budgets allow, the most promising first."""
    search = _Search([5.0, 1.0, 3.0, 2.0])
    assert _neighbours(search, (0, 1), 6.0, [0, 2, 3, 1]) == [[0, 2], [0, 3]]
    assert _neighbours(search, (0, 1), 5.5, [0, 2, 3, 1]) == [[0, 2], [0, 3]]
    assert _neighbours(search, (0, 1), 4.5, [0, 2, 3, 1]) == [[0, 2], [0, 3], [0]]
    assert _neighbours(search, (0, 1, 2, 3), 10.5, [0, 2, 3, 1]) == []
    barred = _Search([5.0, 1.0, 3.0, 2.0], allows=lambda chosen: 2 not in chosen)
    assert _neighbours(barred, (0, 1), 6.0, [0, 2, 3, 1]) == [[0, 3]]


@pytest.mark.parametrize(
    ("limit", "value", "found"),
    [
        ("_EXCHANGES_MAX", 1, [[1, 2]]),
        ("_JOINERS_MAX", 1, [[1, 2], [0, 2]]),
        ("_LEAVERS_MAX", 1, [[0, 2], [0, 3]]),
    ],
)
def test_limits_of_exchanges(monkeypatch: pytest.MonkeyPatch, limit: str, value: int, found: list[list[int]]) -> None:
    """The exchanges, joining nodes and leaving nodes are limited; the last node of the order leaves first."""
    monkeypatch.setattr(module, limit, value)
    search = _Search([1.0, 2.0, 4.0, 3.0])
    assert _neighbours(search, (0, 1), 3.0, [0, 1, 2, 3]) == found


def test_improving_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Improving ends after a number of rounds, without a set, or when no neighbour is better."""
    monkeypatch.setattr(module, "_IMPROVED_MAX", 1)
    values: dict[Chosen, float] = {(0,): 1.0, (1,): 2.0, (2,): 3.0}
    search = _Search([1.0, 2.0, 3.0], lambda chosen: values.get(chosen), times=9.0)
    search._try((0,))
    search.improve([0, 1, 2])
    assert search.best == (2,)
    worse: dict[Chosen, float] = {(0,): 1.0, (1,): 2.0, (2,): 3.0}
    search = _Search([1.0, 3.0, 2.0], lambda chosen: worse.get(chosen), times=9.0)
    search._try((0,))
    search.improve([0, 1, 2])
    assert search.best == (1,)
    empty = _Search([1.0])
    empty.improve([0])
    assert empty.judged == []


def test_an_order_grows_beyond_the_parts_that_were_tried() -> None:
    """The best part of the prefix grows along the order, node by node, past nodes that fail."""
    search = _Search([1.0] * 10, lambda chosen: float(len(chosen)) if 6 not in chosen else None)
    search._follow(list(range(10)))
    assert search.best == (0, 1, 2, 3, 4, 5, 7, 8, 9)


def test_exchanges_follow_the_orders() -> None:
    """The best set is improved after all orders were tried."""
    search = _Search([5.0, 4.0, 3.0], lambda chosen: {(0,): 5.0, (1,): 6.0}.get(chosen), times=3.0)
    assert search.run([[0, 1]]) == (1,)
    assert (2,) not in search.judged


def test_smaller_parts_after_a_part_that_is_far_from_the_bound() -> None:
    """At 97 % of the bound no further part is tried; below it the next one is."""
    for value, tried in ((9.7, [10]), (9.6, [10, 9])):
        search = _Search([1.0] * 10, lambda chosen, value=value: value if len(chosen) == 10 else None, times=1.0)
        search._bound.prefixes_at_most = lambda order: [9.9] * 9 + [10.0]  # type: ignore[method-assign]
        search._follow(list(range(10)))
        assert [len(chosen) for chosen in search.judged][: len(tried) + 1][: len(tried)] == tried
        assert (len(search.judged) == 1) is (value == 9.7)


def test_an_exchange_is_judged_once_however_many_orders_there_are() -> None:
    """A neighbour that appears in two orders is simulated once."""
    judged: Counter[Chosen] = Counter()

    def judge(chosen: Chosen) -> float | None:
        judged[chosen] += 1
        return 3.0 if chosen == (0,) else None

    growth = Growth(_Sum([3.0, 4.0, 4.0, 4.0]), judge, Allowing(), spent=lambda: False)
    assert growth.run([[0, 1, 2, 3], [0, 3, 2, 1]]) == (0,)
    assert [judged[place,] for place in (1, 2, 3)] == [1, 1, 1]
