"""Makes the picture in the README: runs the demo, opens its page in Chromium, keeps the top of it.

Run from the project root: .venv/bin/python tools/screenshot.py
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.chromium import find, tab  # noqa: E402

from dovetail.cli.main import main  # noqa: E402

OUT = ROOT / "docs" / "images" / "demo.png"


async def shoot(page: Path) -> None:
    """The top of the page: the sentence, the table and the first plots."""
    async with tab() as browser:
        await browser.open(page)
        await browser.look(OUT, width=1000, height=1500)


if __name__ == "__main__":
    if find() is None:
        sys.exit("no Chromium here: install the package chromium")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main(["demo"])
        OUT.parent.mkdir(parents=True, exist_ok=True)
        asyncio.run(shoot(Path(folder) / "dovetail-demo.html"))
    print(OUT)
