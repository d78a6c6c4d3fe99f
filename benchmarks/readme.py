"""The table of the README: the cluster of Karpenter's issue 7146 under Karpenter as people tune it, and `recommended`.

`python -m benchmarks.readme [SEEDS]` runs it and writes docs/benchmarks/readme.json; a test compares the README with it.
"""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any, Final

from benchmarks.frontier import KARPENTERS
from dovetail.model.money import UNIT
from dovetail.model.settings import KARPENTER_1_15
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import Policy, load_scenario, recommended_policy

ROOT: Final = Path(__file__).resolve().parents[1]
OUT: Final = ROOT / "docs" / "benchmarks" / "readme.json"
SCENARIO: Final = "issue-7146"
TUNED: Final = ("karpenter", "karpenter 5m", "karpenter 15m", "karpenter Balanced", "karpenter WhenEmpty")
WORDS: Final = {
    "karpenter": "Karpenter v1.15",
    "karpenter 5m": "Karpenter, `consolidateAfter: 5m`",
    "karpenter 15m": "Karpenter, `consolidateAfter: 15m`",
    "karpenter Balanced": "Karpenter, `Balanced`",
    "karpenter WhenEmpty": "Karpenter, `WhenEmpty`",
    "recommended": "Dovetail, `recommended`",
}


def measured(seeds: int) -> list[dict[str, Any]]:
    """Return a row for each policy: means over the seeds."""
    policies = [Policy(name=name, settings=KARPENTER_1_15, disruption=KARPENTERS[name]) for name in TUNED]
    rows = []
    for policy in (*policies, recommended_policy()):
        runs = [run_scenario(load_scenario(SCENARIO), policy, seed) for seed in range(seeds)]
        row = {
            "policy": policy.name,
            "seeds": seeds,
            "dollars": round(mean(run.cost / UNIT for run in runs), 3),
            "podsDisrupted": round(mean(run.pods_disrupted for run in runs), 1),
            "podsDisruptedMoreThanOnce": round(mean(run.pods_disrupted_more_than_once for run in runs), 1),
            "shortLivedNodes": round(mean(run.short_lived_nodes for run in runs), 1),
        }
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table as Markdown."""
    lines = [
        "| six hours, the same world | cost | pod restarts | restarted more than once | nodes under 15 min |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {WORDS[row['policy']]} | ${row['dollars']:.2f} | {row['podsDisrupted']:.0f} "
        f"| {row['podsDisruptedMoreThanOnce']:.0f} | {row['shortLivedNodes']:.0f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    found = measured(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
    document = {"benchmark": "readme", "scenario": SCENARIO, "date": f"{datetime.now(UTC):%Y-%m-%d}", "rows": found}
    OUT.write_text(json.dumps(document, indent=1) + "\n")
