"""Pages for people: links resolve, and the README's table matches the demo's output."""

import re
from pathlib import Path

import pytest

from dovetail.model.verdicts import Gate
from tests.support.demo import demo

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"])
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


@pytest.mark.slow
@pytest.mark.xdist_group("demo")
def test_the_readme_shows_what_the_demo_prints() -> None:
    """The table has pods moved, moved more than once, new nodes, short lives and the bill, for each policy."""
    expected = {}
    for result in demo().comparison.results:
        figures = result.to_dict()
        counts = ("podsDisrupted", "podsDisruptedMoreThanOnce", "nodesStarted", "shortLivedNodes")
        expected[figures["policy"]] = [*(str(figures[key]) for key in counts), f"${float(figures['cost']):.2f}"]
    rows = re.findall(r"^\| `([^`]+)`[^|]*\|(.+)\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {policy: [cell.strip() for cell in cells.split("|")] for policy, cells in rows} == expected
