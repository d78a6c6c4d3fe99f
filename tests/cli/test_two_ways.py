"""The same question, asked in two ways, has one answer: `plan`, `--to-end`, `--compare`, `diff` on golden clusters."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main
from tests.support.golden_cases import DATA, golden_case
from tests.support.sizes import size

BY_VALUE = {"search": "value", "replacementsMax": 3}
POLICIES = {
    "dovetail": (),
    "karpenter-1.15": ("--profile", "karpenter-1.15"),
    "recommended": ("--policy", "recommended"),
    "by value": ("--settings", "value.json"),
}
CASES = ("001", "E02", "P56", "003", "P30", "012", "E04")[: size(test=2, ci=4, long=7)]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files that the commands name."""
    monkeypatch.chdir(tmp_path)
    Path("value.json").write_text(json.dumps(BY_VALUE))
    change = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one-more"}}
    Path("change.json").write_text(json.dumps(change))


def _inputs(case: str) -> list[str]:
    folder = DATA / case
    now = golden_case(case).now.strftime("%Y-%m-%dT%H:%M:%SZ")
    catalogue = str(folder / "catalog.json.gz")
    return ["-f", str(folder / "cluster.json.gz"), "--catalog", catalogue, "--now", now, "--partial"]


def _said(words: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> str:
    assert main(words) == 0
    return capsysbinary.readouterr().out.decode()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", CASES)
def test_a_plan_its_end_and_a_change_of_nothing_agree(
    case: str, policy: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The first round of `--to-end` is the plan, its end is the plan's first sentence, and `diff` has both."""

    def ask(command: str, *words: str) -> Any:
        return json.loads(_said([command, *_inputs(case), *POLICIES[policy], *words, "-o", "json"], capsysbinary))

    plan, end, change = ask("plan"), ask("plan", "--to-end"), ask("diff", "--change", "change.json")
    assert end["nodes"] == plan["nodes"]
    assert [step["actions"] for step in end["steps"][:1]] == ([plan["actions"]] if plan["actions"] else [])
    saved = sum(float(entry["savingsPerHour"]) for step in end["steps"] for entry in step["actions"])
    assert float(end["end"]["savedPerHour"]) == pytest.approx(saved, abs=1e-9)
    assert change["before"] == change["after"]
    assert change["before"]["actions"] == len(plan["actions"])
    assert change["before"]["endCostPerHour"] == end["end"]["costPerHour"]
    assert change["before"]["endPodsMoved"] == end["end"]["podsMoved"]
    going = {name for entry in plan["actions"] for name in entry["nodes"]}
    assert {row["verdict"] for row in plan["nodes"] if row["name"] in going} <= {"eligible"}
    text = " ".join(_said(["plan", *_inputs(case), *POLICIES[policy]], capsysbinary).split())
    told = re.search(r"In all \$([\d.,]+)/h", text)
    assert (told is not None) == (float(end["end"]["savedPerHour"]) > 0)
    if told is not None:
        assert float(told[1].replace(",", "")) == pytest.approx(saved, rel=1e-3, abs=6e-3)


@pytest.mark.parametrize("other", ["karpenter-1.15", "recommended"])
@pytest.mark.parametrize("case", CASES)
def test_a_comparison_is_of_two_plans(case: str, other: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`--compare` has the other plan's commands, and the nodes whose verdicts differ between both plans."""

    def ask(*words: str) -> Any:
        return json.loads(_said(["plan", *_inputs(case), *words, "-o", "json"], capsysbinary))

    plan, theirs, both = ask(), ask(*POLICIES[other]), ask("--compare", other)
    assert both["actions"] == plan["actions"]
    assert both["compare"]["actions"] == theirs["actions"]
    verdicts = {row["name"]: row["verdict"] for row in theirs["nodes"]}
    differing = {row["name"]: (row["verdict"], verdicts[row["name"]]) for row in plan["nodes"]}
    differing = {name: pair for name, pair in differing.items() if pair[0] != pair[1]}
    assert {row["name"]: (row["verdict"], row["otherVerdict"]) for row in both["compare"]["nodes"]} == differing
