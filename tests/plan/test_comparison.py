"""`plan --compare`: another profile on the same input, the nodes that differ, and the rule behind each."""

from dataclasses import replace

from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.model import names
from dovetail.model.settings import KARPENTER_1_15
from dovetail.plan.comparison import compare, comparison_text
from dovetail.plan.pages.page_sections import comparison_section
from tests.support.design_world import Town, kind

CONSOLIDATABLE = {"type": "Consolidatable", "status": "True"}


def _compared(town: Town):  # type: ignore[no-untyped-def]
    question = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    own = Decider().round(question)
    return compare(own, Decider().round(replace(question, settings=KARPENTER_1_15)))


def test_a_move_below_the_threshold_is_karpenters_alone() -> None:
    """Karpenter takes a saving that the threshold refuses; the difference names the rule."""
    town = Town(kind("l", "0.21", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0.5})
    town.node("dear", "l", conditions=[CONSOLIDATABLE])
    town.fill("dear", 3)
    comparison = _compared(town)
    document = comparison.to_dict()
    assert document["profile"] == "karpenter-1.15"
    assert [entry["action"] for entry in document["actions"]] == ["replaceCost"]
    (entry,) = document["nodes"]
    assert (entry["name"], entry["verdict"], entry["otherVerdict"]) == ("dear", "savings-threshold", "eligible")
    assert "karpenter-1.15 has no savings threshold" in entry["why"]


def test_nodes_with_one_verdict_are_left_out() -> None:
    """Only nodes that differ are listed."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool()
    town.node("held", "m", conditions=[CONSOLIDATABLE])
    town.pod("precious", "held", annotations={names.DO_NOT_DISRUPT: "true"})
    comparison = _compared(town)
    assert comparison.to_dict()["nodes"] == []
    assert "same verdict" in comparison_text(comparison)


def test_the_page_groups_nodes_that_differ_alike() -> None:
    """Thirty nodes that differ for one reason are one row; both sides' rounds stand above it."""
    town = Town(kind("l", "0.21", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0.5})
    for number in range(30):
        town.node(f"n{number:02}", "l", conditions=[CONSOLIDATABLE])
        town.fill(f"n{number:02}", 3, cpu="1400m")
    section = comparison_section(_compared(town))
    assert "<h3>30 nodes differ</h3>" in section
    assert section.count("karpenter-1.15 has no savings threshold") == 1
    assert "and 18 more" in section
    assert section.count("<td>karpenter-1.15</td>") == 1


def test_the_text_fits_eighty_columns() -> None:
    """The table fits, however long the names are."""
    town = Town(kind("l", "0.21", cpu=8), kind("m", "0.20", cpu=4))
    town.pool("a-pool-with-a-rather-long-name-indeed", disruption={"consolidationSavingsThreshold": 0.5})
    for number in range(30):
        name = f"ip-10-0-{number}-17.eu-west-1.compute.internal"
        town.node(name, "l", conditions=[CONSOLIDATABLE], pool="a-pool-with-a-rather-long-name-indeed")
        town.fill(name, 3, cpu="1400m")
    text = comparison_text(_compared(town))
    assert max(map(len, text.splitlines())) <= 80
