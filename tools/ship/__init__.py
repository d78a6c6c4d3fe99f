"""Builds what a release uploads, each part by a script that runs anywhere: wheel, image, chart, kubectl plugin.

`python -m tools.ship --help`. Nothing here uploads but `push`, to the registry that you name; the workflows in
`.github/workflows` call the same commands.
"""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DIST: Final = ROOT / "dist"


def where(root: Path = ROOT) -> dict[str, str]:
    """Return the variables of deploy/release.env; the environment's win."""
    found = {}
    for line in (root / "deploy" / "release.env").read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name] = os.environ.get(name, value)
    return found
