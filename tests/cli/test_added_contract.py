"""The JSON keys that the contract promises for the commands added since, each on a small cluster, exactly by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main
from tests.cli.test_plan_command import ACTION, _write
from tests.cli.test_replay_command import _recording
from tests.support.design_world import Town, kind

pytestmark = pytest.mark.usefixtures("one_core")

REPLACEMENT = {"nodePool", "instanceTypes", "capacityTypes", "zones", "requirements"}
RESULT = {
    "policy",
    "nodesStarted",
    "nodesEnded",
    "actions",
    "podsDisrupted",
    "podsDisruptedMoreThanOnce",
    "nodeHours",
    "cost",
    "medianNodeLifeSeconds",
    "shortLivedNodes",
    "pendingPodSeconds",
    "violations",
}


def _town() -> Town:
    """Return an empty node, a node that a smaller one could replace, and a node that a PDB blocks for good."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0, "consolidateAfter": "15s"})
    for name in ("empty", "large", "held"):
        town.node(name, "l")
    town.fill("large", 2, cpu="1500m")
    town.pod("guarded", "held", cpu="7000m", labels={"app": "db"})
    town.pdb("db", {"app": "db"}, allowed=0)
    return town


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """Return the small cluster as the options of a command."""
    return _write(_town(), tmp_path)


def _ask(arguments: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    assert main([*arguments, "-o", "json"]) == 0
    return json.loads(capsysbinary.readouterr().out)


def _check_action(found: dict[str, Any]) -> None:
    assert set(found) >= ACTION
    assert isinstance(found["savingsPerHour"], str)
    for replacement in found["replacements"]:
        assert set(replacement) >= REPLACEMENT
    for placement in found["placements"]:
        assert set(placement) >= {"node", "pods"}


def test_plan_to_end(options: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Steps have running totals that never decrease, and `end` repeats the last totals."""
    plan = _ask(["plan", *options, "--to-end"], capsysbinary)
    assert plan["steps"]
    saved = moved = -1.0
    for place, step in enumerate(plan["steps"], start=1):
        assert set(step) >= {"round", "actions", "costPerHour", "savedPerHour", "podsMoved"}
        assert step["round"] == place
        assert float(step["savedPerHour"]) >= saved
        assert step["podsMoved"] >= moved
        saved, moved = float(step["savedPerHour"]), step["podsMoved"]
        for action in step["actions"]:
            _check_action(action)
    end = plan["end"]
    assert set(end) >= {"nodes", "costPerHour", "savedPerHour", "podsMoved", "commands"}
    last = plan["steps"][-1]
    assert {key: end[key] for key in ("costPerHour", "savedPerHour", "podsMoved")} == {
        key: last[key] for key in ("costPerHour", "savedPerHour", "podsMoved")
    }
    assert end["commands"] == sum(len(step["actions"]) for step in plan["steps"])


def test_rounds_end_it_sooner(options: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`--rounds 1` plans one step."""
    assert len(_ask(["plan", *options, "--to-end", "--rounds", "1"], capsysbinary)["steps"]) == 1


def test_plan_compare(options: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`plan --compare` lists only the nodes that differ, each with both verdicts and the reason."""
    plan = _ask(["plan", *options, "--compare", "karpenter-1.15"], capsysbinary)
    compared = plan["compare"]
    assert set(compared) >= {"profile", "actions", "nodes"}
    assert compared["profile"] == "karpenter-1.15"
    for action in compared["actions"]:
        _check_action(action)
    assert compared["nodes"]  # None has the condition Consolidatable, which only Karpenter requires.
    own = {node["name"]: node["verdict"] for node in plan["nodes"]}
    for node in compared["nodes"]:
        assert set(node) >= {"name", "verdict", "otherVerdict", "why"}
        assert node["verdict"] != node["otherVerdict"]
        assert node["verdict"] == own[node["name"]]


def test_blockers(options: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`blockers` sorts by savings and then by name, and shows the PDB with its numbers."""
    found = _ask(["blockers", *options], capsysbinary)["blockers"]
    keys = {"kind", "name", "gate", "nodes", "savingsPerHour", "impossible", "why", "remedy"}
    assert found
    for entry in found:
        assert set(entry) >= keys
        assert isinstance(entry["impossible"], bool)
        assert entry["nodes"] >= 1
    order = [(-float(entry["savingsPerHour"]), entry["name"]) for entry in found]
    assert order == sorted(order)
    guard = next(entry for entry in found if entry["kind"] == "PodDisruptionBudget")
    assert (guard["name"], guard["gate"]) == ("default/db", "pdb")


def test_whatif(options: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`whatif` returns three results in the format of `simulate`, a recommendation and a patch."""
    answer = _ask(["whatif", *options, "--set", "consolidateAfter=5m", "--for", "10m"], capsysbinary)
    assert set(answer) >= {"baseline", "karpenter", "changed", "recommendation", "patch"}
    for key in ("baseline", "karpenter", "changed"):
        assert set(answer[key]) >= RESULT
        assert answer[key]["violations"] == []
    assert set(answer["recommendation"]) >= {"apply", "why"}
    assert answer["recommendation"]["apply"] in (True, False, None)


def test_replay(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`replay` returns means over the seeds, for three policies if you name none."""
    answer = _ask(["replay", *_recording(tmp_path), "--seeds", "1"], capsysbinary)
    assert set(answer) >= {"recorded", "policies"}
    assert [entry["policy"] for entry in answer["policies"]] == ["karpenter-1.15", "default", "recommended"]
    keys = {"policy", "seeds", "cost", "podsDisrupted", "podsDisruptedMoreThanOnce", "shortLivedNodes", "nodeHours"}
    for entry in answer["policies"]:
        assert set(entry) >= {*keys, "commands"}
        assert entry["seeds"] == 1


def test_no_key_is_spelled_otherwise(options: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """All keys are in camelCase at every depth, except names of objects and labels."""
    for command in (["plan", "--to-end", "--compare", "karpenter-1.15"], ["blockers"]):
        answer = _ask([command[0], *options, *command[1:]], capsysbinary)
        assert [key for key in _keys(answer) if "_" in key or key[:1].isupper()] == []


def _keys(tree: Any) -> list[str]:
    if isinstance(tree, list):
        return [key for item in tree for key in _keys(item)]
    if isinstance(tree, dict):
        # Feature gates and figures use names that Dovetail does not choose.
        return [*tree] + [key for name, item in tree.items() if name != "featureGates" for key in _keys(item)]
    return []


@pytest.mark.parametrize("command", [["explain", "held"], ["explain", "--all"], ["blockers"], ["plan", "--to-end"]])
def test_what_is_printed_fits_eighty_columns(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is wider than 80 columns, even with long budgets."""
    town = _town()
    hours = {"nodes": "0", "schedule": "TZ=Europe/Berlin 0 9 * * mon-fri", "duration": "8h", "reasons": ["Drifted"]}
    town.pool(disruption={"consolidateAfter": "15s", "budgets": [{"nodes": "100%"}, hours, {**hours, "nodes": "5%"}]})
    assert main([*command, *_write(town, tmp_path)]) == 0
    wide = [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
    assert wide == []
