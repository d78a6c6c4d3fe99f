"""Pages for people: links resolve, and tables match what was measured."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dovetail.model.verdicts import Gate
from tests.support.demo import demo

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"])
DEMO = ROOT / "docs" / "try.md"
_LINK = re.compile(r"\]\(([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_exist(page: Path) -> None:
    """Every relative link of a page names a file of the project."""
    links = [link for link in _LINK.findall(page.read_text()) if not link.startswith(("http", "mailto:"))]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_verdict_is_explained() -> None:
    """The page on nodes that are not consolidated has a row for each gate that can block a node, and no other."""
    page = (ROOT / "docs" / "why-not-consolidated.md").read_text()
    firsts = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    explained = [name for cell in firsts for name in re.findall("`([^`]+)`", cell)]
    assert sorted(explained) == sorted(gate.value for gate in Gate)


def test_the_readme_compares_with_tuned_karpenter() -> None:
    """The table against tuned Karpenter is what docs/benchmarks/readme.json says."""
    from benchmarks.readme import OUT, table

    rows = json.loads(OUT.read_text())["rows"]
    text = (ROOT / "README.md").read_text()
    shown = text.partition("<!-- readme.json -->\n")[2].partition("<!-- end -->")[0]
    assert shown == table(rows)
    assert f"Means of {rows[0]['seeds']} seeds" in text


def test_the_calibration_is_what_was_measured() -> None:
    """The table of recordings is what docs/benchmarks/calibration.json says; every bill is within 5 %."""
    from benchmarks.calibration import COURSES, END, MARK, OUT, PAGE, table

    document = json.loads(OUT.read_text())
    text = PAGE.read_text()
    assert text.partition(MARK)[2].partition(END)[0] == table(document)
    assert tuple(row["recording"] for row in document["rows"]) == tuple(COURSES)
    assert all(row["error"]["cost"] <= 0.05 for row in document["rows"])


def test_what_recording_costs_is_what_was_measured() -> None:
    """The table is what docs/benchmarks/recording.json says, of every size; it costs under a hundredth of a core."""
    from benchmarks.recording import END, MARK, OUT, PAGE, SIZES, table

    rows = json.loads(OUT.read_text())["rows"]
    assert PAGE.read_text().partition(MARK)[2].partition(END)[0] == table(rows)
    assert tuple(row["size"] for row in rows) == SIZES
    assert all(0 < row["cpuShare"] < 0.01 for row in rows)


def test_the_benchmark_of_recording_runs() -> None:
    """On a small cluster it writes one file for the hour, with a line at least for every pod."""
    from benchmarks.recording import one

    row = one("10:60")
    assert row["files"] == 1
    assert 0 < row["pods"] < row["lines"]
    assert row["megabytesADay"] > 0


def test_the_page_of_traces_is_what_was_measured() -> None:
    """The page is what docs/benchmarks/traces.json says, of all five traces."""
    from benchmarks.traces import PAGE, SLICES, page

    rows = json.loads((ROOT / "docs" / "benchmarks" / "traces.json").read_text())["rows"]
    assert PAGE.read_text() == page(rows)
    assert {row["trace"] for row in rows} == set(SLICES)


def _measured(name: str, key: str, value: str) -> dict[str, Any]:
    """Return a row of a published benchmark."""
    rows = json.loads((ROOT / "docs" / "benchmarks" / f"{name}.json").read_text())["rows"]
    found: dict[str, Any] = next(row for row in rows if row[key] == value)
    return found


def test_the_readme_shows_what_was_measured() -> None:
    """The README's figures of speed are those of the published benchmarks, rounded."""
    text = " ".join((ROOT / "README.md").read_text().split())
    kernel, plan = _measured("kernel", "cluster", "packed-500"), _measured("plan", "cluster", "mixed-5000")
    day, go = _measured("simulator", "size", "500:24"), _measured("kernel", "cluster", "mixed-5000")
    assert f"packed nodes takes {kernel['passSeconds']:.2f} s" in text
    assert f"(Karpenter's Go: {kernel['karpenterPassSeconds']:.0f} s)" in text
    answer = f"{plan['seconds']:.1f} s from file to answer in {plan['memoryMib']} MiB"
    karpenter = f"({plan['karpenterDecisionSeconds']:.0f} s, {go['karpenterMemoryMib'] / 1024:.0f} GiB)"
    assert f"{answer} {karpenter}" in text
    assert f"A day of 500 nodes is simulated in {day['seconds']:.0f} s" in text


@pytest.mark.slow
@pytest.mark.xdist_group("demo")
def test_the_page_shows_what_the_demo_prints() -> None:
    """The table has pods moved, moved more than once, new nodes, short lives and the bill, for each policy."""
    expected = {}
    for result in demo().comparison.results:
        figures = result.to_dict()
        counts = ("podsDisrupted", "podsDisruptedMoreThanOnce", "nodesStarted", "shortLivedNodes")
        expected[figures["policy"]] = [*(str(figures[key]) for key in counts), f"${float(figures['cost']):.2f}"]
    rows = re.findall(r"^\| `([^`]+)`[^|]*\|(.+)\|$", DEMO.read_text(), re.MULTILINE)
    assert {policy: [cell.strip() for cell in cells.split("|")] for policy, cells in rows} == expected
