"""How `plan` compares itself with the optimum: in text, in JSON and on the page."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.cli.main import main
from dovetail.model import names
from tests.cli.test_plan_command import _write
from tests.support.design_world import Town, kind

NET = "(Only what is saved beyond what the restarts must earn counts here.)"
"""The commands save $0.50: a reader who compares that with the bound must see why it is more."""
Options = Callable[[Town], list[str]]


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Return a function that writes a small cluster to files and returns the options that name them."""
    return lambda town: _write(town, tmp_path)


def _town(*, budget: str = "100%", policy: str = "WhenEmptyOrUnderutilized") -> Town:
    """Build three machines that cost a dollar in total; the one that stays has room for the other pods, a cent each."""
    town = Town(kind("m", "0.50", cpu=8), kind("s", "0.25", cpu=4))
    rules = {"consolidationSavingsThreshold": 0.01, "budgets": [{"nodes": budget}], "consolidationPolicy": policy}
    town.pool(disruption=rules, limits={"nodes": "0"})
    town.node("keep", "m")
    town.pod("precious", "keep", cpu="3000m", annotations={names.DO_NOT_DISRUPT: "true"})
    for name in ("one", "two"):
        town.node(name, "s")
        town.fill(name, 1, cpu="2000m")
    return town


def _asked(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["plan", *words]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_all_of_it(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    """Both small machines go at once, and no better plan exists."""
    words = options(_town())
    said = f"At most $0.48/h could be saved; this round takes $0.48. {NET}"
    assert said in _asked([*words, "-o", "wide"], capsys)
    assert "At most" not in _asked(words, capsys)
    found = json.loads(_asked([*words, "-o", "json"], capsys))["optimal"]
    assert found == {"valuePerHour": "0.48", "valuePerHourAtMost": "0.48", "reached": 1.0}
    assert "At most" not in _asked([*words, "-o", "html"], capsys)


def test_explain_folds_that_a_node_is_not_empty(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    """For a node that goes for its cost, not being empty is one of the checks that it passed."""
    assert main(["explain", "one", *options(_town())]) == 0
    shown = capsys.readouterr().out
    assert "checks passed" in shown
    assert "not-empty" not in shown


def test_a_round_reaches_less_than_the_plan_to_its_end(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    """One round removes one node and reaches half of the savings; the plan to its end reaches all."""
    words = options(_town(budget="1"))
    said = "At most $0.48/h could be saved; this round takes $0.24, later rounds the rest."
    assert said in _asked([*words, "-o", "wide"], capsys)
    said = f"No packing of the nodes that may go now saves more than $0.48/h. {NET}"
    assert said in _asked([*words, "--to-end", "-o", "wide"], capsys)
    document = json.loads(_asked([*words, "--to-end", "-o", "json"], capsys))
    assert document["optimal"]["reached"] == 0.5
    assert document["end"]["optimal"] == {"valuePerHour": "0.48", "valuePerHourAtMost": "0.48", "reached": 1.0}


@pytest.mark.parametrize(
    ("town", "said"),
    [
        (_town(budget="0"), "At most $0.48/h could be saved; this round takes nothing of it, later rounds the rest."),
        (_town(policy="WhenEmpty"), ""),
    ],
    ids=["a budget is in the way", "no node may go"],
)
def test_nothing_is_done(
    town: Town, said: str, options: Options, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """The possible savings are shown if a budget blocks them, and omitted if no node may go at all."""
    words = options(town)
    text = _asked([*words, "-o", "wide"], capsys)
    assert said in text
    assert ("At most" in text) == bool(said)
    assert (json.loads(_asked([*words, "-o", "json"], capsys))["optimal"] is not None) == bool(said)


def test_full_machines(options: Options, capsys: pytest.CaptureFixture[str]) -> None:
    """If all machines are full and there is only one type, the plan says that nothing can be saved."""
    town = Town(kind("m", "0.50", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0.01})
    for name in ("one", "two"):
        town.node(name, "m")
        town.fill(name, 2, cpu="2000m")
    words = options(town)
    assert "no set of the nodes that may go now is worth its restarts." in _asked([*words, "-o", "wide"], capsys)
    found = json.loads(_asked([*words, "-o", "json"], capsys))["optimal"]
    assert found == {"valuePerHour": "0", "valuePerHourAtMost": "0", "reached": None}
