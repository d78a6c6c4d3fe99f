"""Under Karpenter's profile, candidates, order, budgets and commands equal Karpenter's on every golden case."""

from functools import lru_cache

import pytest

from dovetail.decide.round import RoundResult
from dovetail.model.command import Method
from tests.golden.deviations import DEVIATIONS
from tests.support.golden_cases import golden_case, golden_cases, on_one_worker
from tests.support.golden_decisions import METHODS, TERMINATE_FIRST, Difference, decide, differences

CASES = [
    pytest.param(case.name, marks=on_one_worker(case.name))
    for case in golden_cases()
    if case.name not in TERMINATE_FIRST
]
DEVIATING = frozenset(name for deviation in DEVIATIONS for name in deviation.cases)


@lru_cache(maxsize=4)
def _result(name: str) -> RoundResult:
    return decide(golden_case(name))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.value)
@pytest.mark.parametrize("name", CASES)
def test_as_karpenter_decides(name: str, method: Method) -> None:
    """A method finds the candidates, budgets and commands that Karpenter's method finds on the same cluster.

    In the few cases where simulations differ on purpose, candidates and budgets still are the same.
    """
    found = [entry for entry in differences(golden_case(name), method, _result(name)) if _counts(name, entry)]
    assert not found, "\n".join(str(entry) for entry in found[:5])


def _counts(name: str, entry: Difference) -> bool:
    return name not in DEVIATING or entry.part in ("candidates", "budgets")


def test_bisection_stops_where_karpenters_does() -> None:
    """More than a hundred candidates make a batch of at most 101 under Karpenter's profile, and of 100 under ours."""
    from dovetail.decide.methods.moves import Move
    from dovetail.decide.methods.multi_node import bisect
    from dovetail.model.settings import DOVETAIL, KARPENTER_1_15

    for settings, largest in ((KARPENTER_1_15, 101), (DOVETAIL, 100)):
        always = lambda size: object.__new__(Move)  # noqa: E731
        assert bisect(always, min(500, settings.batch_maximum)) == largest
