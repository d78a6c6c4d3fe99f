"""A sweep of 200 runs on a local Dask cluster: how busy the workers are, and what a killed one costs.

`busyShare` is the time that runs took, all workers together, divided by the number of workers and the time from the
first run's start to the last run's end: 1 is no worker ever idle. It holds on a busy machine too, where seconds don't.
"""

import os
import signal
from collections import Counter
from typing import Any

from dovetail.model.timing.duration import MINUTE
from dovetail.sim.compare import Task
from dovetail.sim.engines import run_tasks
from dovetail.sim.scenarios.scenario import load_scenario

RUNS = 200
LENGTH = MINUTE // 4
WORKERS = (2, 4)


def run() -> list[dict[str, Any]]:
    """Return one row per number of workers, and one with a worker that is killed half-way."""
    tasks = _tasks()
    return [*(one(tasks, count) for count in WORKERS), one(tasks, WORKERS[-1], kill=True)]


def _tasks() -> list[Task]:
    scenario = load_scenario("issue-7146")
    policies = scenario.policies
    return [(scenario, policies[at % len(policies)], at // len(policies), LENGTH) for at in range(RUNS)]


def one(tasks: list[Task], count: int, *, kill: bool = False) -> dict[str, Any]:
    """Run all tasks on this many worker processes."""
    from distributed import LocalCluster

    killed: list[int] = []
    options: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50, "host": "127.0.0.1"}
    with LocalCluster(n_workers=count, threads_per_worker=1, processes=True, **options) as cluster:
        pids = [worker.pid for worker in cluster.workers.values()]

        def half_way(share: float) -> None:
            if kill and not killed and share >= 0.5:
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)

        with cluster.get_client() as watching:
            watching.get_task_stream()
            results = run_tasks(tasks, f"dask://{cluster.scheduler_address.removeprefix('tcp://')}", half_way)
            seen = [entry for entry in watching.get_task_stream() if "run_there" in str(entry["key"])]
    assert len(results) == len(tasks)
    spans = [
        (part["start"], part["stop"]) for entry in seen for part in entry["startstops"] if part["action"] == "compute"
    ]
    first, last = min(start for start, _ in spans), max(stop for _, stop in spans)
    shares = Counter(entry["worker"] for entry in seen)
    return {
        "workers": count,
        "killed": len(killed),
        "runs": len(tasks),
        "repeated": len(seen) - len(tasks),
        "seconds": round(last - first, 1),
        "busyShare": round(sum(stop - start for start, stop in spans) / (count * (last - first)), 3),
        "fewestRunsOfAWorker": min(shares.values()),
        "mostRunsOfAWorker": max(shares.values()),
    }
