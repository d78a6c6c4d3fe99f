"""Lower bounds on the cost of launches, on hand-made templates."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dovetail.decide.refusals import launches as module
from dovetail.decide.refusals.launches import Launches
from dovetail.scheduling.result import LaunchPrice
from tests.support.launches import DOLLAR

KINDS = ("a", "b", "c")
SIZES = [(4, 8), (8, 1), (2, 0)]


def _price(amount: float) -> LaunchPrice:
    return LaunchPrice(amount=int(amount * DOLLAR), as_float=amount, capacity_type="", zone="")


def _bytes(need: dict[int, int]) -> bytes:
    return np.array([need.get(column, 0) for column in range(8)], dtype=np.int64).tobytes()


def _template(prices: dict[str, float], types: int = 0b111, order: tuple[int, ...] = (2, 0, 1)) -> Any:
    """Return a pool that may launch these types, sorted by price."""
    amounts = {name: _price(amount) for name, amount in prices.items()}
    columns = [
        SimpleNamespace(at_least=lambda amount, at=at: sum(1 << i for i, row in enumerate(SIZES) if row[at] >= amount))
        for at in range(2)
    ]
    reqs = SimpleNamespace(
        order=order, table=SimpleNamespace(kinds=KINDS), prices=lambda kind: (None, amounts.get(kind))
    )
    return SimpleNamespace(types=types, room=columns, reqs=reqs)


def _frame(*templates: Any, sizes: Any = None) -> Any:
    return SimpleNamespace(
        machines=SimpleNamespace(allocatable=np.array(sizes or SIZES)),
        templates=tuple(templates) or (_template({"a": 8, "b": 10, "c": 6}),),
    )


@pytest.mark.parametrize(
    ("need", "count"),
    [({}, 0), ({0: 8}, 1), ({0: 9}, 2), ({0: 8, 1: 17}, 3), ({1: 17, 0: 8}, 3), ({5: 99}, 0), ({2: 99}, 0)],
)
def test_how_many_machines(need: dict[int, int], count: int) -> None:
    """The count uses the largest machine for each resource; resources that no machine has are ignored."""
    launches = Launches(_frame())
    assert launches.count_for(need) == count
    assert launches.least_for(_bytes(need))[0] == max(1, count)
    assert Launches(_frame(sizes=[(0, 1)])).count_for({0: 9, 1: 2}) == 2


@pytest.mark.parametrize(
    ("need", "price"), [({}, 6), ({0: 2}, 6), ({0: 3}, 8), ({0: 5}, 10), ({1: 1}, 8), ({0: 9}, None), ({7: 1}, 6)]
)
def test_the_cheapest_machine(need: dict[int, int], price: float | None) -> None:
    """The cheapest machine is the first in its pool's order that has room for all pods."""
    found = Launches(_frame()).least_for(_bytes(need))[1]
    assert (None if found is None else found.as_float) == price


def test_the_cheapest_pool() -> None:
    """The cheapest of several pools counts; a pool may exclude a type or have no price for it."""
    dear, cheap = _template({"a": 8, "b": 10, "c": 6}), _template({"a": 7, "b": 10, "c": 6.5})
    for frame in (_frame(dear, cheap), _frame(cheap, dear)):
        launches = Launches(frame)
        assert launches.least_for(_bytes({0: 3}))[1] == _price(7)
        assert launches.least_for(_bytes({0: 1}))[1] == _price(6)
    assert Launches(_frame(_template({"a": 8, "b": 10, "c": 6}, types=0b010))).least_for(_bytes({}))[1] == _price(10)
    assert Launches(_frame(_template({"a": 8}))).least_for(_bytes({}))[1] is None


def test_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers are cached up to a limit; the bytes of a need are the key."""
    monkeypatch.setattr(module, "_KEPT_MAX", 2)
    launches = Launches(_frame())
    first = launches.least_for(_bytes({0: 2, 1: 1}))
    assert launches.least_for(_bytes({1: 1, 0: 2})) is first
    launches.least_for(_bytes({0: 3}))
    assert launches.least_for(_bytes({0: 2, 1: 1})) is first
    launches.least_for(_bytes({0: 4}))
    assert len(launches._one) == 1
    assert launches.least_for(_bytes({0: 2, 1: 1})) is not first


@pytest.mark.parametrize(
    ("need", "price"),
    [
        ({}, None),
        ({0: 4}, 5.0),
        ({1: 4}, 4.0),
        ({0: 4, 1: 4}, 5.0),
        ({1: 4, 0: 4}, 5.0),
        ({0: 1, 1: 4}, 4.0),
        ({5: 1}, None),
    ],
)
def test_shares(need: dict[int, int], price: float | None) -> None:
    """The bound is the largest of the cheapest shares: 10/8 of the first resource, 8/8 of the second."""
    found = Launches(_frame()).share_for(need)
    assert (None if found is None else (found.amount, found.as_float)) == (
        None if price is None else (int(price * DOLLAR), price)
    )


def test_shares_of_pools() -> None:
    """Only types that may be launched and have a price count; the cheapest pool wins, in any order."""
    small, large = _template({"a": 8, "b": 99}), _template({"b": 10, "a": 99})
    for frame in (_frame(small, large), _frame(large, small)):
        assert Launches(frame)._shares == {0: (_price(10), 8), 1: (_price(8), 8)}
    assert Launches(_frame(_template({"a": 8, "b": 10}, types=0b001)))._shares == {0: (_price(8), 4), 1: (_price(8), 8)}
    assert Launches(_frame(_template({"c": 6})))._shares == {0: (_price(6), 2)}
    assert Launches(_frame(_template({"b": 10})))._shares == {0: (_price(10), 8), 1: (_price(10), 1)}


def test_whom_they_serve() -> None:
    """Launch prices can be reused for frames with the same machines and templates."""
    frame = _frame()
    launches = Launches(frame)
    assert launches.serves(frame)
    assert launches.serves(SimpleNamespace(machines=frame.machines, templates=frame.templates))  # type: ignore[arg-type]
    assert not launches.serves(_frame(*frame.templates))
    assert not launches.serves(SimpleNamespace(machines=frame.machines, templates=()))  # type: ignore[arg-type]
    wider = np.zeros((3, 3))
    frame.machines.allocatable = wider
    assert not launches.serves(frame)
