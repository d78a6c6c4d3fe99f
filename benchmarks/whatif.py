"""`whatif` on mixed clusters, all columns of one seed together: `python -m benchmarks.whatif mixed-100:2h:FIELD=VALUE`.

`DOVETAIL_BEFORE=TREE python -m benchmarks whatif` also measures a worktree of an earlier commit, in turn with this one,
so that a busy machine slows both alike. `coreSeconds`: CPU time of all processes; `firstFiguresAfter`: how much simulated
time the first figures are for that are shown meanwhile.
"""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.clusters import there
from benchmarks.questions import inputs_of

ROOT = Path(__file__).resolve().parents[1]
ASKED = ("mixed-100:1h:consolidateAfter=5m", "mixed-100:1h:base=recommended", "mixed-1000:10m:consolidateAfter=5m")


def run() -> list[dict[str, Any]]:
    """Return one row for every question, with the earlier commit's figure beside it if there is one."""
    before = os.environ.get("DOVETAIL_BEFORE")
    rows = []
    for asked in ASKED:
        if asked.partition(":")[0] not in there():
            continue
        row = one(asked, ROOT)
        if before:
            row["coreSecondsBefore"] = one(asked, Path(before).resolve())["coreSeconds"]
        rows.append(row)
    return rows


def one(asked: str, tree: Path) -> dict[str, Any]:
    """Ask one question in its own process, with the sources of a tree; return its CPU time."""
    name, length, change = asked.split(":", 2)
    words = ("whatif", "--set", change, "--for", length, "--seeds", "1", "-o", "json")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from dovetail.cli.main import main; sys.exit(main(sys.argv[1:]))",
         *words, *inputs_of(name)],
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    looks = re.findall(r"after (\S+) of \S+, first seed", done.stderr)
    return {
        "cluster": name,
        "length": length,
        "change": change,
        "firstFiguresAfter": looks[0] if looks else None,
        "coreSeconds": round(spent, 1),
    }


if __name__ == "__main__":
    print(json.dumps(one(sys.argv[1], Path(os.environ.get("PYTHONPATH", str(ROOT / "src"))).parent)))
