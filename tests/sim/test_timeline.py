"""A run's timeline agrees with its figures and shows how every machine ended."""

import json
import re
from collections import Counter

import jsonschema
import pytest

from dovetail.report.words import count
from dovetail.sim.compare import Comparison
from dovetail.sim.ledger import Result
from dovetail.sim.pages.run_document import run_document
from dovetail.sim.pages.story import featured, headline, story, theme, zones_at_once
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import Scenario, load_scenario
from dovetail.sim.timeline import STAYS
from tests.paths import ROOT

pytestmark = pytest.mark.xdist_group("timeline")  # they share `comparisons`
_HOUR = 3600 * 10**9
_SCHEMA = json.loads((ROOT / "src/dovetail/report/schemas/run.schema.json").read_text())


def _run(scenario: Scenario, hours: float) -> tuple[Result, ...]:
    chosen = (scenario.policies[0], scenario.policies[-1])
    return tuple(run_scenario(scenario, policy, until=int(hours * _HOUR)) for policy in chosen)


@pytest.fixture(scope="module")
def comparisons() -> dict[str, Comparison]:
    """Return short runs of the scenarios that differ most."""
    made = {}
    for name, hours in (("issue-7146", 1.0), ("image-roll", 1.0), ("spot-market", 3.0), ("fleet-expiry", 4.5)):
        scenario = load_scenario(name)
        until = int(hours * _HOUR)
        made[name] = Comparison(
            scenario=name,
            about=scenario.about,
            seed=0,
            until=until,
            results=_run(scenario, hours),
            start=scenario.start,
        )
    return made


@pytest.mark.parametrize("name", ["issue-7146", "image-roll", "spot-market", "fleet-expiry"])
def test_the_timeline_agrees_with_the_figures(comparisons: dict[str, Comparison], name: str) -> None:
    """Machines, moves, commands and machines at the end equal the figures."""
    for result in comparisons[name].results:
        timeline = result.timeline
        lives = sorted((life.node, life.zone, life.type) for life in result.lives)
        assert sorted((entry.name, entry.zone, entry.type) for entry in timeline.machines) == lives
        assert sum(timeline.stays.moved) == result.pods_disrupted
        assert sum(entry.started > 0 for entry in timeline.machines) == result.nodes_started
        assert sum(entry.ended != STAYS for entry in timeline.machines) == result.nodes_ended
        assert Counter(entry.action for entry in timeline.commands) == Counter(result.actions)
        running = [entry for entry in timeline.machines if entry.ended == STAYS]
        assert len(running) == result.nodes_at_end
        assert {entry.fate for entry in running} <= {"kept"}


def test_pods_are_on_one_machine_that_is_there(comparisons: dict[str, Comparison]) -> None:
    """A stay begins after its machine has started and ends before it is long gone; waits are not negative."""
    for comparison in comparisons.values():
        for result in comparison.results:
            stays, machines = result.timeline.stays, result.timeline.machines
            assert len(stays)
            for row in range(len(stays)):
                if stays.machine[row] < 0:
                    continue
                machine = machines[stays.machine[row]]
                assert stays.began[row] >= max(0.0, machine.started)
                assert stays.began[row] >= stays.created[row]


def test_every_fate_is_told(comparisons: dict[str, Comparison]) -> None:
    """Nodes drained for cost, drift or being empty, interrupted ones, dead ones and expired ones are distinguished."""
    fates = {
        entry.fate
        for comparison in comparisons.values()
        for result in comparison.results
        for entry in result.timeline.machines
    }
    assert {"kept", "cost", "drifted", "empty", "interrupted", "died", "expired"} <= fates
    roll = comparisons["image-roll"].results[0].timeline
    assert Counter(entry.fate for entry in roll.machines)["drifted"] == 15
    for machine in roll.machines:
        if machine.fate == "drifted":
            assert machine.name in roll.commands[machine.command].nodes
            assert machine.leaving <= machine.ended


@pytest.mark.parametrize("name", ["issue-7146", "image-roll", "spot-market", "fleet-expiry"])
def test_the_document_keeps_its_schema(comparisons: dict[str, Comparison], name: str) -> None:
    """The page's data matches the schema, and all columns of a table have the same length."""
    document = json.loads(json.dumps(run_document(comparisons[name].story(), name)))
    jsonschema.validate(document, _SCHEMA)
    for policy in document["policies"]:
        for part in ("machines", "stays", "workloads"):
            assert len({len(column) for column in policy[part].values()}) == 1, part


def test_a_document_that_would_be_too_large_leaves_pods_out(
    comparisons: dict[str, Comparison], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit stays are left out, and the document says so."""
    monkeypatch.setattr("dovetail.sim.pages.run_document.STAYS_MAX", 10)
    document = run_document(comparisons["issue-7146"].story(), "x")
    assert document["podsShown"] is False
    assert all(policy["stays"]["machine"] == [] for policy in document["policies"])
    assert all(policy["machines"]["name"] for policy in document["policies"])


def test_the_story_is_about_what_happened(comparisons: dict[str, Comparison]) -> None:
    """A roll is described by its zones, consolidation by what it saves; the cards beside it have the other figures."""
    roll = comparisons["image-roll"].story()
    assert theme(roll.results) == "drifted"
    told = story(roll)
    assert len(told) == 3
    assert all("zone" in sentence for sentence in told)
    before, after = featured(roll)
    assert f"{zones_at_once(before, 'drifted')} of 3 zones" in told[0]
    assert zones_at_once(after, "drifted") == 1
    assert "one zone at a time" in told[1] or "one zone after the other" in told[1]

    assert headline(roll).startswith("Same cluster, 1 zone at once instead of ")

    money = comparisons["issue-7146"].story()
    assert re.fullmatch(r"Same cluster, [\d.]+ % fewer restarts, [\d.]+ % higher bill", headline(money))
    assert theme(money.results) == "cost"
    told = story(money)
    assert featured(money)[0].policy in told[0]
    assert count(len(featured(money)[0].timeline.commands), "cost command") in told[0]
    assert "$" in told[0]
    assert "The bill was $" in told[2]

    assert "by force" in story(comparisons["fleet-expiry"].story())[0]


def test_one_policy_alone_has_a_story(comparisons: dict[str, Comparison]) -> None:
    """A single policy has a story without a comparison."""
    whole = comparisons["issue-7146"]
    alone = Comparison(
        scenario="x", about="", seed=0, until=whole.until, results=whole.results[:1], start=whole.start
    ).story()
    told = story(alone)
    assert len(told) == 2
    assert "instead of" not in " ".join(told)
