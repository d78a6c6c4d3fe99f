"""What is paid, on the plan's page, in the live view and in `dovetail top`."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import jsonschema
import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.decide.work import Work
from dovetail.model.money import as_float
from dovetail.plan.pages.page import plan_page
from dovetail.ui.command_bills import CommandBills
from dovetail.ui.commands import CommandNow
from dovetail.ui.document import live_document, sample_of
from dovetail.ui.history import History
from dovetail.ui.lives import LivesSeen
from dovetail.ui.sources import Status
from dovetail.ui.terminal import Screen, render
from dovetail.ui.watcher import Watcher
from tests.paths import ROOT
from tests.support.commitments import paying, plan, reserved
from tests.support.design_world import Town, kind

COMMITMENTS = [reserved(1, "m", name="ri-m"), plan("0.20", "50%", name="plan <2026>")]


def _question(*commitments: Any) -> Question:
    """Return three nodes of $0.10 an hour."""
    town = Town(kind("m", "0.10"), settings=paying(commitments=list(commitments)))
    town.pool(disruption={"consolidateAfter": "Never"})
    for name in ("a", "b", "c"):
        town.node(name, "m")
        town.pod(f"p-{name}", name)
    return Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)


def _live(question: Question) -> dict[str, Any]:
    decider, history = Decider(), History()
    scene = decider.scene(question)
    result = decider.round(question)
    assert sample_of(question, scene, result, 0).cost == pytest.approx(float(result.cost_per_hour) / 10**18)
    status = Status(kind="capture", name="a.json", problem="", speed=-1, ended=False)
    return live_document(question, Work(scene), result, (), history, LivesSeen(), status)


def test_the_live_view_has_the_bill_and_what_is_used() -> None:
    """One machine is reserved, two are covered at half price by half of a plan: $0.20 committed, nothing else."""
    document = _live(_question(*COMMITMENTS))
    money = document["money"]
    assert money["costPerHour"] == 0.2
    assert money["commitments"] == [
        {"name": "ri-m", "kind": "reserved instances", "usedShare": 1.0, "free": "0 of 1 machines are free"},
        {"name": "plan <2026>", "kind": "savings plan", "usedShare": 0.5, "free": "$0.10/h of $0.20/h is free"},
    ]
    assert money["paid"].startswith("Of $0.20/h ($146 a month) $0.20/h is committed")
    schema = json.loads((ROOT / "src/dovetail/report/schemas/live.schema.json").read_text())
    jsonschema.validate(money, {**schema["$defs"]["Money"], "$defs": schema["$defs"]})


def test_without_commitments_nothing_is_added() -> None:
    """The cost is the sum of the prices, and there is no bill to show."""
    money = _live(_question())["money"]
    assert (money["costPerHour"], money["paid"], money["commitments"]) == (0.3, "", [])
    assert "<h2>What is paid" not in plan_page(Decider().round(_question()))


def test_the_page_of_a_plan_says_what_is_used() -> None:
    """A table with each commitment, and the bill in a sentence; names are escaped."""
    page = plan_page(Decider().round(_question(*COMMITMENTS)))
    assert "<h2>What is paid" in page
    assert "plan &lt;2026&gt;" in page
    assert "plan <2026>" not in page
    assert ">50%</td>" in page
    assert "$0.10/h of $0.20/h is free" in page


def test_top_lists_commitments_under_the_checks() -> None:
    """One line each, and the list can be scrolled to its end."""
    document = _live(_question(*COMMITMENTS))
    document["outcomes"] = {"commands": 0}
    lines = ["".join(text for text, _ in line) for line in render(document, "", Screen(tab="checks"), 100, 30)]
    assert any("plan <2026>: 50% used, $0.10/h of $0.20/h is free" in line for line in lines)


class _Source:
    """Shows one cluster after the other; commands in between came and went unseen."""

    def __init__(self, *shown: Question, passed: Sequence[CommandNow] = ()) -> None:
        self._shown, self._passed = list(shown), tuple(passed)

    def question(self) -> Question:
        return self._shown.pop(0)

    def status(self) -> Status:
        return Status(kind="capture", name="a.json", problem="", speed=-1, ended=not self._shown)

    def passed(self) -> tuple[CommandNow, ...]:
        return self._passed if len(self._shown) == 2 else ()


def _without(question: Question, *gone: str) -> Question:
    """Return the cluster two hours later, without some nodes and their pods."""
    cluster = question.cluster
    return replace(
        question,
        now=question.now + timedelta(hours=2),
        cluster=replace(
            cluster,
            nodes=tuple(node for node in cluster.nodes if node.metadata.name not in gone),
            node_claims=tuple(claim for claim in cluster.node_claims if claim.status.node_name not in gone),
            pods=tuple(pod for pod in cluster.pods if pod.spec.node_name not in gone),
        ),
    )


def _passed(ident: str, question: Question, *nodes: str) -> CommandNow:
    return CommandNow(
        id=ident, by="dovetail", action="deleteCost", reason="Underutilized", since=question.now, nodes=nodes,
        replacements=(), steps=(), pods_left=0,
    )  # fmt: skip


@pytest.mark.parametrize(("machines", "saved"), [(0, 0.20), (1, 0.20), (2, 0.10), (3, 0.0)])
@pytest.mark.parametrize("together", [True, False])
def test_what_was_saved_is_the_difference_of_the_bills(machines: int, saved: float, together: bool) -> None:
    """Two of three nodes of $0.10 go: those that a reservation pays for save nothing, in one command or in two."""
    before = _question(*([reserved(machines, "m")] if machines else []))
    after = _without(before, "a", "b")
    later = _without(after)
    bills = [Decider().round(each).cost_per_hour / 10**18 for each in (before, after)]
    assert bills[0] - bills[1] == pytest.approx(saved)
    commands = [("a", "b")] if together else [("a",), ("b",)]
    passed = [_passed(f"c{place}", before, *nodes) for place, nodes in enumerate(commands)]
    watcher = Watcher(cast("Any", _Source(before, after, later, passed=passed)), History())
    watcher.look()
    assert watcher.look()
    assert watcher.document is not None
    assert watcher.document["money"]["commands"] == len(commands)
    told = [entry["text"] for entry in watcher.document["history"]["events"] if entry["kind"] == "ended"]
    assert len(told) == len(commands)
    assert all(text.endswith("is done") for text in told)  # not undone: they began after the first look
    assert watcher.document["money"]["savedPerHour"] == pytest.approx(saved)
    watcher.look()  # an hour later it is known what came of it
    assert watcher.document["outcomes"]["promised"] == pytest.approx(saved)


def test_commands_one_after_the_other_add_up_to_the_bills() -> None:
    """What each took off less what it added is the whole difference, also if a node is gone already."""
    town = Town(kind("m", "0.10"), kind("s", "0.04"), settings=paying(commitments=[reserved(2, "m")]))
    town.pool(disruption={"consolidateAfter": "Never"})
    for name in ("a", "b", "c", "new"):
        town.node(name, "s" if name == "new" else "m")
    town.node("gone", "m")
    whole = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    known = Decider().scene(whole).billing.machines
    billing = Decider().scene(_without(whole, "gone")).billing
    found = billing.in_turn([(("gone",), ()), (("a", "b"), ("new",))], known)
    dollars = [(as_float(went), as_float(came)) for went, came in found]
    assert dollars == [(0.10, 0.0), (0.10, 0.04)]
    ended = _without(whole, "gone", "a", "b")
    before = Decider().scene(_without(whole, "new")).billing.staying
    assert sum(went - came for went, came in found) == before - Decider().scene(ended).billing.staying


def test_a_command_keeps_what_it_took_off_when_it_began() -> None:
    """A node that is opened later and uses the reservation does not change what the command before it saved."""
    before = _question(reserved(2, "m"))
    bills, command = CommandBills(), _passed("c", before, "a", "b")
    first = bills.take(Decider().scene(before).billing, [command])["c"]
    assert (first.went, first.came) == (pytest.approx(0.10), 0.0)
    town = Town(kind("m", "0.10"), settings=paying(commitments=[reserved(2, "m")]))
    town.pool(disruption={"consolidateAfter": "Never"})
    for name in ("c", "d", "e"):
        town.node(name, "m")
    later = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    assert bills.take(Decider().scene(later).billing, [command])["c"] == first
    fresh = CommandBills()
    fresh.take(Decider().scene(before).billing, [])
    assert fresh.take(Decider().scene(later).billing, [command])["c"].went == pytest.approx(0.20)
