"""The docs as a whole: a site without broken links or requests to elsewhere, every page near, the ways in short."""

import re
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.support.chart import script

WAY_IN_MAX = 480
WORDS_MAX = 29_900
_LINK = re.compile(r"\]\(([^)#\s]+\.md)")


def _pages() -> list[Path]:
    return sorted((ROOT / "docs").rglob("*.md"))


def _linked(page: Path) -> set[Path]:
    return {(page.parent / link).resolve() for link in _LINK.findall(page.read_text()) if "://" not in link}


def test_every_page_is_two_clicks_from_the_readme() -> None:
    """Each page of the site's menu is two clicks away, and any other page can be reached.

    A list of records stands for its folder.
    """
    near = [{ROOT / "README.md"}]
    for _ in range(6):
        near.append(near[-1] | {to for page in sorted(near[-1]) if page.is_file() for to in _linked(page)})
    menu = re.findall(r'= "([^"]+\.md)"', (ROOT / "zensical.toml").read_text())
    assert len(menu) > 30
    assert [name for name in menu if ROOT / "docs" / name not in near[2]] == []
    reached = near[-1] | set((ROOT / "docs" / "decisions").glob("*.md"))
    assert [str(page.relative_to(ROOT)) for page in _pages() if page not in reached] == []


@pytest.mark.parametrize("name", ["why", "try", "run-it"])
def test_a_way_in_fits_two_screens(name: str) -> None:
    """Each of the three ways in is short."""
    assert len((ROOT / "docs" / f"{name}.md").read_text().split()) <= WAY_IN_MAX


def test_the_docs_do_not_grow() -> None:
    """All that a user reads stays below a number of words; lower it when you shorten a page.

    A word has a letter or a digit: `wc -w` also counts the bars and rules of tables, about a tenth of all.
    """
    others = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "deploy" / "chart" / "dovetail" / "README.md")
    words = [word for page in (*others, *_pages()) for word in page.read_text().split()]
    assert sum(any(map(str.isalnum, word)) for word in words) <= WORDS_MAX


@pytest.mark.slow
def test_the_site_builds_and_asks_nobody(tmp_path: Path) -> None:
    """No broken link; no script, style, font or picture from another host."""
    assert script("build_site").build(tmp_path / "site") == ""
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(_pages())
    loaded = re.compile(
        r"""<(?:script|img|iframe)[^>]+src="(https?:[^"]+)|<link[^>]+rel="(?:stylesheet|preconnect|preload)"[^>]+href="(https?:[^"]+)"""
    )
    found = {match[0] for page in pages for match in loaded.finditer(page.read_text())}
    styles = {path.name for path in (tmp_path / "site").rglob("*.css") if "url(http" in path.read_text()}
    assert (found, styles) == (set(), set())
