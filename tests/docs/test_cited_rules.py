"""Comments and docstrings cite rules that a reader can open: anchors of docs/rules.md."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.paths import ROOT

_CITED = re.compile(r"docs/rules\.md((?:(?:,| and)?\s*(?:# )?#[a-z][a-z-]*)+)")
_LINKED = re.compile(r"\]\((?:\.\./)*rules\.md#([a-z-]+)\)")
_SECTION = re.compile(r"\bspec\s+(?:# )?sections?\b|\bsections?\s+(?:# )?\d", re.IGNORECASE)
SOURCES = sorted(path for room in ("src", "tests", "benchmarks", "tools") for path in (ROOT / room).rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(page: str) -> Counter[str]:
    """Count the anchors of a page: explicit ones, and the slugs of its headings."""
    explicit = re.findall(r'<a id="([^"]+)"></a>', page)
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    slugs = [re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return Counter([*explicit, *slugs])


RULES = anchors((ROOT / "docs" / "rules.md").read_text())


def cited(text: str) -> set[str]:
    """Return the anchors of docs/rules.md that a text cites, several of them in a row included."""
    return {anchor for run in _CITED.findall(text) for anchor in re.findall(r"#([a-z][a-z-]*)", run)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(docs/rules.md#budgets).", {"budgets"}),
        ("See docs/rules.md#methods, #carrying-out and\n#karpenter. It", {"methods", "carrying-out", "karpenter"}),
        ("# docs/rules.md#timers and\n    # #gates", {"timers", "gates"}),
        ("docs/rules.md has it", set()),
    ],
)
def test_citations_are_found(text: str, expected: set[str]) -> None:
    """A citation names one anchor or several, over the end of a line too."""
    assert cited(text) == expected


def test_every_cited_rule_exists() -> None:
    """Each anchor that the code cites is on the page."""
    found = {(path, anchor) for path in SOURCES if path != Path(__file__) for anchor in cited(path.read_text())}
    assert len({anchor for _, anchor in found}) > 25
    assert sorted(f"{path.relative_to(ROOT)}: {anchor}" for path, anchor in found if anchor not in RULES) == []


def test_every_linked_rule_exists() -> None:
    """Each anchor that a page links to is on the page of the rules."""
    found = {(page, anchor) for page in PAGES for anchor in _LINKED.findall(page.read_text())}
    assert sorted(f"{page.relative_to(ROOT)}: {anchor}" for page, anchor in found if anchor not in RULES) == []


def test_an_anchor_stands_once() -> None:
    """No two rules have the same anchor."""
    assert [anchor for anchor, times in RULES.items() if times > 1] == []


def test_nothing_cites_a_numbered_section() -> None:
    """No comment, docstring or page cites a section of a document that is not in the repository."""
    numbered = [path for path in [*SOURCES, *PAGES] if path != Path(__file__) and _SECTION.search(path.read_text())]
    assert [str(path.relative_to(ROOT)) for path in numbered] == []
