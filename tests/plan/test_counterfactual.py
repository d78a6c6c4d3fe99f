"""What would open a gate: the change that `explain` names has the predicted effect when made by hand."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.decide.question import Question
from dovetail.model import names
from dovetail.model.settings import DOVETAIL
from dovetail.plan.explaining.counterfactual import Counterfactual, counterfactuals
from dovetail.plan.explaining.node_answer import ask
from tests.support.design_world import NOW, Town, kind, spot_kind

FREE = {"consolidationSavingsThreshold": 0}
SHARED = {names.DO_NOT_DISRUPT: "true"}


def _town(**disruption: Any) -> Town:
    """Return a node `n` whose pods fit on `other`, which may not be removed."""
    town = Town(kind("m", "0.20"), kind("xl", "2.00", cpu=16, memory=64))
    town.pool(disruption={**FREE, **disruption})
    town.node("n", "m")
    town.pod("p", "n", labels={"app": "web"})
    town.node("other", "xl", annotations=SHARED)
    town.pod("q", "other")
    return town


def _told(town: Town, node: str = "n") -> tuple[Counterfactual, ...]:
    world = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    answer, found = counterfactuals(world, node)
    assert answer is not None
    assert not answer.eligible
    return found


def _opening(town: Town, words: str) -> Counterfactual:
    found = [entry for entry in _told(town) if words in entry.if_]
    assert found, [entry.if_ for entry in _told(town)]
    return found[0]


def _later(span: timedelta) -> Callable[[Town], None]:
    def change(town: Town) -> None:
        town.now = NOW + span

    return change


@pytest.mark.parametrize(
    ("disruption", "before", "words", "by_hand"),
    [
        pytest.param(
            {},
            lambda t: t.pod("p", "n", annotations=SHARED),
            "if pod default/p had no karpenter.sh/do-not-disrupt",
            lambda t: t.pod("p", "n"),
            id="do-not-disrupt on a pod",
        ),
        pytest.param(
            {},
            lambda t: (t.pod("p", "n", annotations=SHARED), t.pod("p2", "n", annotations=SHARED)),
            "if pods default/p, default/p2 had no",
            lambda t: (t.pod("p", "n"), t.pod("p2", "n")),
            id="on two pods",
        ),
        pytest.param(
            {},
            lambda t: t.pod("p", "n", annotations={names.DO_NOT_DISRUPT: "90m"}),
            "(in 30m)",
            _later(timedelta(minutes=30)),
            id="do-not-disrupt that runs out",
        ),
        pytest.param(
            {},
            lambda t: t.pdb("web", {"app": "web"}, allowed=0),
            "if PodDisruptionBudget default/web allowed a disruption",
            lambda t: (t.others.clear(), t.pdb("web", {"app": "web"}, allowed=1)),
            id="a PDB",
        ),
        pytest.param(
            {},
            lambda t: t.node("n", "m", annotations=SHARED),
            "if the node had no do-not-disrupt",
            lambda t: t.node("n", "m"),
            id="do-not-disrupt on the node",
        ),
        pytest.param(
            {"consolidationPolicy": "WhenEmpty"},
            lambda t: None,
            "consolidationPolicy: WhenEmptyOrUnderutilized",
            lambda t: t.pool(disruption=FREE),
            id="policy",
        ),
        pytest.param(
            {"consolidateAfter": "Never"},
            lambda t: None,
            "consolidateAfter: 15s",
            lambda t: t.pool(disruption={**FREE, "consolidateAfter": "15s"}),
            id="consolidateAfter Never",
        ),
        pytest.param(
            {"consolidateAfter": "2h"}, lambda t: None, "(in 1h)", _later(timedelta(hours=1)), id="consolidateAfter"
        ),
        pytest.param(
            {"consolidationGracePeriod": "74m"},
            lambda t: None,
            "(in 14m)",
            _later(timedelta(minutes=14)),
            id="in 14 minutes when its grace period ends",
        ),
        pytest.param(
            {"budgets": [{"nodes": "0"}]},
            lambda t: None,
            "if the budgets of NodePool default allowed 1 nodes for Underutilized",
            lambda t: t.pool(disruption={**FREE, "budgets": [{"nodes": "1"}]}),
            id="budget",
        ),
        pytest.param(
            {"budgets": [{"nodes": "0", "schedule": "0 9 * * *", "duration": "13h"}]},
            lambda t: None,
            "at 2026-05-13T22:00:00Z",
            _later(timedelta(hours=6, minutes=30)),
            id="at 22:00 when the budget opens",
        ),
        pytest.param(
            {"consolidationSavingsThreshold": 0.5},
            lambda t: None,
            "consolidationSavingsThreshold: 0.2",
            lambda t: t.pool(disruption={"consolidationSavingsThreshold": 0.2}),
            id="threshold",
        ),
        pytest.param(
            {"consolidationSavingsThreshold": 0.25},
            lambda t: t.node("n", "m", age=timedelta(hours=1), life="10h"),
            "(in 1h)",
            _later(timedelta(hours=1)),
            id="ageing: 0.25 x 0.8 is the price",
        ),
    ],
)
def test_the_change_does_what_was_said(
    disruption: dict[str, Any], before: Callable[[Town], None], words: str, by_hand: Callable[[Town], None]
) -> None:
    """The named change opens the gate, and made by hand it has the same effect."""
    town = _town(**disruption)
    before(town)
    told = _opening(town, words)
    assert told.opens, told
    assert "it would be deleted" in told.then
    by_hand(town)
    assert town.verdicts()["n"] == told.gate == "eligible"


def test_just_above_the_named_threshold_it_stays() -> None:
    """The named threshold is the highest with three digits that opens the gate."""
    town = _town(consolidationSavingsThreshold=1)
    town.fill("n", 2)
    assert _opening(town, "consolidationSavingsThreshold: 0.0666").opens
    town.pool(disruption={"consolidationSavingsThreshold": 0.0667})
    assert town.verdicts()["n"] == "savings-threshold"


def test_spot_settings() -> None:
    """Too few types, or disabled spot-to-spot, name the setting."""
    kinds = [spot_kind(f"t{n}", f"0.1{n}") for n in range(5)]
    town = Town(spot_kind("now", "0.50"), *kinds)
    town.pool(capacity=(names.SPOT,), disruption=FREE)
    town.node("n", "now", capacity=names.SPOT)
    town.fill("n", 2, cpu="1500m")
    assert _opening(town, "spotMinimumTypes: 5").opens
    town.settings = replace(DOVETAIL, spot_to_spot_consolidation=False, spot_minimum_types=5)
    assert _opening(town, "spotToSpotConsolidation were on").opens


def test_a_zone_out_of_turn() -> None:
    """For a drifted node whose zone must wait, explain shows the effect of a roll without zones."""
    budget = {"nodes": "1", "topologyKey": names.ZONE, "sequential": True, "reasons": ["Drifted"]}
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"budgets": [budget], "consolidateAfter": "Never"})
    town.node("a0", "m", zone="a", drifted=timedelta(hours=2))
    town.node("n", "m", zone="b", drifted=timedelta(hours=1))
    for name in ("a0", "n"):
        town.fill(name, 1)
    told = _opening(town, f"no budget per {names.ZONE}")
    assert told.opens


def test_the_annotation_wins() -> None:
    """If the pool has its policy in the annotation, the change is made there."""
    town = _town()
    pool = town.pools["default"]
    annotations = {names.POLICY_ANNOTATION: "consolidationSavingsThreshold: 0.5"}
    meta = msgspec.structs.replace(pool.metadata, annotations=annotations)
    town.pools["default"] = msgspec.structs.replace(pool, metadata=meta)
    assert _opening(town, "consolidationSavingsThreshold: 0.2").opens


def test_a_change_that_is_not_enough_says_so() -> None:
    """If a second gate is closed behind the first, the answer names it."""
    town = _town(consolidationSavingsThreshold=1)
    town.pod("p", "n", annotations=SHARED)
    told = _told(town)[0]
    assert not told.opens
    assert told.gate == "savings-threshold"
    assert "instead" in told.then


def test_one_timer_after_the_other() -> None:
    """Asked while consolidateAfter runs or after it, the node goes at the same moment; the gate between is named."""
    town = _town(consolidateAfter="2h", consolidationSavingsThreshold=0.3)
    town.node("n", "m", age=timedelta(hours=1), life="10h")
    early = _told(town)
    assert [(entry.gate, entry.opens) for entry in early] == [("savings-threshold", False), ("eligible", True)]
    town.now = early[0].question.now
    late = [entry for entry in _told(town) if entry.if_.startswith("at ")]
    assert [entry.question.now for entry in late] == [early[1].question.now]


WASTE = {"consolidationSavingsThreshold": 0.02, "disruptionPrice": 0.01}


@pytest.mark.parametrize("price", [WASTE, {"restartPrice": "0.002"}], ids=["waste", "one price"])
def test_the_time_in_the_sentence_is_the_time_at_which_it_goes(price: dict[str, Any]) -> None:
    """A node that waits for money: the moment that its gate names is asked about, with what is wasted until then."""
    town = Town(kind("m", "0.10", cpu=4))
    town.pool(disruption=price, limits={"nodes": "0"})
    for name, pods in (("busy", 20), ("rest", 25)):
        town.node(name, "m")
        town.fill(name, pods, cpu="50m")
    answer = ask(Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=NOW), "busy")
    assert answer is not None
    assert answer.last.due is not None
    told = _told(town, "busy")
    assert [(entry.question.now, entry.opens) for entry in told if entry.if_.startswith("at ")] == [
        (answer.last.due, True)
    ]
