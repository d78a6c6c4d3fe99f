"""The fast kernel gives Karpenter's own placements: pending pods, each candidate alone, each batch."""

import pytest

from tests.golden.deviations import expected_differences
from tests.golden.simulations import checks
from tests.support.golden_cases import GoldenCase, golden_cases, on_one_worker
from tests.support.golden_kernel import KernelSide


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=on_one_worker(case.name)) for case in golden_cases()]
)
def test_kernel_answers_as_karpenter_does(case: GoldenCase) -> None:
    """Every placement and simulation of the case has Karpenter's answer, but for the listed deviations."""
    different = [check for check in checks(case, KernelSide(case)) if not check.agrees]
    assert len(different) == expected_differences(case.name), different[:1]
