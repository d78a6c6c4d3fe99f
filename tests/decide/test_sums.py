"""Bounds by sums and orders of proposals on a hand-made context, with every figure computed by hand."""

from collections.abc import Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.search import sums as module
from dovetail.decide.search.sums import FREE, Sums, machine_prices
from tests.support.launches import DOLLAR
from tests.support.nodes import facts_of


def _kind(name: str) -> Any:
    return SimpleNamespace(name=name)


def _template(types: int, prices: dict[str, float | None]) -> Any:
    """Return a pool that may launch the types of these bits, at these lowest prices in dollars."""

    def price(kind: Any) -> Any:
        amount = prices.get(kind.name)
        return (None, None if amount is None else SimpleNamespace(amount=int(amount * DOLLAR)))

    return SimpleNamespace(types=types, reqs=SimpleNamespace(order=tuple(range(3)), prices=price))


def _frame(
    room: Sequence[Sequence[float]], *, shut: Sequence[int] = (), templates: Sequence[Any] = (), sizes: Any = None
) -> Any:
    """Return nodes with this much free of two resources, and three machines of sizes (4, 8), (8, 0) and (2, 2)."""
    return SimpleNamespace(
        room=np.array(room, dtype=float),
        open=np.array([at not in shut for at in range(len(room))]),
        machines=SimpleNamespace(
            kinds=[_kind(name) for name in ("a", "b", "c")],
            allocatable=np.array(sizes or [(4, 8), (8, 0), (2, 2)]),
        ),
        templates=templates or [_template(0b111, {"a": 8.0, "b": 8.0, "c": 6.0})],
        first=lambda cls: SimpleNamespace(simple=cls == "plain"),
    )


def _sums(
    frame: Any,
    demand: Sequence[tuple[float, float]],
    *,
    price: Sequence[int] = (),
    required: Sequence[int] = (),
    least: Sequence[int] = (),
    closed: Sequence[int] = (),
    leaving: Sequence[tuple[float, float]] = (),
    classes: Sequence[str] = ("plain",),
    free: bool = False,
) -> Sums:
    """Return candidates at the first places of the frame, with pods that need this much; some nodes are leaving."""
    count = len(demand)
    totals = [*demand, *leaving]
    nodes = [
        facts_of(name=str(at), price=amount * DOLLAR, price_float=float(amount))
        for at, amount in enumerate(price or [10] * count)
    ]
    asked, floors = required or [0] * count, least or [0] * count

    def sources(candidates: Sequence[NodeFacts]) -> list[Any]:
        places = [int(facts.name) for facts in candidates]
        return [
            SimpleNamespace(required=Fraction(asked[at] * DOLLAR), least=Fraction(floors[at] * DOLLAR)) for at in places
        ]

    takes = frame.open.copy()
    takes[list(closed)] = False
    context: Any = SimpleNamespace(
        room_for_moved=np.where(takes[:, None], frame.room, 0),
        price_scale=DOLLAR,
        index_of=lambda facts: int(facts.name),
        sources=sources,
        by_name={str(at): facts_of(name=str(at)) for at in range(len(totals))},
        needs=SimpleNamespace(
            demand_of=lambda chosen, _: np.array([totals[int(facts.name)] for facts in chosen]).reshape(-1, 2)
        ),
        snapshot=SimpleNamespace(
            frame=frame,
            movers=lambda at: SimpleNamespace(classes=classes),
            states=[SimpleNamespace(name=str(at)) for at in range(len(totals))],
            leaving=[(count + at, ()) for at in range(len(leaving))],
        ),
    )
    return Sums(context, nodes, free=free)


PLENTY = [(5, 5), (5, 5), (100, 100)]


def test_what_a_node_consumes_and_what_is_there() -> None:
    """A node uses its free room and its pods' requests; pods of leaving nodes reduce the open room."""
    found = _sums(_frame([(5, 5), (0, 2), (10, 20)]), [(1, 2), (3, 4)], price=[10, 7], required=[4, 2])
    assert found.consumes.tolist() == [[6, 7], [3, 6]]
    assert found.demand.tolist() == [[1, 2], [3, 4]]
    assert found.room.tolist() == [15, 27]
    assert found.worth.tolist() == [6, 5]
    assert (found.price.tolist(), found.required.tolist()) == ([10, 7], [4, 2])
    shut = _sums(_frame([(5, 5), (5, 5), (10, 20)], shut=(2,)), [(1, 2)], closed=(1,), leaving=[(2, 9)])
    assert shut.room.tolist() == [3, 0]
    assert shut.consumes.tolist() == [[6, 7]]


def test_free_nodes_are_worth_little() -> None:
    """A node that passes by waste only is worth a thousandth of its price minus the floor."""
    found = _sums(_frame(PLENTY), [(1, 1)], price=[10], required=[99], least=[4], free=True)
    assert found.worth.tolist() == [pytest.approx(6 * FREE)]
    assert found.at_most([0]) == pytest.approx(6 * FREE)
    short = _sums(_frame([(0, 0)]), [(4, 0)], price=[10], free=True)
    assert short.at_most([0]) == pytest.approx((10 - 6.0) * FREE)


def test_unit_prices() -> None:
    """The unit price is the cheapest share of a machine, 8/8 here; a resource no machine has is infinite."""
    found = _sums(_frame(PLENTY), [(1, 1)])
    assert found.unit_price.tolist() == [1.0, 1.0]
    assert found.least_launch == 6.0
    none = _sums(_frame(PLENTY, sizes=[(4, 0), (8, 0), (2, 0)]), [(1, 1)])
    assert none.unit_price.tolist() == [1.0, 1e9]
    small = _sums(_frame(PLENTY, sizes=[(1, 8), (8, 0), (2, 2)]), [(1, 1)])
    assert small.unit_price.tolist() == [1.0, 1.0]
    least = _sums(_frame(PLENTY, sizes=[(1, 8), (1, 0), (1, 2)]), [(1, 1)])
    assert least.unit_price.tolist() == [6.0, 1.0]
    narrow = _sums(_frame(PLENTY, sizes=[(4,), (8,), (2,)]), [(1, 1)])
    assert narrow.unit_price.tolist() == [1.0, 1e9]
    nothing = _sums(_frame(PLENTY, templates=[_template(0, {"a": 8.0})]), [(1, 1)])
    assert (nothing.least_launch, nothing.unit_price.tolist()) == (1e9, [1e9, 1e9])


def test_machine_prices() -> None:
    """The machine price is the lowest over all pools that may launch it and have a price."""
    templates = [_template(0b011, {"a": 8.0, "c": 1.0}), _template(0b111, {"a": 7.0, "b": 9.0, "c": None})]
    assert machine_prices(_frame(PLENTY, templates=templates), DOLLAR) == {0: 7.0, 1: 9.0}
    templates.reverse()
    assert machine_prices(_frame(PLENTY, templates=templates), DOLLAR) == {0: 7.0, 1: 9.0}


@pytest.mark.parametrize(
    ("room", "demand", "bound"),
    [
        ([(0, 0), (3, 3)], (3, 3), 10.0),
        ([(0, 0), (3, 3)], (3.5, 3), 10.0 - 6.0),
        ([(0, 0), (0, 0)], (9, 2), 10.0 - 9.0),
        ([(0, 0), (0, 0)], (2, 9), 10.0 - 9.0),
        ([(2, 2), (0, 0)], (0, 0), 10.0),
        ([(2, 2), (0, 0)], (1, 0), 4.0),
    ],
)
def test_the_bound_of_one(room: Any, demand: tuple[float, float], bound: float) -> None:
    """The bound is the node's value minus the cheapest launch for the missing room, at least one machine."""
    found = _sums(_frame(room), [demand])
    assert found.at_most([0]) == bound
    assert found.prefixes_at_most([0]) == [bound]
    assert found.each_at_most([], [0]) == [bound]


def test_bounds_of_sets_agree() -> None:
    """A set, a prefix and a set with one more node give the same bounds for the same nodes."""
    found = _sums(_frame([(1, 1), (1, 1), (1, 1), (6, 6)]), [(4, 1), (1, 4), (5, 5)], price=[10, 8, 6])
    assert found.at_most([]) == 0.0
    order = [2, 0, 1]
    sets = [order[:size] for size in (1, 2, 3)]
    assert found.prefixes_at_most(order) == [found.at_most(each) for each in sets]
    assert found.at_most([2, 0]) == 16 - 6.0
    assert found.at_most([2, 0, 1]) == 24 - 6.0
    assert found.each_at_most([2], [0, 1]) == [found.at_most([2, 0]), found.at_most([2, 1])]


def test_work_is_counted() -> None:
    """A pod with rules counts as five plain pods of work."""
    assert _sums(_frame(PLENTY), [(1, 1)], classes=("plain", "ruled", "plain")).work == [7]


def test_smaller_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of types without the most expensive ones come larger first; with many prices only some are tried."""
    found = _sums(_frame(PLENTY, templates=[_template(0b111, {"a": 8.0, "b": 3.0, "c": 6.0})]), [(1, 1)])
    assert found.smaller() == [("b", "c"), ("b",)]
    same = _sums(_frame(PLENTY, templates=[_template(0b111, {"a": 8.0, "b": 8.0, "c": 8.0})]), [(1, 1)])
    assert same.smaller() == []
    found._machines = {at: float(at) for at in range(15)}
    found._kinds = tuple(_kind(f"k{at:02d}") for at in range(15))
    assert [len(each) for each in found.smaller()] == [13, 11, 9, 7, 5, 3]
    found._machines = {at: float(at) for at in range(6)}
    assert [len(each) for each in found.smaller()] == [5, 4, 3, 2, 1]
    found._machines = {at: float(at) for at in range(7)}
    assert [len(each) for each in found.smaller()] == [6, 5, 4, 3, 2]
    monkeypatch.setattr(module, "SIZES_MAX", 2)
    found._machines = {at: float(at) for at in range(4)}
    assert [len(each) for each in found.smaller()] == [3, 2]


@pytest.mark.parametrize("seed", range(12))
def test_orders(seed: int) -> None:
    """Orders are by value per share, by each scarce resource, by value after a launch, and by price per cost."""
    dice = np.random.default_rng(seed)
    count = 6
    room = dice.integers(0, 5, (count + 1, 2)).astype(float)
    demand = dice.integers(0, 9, (count, 2)).astype(float) / 2
    if seed % 3 == 0:
        room[:, 1] = demand[:, 1] = 0
    price, required = dice.integers(1, 20, count), dice.integers(0, 9, count)
    made = _frame(room.tolist(), sizes=[(4, 8), (3, 0), (2, 2)])
    found = _sums(made, [tuple(row) for row in demand.tolist()], price=price.tolist(), required=required.tolist())
    worth, total = (price - required).astype(float), room.sum(axis=0) + demand.sum(axis=0)
    shares = np.divide(demand + room[:count], np.maximum(total, 1.0))
    scarce = shares.sum(axis=0)
    kinds = [int(at) for at in np.argsort(-scarce, kind="stable") if scarce[at] > 0]
    replaced = (demand * found.unit_price).max(axis=1)
    rankings = [
        worth / np.maximum(shares.max(axis=1), 1e-12),
        *(worth / np.maximum(shares[:, kind], 1e-12) for kind in kinds),
        worth - replaced,
        (worth - replaced) / price,
        price / np.maximum(required, 1e-12),
    ]
    expected = [[int(at) for at in np.argsort(-each, kind="stable")] for each in rankings]
    assert found.orders() == [list(order) for order in dict.fromkeys(map(tuple, expected))]


def test_orders_where_nothing_is_there() -> None:
    """A resource that no node has or needs makes no order; equal nodes keep their order."""
    found = _sums(_frame([(0, 0), (0, 0)]), [(0, 0), (0, 0)])
    assert found.orders() == [[0, 1]]
    half = _sums(_frame([(0, 0), (0, 0), (4, 0)]), [(2, 0), (1, 0)])
    assert half.orders() == [[1, 0]] or [1, 0] in half.orders()
