"""The command of greatest value (docs/rules.md#value): better sets, several new nodes, and never worse than before."""

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.decide.decider import Decider
from dovetail.decide.round import RoundResult
from dovetail.decide.search.by_value import _Judges
from dovetail.decide.search.growth import Growth
from dovetail.decide.work import Work
from dovetail.model.command import Command, Method
from dovetail.model.money import as_float
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Search, Settings
from tests.support.design_world import Town, kind
from tests.support.searches import Allowing
from tests.support.towns import towns

VALUE = replace(DOVETAIL, search=Search.VALUE)
VALUE_4 = replace(VALUE, replacements_max=4)
COST = (Method.MULTI_NODE, Method.SINGLE_NODE)


def _cost_command(result: RoundResult) -> Command | None:
    """Return the cost command of the round, ignoring other methods."""
    found = [command for method in result.methods if method.method in COST for command in method.commands]
    return found[0] if found else None


def _value(town: Town, command: Command | None) -> Fraction:
    """Return the exact savings minus the savings required for the disruption."""
    if command is None:
        return Fraction(0)
    required = sum((Fraction(command.required_savings),), Fraction(0))
    return Fraction(command.savings) - required


@settings(max_examples=150, deadline=None)
@given(towns, st.sampled_from([1, 4]))
def test_never_worse_than_the_largest_prefix(town: Town, most: int) -> None:
    """The command found is worth at least as much as the one that `search: prefix` finds."""
    before = _cost_command(town.round(every_method=True))
    town.settings = replace(VALUE, replacements_max=most)
    after = _cost_command(town.round(every_method=True))
    assert _value(town, after) >= _value(town, before) - 1
    if before is not None:
        assert after is not None
    if after is not None:
        assert len(after.replacements) <= most
        assert after.savings >= after.required_savings
        assert (after.method is Method.SINGLE_NODE) == (len(after.nodes) == 1)


@settings(max_examples=60, deadline=None)
@given(towns)
def test_what_is_found_still_holds_when_it_is_looked_at_again(town: Town) -> None:
    """Validation on the same cluster accepts the command that the search found."""
    town.settings = VALUE_4
    command = _cost_command(town.round(every_method=True))
    if command is not None:
        again = Decider().revalidate(command, town.question())
        assert isinstance(again, Command), again
        assert (again.nodes, again.savings) == (command.nodes, command.savings)


def _two_light_two_heavy(search: Settings) -> Town:
    """Build four nodes with room for the pods of two; expensive nodes have two pods each, cheap nodes one."""
    town = Town(kind("cheap", "0.10", cpu=4), kind("dear", "0.40", cpu=4), settings=search)
    town.pool(disruption={"consolidationSavingsThreshold": 0.01}, limits={"nodes": "0"})
    for name, what, pods in (("a", "cheap", 1), ("b", "cheap", 1), ("c", "dear", 2), ("d", "dear", 2)):
        town.node(name, what)
        town.fill(name, pods, cpu=f"{2000 // pods}m")
    return town


def test_the_best_set_instead_of_the_first() -> None:
    """The search removes the two expensive nodes; the order by disruption would remove the cheap ones."""
    by_prefix = _cost_command(_two_light_two_heavy(DOVETAIL).round())
    by_value = _cost_command(_two_light_two_heavy(VALUE).round())
    assert by_prefix is not None
    assert by_value is not None
    assert by_prefix.nodes == ("a", "b")
    assert by_value.nodes == ("c", "d")
    assert as_float(by_value.savings) == pytest.approx(0.80)


def _one_too_large() -> Town:
    """Return one big node whose pods do not fit on one smaller machine, but on two."""
    town = Town(kind("small", "0.10", cpu=4, memory=8), kind("big", "0.50", cpu=16, memory=64))
    town.pool(disruption={"consolidationSavingsThreshold": 0.01})
    town.node("one", "big")
    town.fill("one", 2, cpu="3000m")
    return town


@pytest.mark.parametrize(
    ("search", "replacements"),
    [(DOVETAIL, None), (VALUE, None), (VALUE_4, 2), (replace(DOVETAIL, replacements_max=4), None)],
    ids=["prefix", "value, one new node", "value, four new nodes", "prefix opens one, whatever replacementsMax says"],
)
def test_several_new_nodes_for_one(search: Settings, replacements: int | None) -> None:
    """One node is replaced by two small ones if the setting allows it; the method is `singleNode`."""
    town = _one_too_large()
    town.settings = search
    command = _cost_command(town.round())
    assert (None if command is None else len(command.replacements)) == replacements
    if command is not None:
        assert command.method is Method.SINGLE_NODE
        assert as_float(command.savings) == pytest.approx(0.30)
        assert as_float(command.required_savings) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("price", "paid", "goes"),
    [
        ("0.24", "0.50", True),
        ("0.25", "0.50", False),
        ("0.26", "0.50", False),
        ("0.25", "0.500000000000000001", True),
    ],
)
def test_the_price_gate_holds_for_the_sum(price: str, paid: str, goes: bool) -> None:
    """Two machines at half the price each save nothing; a node that costs the smallest unit more is replaced."""
    town = Town(kind("small", price, cpu=4, memory=8), kind("big", paid, cpu=16, memory=64), settings=VALUE_4)
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("one", "big")
    town.fill("one", 2, cpu="3000m")
    assert (_cost_command(town.round()) is not None) == goes


def test_whatever_comes_keeps_the_sum() -> None:
    """The most expensive remaining types of all new nodes together must still save enough."""
    town = Town(
        kind("small", "0.10", cpu=4, memory=8),
        kind("medium", "0.20", cpu=5, memory=8),
        kind("large", "0.29", cpu=5, memory=16),
        kind("big", "0.50", cpu=16, memory=64),
        settings=VALUE_4,
    )
    town.pool(disruption={"consolidationSavingsThreshold": 0.01})
    town.node("one", "big")
    town.fill("one", 2, cpu="3000m")
    command = _cost_command(town.round())
    assert command is not None
    prices = {"small": 0.10, "medium": 0.20, "large": 0.29}
    dearest = sum(max(prices[name] for name in entry.instance_types) for entry in command.replacements)
    assert [entry.instance_types for entry in command.replacements] == [("small", "medium")] * 2
    assert 0.50 - dearest >= as_float(command.required_savings)


def test_karpenter_stays_karpenter() -> None:
    """The search settings change nothing under Karpenter's profile."""
    plain, changed = _one_too_large(), _one_too_large()
    plain.settings = KARPENTER_1_15
    changed.settings = replace(KARPENTER_1_15, search=Search.VALUE, replacements_max=4)
    assert plain.round().commands == changed.round().commands


def test_budgets_stay() -> None:
    """A set never takes more nodes of a pool than its budget allows."""
    town = _two_light_two_heavy(VALUE)
    town.pool(
        disruption={"consolidationSavingsThreshold": 0.01, "budgets": [{"nodes": "1"}]},
        limits={"nodes": "0"},
    )
    command = _cost_command(town.round())
    assert command is not None
    assert len(command.nodes) == 1
    assert command.nodes[0] in ("c", "d")


class _Additive:
    """Judge sets in a knapsack: the value of a set is the sum of its items while they fit."""

    def __init__(self, worth: Sequence[float], weight: Sequence[float], room: float) -> None:
        self.worth, self.weight, self.room = worth, weight, room

    def value(self, chosen: tuple[int, ...]) -> float | None:
        if sum(self.weight[at] for at in chosen) > self.room:
            return None
        return sum(self.worth[at] for at in chosen)

    def at_most(self, chosen: Sequence[int]) -> float:
        return sum(self.worth[at] for at in chosen) if self.value(tuple(chosen)) is not None else 0.0

    def prefixes_at_most(self, order: Sequence[int]) -> list[float]:
        return [self.at_most(order[: size + 1]) for size in range(len(order))]

    def each_at_most(self, chosen: Sequence[int], others: Sequence[int]) -> list[float]:
        return [self.at_most([*chosen, other]) for other in others]

    @property
    def best(self) -> float:
        places = range(len(self.worth))
        sets = (chosen for size in places for chosen in combinations(places, size + 1))
        return max((self.value(chosen) or 0.0 for chosen in sets), default=0.0)


def _grown(items: Sequence[tuple[int, int]], room: int) -> tuple[float, float]:
    """Return the value that growth finds in a knapsack of (worth, weight), and the optimum."""
    sack = _Additive([float(a) for a, _ in items], [float(b) for _, b in items], float(room))
    order = sorted(range(len(items)), key=lambda at: (-items[at][0] / items[at][1], at))
    growth = Growth(sack, sack.value, Allowing(), spent=lambda: False)
    found = growth.run([order, sorted(range(len(items)), key=lambda at: (-items[at][0], at))])
    assert (sack.value(found) or 0.0) == growth.best_value
    return growth.best_value, sack.best


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=9),
    st.integers(1, 60),
)
@example([(1, 1), (3, 1), (5, 7), (5, 9), (5, 8)], 16)
def test_growth_finds_at_least_half_of_the_best_set(items: list[tuple[int, int]], room: int) -> None:
    """The order by ratio and the order by worth together reach at least half of the optimum."""
    found, best = _grown(items, room)
    assert found >= 0.5 * best
    assert (found > 0) == (best > 0)


def test_growth_comes_near_the_best_set() -> None:
    """On knapsacks small enough to try every set, of a fixed seed: exchanging single items mostly ends at the optimum.

    No share above a half holds for every knapsack (the example above ends at 10 of 13), so the share is a mean's.
    """
    dice = random.Random(7)
    shares = []
    for _ in range(300):
        items = [(dice.randint(1, 20), dice.randint(1, 20)) for _ in range(dice.randint(1, 9))]
        found, best = _grown(items, dice.randint(1, 60))
        shares.append(found / best if best else 1.0)
    assert sum(shares) / len(shares) >= 0.99
    assert sum(share == 1.0 for share in shares) >= 0.9 * len(shares)


def test_of_equal_sets_the_first_found_stays() -> None:
    """A set of equal value does not replace the first one, so the answer is stable between rounds."""
    for worths, first in (([1.0, 1.0, 1.0, 1.0], (3,)), ([1.0, 1.001, 1.0, 1.0], (1,))):
        sack = _Additive(worths, [1.0] * 4, 1.0)
        search = Growth(sack, sack.value, Allowing(), spent=lambda: True)
        assert search.run([range(4)], known=[(3,), (1,), (2,)]) == first


@pytest.mark.parametrize(("nodes", "goes"), [("0", False), ("1", True)])
def test_the_last_place_of_a_budget_is_used(nodes: str, goes: bool) -> None:
    """If the budget allows one more node, a command for one node is possible."""
    town = Town(kind("m", "0.20"), settings=VALUE)
    town.pool(disruption={"consolidationSavingsThreshold": 0, "budgets": [{"nodes": nodes}]})
    for name in ("a", "b"):
        town.node(name, "m")
        town.fill(name, 1)
    command = _cost_command(town.round())
    assert (command is not None) == goes


def test_an_order_skips_nodes_without_budget_up_to_a_limit() -> None:
    """Nodes whose pool has no budget left are skipped; after too many of them the rest of the order is ignored."""
    town = Town(kind("m", "0.20"), settings=VALUE)
    for pool, nodes in (("open", "100%"), ("shut", "0")):
        town.pool(pool, disruption={"consolidationSavingsThreshold": 0, "budgets": [{"nodes": nodes}]})
    for name, pool in (("a", "open"), ("b", "shut"), ("c", "shut"), ("d", "open")):
        town.node(name, "m", pool=pool)
        town.fill(name, 1)
    work = Work(Decider().scene(town.question()))
    judges = _Judges(work, [work.scene.by_name[name] for name in "abcd"])
    assert judges.along(range(4)) == [0, 3]
    assert judges.along(range(4), misses_max=1) == [0]
    assert judges.along((3, 2, 0), misses_max=1) == [3, 0]
