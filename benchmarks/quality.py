"""How far from the optimum, and how calm: Karpenter, the defaults and what is recommended, side by side.

On clusters with a known optimum (objective: dollars per hour at the end + 0.01 x pods moved; the end is hour six), on
recordings of a real cluster and on the shipped cost scenarios; then the frontier against tuned Karpenter
(`benchmarks.frontier`, whose runs are kept). `BENCH_SEEDS` sets the number of seeds for all of these,
`BENCH_POLICIES` which policies run, with commas.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any, Final

from benchmarks import frontier
from benchmarks.page import quality_tables
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.sim.ledger import Result
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.recording import load_kwok_types, load_recording, replay
from dovetail.sim.scenarios.scenario import Policy, Scenario, load_scenario, recommended_policy

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(__file__).resolve().parent / "data" / "quality"
THETA = 0.01
HOUR = 3600 * 10**9
SCENARIOS: Final = {"issue-7146": 16, "batch-churn": 8, "day-night": 4}
"""The shipped scenarios with a cost policy, and with how many seeds each is run: the dear ones with fewer."""
RECORDINGS: Final = {
    "off-peak": ROOT.parent / "shared" / "recordings" / "off-peak" / "recording.json.gz",
    "up-and-down": ROOT / "tests" / "sim" / "recordings" / "up-and-down.json.gz",
}
TYPES: Final = ROOT.parent / "shared" / "tools" / "types.json"
RECORDING_SEEDS: Final = 16
AT_ONCE = {"consolidateAfter": "15s", "budgets": [{"nodes": "100%"}]}


def policies() -> tuple[Policy, ...]:
    """Return Karpenter, the defaults and the recommended settings; only those in `BENCH_POLICIES`, if it is set."""
    found = (
        Policy(name="karpenter-1.15", settings=KARPENTER_1_15),
        Policy(name="default", settings=DOVETAIL),
        recommended_policy(),
    )
    wanted = os.environ.get("BENCH_POLICIES", "")
    return tuple(policy for policy in found if not wanted or policy.name in wanted.split(","))


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
        "optimumDollarsPerHour": round(best["cost"], 4),
        "optimumPodsMoved": best["moved"],
    }


def clusters() -> Iterator[dict[str, Any]]:
    """Yield a row for every cluster with a known optimum and every policy."""
    lines = (DATA / "optimum.jsonl").read_text().splitlines()
    best = {row["name"]: row for row in map(json.loads, lines) if abs(row["theta"] - THETA) < 1e-9}
    for policy in policies():
        own = []
        for file in sorted(DATA.glob("*.about.json")):
            about = json.loads(file.read_text())
            own.append(_cluster(about, best[about["name"]], policy))
            yield own[-1]
        gaps, moved = [row["gapPercent"] for row in own], sum(row["podsMoved"] for row in own)
        print(
            f"{policy.name:16s} mean gap {mean(gaps):5.1f} %  worst {max(gaps):5.1f} %  pods moved {moved}", flush=True
        )


def courses() -> Iterator[dict[str, Any]]:
    """Yield a row for every recording and scenario and every policy: means over the seeds."""
    types = load_kwok_types(TYPES) if TYPES.exists() else None
    for name, file in RECORDINGS.items() if types is not None else ():
        if file.exists():
            recording = load_recording(file)
            for policy in policies():
                found = [
                    replay(recording, types, policy.settings, policy.disruption or None, seed, policy.name)
                    for seed in range(_seeds(RECORDING_SEEDS))
                ]
                yield _course("recording", name, policy, found)
    for name, seeds in SCENARIOS.items():
        for policy in policies():
            found = [run_scenario(load_scenario(name), policy, seed) for seed in range(_seeds(seeds))]
            yield _course("scenario", name, policy, found)


def _seeds(usual: int) -> int:
    return int(os.environ.get("BENCH_SEEDS", usual))


def _course(kind: str, name: str, policy: Policy, found: list[Result]) -> dict[str, Any]:
    row = {
        "kind": kind,
        "name": name,
        "policy": policy.name,
        "seeds": len(found),
        "dollars": round(mean(one.cost for one in found) / 10**18, 3),
        "podsMoved": round(mean(one.pods_disrupted for one in found), 1),
        "podsMovedMoreThanOnce": round(mean(one.pods_disrupted_more_than_once for one in found), 1),
    }
    print(f"{name:12s} {policy.name:16s} ${row['dollars']:.3f}  moved {row['podsMoved']}", flush=True)
    return row


def run() -> list[dict[str, Any]]:
    """Run every policy on every cluster, recording and scenario, and return a table."""
    edge = frontier.rows()
    rows = [*clusters(), *courses(), *edge]
    print("\n".join([*quality_tables(rows), "", *frontier.table(edge), "", *frontier.summary(edge)]))
    return rows
