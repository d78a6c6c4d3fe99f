"""What the command line promises to scripts, called as a script would: keys, lists and sentences of every command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main
from dovetail.model import names
from tests.cli.test_plan_command import _write
from tests.support.design_world import Town, kind

METHODS = ["empty", "expired", "drifted", "multiNode", "singleNode"]


@pytest.fixture
def plan(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Any]:
    """Return a function that plans a small cluster from files and returns the JSON."""

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
    """A method that did not run because an earlier one acts is listed with its candidates and without an action."""
    found = plan(_idle_and_wide())
    assert [entry["method"] for entry in found["methods"]] == METHODS
    assert [len(entry["actions"]) for entry in found["methods"]] == [1, 0, 0, 0, 0]
    assert [entry["node"] for entry in found["methods"][4]["candidates"]] == ["wide"]
    assert found["methods"][4]["budget"] == {"default": 2}


def test_every_candidate_needs_no_other_flag(plan: Callable[..., Any]) -> None:
    """`--every-candidate` alone lists every candidate of drift and of one-node cost, whichever method acts."""
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


def _plan_objects(tmp_path: Path, items: list[dict[str, Any]], *more: str) -> int:
    town = Town(kind("m", "0.20", cpu=4))
    town.pool()
    town.node("n1", "m")
    town.pod("a", "n1")
    options = _write(town, tmp_path)
    (tmp_path / "more.json").write_text(json.dumps({"kind": "List", "items": items}))
    return main(["plan", *options, "-f", str(tmp_path / "more.json"), "-o", "json", *more])


def _pool(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"limits": {"cpu": "many"}}, "spec.limits.cpu"),
        (
            {"template": {"spec": {"requirements": [{"key": "a", "operator": "Is"}]}}},
            "spec.template.spec.requirements[0].operator",
        ),
        ({"replicas": -2}, "spec.replicas"),
        ({"weight": 1000}, "spec.weight"),
        ({"weight": "ten"}, "spec.weight"),
        ({"disruption": {"consolidateAfter": 30}}, "spec.disruption.consolidateAfter"),
        ({"disruption": {"budgets": 1}}, "spec.disruption.budgets"),
    ],
)
def test_a_broken_pool_is_a_warning(
    spec: dict[str, Any], path: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """An invalid pool field closes the gate that reads it and is a warning; the plan continues."""
    assert _plan_objects(tmp_path, [_pool(spec)]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    assert [text for text in found["warnings"] if text.startswith(f"NodePool default: {path} ")]
    assert all(not entry["replacements"] for entry in found["actions"])


def test_a_budget_that_is_null_allows_nothing(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`budgets: [null]` is a budget that can't be read, not a pool without budgets, which would have no limit."""
    assert _plan_objects(tmp_path, [_pool({"disruption": {"budgets": [None]}})]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    assert [entry["left"] for entry in found["budgets"]] == [0, 0, 0, 0]
    assert found["warnings"]


def test_an_amount_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pod that requests `--` of cpu fails with one sentence that names pod and field, and exit status 2."""
    containers = [{"resources": {"requests": {"cpu": "--"}}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd"}, "spec": {"containers": containers}}
    assert _plan_objects(tmp_path, [pod]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("dovetail: Pod default/odd: spec.containers[0].resources.requests.cpu: '--' is not")
    assert said.err.count("\n") == 1


def test_words_name_only_pods_that_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pending pod that would land next to the moved pods is not listed as a pod that the command restarts."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool()
    town.node("big", "l")
    town.node("small", "m")
    town.fill("small", 1, cpu="1000m")
    town.fill("big", 3, cpu="1000m")
    town.pod("waiting", cpu="500m")
    assert main(["plan", *_write(town, tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "restarts 1 pod" in said
    assert "waiting" not in said


def test_place_in_words_is_safe_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`place` escapes control characters in names before they reach the terminal."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool()
    town.pod("odd\x1b[31m", cpu="99000m")
    assert main(["place", *_write(town, tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "finds no place" in said
    assert "\x1b" not in said


def test_a_catalogue_with_an_unknown_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unreadable requirement of an instance type fails with one sentence that names the type, and exit status 2."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool()
    options = _write(town, tmp_path)
    broken = {"name": "m", "requirements": [{"key": "a", "operator": "Is"}], "capacity": {}, "overhead": {}}
    (tmp_path / "catalog.json").write_text(json.dumps({"instanceTypes": [{**broken, "offerings": []}]}))
    assert main(["plan", *options]) == 2
    assert "instance type m: 'Is' is not an operator" in capsys.readouterr().err


def test_an_affinity_with_an_unknown_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pod with an unreadable affinity fails with one sentence and exit status 2."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool()
    terms = [{"matchExpressions": [{"key": "a", "operator": "Is"}]}]
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    town.pod("odd", spec={"affinity": {"nodeAffinity": node_affinity}})
    assert main(["place", *_write(town, tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "'Is' is not an operator" in said
    assert "fault" not in said


def test_the_note_on_kinds_is_safe_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kind with a control character is ignored, and the message escapes the character."""
    item = {"apiVersion": "v1", "kind": "Odd\x1b[31m", "metadata": {"name": "x"}}
    assert _plan_objects(tmp_path, [item]) == 0
    said = capsys.readouterr().err
    assert said.startswith("note: passed over 1 Odd")
    assert "\x1b" not in said


def test_pods_of_a_placement_are_sorted(plan: Callable[..., Any]) -> None:
    """Lists without a meaningful order are sorted, such as the pods that land on one node."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool()
    town.node("big", "l")
    town.fill("big", 3, cpu="1000m")
    town.node("small", "m")
    town.pod("a", "small", cpu="100m")
    town.pod("b", "small", cpu="900m")
    found = plan(town)["actions"][0]
    assert found["placements"] == [{"node": "big", "pods": ["default/a", "default/b"]}]


@pytest.mark.parametrize(
    "command", [["plan", "-f"], ["place", "-f"], ["budgets", "-f"], ["explain", "n1", "-f"], ["validate"]]
)
@pytest.mark.parametrize("text", ['{"kind": "List", "items": []}', "apiVersion: v1\nitems: []\nkind: List\n"])
def test_an_empty_list_alone_is_nothing_to_look_at(
    command: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command rejects a file without objects with one sentence and exit status 2."""
    file = tmp_path / "empty"
    file.write_text(text)
    assert main([*command, str(file)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"dovetail: {file}: a List without items is all there is: nothing to look at; give the objects as well\n"
    )


def test_an_empty_list_beside_others_is_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If each kind has its own file, some may be empty; `plan` and `validate` both continue."""
    assert _plan_objects(tmp_path, []) == 0
    pool = tmp_path / "pool.json"
    spec = {"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []}}}
    pool.write_text(json.dumps(_pool(spec)))
    assert main(["validate", str(tmp_path / "more.json"), str(pool)]) == 0
    assert "checked 1 object in 2 files" in capsys.readouterr().err


def _with_settings(tmp_path: Path, text: str) -> list[str]:
    town = Town(kind("m", "0.20", cpu=4))
    town.pool()
    town.node("n1", "m")
    town.pod("a", "n1")
    (tmp_path / "settings.yaml").write_text(text)
    return [*_write(town, tmp_path), "--settings", str(tmp_path / "settings.yaml")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("markedForDeletionNodes: [nn1]", "settings: markedForDeletionNodes names nn1, and there is no such node"),
        ("nominatedNodes: [claim-n2]", "settings: nominatedNodes names claim-n2, and there is no such node"),
        ("pools: [other]", "settings: pools names other, and there is no such NodePool; it was passed over"),
    ],
)
def test_names_that_nobody_has_are_told(
    text: str, said: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A typo in the names of a captured cluster's settings is a warning in `plan` and a note in other commands."""
    options = _with_settings(tmp_path, text)
    assert main(["plan", *options, "-o", "json"]) == 0
    assert [entry for entry in json.loads(capsysbinary.readouterr().out)["warnings"] if entry.startswith(said)]
    for command in (["explain", "n1"], ["place"], ["budgets"]):
        assert main([*command, *options, "-o", "json"]) == 0
        assert f"note: {said}".encode() in capsysbinary.readouterr().err


def test_names_that_are_there_are_not(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """You can name a node by its NodeClaim; a NodeClaim's name has precedence."""
    options = _with_settings(tmp_path, "{nominatedNodes: [claim-n1], markedForDeletionNodes: [n1], pools: [default]}")
    assert main(["plan", *options, "-o", "json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["warnings"] == []


def test_the_day_of_the_prices_is_everywhere(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Text, JSON and page state which prices were used and their date, or that there are none."""
    options = _with_settings(tmp_path, "{}")
    assert main(["plan", *options, "-o", "json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["prices"]["asOf"] is None
    dated = [*options[: options.index("--catalog")], *options[options.index("--catalog") + 2 :]]
    dated += ["--catalog", "aws:us-east-1"]
    assert main(["plan", *dated, "-o", "json"]) == 0
    prices = json.loads(capsysbinary.readouterr().out)["prices"]
    assert prices["source"] == "built-in EC2 table of us-east-1"
    line = f"Prices: {prices['source']}, of {prices['asOf']}.".encode()
    for command in (["plan"], ["plan", "-o", "html"], ["explain", "n1"]):
        assert main([*command, *dated]) == 0
        assert line in capsysbinary.readouterr().out


def test_explain_finds_the_node_behind_the_files(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`explain -f FILE NODE` reads NODE as a node, although -f accepts several files."""
    options = _with_settings(tmp_path, "{}")
    assert main(["explain", *options[2:], *options[:2], "n1", "-o", "json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["node"] == "n1"


def test_a_node_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the missing node and suggests an existing one."""
    options = _with_settings(tmp_path, "{}")
    assert main(["explain", "zzz", *options]) == 2
    assert capsys.readouterr().err == (
        'dovetail: there is no node "zzz"; name one of the 1 that are there, such as n1\n'
    )


def test_explain_says_who_goes_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The savings of a command over several nodes are shown as the total for all of them."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool()
    for name in ("a", "b", "c"):
        town.node(name, "m")
    assert main(["explain", "a", *_write(town, tmp_path)]) == 0
    assert "It would go together with 2 others: deleteEmpty, saving $0.60/h in all." in capsys.readouterr().out
