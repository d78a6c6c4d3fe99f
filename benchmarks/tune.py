"""What `dovetail tune` takes on a long recording: the search that drops policies early against one that plays all whole.

`python -m benchmarks.tune` prints rows of JSON. `small` records 42 hours of a cluster of about ten nodes and searches it
both ways: CPU seconds, and whether the same policy is chosen. `rates` measures CPU seconds per simulated hour of each
policy on a stretch of 200 nodes.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.support.recorded_world import record_run

from benchmarks.simulator import _LIKE, _SCENARIO
from dovetail.model.settings import KARPENTER_1_15
from dovetail.recordings.read import load_cluster_recording
from dovetail.sim.compare import Task
from dovetail.sim.halving import Plan, PolicySearch, plan_of, search
from dovetail.sim.ledger import Result
from dovetail.sim.recorded import policy_of_today, recorded_scenario
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import Policy, Scenario, parse_scenario
from dovetail.sim.scenarios.simulated_cloud import catalogue_of
from dovetail.sim.tune import RESTART_PRICE, Tuning, choices, more_choices, tuning_of
from dovetail.sim.world.clock import HOUR, MINUTE

_SMALL: Final = """
    cpu: [250m, 400m, 600m, 900m]
    memory: [256Mi, 512Mi, 1Gi, 2Gi]
    curve: {low: 2, high: 8, peak: 14h, noise: 0.06, every: 8m-12m}
""".strip()
_WEEK: Final = 168


def recorded(folder: Path, services: int, workload: str, hours: int) -> Scenario:
    """Record a simulated Karpenter for some hours and return the scenario that replays it."""
    text = _SCENARIO.format(nodes=services, pods=0, services=services, workload=workload)
    scenario = parse_scenario(text, "benchmark")
    record_run(scenario, Policy(name="k", settings=KARPENTER_1_15), folder, length=hours * HOUR, seed=7)
    recording = load_cluster_recording(folder)
    return recorded_scenario(recording, catalogue_of(scenario), (policy_of_today(recording),))


def policies(scenario: Scenario) -> list[Policy]:
    """Return today's policy and all others."""
    assert scenario.recorded is not None
    return [policy_of_today(scenario.recorded), *(choice.policy() for choice in (*choices(), *more_choices()))]


def searched(scenario: Scenario, plan: Plan | None) -> tuple[PolicySearch, Tuning, float]:
    """Search in this process; return what was found and the CPU seconds."""
    begin = time.process_time()

    def run(label: str, tasks: Sequence[Task]) -> list[Result]:
        print(f"{time.process_time() - begin:.0f} s: {label}", file=sys.stderr, flush=True)
        return [run_scenario(*task) for task in tasks]

    tried = policies(scenario)
    found = search(scenario, tried, 1, RESTART_PRICE, plan, run)
    tuning = tuning_of(
        tried[0], (*choices(), *more_choices()), found, pools=(), restart_price=RESTART_PRICE, calibration=None
    )
    return found, tuning, time.process_time() - begin


def small() -> dict[str, Any]:
    """Search the small recording both ways."""
    with TemporaryDirectory() as folder:
        scenario = recorded(Path(folder), 10, _SMALL, 42)
        found, tuning, seconds = searched(scenario, plan_of(scenario))
        _, whole, whole_seconds = searched(scenario, None)
    best = {point.policy: point for point in whole.points}
    totals = {name: point.totals(RESTART_PRICE)[0] for name, point in best.items()}
    return {
        "size": "small",
        "hours": 42,
        "policies": len(whole.points),
        "seconds": round(seconds, 1),
        "secondsWhole": round(whole_seconds, 1),
        "droppedFirst": sum(each.round == 1 for each in found.dropped),
        "droppedSecond": sum(each.round == 2 for each in found.dropped),
        "recalled": len(found.recalled),
        "chosen": tuning.chosen.policy,
        "chosenWhole": whole.chosen.policy,
        "chosenTotal": round(totals[tuning.chosen.policy], 4),
        "leastTotal": round(min(totals.values()), 4),
        "frontier": [point.policy for point in tuning.on_frontier()],
        "frontierWhole": [point.policy for point in whole.on_frontier()],
    }


def rates(every: int = 1) -> list[dict[str, Any]]:
    """Measure CPU seconds per simulated hour at 200 nodes, of each policy or of one in so many."""
    rows = []
    with TemporaryDirectory() as folder:
        scenario = recorded(Path(folder), 200 * 16 // 47, _LIKE, 4)
        part = Plan(rounds=(), settle=40 * MINUTE, measured=80 * MINUTE).scenario(scenario, HOUR)
        for policy in policies(scenario)[::every]:
            begin = time.process_time()
            result = run_scenario(part, policy, 0)
            seconds = time.process_time() - begin
            row = {"policy": policy.name, "nodes": result.nodes_at_end, "secondsAnHour": round(seconds / 2, 2)}
            print(json.dumps(row), flush=True)
            rows.append(row)
    return rows


if __name__ == "__main__":
    if sys.argv[1:] == ["small"]:
        print(json.dumps(small()))
    else:
        rates(*(int(word) for word in sys.argv[1:]))
