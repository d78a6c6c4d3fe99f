"""Two trees side by side in one run: `python -m benchmarks.compare OTHER engine:packed-2000 simulator:250:1 ...`.

Runs each measurement in turn, in processes of their own, with the sources of the other tree (a worktree of an earlier
commit) and with these, so that a busy machine slows both alike; prints a table in Markdown. All times are CPU seconds.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TURNS = 2
FIGURES = {
    "engine": ("firstRoundSeconds", "roundAfterOneChangeMilliseconds", "roundAfterAPodLeftMilliseconds"),
    "kernel": ("snapshotSeconds", "passSeconds"),
    "simulator": ("seconds",),
    "plan": ("cpuSeconds",),
}


def measure(tree: Path, module: str, name: str) -> dict[str, Any]:
    """Return one measurement of a tree: by this benchmark, or by the tree's own if its modules are elsewhere."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    for folder in (ROOT, tree):
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{module}", name],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return row
    raise RuntimeError(done.stderr)


def main() -> None:
    """Run the named measurements on both trees in turn and print the best of each."""
    other, wanted = Path(sys.argv[1]).resolve(), sys.argv[2:]
    print("| measurement | figure | before | now | times |\n|---|---|---|---|---|")
    for entry in wanted:
        module, name = entry.split(":", 1)
        rows = [(measure(other, module, name), measure(ROOT, module, name)) for _ in range(TURNS)]
        for figure in FIGURES[module]:
            if not all(figure in row for pair in rows for row in pair):
                continue  # an older tree's own benchmark does not have it yet
            before, now = (min(pair[side][figure] for pair in rows) for side in (0, 1))
            print(f"| {module} {name} | {figure} | {before} | {now} | {before / now:.1f} |", flush=True)


if __name__ == "__main__":
    main()
