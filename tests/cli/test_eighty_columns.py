"""Every command's text fits a terminal of 80 columns: help texts, and results for captures of different kinds."""

import gzip
import json
from pathlib import Path

import pytest

from dovetail.cli.main import COMMANDS, main
from tests.support.golden_cases import DATA

CASES = ("000", "013", "045", "058")
ASKED = (
    ["plan"],
    ["plan", "--every-method", "--every-candidate"],
    ["plan", "--to-end"],
    ["plan", "--compare", "karpenter-1.15"],
    ["plan", "--profile", "karpenter-1.15"],
    ["blockers"],
    ["budgets", "--days", "2"],
    ["place"],
    ["explain", "--all"],
    ["explain", "NODE"],
    ["top", "--once"],
)


def _wide(out: str) -> list[str]:
    return [line for line in out.splitlines() if len(line) > 80]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the terminal to 80 columns, wherever the tests run."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("command", ["", *(entry.name for entry in COMMANDS)])
def test_help_fits(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Options, explanations and examples in the help fit 80 columns."""
    assert main([*filter(None, [command]), "--help"]) == 0
    out = capsys.readouterr().out
    assert "usage: dovetail" in out
    assert _wide(out) == []


@pytest.mark.parametrize("case", [name for name in CASES if (DATA / name).is_dir()])
@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
def test_answers_fit(case: str, asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Results fit 80 columns: tables are truncated and sentences are wrapped."""
    capture = DATA / case / "cluster.json.gz"
    nodes = [item["metadata"]["name"] for item in _items(capture) if item["kind"] == "Node"]
    words = [nodes[0] if word == "NODE" else word for word in asked]
    inputs = ["-f", str(capture), "--catalog", str(DATA / case / "catalog.json.gz"), "--now", "2026-05-13T15:30:00Z"]
    assert main([*words, *inputs]) == 0
    out = capsys.readouterr().out
    assert out.strip()
    assert _wide(out) == []


@pytest.mark.parametrize("asked", [["show"], ["show", "gcp:us-central1"], ["types", "azure:westeurope"]], ids=" ".join)
def test_catalogues_fit(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Lists of regions, their gaps and instance types fit 80 columns."""
    assert main(["catalog", *asked]) == 0
    assert _wide(capsys.readouterr().out) == []


def _items(path: Path) -> list[dict]:  # type: ignore[type-arg]
    return json.loads(gzip.decompress(path.read_bytes()))["items"]  # type: ignore[no-any-return]
