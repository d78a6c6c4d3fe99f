"""Candidates, their order, budgets and commands are Karpenter's, on every golden case, under its profile."""

from functools import lru_cache

import pytest

from dovetail.decide.outcome import RoundResult
from dovetail.model.command import Method
from tests.golden.cases import golden_case, golden_cases
from tests.golden.decisions import METHODS, TERMINATE_FIRST, decide, differences

CASES = [case.name for case in golden_cases() if case.name not in TERMINATE_FIRST]


@lru_cache(maxsize=4)
def _result(name: str) -> RoundResult:
    return decide(golden_case(name))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.value)
@pytest.mark.parametrize("name", CASES)
def test_as_karpenter_decides(name: str, method: Method) -> None:
    """A method finds the candidates, budgets and commands that Karpenter's method finds on the same cluster."""
    found = [str(entry) for entry in differences(golden_case(name), method, _result(name))]
    assert not found, "\n".join(found[:5])
