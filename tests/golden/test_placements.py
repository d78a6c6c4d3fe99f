"""The reference packer gives Karpenter's own placements: pending pods, each candidate alone, each batch."""

import pytest

from tests.golden.deviations import VOLUMES, expected_differences
from tests.golden.simulations import ReferenceSide, checks
from tests.support.golden_cases import GoldenCase, golden_cases, on_one_worker
from tests.support.sizes import size


def _parameters() -> list[object]:
    # The cases with EC2's types take a second or two each in a packer that tries type by type: `make test` runs a third
    # of all cases, and those with a listed deviation. The kernel answers all of them (test_kernel_placements.py).
    return [
        pytest.param(
            case, id=case.name, marks=[on_one_worker(case.name), *[pytest.mark.slow] * case.name.startswith("E")]
        )
        for number, case in enumerate(golden_cases())
        if number % size(test=3, ci=1, long=1) == 0 or expected_differences(case.name)
    ]


@pytest.mark.parametrize("case", _parameters())
def test_reference_packer_answers_as_karpenter_does(case: GoldenCase) -> None:
    """Every placement and simulation of the case has Karpenter's answer, but for the listed deviations."""
    different = [check for check in checks(case, ReferenceSide(case)) if not check.agrees]
    assert len(different) == expected_differences(case.name), different[:1]


@pytest.mark.parametrize("name", sorted(VOLUMES.cases))
def test_recorded_volume_cases_are_explained_by_the_broken_lookup(name: str) -> None:
    """With bound volumes unfound, as in the recordings, the cases with volumes agree in full."""
    case = next(case for case in golden_cases() if case.name == name)
    different = [
        str(check.question) for check in checks(case, ReferenceSide(case, volumes_unfound=True)) if not check.agrees
    ]
    assert different == []


def test_all_cases_are_there() -> None:
    """All 116 golden cases exist."""
    assert len(golden_cases()) == 116
