"""Measure the kernel alone: decoding, building the snapshot, and one simulation per node, in sequence."""

import json
import resource
import sys
import time
from dataclasses import replace
from datetime import datetime
from typing import Any

from benchmarks.clusters import BENCH, KARPENTER_MIB, KARPENTER_PASS, measured, there


def run() -> list[dict[str, Any]]:
    """Measure every cluster, each in its own process."""
    rows = []
    for name in there():
        row = measured("benchmarks.kernel", name)
        karpenter = KARPENTER_PASS.get(name)
        row["karpenterPassSeconds"] = karpenter
        row["timesFaster"] = round(karpenter / row["passSeconds"], 1) if karpenter else None
        row["karpenterMemoryMib"] = KARPENTER_MIB.get(name)
        rows.append(row)
    return rows


def one(name: str) -> dict[str, Any]:
    """Return the times of one cluster in this process."""
    from dovetail.api.catalogue import load_catalogue
    from dovetail.api.reading.decode import load_cluster
    from dovetail.cli.inputs import quiet_collector
    from dovetail.model.settings import KARPENTER_1_15
    from dovetail.scheduling.entries import SimulationOptions
    from dovetail.scheduling.simulate import simulate
    from dovetail.scheduling.snapshot import Snapshot

    folder = BENCH / name
    about = json.loads((folder / "about.json").read_text())
    settings = replace(KARPENTER_1_15, spot_to_spot_consolidation=about["settings"]["spotToSpotConsolidation"])
    begin = time.process_time()
    with quiet_collector():
        cluster = load_cluster([folder / "cluster.json.gz"])
    catalogue = load_catalogue(folder / "catalog.json.gz")
    decoded = time.process_time()
    snapshot = Snapshot(cluster, catalogue, settings, datetime.fromisoformat(about["now"]))
    built = time.process_time()
    for index in range(len(snapshot.states)):
        simulate(snapshot, [index], SimulationOptions(new_nodes_max=1))
    passed = time.process_time()
    nodes = len(snapshot.states)
    return {
        "cluster": name,
        "nodes": nodes,
        "pods": len(cluster.pods),
        "seconds": round(passed - begin, 4),
        "decodeSeconds": round(decoded - begin, 4),
        "snapshotSeconds": round(built - decoded, 4),
        "passSeconds": round(passed - built, 4),
        "microsecondsPerSimulation": round((passed - built) / max(1, nodes) * 1e6, 1),
        "memoryMib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


if __name__ == "__main__":
    print(json.dumps(one(sys.argv[1])))
