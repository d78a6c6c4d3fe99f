"""Measure a simulated day of a large cluster: how much faster than real time, where the time goes, how it grows."""

import json
import resource
import sys
import time
from typing import Any

from benchmarks.clusters import measured

_SCENARIO = """
name: big-{nodes}
about: A fleet of about {nodes} nodes and {pods} pods that follows the sun a little, scaled every few minutes.
start: "2026-01-05T06:00:00Z"
until: 24h
warmUp: 20m
zones: [zone-a, zone-b, zone-c]
catalogue: aws:us-east-1
types: ["m5.xlarge", "m5.2xlarge", "m6a.xlarge", "m6a.2xlarge", "c6a.2xlarge"]
pools:
  - name: default
    requirements: [{{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}]
    disruption: {{consolidateAfter: 1m, budgets: [{{nodes: "10%"}}]}}
workloads:
  - name: web
    count: {services}
    cpu: [300m, 400m, 500m, 600m]
    memory: [512Mi, 1Gi, 1536Mi]
    curve: {{low: 44, high: 50, peak: 14h, noise: 0.02, every: 4m-6m}}
    pdb: {{maxUnavailable: "10%"}}
  - {{name: node-agent, kind: DaemonSet, cpu: 60m, memory: 96Mi}}
policies:
  both: {{disruption: {{consolidationGracePeriod: 10m, consolidationSavingsThreshold: 0.01}}}}
"""


def run() -> list[dict[str, Any]]:
    """Measure a whole day at 500 nodes, and one hour at 250 to 10,000 nodes for the growth."""
    sizes = ["250:1", "500:1", "1000:1", "2000:1", "5000:1", "10000:1", "500:24"]
    return [measured("benchmarks.simulator", size, repeat=1) for size in sizes]


def one(size: str) -> dict[str, Any]:
    """Measure one run, given as `NODES:HOURS`."""
    from dovetail.sim.run import run_scenario
    from dovetail.sim.scenarios.scenario import parse_scenario

    nodes, hours = (int(part) for part in size.split(":"))
    text = _SCENARIO.format(nodes=nodes, pods=nodes * 16, services=nodes * 16 // 47)
    scenario = parse_scenario(text, "benchmark")
    begin = time.process_time()
    result = run_scenario(scenario, scenario.policies[0], 0, hours * 3600 * 10**9)
    seconds = time.process_time() - begin
    return {
        "size": size,
        "nodes": result.nodes_at_end,
        "pods": result.series.pods[-1],
        "simulatedHours": hours,
        "seconds": round(seconds, 1),
        "timesFasterThanReal": round(hours * 3600 / seconds),
        "rounds": result.rounds,
        "events": result.events,
        "podsDisrupted": result.pods_disrupted,
        "violations": len(result.violations),
        "memoryMib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


if __name__ == "__main__":
    print(json.dumps(one(sys.argv[1])))
