"""What `plan` says first about what to change: the thing worth most that a person could do."""

from dataclasses import replace
from datetime import timedelta

import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.model import names
from dovetail.plan import remedy
from dovetail.plan.remedy import NOT_MANAGED, first_remedy
from tests.support.design_world import Town, kind

KEEP = {names.DO_NOT_DISRUPT: "true"}


def _question(town: Town) -> Question:
    return Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)


def _said(town: Town) -> str:
    question = _question(town)
    return first_remedy(question, Decider().round(question))


def _town(after: str = "0s") -> Town:
    """Return a node that a pod protects, one with a young pod, and one with room for both."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0, "consolidateAfter": after}, limits={"nodes": "0"})
    town.node("room", "l")
    town.pod("anchor", "room", cpu="4000m", annotations=KEEP)
    town.node("kept", "m")
    town.pod("kept", "kept", cpu="1000m", annotations=KEEP)
    return town


def test_it_is_the_first_of_the_blockers_with_its_money() -> None:
    """The figure is that of `dovetail blockers`, with the month beside it."""
    said = _said(_town())
    assert said.startswith("First thing to change: Workload default/rs (pod-do-not-disrupt), which holds back ")
    assert "$0.20/h ($146 a month). Take karpenter.sh/do-not-disrupt off" in said


@pytest.mark.parametrize(("after", "first"), [("5m", "Workload"), ("6h", "NodePool")])
def test_a_timer_of_minutes_is_no_remedy(after: str, first: str) -> None:
    """Five minutes of consolidateAfter pass by themselves though worth more; six hours deserve a thought."""
    town = _town(after)
    for name in ("young-1", "young-2"):
        town.node(name, "m", idle=timedelta(seconds=30))
        town.pod(name, name, cpu="1000m")
    assert _said(town).split()[4] == first


def test_a_packed_cluster_has_nothing_to_change() -> None:
    """Where no cheaper machine fits the pods, the plan says so and names no setting."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    for name in ("one", "two"):
        town.node(name, "m")
        town.fill(name, 4, cpu="900m")
    assert _said(town) == "Nothing to change: no cheaper set of nodes fits the pods of those that stay."


def test_what_waits_for_a_timer_alone_opens_by_itself() -> None:
    """If only a short timer holds nodes, there is nothing to change."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidateAfter": "5m"})
    town.node("one", "m", idle=timedelta(seconds=30))
    assert _said(town) == "Nothing to change: what waits (consolidate-after) opens by itself."


def test_a_cluster_without_a_pool_is_not_karpenters() -> None:
    """Without any NodePool the catalogue is not the problem."""
    town = _town()
    question = _question(town)
    question = replace(question, cluster=replace(question.cluster, node_pools=(), node_claims=()))
    assert first_remedy(question, Decider().round(question)) == NOT_MANAGED


def test_a_catalogue_without_prices_comes_first() -> None:
    """Where prices are unknown nothing can be said about money, so the catalogue is the first thing to change."""
    town = _town()
    question = replace(_question(town), catalogue=Town(kind("other", "1")).catalogue)
    assert first_remedy(question, Decider().round(question)).startswith("First thing to change: the catalogue.")


def test_nothing_is_said_where_nothing_is_held_back() -> None:
    """A plan that takes every node needs no remedy."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool()
    town.node("one", "m")
    assert _said(town) == ""


def test_a_large_cluster_is_judged_by_what_its_nodes_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where lifting every blocker would take long, the gate that holds the dearest nodes decides, without a figure."""
    monkeypatch.setattr(remedy, "BLOCKERS_NODES_MAX", 1)
    town = _town()
    town.node("young", "m", idle=timedelta(seconds=0))
    said = _said(town)
    assert said.startswith("First thing to change: take do-not-disrupt off pods that can bear a restart.")
    assert said.endswith("`dovetail blockers` ranks what to change by money.")
