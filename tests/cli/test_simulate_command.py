"""`dovetail simulate` and `dovetail demo` from the command line."""

import json
import os
from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.support.demo import demo

QUICK = """\
name: quick
until: 20m
warmUp: 3m
catalogue:
  - {name: a.large, cpu: 2, memory: 8Gi, price: 0.1}
  - {name: a.xlarge, cpu: 4, memory: 16Gi, price: 0.2}
pools:
  - name: default
    requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
    disruption: {consolidateAfter: 30s, budgets: [{nodes: "100%"}]}
nodes:
  - {pool: default, type: a.xlarge, count: 3}
workloads:
  - {name: web, replicas: 4, cpu: 400m}
policies:
  karpenter-1.15: {profile: karpenter-1.15}
  plain: {}
"""
RESULT = {
    "policy", "nodesStarted", "nodesEnded", "actions", "podsDisrupted", "podsDisruptedMoreThanOnce", "nodeHours",
    "cost", "medianNodeLifeSeconds", "shortLivedNodes", "pendingPodSeconds", "violations",
}  # fmt: skip


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    """Return a scenario file that runs quickly."""
    file = tmp_path / "quick.yaml"
    file.write_text(QUICK)
    return str(file)


def test_json_has_the_keys_of_the_contract(scenario: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Standard output has one document, with the same bytes every time."""
    assert main(["simulate", scenario, "-o", "json", "--seed", "2"]) == 0
    first = capfdbinary.readouterr().out
    assert main(["simulate", scenario, "-o", "json", "--seed", "2"]) == 0
    assert capfdbinary.readouterr().out == first
    document = json.loads(first)
    assert (document["scenario"], document["seed"], document["until"]) == ("quick", 2, "20m")
    assert [entry["policy"] for entry in document["policies"]] == ["karpenter-1.15", "plain"]
    for entry in document["policies"]:
        assert set(entry) >= RESULT
        assert entry["violations"] == []
        assert sum(entry["actions"].values()) > 0


@pytest.mark.usefixtures("one_core")
def test_policies_can_be_chosen_and_given(
    scenario: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A policy comes from the scenario by name, or from a file; `--until` shortens the run."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("disruption: {consolidateAfter: Never}\n")
    asked = ["simulate", scenario, "--policy", "plain", "--policy", f"calm={mine}", "--until", "10m", "-o", "json"]
    assert main(asked) == 0
    document = json.loads(capfdbinary.readouterr().out)
    assert [entry["policy"] for entry in document["policies"]] == ["plain", "calm"]
    assert document["until"] == "10m"
    assert document["policies"][1]["actions"] == {}


@pytest.mark.usefixtures("one_core")
def test_text_shows_a_line_per_policy(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The text is a table with one line per policy."""
    assert main(["simulate", scenario]) == 0
    said = capsys.readouterr().out
    assert "RESTARTS: pods that a node's end restarted" in " ".join(said.split())
    assert "karpenter-1.15" in said
    assert "plain" in said


@pytest.mark.usefixtures("one_core")
def test_page_is_one_document(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The page is one HTML document on standard output that fetches nothing."""
    assert main(["simulate", scenario, "-o", "html"]) == 0
    said = capsys.readouterr().out
    assert said.lstrip().lower().startswith("<!doctype html>")
    assert "<svg" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulate"], "name a scenario"),
        (["simulate", "nonsense"], "there is no such scenario"),
        (["simulate", "issue-7146", "--policy", "none"], "write NAME=FILE or one of: karpenter-1.15"),
        (["simulate", "issue-7146", "--policy", "both", "--policy", "both"], "given twice"),
        (["simulate", "issue-7146", "--until", "soon"], "--until"),
        (["simulate", "issue-7146", "--until", "0s"], "nothing happens in no time"),
        (["simulate", "issue-7146", "--trace", "x.csv"], "it replays no trace"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage prints one line on standard error, without a traceback, with exit status 2."""
    assert main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_list_names_the_shipped_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    """The list has every scenario with its subject."""
    assert main(["simulate", "--list"]) == 0
    said = capsys.readouterr().out
    assert "issue-7146: The cluster of" in said
    assert "image-roll:" in said


@pytest.mark.slow
@pytest.mark.xdist_group("demo")
def test_demo_writes_the_page_and_ends_in_a_sentence() -> None:
    """The demo needs no cluster and no network; it prints a table and a sentence, writes a page and prints its path."""
    found = demo()
    assert f"{found.folder}/dovetail-demo.html" in found.text
    assert "more than once" in found.text
    [(name, page)] = found.pages.items()
    assert name == "dovetail-demo.html"
    assert len(page) > 10_000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_demo_in_a_folder_that_is_not_ours_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without write permission fails with one sentence and exit status 2."""
    tmp_path.chmod(0o500)
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 2
    assert "can't be written" in capsys.readouterr().err
