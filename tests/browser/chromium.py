"""A real browser: Debian's Chromium, driven by Playwright."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.paths import ROOT

NAMES = ("chromium", "chromium-browser", "google-chrome")
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def find() -> str | None:
    """Return the path of the browser, or None if it or its driver is missing."""
    if find_spec("playwright") is None:
        return None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """One page: the driver's page, its log, and the requests it sent."""

    page: Any
    problems: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def open(self, where: Path | str) -> None:
        """Open a file or an address and wait until the script has drawn it."""
        address = where if isinstance(where, str) else where.resolve().as_uri()
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready=true]", timeout=30_000)

    def wait(self, expression: str, seconds: float = 60) -> None:
        """Wait until an expression is true; the driver's own wait needs eval, which the page's policy forbids."""
        until = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < until, expression
            self.page.wait_for_timeout(100)

    @property
    def outside(self) -> list[str]:
        """Return the requests for anything but the page itself."""
        return [url for url in self.fetched if not url.startswith(("file:", "data:", "blob:"))]

    def wide(self) -> int:
        """Return the width of the page's content."""
        return int(self.page.evaluate("document.documentElement.scrollWidth"))


_started: list[Any] = []


def _browser() -> Any:
    """Return the browser that all tests share; `stop` closes it."""
    if not _started:
        from playwright.sync_api import sync_playwright

        driver = sync_playwright().start()
        _started.append(driver)
        _started.append(driver.chromium.launch(executable_path=find(), args=["--no-sandbox", "--disable-gpu"]))
    return _started[1]


def stop() -> None:
    """Close the browser and its driver, so that its event loop does not run during other tests."""
    if _started:
        driver, browser = _started
        _started.clear()
        browser.close()
        driver.stop()


@contextmanager
def tab(width: int = 1280, height: int = 900, scheme: str = "light") -> Iterator[Tab]:
    """Open a tab with empty storage."""
    context = _browser().new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    made = Tab(page)
    page.on("console", lambda said: made.problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: made.problems.append(str(error)))
    page.on("request", lambda request: made.fetched.append(request.url))
    try:
        yield made
    finally:
        context.close()


_AXE = """
async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.map((entry) => (
    {id: entry.id, impact: entry.impact, nodes: entry.nodes.map((node) => node.html.slice(0, 200))}
  ));
}
"""


def barriers(page: Any) -> list[dict[str, Any]]:
    """Return the moderate, serious and critical findings of axe-core."""
    page.evaluate(AXE.read_text())
    return [entry for entry in page.evaluate(_AXE) if entry["impact"] in ("moderate", "serious", "critical")]
