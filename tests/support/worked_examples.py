"""The worked examples of CONTRIBUTING.md, applied to a copy of the source as they are printed."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from tests.paths import ROOT


def run_example(title: str, places: Sequence[tuple[str, str]], checks: str, folder: Path) -> None:
    """Put each printed step of an example before the line that its place names, and run the checks on that copy."""
    shutil.copytree(ROOT / "src" / "dovetail", folder / "dovetail", ignore=shutil.ignore_patterns("__pycache__"))
    for (name, before), step in zip(places, _printed_steps(title), strict=True):
        path = folder / "dovetail" / name
        text = path.read_text()
        assert text.count(before) == 1, name
        entry = f"{step.rstrip()},\n" if step.startswith("    Field(") else step
        path.write_text(text.replace(before, entry + before))
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", checks], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr


def _printed_steps(title: str) -> list[str]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index(f"## Worked example: {title}") :].partition("\n## ")[0]
    blocks = re.findall(r"^   ```python\n(.*?)^   ```$", section, re.MULTILINE | re.DOTALL)
    return [textwrap.indent(textwrap.dedent(block), "    ") for block in blocks]
