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
    {workload}
    pdb: {{maxUnavailable: "10%"}}
  - {{name: node-agent, kind: DaemonSet, cpu: 60m, memory: 96Mi}}
policies:
  both: {{disruption: {{consolidationGracePeriod: 10m, consolidationSavingsThreshold: 0.01}}}}
"""
_LIKE = """
    cpu: [300m, 400m, 500m, 600m]
    memory: [512Mi, 1Gi, 1536Mi]
    curve: {low: 44, high: 50, peak: 14h, noise: 0.02, every: 4m-6m}
""".strip()
_UNLIKE = """
    cpu: [100m, 250m, 350m, 500m, 750m, 1100m, 1500m]
    memory: [256Mi, 512Mi, 900Mi, 1536Mi, 3Gi]
    curve: {low: 16, high: 24, peak: 10h, noise: 0.1, every: 3m-7m}
""".strip()


def run() -> list[dict[str, Any]]:
    """Measure a whole day at 500 nodes, one hour at 250 to 10,000 nodes for the growth, unlike pods, `recommended`."""
    sizes = ["250:1", "500:1", "1000:1", "2000:1", "5000:1", "10000:1", "500:24"]
    sizes += ["400:1", "400:1:recommended", "400:1:unlike", "1600:1:unlike"]
    return [measured("benchmarks.simulator", size, repeat=1) for size in sizes]


def one(size: str) -> dict[str, Any]:
    """Measure one run, given as `NODES:HOURS`; also `:unlike`, pods of mixed sizes with more noise, `:recommended`."""
    from dovetail.sim.run import run_scenario
    from dovetail.sim.scenarios.scenario import parse_scenario, recommended_policy

    parts = size.split(":")
    nodes, hours, unlike = int(parts[0]), int(parts[1]), "unlike" in parts[2:]
    services, workload = (nodes // 2, _UNLIKE) if unlike else (nodes * 16 // 47, _LIKE)
    text = _SCENARIO.format(nodes=nodes, pods=nodes * 16, services=services, workload=workload)
    scenario = parse_scenario(text, "benchmark")
    policy = recommended_policy() if "recommended" in parts[2:] else scenario.policies[0]
    begin = time.process_time()
    result = run_scenario(scenario, policy, 0, hours * 3600 * 10**9)
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
