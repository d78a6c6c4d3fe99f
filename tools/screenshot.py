"""Make the pictures of the README and the docs from the shipped scenarios.

Run from the project root: .venv/bin/python tools/screenshot.py
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.chromium import find, stop, tab  # noqa: E402

from dovetail.cli.main import main  # noqa: E402

OUT = ROOT / "docs" / "images"


def made(folder: Path, *arguments: str) -> Path:
    """Write the page of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(list(arguments))
    path = folder / "page.html"
    path.write_text(out.getvalue(), encoding="utf-8")
    return path


def shoot(page: Path, name: str, *, top: str = "h1", height: int = 900, scheme: str = "light") -> None:
    """Keep what a reader sees when the element `top` is at the top of the window."""
    with tab(1280, height, scheme) as browser:
        browser.open(page)
        browser.page.evaluate(f"document.querySelector({top!r}).scrollIntoView()")
        browser.page.wait_for_timeout(400)
        browser.page.screenshot(path=str(OUT / name))
    print(OUT / name)


if __name__ == "__main__":
    if find() is None:
        sys.exit("no Chromium or no Playwright here: install the package chromium, and the dev group")
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        run = made(folder, "simulate", "issue-7146", "-o", "html")
        shoot(run, "demo.png", height=1400)
        shoot(run, "moment.png", top="#moment-title", scheme="dark", height=760)
        shoot(made(folder, "simulate", "image-roll", "-o", "html"), "roll.png", top="#lanes-title", height=1250)
    stop()
