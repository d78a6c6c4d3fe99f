"""Nodes that Karpenter reboots (NodeRepair) are not candidates, count in budgets and keep their capacity."""

from datetime import timedelta

import pytest

from dovetail.model import names
from dovetail.model.settings import Settings
from dovetail.scheduling.simulate import simulate
from tests.karpenter_features.world import BOTH, CONSOLIDATABLE, FREE
from tests.support.design_world import Town, kind

PROFILES = pytest.mark.parametrize("settings", BOTH, ids=["dovetail", "karpenter"])
REBOOTING = {"type": "Rebooting", "status": "True", "reason": "RebootRequested"}
CASES = {
    "empty": ({}, 0),
    "not empty": ({}, 1),
    "drifted": ({"drifted": timedelta(hours=1)}, 1),
    "not initialized while it boots": ({"without": [names.INITIALIZED_LABEL], "ready": False}, 1),
}


@PROFILES
@pytest.mark.parametrize("case", CASES)
def test_it_is_no_candidate(settings: Settings, case: str) -> None:
    """The gate of a rebooting node is `rebooting`, whatever else applies."""
    options, pods = CASES[case]
    town = Town(kind("m", "1"), settings=settings)
    town.pool(disruption=FREE)
    town.node("boots", "m", conditions=[CONSOLIDATABLE, REBOOTING], **options)
    town.node("other", "m", idle=timedelta(0))
    town.fill("boots", pods)
    town.fill("other", 1)
    assert town.verdicts()["boots"] == "rebooting"
    assert all("boots" not in command.nodes for command in town.round(every_method=True).commands)


@PROFILES
def test_a_reboot_that_ended_holds_nothing(settings: Settings) -> None:
    """Only a condition with status True blocks the node."""
    town = Town(kind("m", "1"), settings=settings)
    town.pool(disruption=FREE)
    town.node("done", "m", conditions=[CONSOLIDATABLE, {**REBOOTING, "status": "False", "reason": "RebootSucceeded"}])
    assert town.verdicts()["done"] == "eligible"


@PROFILES
@pytest.mark.parametrize("options", [{}, {"without": [names.INITIALIZED_LABEL]}], ids=["asked", "booting"])
def test_it_counts_in_budgets(settings: Settings, options: dict[str, list[str]]) -> None:
    """The node counts in the base of percentages and as unavailable, though it is not initialized."""
    town = Town(kind("m", "1"), settings=settings)
    town.pool(disruption={"budgets": [{"nodes": "50%"}]})
    town.node("boots", "m", conditions=[REBOOTING], **options)
    for name in ("a", "b", "c"):
        town.node(name, "m")
    row = next(row for row in town.round().budgets if row.reason.value == "Drifted")
    assert (row.allowed, row.used, row.left) == (2, 1, 1)


@PROFILES
def test_its_capacity_stays_but_nothing_may_count_on_it(settings: Settings) -> None:
    """Its taint is ignored; while it is not initialized, a pod that lands there blocks the command."""
    import msgspec

    town = Town(kind("m", "1"), settings=settings)
    town.pool()
    town.node("boots", "m", conditions=[REBOOTING], without=[names.INITIALIZED_LABEL])
    taint = {"key": "karpenter.sh/rebooting", "effect": "NoSchedule"}
    tree = msgspec.to_builtins(town.nodes["boots"])
    tree["spec"]["taints"] = [taint]
    town.nodes["boots"] = msgspec.convert(tree, type(town.nodes["boots"]))
    town.node("goes", "m")
    town.fill("goes", 1)
    seen = town.snapshot()
    index = seen.index.get("goes")
    assert index is not None
    result = simulate(seen, (index,))
    assert [place.node for place in result.placements] == ["boots"]
    assert result.blocking
