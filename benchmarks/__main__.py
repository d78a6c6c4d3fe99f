"""Runs the benchmarks: `python -m benchmarks [kernel|plan|questions|engine|simulator|sweep|whatif|traces|...]`.

All but `whatif`, `compare`, `quality`, `traces` (which needs ../shared) and those on a real API server (`first`, `rest`, `live`).

Writes docs/benchmarks/NAME.json and the page docs/benchmarks/README.md with tables and a plot, stamped with the commit.
"""

import argparse
import importlib
import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.page import write_page

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "benchmarks"
NAMES = (
    *("kernel", "plan", "questions", "engine", "simulator", "sweep"),
    *("whatif", "compare", "quality", "traces", "first", "rest", "live"),
)


def commit() -> str:
    """Return the commit that is measured, with a mark if the tree has uncommitted changes."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def main() -> None:
    """Run the named benchmarks and rewrite the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help=f"which (default: {', '.join(NAMES[:6])})")
    names = parser.parse_args().names or NAMES[:6]
    OUT.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(f"== {name}", file=sys.stderr)
        rows = importlib.import_module(f"benchmarks.{name}").run()
        document = {
            "benchmark": name,
            "commit": commit(),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "rows": rows,
        }
        (OUT / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    write_page(OUT)


if __name__ == "__main__":
    main()
