"""Two trees side by side in one run: `python -m benchmarks.compare OTHER engine:packed-2000 simulator:250:1 ...`.

Runs each measurement in turn, in processes of their own, with the sources of the other tree (a worktree of an earlier
commit) and with these, so that a busy machine slows both alike; prints a table in Markdown. All times are CPU seconds.
`DOVETAIL_BEFORE=OTHER python -m benchmarks compare` puts a table of `ASKED` on the page.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TURNS = 2
ASKED = (
    *("plan:mixed-1000", "plan:mixed-5000"),
    *("engine:packed-1000", "engine:mixed-5000", "engine:packed-1000:recommended", "engine:mixed-5000:recommended"),
    *("whatif:mixed-100:1h:consolidateAfter=5m", "whatif:mixed-100:1h:base=recommended"),
    "whatif:mixed-1000:10m:consolidateAfter=5m",
    *("simulator:400:1", "simulator:400:1:recommended"),
)
FIGURES = {
    "engine": ("firstRoundSeconds", "roundAfterOneChangeMilliseconds", "roundAfterAPodLeftMilliseconds"),
    "kernel": ("snapshotSeconds", "passSeconds"),
    "simulator": ("seconds",),
    "plan": ("cpuSeconds",),
    "whatif": ("coreSeconds",),
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


def compared(other: Path, wanted: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Run measurements on both trees in turn and yield the best of each."""
    for entry in wanted:
        module, name = entry.split(":", 1)
        rows = [(measure(other, module, name), measure(ROOT, module, name)) for _ in range(TURNS)]
        for figure in FIGURES[module]:
            if not all(figure in row for pair in rows for row in pair):
                continue  # an older tree's own benchmark does not have it yet
            before, now = (min(pair[side][figure] for pair in rows) for side in (0, 1))
            yield {"measurement": f"{module} {name}", "figure": figure, "before": before, "now": now}


def run() -> list[dict[str, Any]]:
    """Return the rows of the page; without an earlier tree there is nothing to compare with."""
    before = os.environ.get("DOVETAIL_BEFORE")
    if before is None:
        raise SystemExit("name a worktree of an earlier commit: DOVETAIL_BEFORE=TREE python -m benchmarks compare")
    return list(compared(Path(before).resolve(), ASKED))


def main() -> None:
    """Print the named measurements as a table."""
    print("| measurement | figure | before | now | times |\n|---|---|---|---|---|")
    for row in compared(Path(sys.argv[1]).resolve(), sys.argv[2:]):
        cells = row["measurement"], row["figure"], row["before"], row["now"], f"{row['before'] / row['now']:.1f}"
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
