"""Compare decisions with Karpenter's on the larger clusters of the benchmark set, if present."""

import pytest

from dovetail.model.command import Method
from tests.paths import SHARED, needs_shared
from tests.support.golden_cases import GoldenCase
from tests.support.golden_decisions import METHODS, decide, differences


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed-100", "mixed-500", "packed-100"])
def test_as_karpenter_decides_on_larger_clusters(name: str) -> None:
    """Every method finds Karpenter's candidates, budgets and commands on hundreds of nodes of every kind."""
    case = GoldenCase(name, SHARED / "bench" / name)
    result = decide(case)
    found = [str(entry) for method in METHODS for entry in differences(case, method, result)]
    assert not found, "\n".join(found[:3])[:3000]
    # No pool here asks for repair, so that method is not asked.
    assert {entry.method for entry in result.methods} == set(Method) - {Method.UNHEALTHY}
