"""Builds the site of docs/ into site/, offline: python tools/build_site.py [OUTDIR].

Links that leave docs/ lead to the source repository of deploy/release.env. A broken link ends the build with status 1.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(\]\()(\.\./[^)\s#]+)")


def prepared(folder: Path) -> None:
    """Copy the pages and the configuration, with links that lead out of docs/ turned into addresses."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    places = dict(re.findall(r"(?m)^([A-Z]+)=(\S*)$", (ROOT / "deploy" / "release.env").read_text()))
    base = f"{places['FORGE']}/{places['OWNER']}/{places['REPOSITORY']}/blob/main"
    for page in sorted((folder / "docs").rglob("*.md")):
        source = ROOT / page.relative_to(folder)

        def outside(found: re.Match[str], source: Path = source) -> str:
            target = (source.parent / found[2]).resolve()
            if target.is_relative_to(ROOT / "docs"):
                return found[0]
            return f"{found[1]}{base}/{target.relative_to(ROOT)}"

        page.write_text(_LINK.sub(outside, page.read_text()))


def build(target: Path) -> str:
    """Build the site; return what the builder complains about, empty if nothing."""
    program = Path(sys.executable).with_name("zensical")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(folder)
        done = subprocess.run(
            [program, "build", "--clean"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env={"NO_COLOR": "1", "PATH": "/usr/bin:/bin"},
        )
        said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
        if done.returncode or re.search(r"\b[1-9]\d* issues? found", said):
            return said
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder / "site", target)
    return ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outdir", nargs="?", type=Path, default=ROOT / "site")
    wrong = build(parser.parse_args().outdir)
    print(wrong or "built", file=sys.stderr)
    sys.exit(1 if wrong else 0)
