"""Lower bounds on the cost of launches: how many machines a need takes, and what the cheapest ones cost."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from dovetail.decide.refusals import launches as module
from dovetail.decide.refusals.launches import Launches
from dovetail.model import names
from dovetail.model.money import parse_money
from dovetail.scheduling.frame import Frame
from tests.support.design_world import GIB, Town, kind

SIZES = {"a": (4, 8), "b": (8, 1), "c": (2, 0)}
ON_DEMAND = {"a": "8", "b": "10", "c": "6"}
CPU, MEMORY, DISK, UNKNOWN = 0, 1, 3, 9
"""Columns of resources; no machine has the last one."""
_UNITS = {CPU: 1000, MEMORY: GIB}


def _town(prices: dict[str, str] = ON_DEMAND, spot: dict[str, str] | None = None) -> Town:
    sizes = ((name, *SIZES[name]) for name in prices)
    return Town(*(kind(n, prices[n], cpu=cpu, memory=memory, spot=(spot or {}).get(n)) for n, cpu, memory in sizes))


def _frame(types: Iterable[str] = SIZES, prices: dict[str, str] = ON_DEMAND) -> Frame:
    """Return the frame of a pool that may launch these types on demand."""
    town = _town(prices)
    town.pool(requirements=[{"key": names.INSTANCE_TYPE, "operator": "In", "values": list(types)}])
    return town.snapshot().frame


def _two_pools(names_in_order: Sequence[str], spot: dict[str, str], types: Iterable[str] = SIZES) -> Frame:
    """Return the frame of a pool for machines on demand and one for spot, called like this."""
    town = _town(spot=spot)
    wanted = [{"key": names.INSTANCE_TYPE, "operator": "In", "values": list(types)}]
    for name, capacity in zip(names_in_order, (names.ON_DEMAND, names.SPOT), strict=True):
        town.pool(name, capacity=(capacity,), requirements=list(wanted))
    return town.snapshot().frame


def _amounts(need: dict[int, int]) -> dict[int, int]:
    return {column: amount * _UNITS.get(column, 1) for column, amount in need.items()}


def _bytes(need: dict[int, int]) -> bytes:
    amounts = _amounts(need)
    return np.array([amounts.get(column, 0) for column in range(10)], dtype=np.int64).tobytes()


def _cheapest(frame: Frame, need: dict[int, int]) -> float | None:
    found = Launches(frame).least_for(_bytes(need))[1]
    return None if found is None else found.as_float


@pytest.mark.parametrize(
    ("need", "count"),
    [
        ({}, 0),
        ({CPU: 8}, 1),
        ({CPU: 9}, 2),
        ({CPU: 8, MEMORY: 17}, 3),
        ({MEMORY: 17, CPU: 8}, 3),
        ({UNKNOWN: 99}, 0),
    ],
)
def test_how_many_machines(need: dict[int, int], count: int) -> None:
    """The count uses the largest machine for each resource; resources that no machine has are ignored."""
    launches = Launches(_frame())
    assert launches.count_for(_amounts(need)) == count
    assert launches.least_for(_bytes(need))[0] == max(1, count)


@pytest.mark.parametrize(
    ("need", "price"),
    [
        ({}, 6),
        ({CPU: 2}, 6),
        ({CPU: 3}, 8),
        ({CPU: 5}, 10),
        ({MEMORY: 1}, 8),
        ({CPU: 9}, None),
        ({UNKNOWN: 1}, 6),
    ],
)
def test_the_cheapest_machine(need: dict[int, int], price: float | None) -> None:
    """The cheapest machine that a pool may launch and that has room for all pods counts."""
    assert _cheapest(_frame(), need) == price


@pytest.mark.parametrize("called", [("one", "two"), ("two", "one")])
def test_the_cheapest_pool(called: tuple[str, str]) -> None:
    """The cheapest of several pools counts, whichever is tried first."""
    frame = _two_pools(called, {"a": "7", "b": "10", "c": "6.5"})
    assert (_cheapest(frame, {CPU: 3}), _cheapest(frame, {CPU: 1})) == (7, 6)


def test_a_pool_launches_only_its_types() -> None:
    """A type that a pool excludes does not count."""
    assert _cheapest(_frame(types=("b",)), {}) == 10
    assert _cheapest(_frame(types=("b",)), {MEMORY: 2}) is None


def test_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers are cached up to a limit; the bytes of a need are the key."""
    monkeypatch.setattr(module, "_KEPT_MAX", 2)
    launches = Launches(_frame())
    first = launches.least_for(_bytes({CPU: 2, MEMORY: 1}))
    assert launches.least_for(_bytes({MEMORY: 1, CPU: 2})) is first
    launches.least_for(_bytes({CPU: 3}))
    assert launches.least_for(_bytes({CPU: 2, MEMORY: 1})) is first
    launches.least_for(_bytes({CPU: 4}))
    assert len(launches._one) == 1
    assert launches.least_for(_bytes({CPU: 2, MEMORY: 1})) is not first


@pytest.mark.parametrize(
    ("need", "price"),
    [
        ({}, None),
        ({CPU: 4}, 5.0),
        ({MEMORY: 4}, 4.0),
        ({CPU: 4, MEMORY: 4}, 5.0),
        ({MEMORY: 4, CPU: 4}, 5.0),
        ({CPU: 1, MEMORY: 4}, 4.0),
        ({UNKNOWN: 1}, None),
    ],
)
def test_shares(need: dict[int, int], price: float | None) -> None:
    """The bound is the largest of the cheapest shares: 10/8 of the first resource, 8/8 of the second."""
    found = Launches(_frame()).share_for(_amounts(need))
    assert (None if found is None else (found.amount, found.as_float)) == (
        None if price is None else (parse_money(str(price)), price)
    )


def _shares(frame: Frame) -> dict[int, tuple[float, int]]:
    """Return, for CPU and memory, the price and the size of the machine with the lowest unit price."""
    found = Launches(frame)._shares
    return {at: (found[at][0].as_float, found[at][1] // _UNITS[at]) for at in (CPU, MEMORY) if at in found}


@pytest.mark.parametrize("called", [("one", "two"), ("two", "one")])
def test_shares_of_pools(called: tuple[str, str]) -> None:
    """The lowest unit price of each resource counts, whichever pool has it."""
    frame = _two_pools(called, {"a": "99", "b": "5"}, types=("a", "b"))
    assert _shares(frame) == {CPU: (5, 8), MEMORY: (8, 8)}


@pytest.mark.parametrize(
    ("types", "shares"),
    [("a", {CPU: (8, 4), MEMORY: (8, 8)}), ("b", {CPU: (10, 8), MEMORY: (10, 1)}), ("c", {CPU: (6, 2)})],
)
def test_shares_of_types(types: str, shares: dict[int, tuple[float, int]]) -> None:
    """Only types that may be launched count; one without a resource has no share of it."""
    assert _shares(_frame(types)) == shares


def test_whom_they_serve() -> None:
    """Launch prices can be reused for frames with the same machines and templates, until there are more resources."""
    town = _town()
    town.pool()
    catalogue = town.catalogue
    seen = town.question(catalogue=catalogue).snapshot()
    launches = Launches(seen.frame)
    assert launches.serves(seen.frame)
    assert not launches.serves(_frame())
    town.pool("other")
    assert not launches.serves(town.question(catalogue=catalogue).snapshot(previous=seen).frame)
    del town.pools["other"]
    town.pod("odd", spec={"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]})
    wider = town.question(catalogue=catalogue).snapshot(previous=seen).frame
    assert wider.machines is seen.frame.machines
    assert not launches.serves(wider)
