"""Graceful expiry before Karpenter's forced one: the earlier of two moments counts (docs/rules.md#expiry)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from tests.support.design_world import NOW, Town, kind, moved

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
NS_HOUR = 3600 * 10**9
ZERO = replace(DOVETAIL, expiry_lead=0)
LONG = replace(DOVETAIL, expiry_lead=100 * NS_HOUR)


def town(age: timedelta, life: str, settings: Settings = DOVETAIL, **disruption: Any) -> Town:
    """Build a node of that age whose NodeClaim has that expireAfter, and another that has room for its pod."""
    made = Town(kind("m", "0.20"), settings=settings)
    made.pool(disruption={"consolidateAfter": "Never", **disruption})
    made.node("old", "m", age=age, life=life)
    made.pod("p", "old")
    made.node("young", "m", age=HOUR)
    made.pod("q", "young")
    return made


@pytest.mark.parametrize(
    ("life", "from_", "settings", "disruption"),
    [
        pytest.param("720h", 696 * HOUR, DOVETAIL, {}, id="a day before, by default"),
        pytest.param("100h", 90 * HOUR, DOVETAIL, {}, id="or a tenth of a short life"),
        pytest.param("240h", 216 * HOUR, DOVETAIL, {}, id="a tenth that is a day"),
        pytest.param("720h", 720 * HOUR, ZERO, {}, id="0 is the same moment"),
        pytest.param("720h", 620 * HOUR, LONG, {}, id="a setting"),
        pytest.param("100h", 90 * HOUR, LONG, {}, id="a lead that is a whole life counts as a tenth"),
        pytest.param("720h", 200 * HOUR, DOVETAIL, {"expireAfter": "200h"}, id="the pool's own comes first"),
        pytest.param("720h", 696 * HOUR, DOVETAIL, {"expireAfter": "700h"}, id="the claim's comes first"),
        pytest.param("720h", 696 * HOUR, DOVETAIL, {"expireAfter": "1000h"}, id="a pool's that would come too late"),
        pytest.param("720h", 696 * HOUR, DOVETAIL, {"expireAfter": "Never"}, id="Never stops only the pool's own"),
        pytest.param("Never", 200 * HOUR, DOVETAIL, {"expireAfter": "200h"}, id="a claim that never expires"),
    ],
)
def test_from_when_a_node_counts_as_expired(
    life: str, from_: timedelta, settings: Settings, disruption: dict[str, Any]
) -> None:
    """A node counts as expired from the earlier of two moments on; the moment itself is inside."""
    assert moved(town(from_, life, settings, **disruption).act()) == ("deleteExpired", ("old",))
    before = town(from_ - SECOND, life, settings, **disruption)
    assert before.act() is None
    assert before.round().next_change == NOW + SECOND


@pytest.mark.parametrize("disruption", [{}, {"expireAfter": "Never"}])
def test_a_claim_that_never_expires_stays(disruption: dict[str, Any]) -> None:
    """Without a life of its own and of its pool a node never expires."""
    made = town(9999 * HOUR, "Never", **disruption)
    assert made.act() is None
    verdict = next(entry for entry in made.round().verdicts if entry.node == "old")
    assert verdict.verdict != "eligible"


def test_karpenters_profile_leaves_expiry_to_karpenter() -> None:
    """Under Karpenter's rules no node is retired before its time."""
    assert town(719 * HOUR, "720h", KARPENTER_1_15).act() is None


def test_the_sentence_says_when_karpenter_would_end_it() -> None:
    """People read since when it counts as expired, and when Karpenter takes it by force."""
    result = town(700 * HOUR, "720h").round()
    verdict = next(entry for entry in result.verdicts if entry.node == "old")
    gate = next(entry for entry in verdict.gates if entry.gate.value == "not-expired")
    assert gate.why == "It expired 4h ago; Karpenter ends it by force in 20h."
    assert gate.figures == {
        "expireAfter": "30d",
        "expiresAt": "2026-05-13T11:30:00Z",
        "forcedAt": "2026-05-14T11:30:00Z",
    }


def test_the_lead_does_not_change_the_lifetime_remaining() -> None:
    """The disruption cost still goes by expireAfter: a node that counts as expired early is not free to move."""
    made = town(700 * HOUR, "720h")
    figures = {entry.node: entry.disruption_cost for entry in made.round(every_method=True).methods[1].candidates}
    assert figures["old"] == pytest.approx(20 / 720)


def test_oldest_expiry_goes_first_by_the_moment_that_counts() -> None:
    """The order is by the moment from which each counts as expired."""
    made = town(700 * HOUR, "720h")  # since 4 h
    made.node("sooner", "m", age=100 * HOUR, life="110h")  # since 1 h
    made.pod("r", "sooner")
    made.node("longest", "m", age=95 * HOUR, life="100h")  # since 5 h
    made.pod("s", "longest")
    order = [entry.node for entry in made.round(every_method=True).methods[1].candidates]
    assert order == ["longest", "old", "sooner"]
