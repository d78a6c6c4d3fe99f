"""A real browser: Debian's Chromium, driven by Playwright.

People have different fonts, so a page must fit with each. A font is the name of an installed family, which then stands
for every family that a page asks for (by a fontconfig file of its own), or `SPACED`: the text spacing that every page
must bear (WCAG 2.2, success criterion 1.4.12), as wide as a wide font and there on every machine.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.support.sizes import size

NAMES = ("chromium", "chromium-browser", "google-chrome")
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"

SPACED = "spaced"
FONTS = {"DejaVu Sans": "fonts-dejavu-core", "Cantarell": "fonts-cantarell", "OpenDyslexic": "fonts-opendyslexic"}
TRIED_FONTS = [SPACED, *FONTS][: size(test=1, ci=4, long=4)]
_SPACING = "*{letter-spacing:.12em!important;word-spacing:.16em!important;line-height:1.5!important}"
_FONTCONFIG = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir><dir>/usr/local/share/fonts</dir><dir prefix="xdg">fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <match target="pattern">
    <edit name="family" mode="assign" binding="strong"><string>{family}</string></edit>
  </match>
</fontconfig>
"""


def require_font(family: str) -> None:
    """Skip the test, or fail it where skipping was ruled out, unless the font is installed."""
    if family not in FONTS:
        return
    listed = shutil.which("fc-list") and subprocess.run(["fc-list", family], capture_output=True, check=False).stdout
    if listed:
        return
    reason = f"no font {family} here: install {FONTS[family]}"
    if os.environ.get("DOVETAIL_REQUIRE_FONTS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def find() -> str | None:
    """Return the path of the browser, or None if it or its driver is missing."""
    if find_spec("playwright") is None:
        return None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """One page: the driver's page, its log, and the requests it sent."""

    page: Any
    style: str = ""
    problems: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def open(self, where: Path | str) -> None:
        """Open a file or an address and wait until the script has drawn it."""
        address = where if isinstance(where, str) else where.resolve().as_uri()
        self.page.goto(address)
        if self.style:
            self.page.add_style_tag(content=self.style)
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


_driver: list[Any] = []
_browsers: dict[str, Any] = {}  # by family; "" has the machine's own fonts


def _browser(family: str) -> Any:
    """Return the browser with that font, which all tests share; `stop` closes it."""
    if not _driver:
        from playwright.sync_api import sync_playwright

        _driver.append(sync_playwright().start())
    if family not in _browsers:
        launched = _driver[0].chromium.launch(
            executable_path=find(), args=["--no-sandbox", "--disable-gpu"], env={**os.environ, **_font_settings(family)}
        )
        _browsers[family] = launched
    return _browsers[family]


def _font_settings(family: str) -> dict[str, str]:
    if family not in FONTS:
        return {}
    path = Path(tempfile.mkdtemp(prefix="fonts-")) / "fonts.conf"
    path.write_text(_FONTCONFIG.format(family=family))
    return {"FONTCONFIG_FILE": str(path)}


def stop() -> None:
    """Close the browsers and their driver, so that its event loop does not run during other tests."""
    for browser in _browsers.values():
        browser.close()
    _browsers.clear()
    while _driver:
        _driver.pop().stop()


@contextmanager
def tab(width: int = 1280, height: int = 900, scheme: str = "light", font: str = "") -> Iterator[Tab]:
    """Open a tab with empty storage."""
    require_font(font)
    context = _browser("" if font == SPACED else font).new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, bypass_csp=font == SPACED
    )
    page = context.new_page()
    made = Tab(page, style=_SPACING if font == SPACED else "")
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
