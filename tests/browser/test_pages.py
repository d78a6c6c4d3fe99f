"""The pages in a real browser: every plot drawn, no error, nothing fetched, readable in the dark and in print."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main
from tests.browser.chromium import Tab, find, tab
from tests.golden.cases import DATA

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(find() is None, reason="no Chromium here: install the package chromium"),
]
_CONTRAST = """
(() => {
  const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(parse(getComputedStyle(document.body).backgroundColor));
  let worst = 99;
  for (const element of document.querySelectorAll("p, td, th, h1, h2, h3, svg text")) {
    const style = getComputedStyle(element);
    const ink = light(parse(element.closest("svg") ? style.fill : style.color));
    worst = Math.min(worst, (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05));
  }
  return worst;
})()
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page of each kind, made by the commands themselves."""
    folder = tmp_path_factory.mktemp("pages")
    grid = folder / "grid.yaml"
    grid.write_text("{base: both, vary: {consolidationGracePeriod: [Never, 10m]}, seeds: 1}")
    case = DATA / "045"
    plan = ["plan", "-f", str(case / "cluster.json.gz"), "--catalog", str(case / "catalog.json.gz")]
    made = {
        "simulate": ["simulate", "issue-7146", "--until", "20m", "-o", "html"],
        "sweep": ["sweep", "issue-7146", "--grid", str(grid), "--until", "10m", "-o", "html"],
        "plan": [*plan, "--now", "2026-05-13T15:30:00Z", "-o", "html"],
    }
    return {name: _written(folder / f"{name}.html", arguments) for name, arguments in made.items()}


def _written(path: Path, arguments: list[str]) -> Path:
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(arguments) == 0
    path.write_text(out.getvalue(), encoding="utf-8")
    return path


def _in_browser(path: Path, look: Any) -> Any:
    async def visit() -> Any:
        async with tab() as page:
            await page.open(path)
            return await look(page)

    return asyncio.run(visit())


@pytest.mark.parametrize(("kind", "plots"), [("simulate", 8), ("sweep", 1), ("plan", 1)])
def test_plots_are_drawn_and_nothing_is_fetched(pages: dict[str, Path], kind: str, plots: int) -> None:
    """Each plot has size and strokes; the browser logs no error and asks nobody for anything."""

    async def look(page: Tab) -> None:
        drawn = await page.ask(
            "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().height > 100 && "
            "s.querySelectorAll('path, rect, circle').length > 3).length"
        )
        assert drawn >= plots
        assert await page.ask("document.querySelectorAll('svg').length") == drawn
        assert await page.ask("document.body.innerText.length") > 200
        assert page.problems == []
        assert [url for url in page.fetched if not url.startswith(("file:", "data:"))] == []

    _in_browser(pages[kind], look)


@pytest.mark.parametrize("kind", ["simulate", "sweep", "plan"])
@pytest.mark.parametrize("media", ["light", "dark", "print"])
def test_text_stands_out_from_the_paper(pages: dict[str, Path], kind: str, media: str) -> None:
    """In light, in the dark and on paper every text has a contrast of at least 4.5 to its background."""

    async def look(page: Tab) -> None:
        scheme = "light" if media == "print" else media
        await page.call(
            "Emulation.setEmulatedMedia",
            media="print" if media == "print" else "screen",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        assert await page.ask(_CONTRAST) >= 4.5

    _in_browser(pages[kind], look)


def test_nothing_runs_over_the_edge(pages: dict[str, Path]) -> None:
    """On a narrow screen no page is wider than the screen but for tables that scroll by themselves."""

    async def look(page: Tab) -> None:
        await page.call("Emulation.setDeviceMetricsOverride", width=800, height=900, deviceScaleFactor=1, mobile=False)
        assert await page.ask("document.documentElement.scrollWidth") <= 800

    for path in pages.values():
        _in_browser(path, look)
