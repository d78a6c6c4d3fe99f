"""A pod without a place on a node that is already leaving blocks every command of Karpenter, and none of Dovetail's."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.decide.in_flight import LeavingNode
from dovetail.model.command import Method
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from tests.karpenter_features.world import CONSOLIDATABLE, FREE
from tests.support.design_world import Town, kind, moved

HOMELESS: dict[str, dict[str, Any]] = {
    "no node has the label": {"nodeSelector": {"example.com/nowhere": "true"}},
    "resource claims": {"resourceClaims": [{"name": "gpu"}]},
}


@pytest.mark.parametrize("case", HOMELESS)
@pytest.mark.parametrize("drifts", [False, True], ids=["cost", "drift"])
@pytest.mark.parametrize(("settings", "goes"), [(DOVETAIL, True), (KARPENTER_1_15, False)])
def test_a_homeless_pod_of_a_leaving_node(settings: Settings, goes: bool, drifts: bool, case: str) -> None:
    """Only the candidates' pods must land (docs/rules.md#methods)."""
    town = Town(kind("m", "1"), settings=settings)
    town.pool(disruption=FREE)
    for name in ("leaves", "goes", "stays"):
        town.node(
            name, "m", conditions=[CONSOLIDATABLE], drifted=timedelta(hours=1) if drifts and name == "goes" else None
        )
        town.pod(f"on-{name}", name)
    town.pod("homeless", "leaves", spec=HOMELESS[case])
    town.leaving["leaves"] = LeavingNode(node="leaves", method=Method.DRIFTED, since=town.now)
    command = town.act()
    assert (command is not None) is goes
    if goes:
        assert moved(command) == ("deleteDrifted" if drifts else "deleteCost", ("goes",))


def test_a_candidates_own_homeless_pod_counts() -> None:
    """Every pod of the candidates must land, in both profiles."""
    for settings in (DOVETAIL, KARPENTER_1_15):
        town = Town(kind("m", "1"), settings=settings)
        town.pool(disruption=FREE)
        town.node("a", "m", conditions=[CONSOLIDATABLE], drifted=timedelta(hours=1))
        town.node("b", "m")
        town.pod("filler", "b", cpu="3900m")
        town.pod("homeless", "a", spec=HOMELESS["no node has the label"])
        assert town.verdicts()["a"] == "simulation"
