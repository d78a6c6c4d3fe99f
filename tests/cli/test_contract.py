"""What the command line promises to scripts, tried as a script would: keys, lists and sentences of every command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main
from dovetail.model import names
from tests.cli.test_plan_command import _write
from tests.designs.world import Town, kind

METHODS = ["empty", "expired", "drifted", "multiNode", "singleNode"]


@pytest.fixture
def plan(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Any]:
    """A function that plans a town from files and gives the JSON."""

    def ask(town: Town, *more: str) -> Any:
        assert main(["plan", *_write(town, tmp_path), "-o", "json", *more]) == 0
        return json.loads(capsysbinary.readouterr().out)

    return ask


def _idle_and_wide() -> Town:
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool()
    town.node("idle", "m")
    town.node("wide", "l")
    town.fill("wide", 2, cpu="1000m")
    return town


def test_every_method_is_listed_though_one_acts(plan: Callable[..., Any]) -> None:
    """A method that was not asked, because one before it acts, is listed with its candidates and without an action."""
    found = plan(_idle_and_wide())
    assert [entry["method"] for entry in found["methods"]] == METHODS
    assert [len(entry["actions"]) for entry in found["methods"]] == [1, 0, 0, 0, 0]
    assert [entry["node"] for entry in found["methods"][4]["candidates"]] == ["wide"]
    assert found["methods"][4]["budget"] == {"default": 2}


def test_every_candidate_needs_no_other_flag(plan: Callable[..., Any]) -> None:
    """`--every-candidate` alone tells of every candidate of drift and of one-node cost, whoever acts."""
    found = plan(_idle_and_wide(), "--every-candidate")
    alone = {entry["method"]: entry["perCandidate"] for entry in found["methods"] if "perCandidate" in entry}
    assert list(alone) == ["drifted", "singleNode"]
    assert [entry["node"] for entry in alone["singleNode"]] == ["wide"]


def test_explain_names_the_first_closed_gate(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """A pod that can't move stops its node at the simulation though no machine would be cheap enough either.

    The sentence names the pod once.
    """
    town = Town(kind("m", "0.20", cpu=4))
    town.pool()
    town.node("n1", "m")
    town.pod("bound", "n1", spec={"nodeSelector": {names.HOSTNAME: "n1"}})
    assert main(["explain", "n1", *_write(town, tmp_path), "-o", "json"]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    assert found["verdict"] == "simulation"
    assert found["why"].startswith("Pod default/bound finds no place: no other node")
    assert found["why"].count("default/bound") == 1
