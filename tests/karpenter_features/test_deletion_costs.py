"""PodDeletionCostManagement: with the gate on, pod deletion costs are Karpenter's ranks, not costs."""

import pytest

from dovetail.model.settings import DOVETAIL
from tests.karpenter_features.world import told
from tests.support.design_world import Town, kind

RANK = "controller.kubernetes.io/pod-deletion-cost"
OWN = "karpenter.sh/disruption-cost"
CASES = {
    "gate off: a deletion cost counts": ("", {RANK: "-2147483648"}, -10.0),
    "gate on: it is a rank": ("PodDeletionCostManagement=true", {RANK: "-2147483648"}, 1.0),
    "gate on: Karpenter's own annotation counts": ("PodDeletionCostManagement=true", {OWN: "134217728"}, 2.0),
    "gate on: both": ("PodDeletionCostManagement=true", {OWN: "134217728", RANK: "-5"}, 2.0),
    "gate off: both": ("", {OWN: "134217728", RANK: "-5"}, 2.0),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_pod_costs(case: str) -> None:
    """The table lists the disruption cost of a node with one pod."""
    gates, annotations, cost = CASES[case]
    town = Town(kind("m", "1"), settings=told(DOVETAIL, featureGates=gates))
    town.pool()
    town.node("n", "m")
    town.pod("p", "n", annotations=annotations)
    method = town.round(every_method=True).methods[-1]
    assert [entry.disruption_cost for entry in method.candidates] == [cost]


def test_a_rank_that_is_no_number_is_not_reported() -> None:
    """A rank that is not a number is not reported, because the pod's owner did not write it."""
    town = Town(kind("m", "1"), settings=told(DOVETAIL, featureGates="PodDeletionCostManagement=true"))
    town.pool()
    town.node("n", "m")
    town.pod("p", "n", annotations={RANK: "soon"})
    assert not any(RANK in text for text in town.round().warnings)
