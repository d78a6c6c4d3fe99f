"""How far from the optimum, and how calm: policies on clusters with a known optimum and on the shipped cost scenarios.

Objective on the clusters: dollars per hour at the end + 0.01 x pods moved; the end is hour six. `BENCH_SEEDS` sets the
number of seeds of the scenarios (2 by default).
"""

import json
import os
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import Policy, Scenario, load_scenario, recommended_policy

DATA = Path(__file__).resolve().parent / "data" / "quality"
THETA = 0.01
HOUR = 3600 * 10**9
SCENARIOS = ("issue-7146", "batch-churn", "day-night")
AT_ONCE = {"consolidateAfter": "15s", "budgets": [{"nodes": "100%"}]}


def policies() -> tuple[Policy, ...]:
    """Karpenter, the defaults, and what is recommended."""
    return (
        Policy(name="karpenter-1.15", settings=KARPENTER_1_15),
        Policy(name="default", settings=DOVETAIL),
        recommended_policy(),
    )


def _scenario(about: dict[str, Any]) -> Scenario:
    tree = {
        "name": about["name"],
        "until": "6h",
        "warmUp": "1m",
        "start": "2026-05-13T15:30:00Z",
        "zones": about["zones"],
        "catalogue": "aws:us-east-1",
        "types": about["types"],
        "cluster": str(DATA / f"{about['name']}.json.gz"),
        "cloud": {
            "create": "2s-4s",
            "register": "20s-40s",
            "ready": "5s-12s",
            "shutdown": "3s-8s",
            "zoneChoice": "cheapest",
        },
        "policies": {"x": {}},
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(tree, file)
        file.flush()
        return load_scenario(file.name)


def _cluster(about: dict[str, Any], best: dict[str, Any], policy: Policy) -> dict[str, Any]:
    scenario = _scenario(about)
    at_once = Policy(name=policy.name, settings=policy.settings, disruption={**policy.disruption, **AT_ONCE})
    whole, before = (run_scenario(scenario, at_once, 0, hours * HOUR) for hours in (6, 5))
    rate = (whole.cost - before.cost) / 10**18
    objective = rate + THETA * whole.pods_disrupted
    return {
        "kind": "cluster",
        "name": about["name"],
        "policy": policy.name,
        "dollarsPerHour": round(rate, 4),
        "podsMoved": whole.pods_disrupted,
        "gapPercent": round(100 * (objective / best["obj"] - 1), 2),
    }


def run() -> list[dict[str, Any]]:
    """Every policy on every cluster and scenario, with a table."""
    lines = (DATA / "optimum.jsonl").read_text().splitlines()
    best = {row["name"]: row for row in map(json.loads, lines) if abs(row["theta"] - THETA) < 1e-9}
    seeds = int(os.environ.get("BENCH_SEEDS", "2"))
    rows: list[dict[str, Any]] = []
    for policy in policies():
        for file in sorted(DATA.glob("*.about.json")):
            about = json.loads(file.read_text())
            rows.append(_cluster(about, best[about["name"]], policy))
        own = [row for row in rows if row["policy"] == policy.name and row["kind"] == "cluster"]
        gaps, moved = [row["gapPercent"] for row in own], sum(row["podsMoved"] for row in own)
        print(
            f"{policy.name:16s} mean gap {mean(gaps):5.1f} %  worst {max(gaps):5.1f} %  pods moved {moved}", flush=True
        )
    for name in SCENARIOS:
        for policy in policies():
            found = [run_scenario(load_scenario(name), policy, seed) for seed in range(seeds)]
            row = {
                "kind": "scenario",
                "name": name,
                "policy": policy.name,
                "seeds": seeds,
                "dollars": round(mean(one.cost for one in found) / 10**18, 3),
                "podsMoved": round(mean(one.pods_disrupted for one in found), 1),
                "podsMovedMoreThanOnce": round(mean(one.pods_disrupted_more_than_once for one in found), 1),
            }
            rows.append(row)
            print(f"{name:12s} {policy.name:16s} ${row['dollars']:.3f}  moved {row['podsMoved']}", flush=True)
    return rows
