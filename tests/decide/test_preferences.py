"""Preferences and new nodes for cost: `preferencesOpenNodes`, `asksTheScheduler` (docs/rules.md#preferences)."""

from dataclasses import replace

import pytest

from dovetail.model import names
from dovetail.model.settings import DOVETAIL, Settings
from tests.support.design_world import Town, kind

KEPT = replace(DOVETAIL, preferences_open_nodes=False)
ASKS = replace(DOVETAIL, asks_the_scheduler=True)
SPREAD = {
    "maxSkew": 1,
    "topologyKey": names.ZONE,
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def _town(settings: Settings, *, hard: bool = False) -> Town:
    """Build a dear node in zone a whose pod should be alone there, and one with room in zone b, which has three."""
    town = Town(kind("dear", "0.40", cpu=8), kind("cheap", "0.10", cpu=2), settings=settings)
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("a", "dear", zone="a")
    town.node("b", "dear", zone="b")
    spread = {**SPREAD, "whenUnsatisfiable": "DoNotSchedule"} if hard else SPREAD
    web = {"labels": {"app": "web"}, "spec": {"topologySpreadConstraints": [spread]}}
    town.pod("web-a", "a", cpu="500m", **web)
    for number in range(3):
        town.pod(f"web-b{number}", "b", cpu="500m", **web)
    return town


def _launches(town: Town, node: str = "a") -> int | None:
    found = [command for command in town.round(every_method=True).commands if node in command.nodes]
    return len(found[0].replacements) if found else None


@pytest.mark.parametrize(("settings", "hard", "launches"), [(DOVETAIL, False, 1), (KEPT, False, 0), (KEPT, True, 1)])
def test_a_preference_opens_no_node_while_there_is_room(settings: Settings, hard: bool, launches: int) -> None:
    """Karpenter's order opens a node for a soft spread; `preferencesOpenNodes: false` gives it up first."""
    town = _town(settings, hard=hard)
    town.claims = {name: claim for name, claim in town.claims.items() if name == "a"}
    assert _launches(town) == launches


@pytest.mark.parametrize("settings", [DOVETAIL, KEPT])
def test_a_new_node_is_opened_where_there_is_no_room(settings: Settings) -> None:
    """Giving up the preference does not help if the other node is full."""
    town = _town(settings)
    town.claims = {name: claim for name, claim in town.claims.items() if name == "a"}
    town.pod("large", "b", cpu="6200m")
    assert _launches(town) == 1


@pytest.mark.parametrize(
    ("settings", "many", "launches"),
    [(DOVETAIL, True, 1), (ASKS, False, 1), (ASKS, True, None)],
    ids=["not asked", "few pods: the spread decides", "many pods: the room decides"],
)
def test_a_node_that_would_stay_empty_is_not_launched(settings: Settings, many: bool, launches: int | None) -> None:
    """The scheduler weighs a zone with one pod more, which counts little among many, against a small, full machine."""
    kinds = kind("dear", "0.90", cpu=16, zones="ab"), kind("cheap", "0.10", cpu=2, zones="ab")
    town = Town(*kinds, settings=settings)
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("a", "dear", zone="a")
    web = {"labels": {"app": "web"}, "spec": {"topologySpreadConstraints": [SPREAD]}}
    town.pod("web-a", "a", cpu="1500m", **web)
    for name, zone, count in (("full", "a", 8 * many), ("b", "b", 8 * many + 1)):
        town.node(name, "dear", zone=zone)
        del town.claims[name]
        for number in range(count):
            town.pod(f"{name}-{number}", name, cpu="100m", **web)
    town.pod("filler", "full", cpu=f"{15_900 - 800 * many}m")
    assert _launches(town) == launches
