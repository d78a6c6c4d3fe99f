"""The whole before the round: what a plan leads with, and how `--to-end` answers."""

from dataclasses import replace
from datetime import timedelta

import pytest

from dovetail.decide.question import Question
from dovetail.model.money import UNIT
from dovetail.plan import whole
from dovetail.plan.to_end import plan_to_end
from dovetail.plan.to_end_text import folded, to_end_text
from dovetail.plan.whole import END_NODES_MAX, hint_text, monthly, rough, rounds_within, the_end, whole_text
from tests.plan.test_to_end import _question, _town
from tests.support.design_world import Town, kind


def _empties(number: int, nodes: str = "1") -> Question:
    town = Town(kind("m", "0.50"))
    town.pool(disruption={"budgets": [{"nodes": nodes}]})
    for place in range(number):
        town.node(f"n{place}", "m")
    return _question(town)


def test_the_sentence_has_money_share_restarts_nodes_and_length() -> None:
    """Money per hour and month, percent, nodes, restarts, and how long it takes by the budget."""
    assert whole_text(plan_to_end(_empties(4))) == (
        "In all $2.00/h (100 %, $1,460 a month) can be saved: 4 → 0 nodes, 0 pod restarts, about 2 minutes, paced by "
        "the budget of NodePool default (nodes: 1)."
    )


def test_nothing_to_do_has_no_sentence() -> None:
    """A plan without rounds leads with nothing."""
    assert whole_text(plan_to_end(_empties(1, "0"))) == ""


def test_rounds_that_cost_more_say_so() -> None:
    """Drift may cost money: the sentence does not call that a saving."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationPolicy": "WhenEmpty"})
    town.node("old", "m", drifted=timedelta(hours=1))
    town.fill("old", 3, cpu="900m")
    assert whole_text(plan_to_end(_question(town))).startswith("In all 1 command, which save nothing: 1 → 1 nodes, 3 ")


def test_a_plan_that_was_stopped_says_so() -> None:
    """With --rounds the sentence does not claim the end."""
    assert "can be saved so far; more rounds are left: " in whole_text(plan_to_end(_empties(4), 2))


def test_a_large_cluster_gets_a_hint() -> None:
    """Above the limit the rounds are not asked for, and the hint names the option."""
    question = _empties(2)
    nodes = tuple(question.cluster.nodes) * (END_NODES_MAX // 2 + 1)
    large = replace(question, cluster=replace(question.cluster, nodes=nodes))
    assert the_end(large) is None
    assert "add --to-end (1,002 nodes" in hint_text(large)


def test_the_work_is_bounded_by_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that needs more rounds than the work allows is not given as the whole."""
    assert the_end(_empties(4)) is not None
    monkeypatch.setattr(whole, "_WORK_MAX", 8)
    assert rounds_within(4) == 2
    assert the_end(_empties(4)) is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(10, "about a minute"), (95, "about 2 minutes"), (1500, "about 25 minutes"), (11000, "about 3 hours")],
)
def test_lengths_are_said_roughly(seconds: float, said: str) -> None:
    """An estimate is not given to the second."""
    assert rough(seconds) == said
    assert rough(3 * 86400) == "about 3 days"


def test_a_month_has_730_hours() -> None:
    """Money per month is the hourly amount times 730, without cents from 100 dollars on."""
    assert monthly(20 * UNIT) == "$14,600"
    assert monthly(UNIT // 100) == "$7.30"
    assert monthly(-UNIT) == "-$730"


def test_rounds_of_one_kind_are_folded() -> None:
    """Two rounds that delete empty nodes are one row with their sums; totals run on."""
    plan = plan_to_end(_question(_town()))
    rows = list(folded(plan))
    assert [row.rounds for row in rows] == ["1-2", "3"]
    assert [len(row.nodes) for row in rows] == [2, 1]
    assert rows[-1].saved == plan.saved
    assert sum(row.saves for row in rows) == plan.saved
    assert sum(row.restarts for row in rows) == rows[-1].restarted == plan.pods_moved
    assert [row.rounds for row in folded(plan, fold=False)] == ["1", "2", "3"]


def test_the_end_comes_first_in_words() -> None:
    """The second line is the end; every column of the table has a legend."""
    text = to_end_text(plan_to_end(_question(_town())))
    lines = text.splitlines()
    assert lines[1].startswith("In all $")
    assert "NODES: which go → what is launched first." in text
    assert "TOTAL/H" in text
    assert max(map(len, lines)) <= 80


def test_no_bound_is_printed_for_other_actions() -> None:
    """The bound speaks of savings; a plan with drift in it has none, and none is printed."""
    plan = plan_to_end(_question(_town()))
    assert plan.optimal is None
    assert "No packing" not in to_end_text(plan, wide=True)
