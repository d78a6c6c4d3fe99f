"""`dovetail diff` from the command line: forms, exit statuses and bad input."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main
from tests.support.golden_cases import DATA

CASE = DATA / "003"
INPUTS = ("-f", str(CASE / "cluster.json.gz"), "--catalog", str(CASE / "catalog.json.gz"))


def pool(**labels: str) -> dict[str, Any]:
    """Return a pool of the case as a manifest, with other labels in its template."""
    items = json.loads(gzip.decompress((CASE / "cluster.json.gz").read_bytes()))["items"]
    found = next(item for item in items if item["kind"] == "NodePool")
    tree: dict[str, Any] = {key: found[key] for key in ("apiVersion", "kind", "spec")}
    tree["metadata"] = {"name": found["metadata"]["name"]}
    template = tree["spec"]["template"]
    template["metadata"] = {**template.get("metadata", {}), "labels": {**labels}} if labels else template["metadata"]
    return tree


def written(folder: Path, tree: object) -> str:
    """Write a manifest."""
    path = folder / "pool.json"
    path.write_text(json.dumps(tree))
    return str(path)


def test_json_has_the_promised_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Findings, drifts, roll, and plan summaries before and after."""
    path = written(tmp_path, pool(team="a"))
    assert main(["diff", *INPUTS, "--change", path, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"findings", "drifts", "roll", "before", "after"} <= found.keys()
    assert found["drifts"][0]["nodes"] > 0
    assert found["drifts"][0]["fields"] == ["spec.template.metadata.labels"]
    assert found["roll"].keys() == {"nodes", "expectedEnd", "pacedBy"}
    assert found["before"].keys() == found["after"].keys() == {
        "costPerHour", "actions", "endCostPerHour", "endPodsMoved",
    }  # fmt: skip


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_every_form_is_printed(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text, Markdown and page name the drift; text fits a terminal."""
    path = written(tmp_path, pool(team="a"))
    assert main(["diff", *INPUTS, "--change", path, "-o", form]) == 0
    shown = capsys.readouterr().out
    assert "spec.template.metadata.labels" in shown
    assert form != "text" or max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ((), 0),
        (("--exit-code",), 0),
        (("--fail-on", "error"), 0),
        (("--fail-on", "drift"), 1),
        (("--fail-on", "error,drift"), 1),
    ],
)
def test_exit_statuses(options: tuple[str, ...], status: int, tmp_path: Path) -> None:
    """Drift fails only where that was asked for."""
    assert main(["diff", *INPUTS, "--change", written(tmp_path, pool(team="a")), *options]) == status


def test_an_error_in_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--exit-code gives 1 where the API server would refuse a manifest; that manifest is not applied."""
    tree = pool(team="a")
    tree["spec"]["disruption"] = {"consolidateAfter": "1d"}
    path = written(tmp_path, tree)
    assert main(["diff", *INPUTS, "--change", path, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert any(entry["severity"] == "error" for entry in found["findings"])
    assert found["drifts"] == []
    assert main(["diff", *INPUTS, "--change", path, "--exit-code"]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("diff", *INPUTS), "what would change?"),
        (("diff", *INPUTS, "--change", "/no/such/file"), "/no/such/file: it can't be read"),
        (("diff", *INPUTS, "--change", "x", "--fail-on", "drfit"), '--fail-on is "drfit"; valid values: error, drift'),
        (("diff", "a.json"), "1 captures are named; give two"),
        (("diff", "a.json", "b.json", "--exit-code"), "two captures are compared alone"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage has status 2 and says what to write."""
    assert main(list(arguments)) == 2
    assert said in capsys.readouterr().err


def test_a_manifest_that_does_not_parse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken file is named, with status 2."""
    path = tmp_path / "pool.yaml"
    path.write_text("kind: NodePool\nspec: [")
    assert main(["diff", *INPUTS, "--change", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_two_captures(capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes that came and went, the cost of both, and blockers that are new or gone."""
    files = [str(DATA / name / "cluster.json.gz") for name in ("000", "001")]
    options = ["--catalog", str(DATA / "000" / "catalog.json.gz")]
    assert main(["diff", *files, *options, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nodes"].keys() == {"added", "removed"}
    assert found["costPerHour"].keys() == {"before", "after"}
    assert found["blockers"].keys() == {"new", "gone"}
    assert main(["diff", files[0], files[0], *options, "-o", "json"]) == 0
    same = json.loads(capsys.readouterr().out)
    assert same["nodes"] == {"added": [], "removed": []}
    assert same["blockers"] == {"new": [], "gone": []}
    assert main(["diff", *files, *options]) == 0
    assert "came" in capsys.readouterr().out
