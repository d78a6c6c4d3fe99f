"""The clusters that the benchmarks measure, Karpenter's own times on them, and a measurement in a separate process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT.parent / "shared" / "bench"

# Karpenter v1.15.0's own packages, Go 1.26, two cores, time-outs lifted (the benchmark set's README): seconds.
KARPENTER_PASS = {
    "packed-100": 3.5,
    "packed-500": 84.0,
    "packed-1000": 328.0,
    "packedsimple-500": 37.6,
    "packedsimple-1000": 152.0,
}
KARPENTER_PLAN = {
    "mixed-100": 0.4, "mixed-500": 5.1, "mixed-1000": 8.15, "mixed-2000": 15.8, "mixed-5000": 56.4,
    "packed-100": 4.7, "packed-500": 88.5, "packed-1000": 336.2, "packedsimple-500": 38.9, "packedsimple-1000": 154.5,
}  # fmt: skip
KARPENTER_MIB = {
    "mixed-100": 100, "mixed-500": 443, "mixed-1000": 842, "mixed-2000": 1498, "mixed-5000": 4048,
    "packed-100": 122, "packed-500": 498, "packed-1000": 995, "packedsimple-500": 347, "packedsimple-1000": 671,
}  # fmt: skip


def there() -> list[str]:
    """Return the clusters of the benchmark set, smallest first; empty if the set is not next to the project."""
    if not BENCH.is_dir():
        print(f"no benchmark clusters at {BENCH}: nothing to time", file=sys.stderr)
        return []
    found = [path.name for path in BENCH.iterdir() if (path / "cluster.json.gz").exists()]
    return sorted(found, key=lambda name: (name.split("-")[0], int(name.split("-")[1])))


def measured(module: str, name: str, repeat: int = 3) -> dict[str, Any]:
    """Return the best of several runs of `python -m MODULE NAME`, each in a fresh process that prints one JSON line."""
    best: dict[str, Any] | None = None
    for _ in range(repeat):
        done = subprocess.run(
            [sys.executable, "-m", module, name], cwd=ROOT, capture_output=True, text=True, check=True
        )
        row = json.loads(done.stdout.splitlines()[-1])
        if best is None or row["seconds"] < best["seconds"]:
            best = row
        if row["seconds"] > 20:
            break
    assert best is not None
    print(f"{name}: {best}", file=sys.stderr)
    return best
