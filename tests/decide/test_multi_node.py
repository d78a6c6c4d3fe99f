"""Several nodes at once: bisection as Karpenter does it, and what looking further finds."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.decide.methods.moves import Move
from dovetail.decide.methods.multi_node import bisect, look_further, search
from dovetail.decide.refusal import Refusal
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.model.verdicts import Gate
from tests.support.design_world import Town, kind

_YES = object.__new__(Move)
_NO = Refusal(gate=Gate.PRICE, why="no")


def _answers(passing: set[int]) -> tuple[Callable[[int], Move | Refusal], dict[int, Move | Refusal]]:
    asked: dict[int, Move | Refusal] = {}

    def attempt(size: int) -> Move | Refusal:
        asked[size] = _YES if size in passing else _NO
        return asked[size]

    return attempt, asked


@pytest.mark.parametrize("profile", [DOVETAIL, KARPENTER_1_15], ids=lambda settings: settings.profile.value)
def test_a_batch_that_bisection_misses(profile: object) -> None:
    """Dovetail finds a batch of three nodes although a batch of two fails; Karpenter never tries it."""
    assert profile in (DOVETAIL, KARPENTER_1_15)
    town = Town(
        kind("half", "0.50", cpu=4, memory=16),
        kind("two", "1.00", cpu=8, memory=32),
        kind("three", "1.20", cpu=12, memory=48),
        settings=DOVETAIL if profile is DOVETAIL else KARPENTER_1_15,
    )
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    for name in ("a", "b", "c"):
        town.node(name, "half", conditions=[{"type": "Consolidatable", "status": "True"}])
        town.pod(f"{name}-0", name, cpu="3800m")
    commands = town.round(every_method=True).methods[3].commands
    if profile is DOVETAIL:
        assert [command.nodes for command in commands] == [("a", "b", "c")]
        assert commands[0].replacements[0].instance_types == ("three",)
    else:
        assert commands == ()


@given(st.sets(st.integers(2, 40)), st.integers(0, 40))
def test_never_less_than_bisection(passing: set[int], largest: int) -> None:
    """The extended search never ends with a smaller batch than bisection, and its batch passes."""
    attempt, asked = _answers(passing)
    plain = bisect(_answers(passing)[0], largest)
    best = search(attempt, largest, asked, [1] * largest)
    assert best >= plain
    assert best == 0 or best in passing
    assert best <= largest


@given(st.integers(0, 60), st.integers(0, 60))
def test_bisection_finds_the_edge_where_there_is_one(edge: int, largest: int) -> None:
    """Where every batch up to some size passes, bisection ends exactly there."""
    attempt, _ = _answers(set(range(edge + 1)))
    found = bisect(attempt, largest)
    assert found == (min(edge, largest) if min(edge, largest) >= 2 else 0)


def test_looking_further_has_to_be_cheap() -> None:
    """The extended search skips batches with many pods."""
    attempt, asked = _answers({30})
    assert look_further(attempt, 0, 30, asked, [100] * 30) == 0
    assert 30 not in asked
