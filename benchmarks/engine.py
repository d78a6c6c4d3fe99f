"""Measure the engine alone: reading events, a round when nothing changed, and a round after one pod changed."""

import json
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from benchmarks.clusters import BENCH, measured, there


def run() -> list[dict[str, Any]]:
    """Measure the mixed and packed clusters."""
    names = [name for name in there() if not name.startswith("packedsimple")]
    names.extend(f"{name}:recommended" for name in ("packed-1000", "mixed-5000") if name in names)
    return [measured("benchmarks.engine", name, repeat=2) for name in names]


def one(case: str) -> dict[str, Any]:
    """Measure an observing engine on one cluster: the first round, a second one, and rounds after small changes.

    `case`: the cluster, or `CLUSTER:recommended` for the recommended settings.
    """
    import msgspec

    from dovetail.api.catalogue import load_catalogue
    from dovetail.api.reading.decode import load_cluster
    from dovetail.lifecycle.engine import Engine
    from dovetail.lifecycle.engine_state import EngineRole
    from dovetail.lifecycle.messages import ClockAdvanced, Event, ObjectObserved, ObjectVanished, Synced
    from dovetail.model.cluster import FIELD_OF
    from dovetail.model.settings import DOVETAIL, RECOMMENDED

    name, _, policy = case.partition(":")
    settings = RECOMMENDED if policy == "recommended" else DOVETAIL
    folder = BENCH / name
    now = datetime.fromisoformat(json.loads((folder / "about.json").read_text())["now"])
    cluster = load_cluster([folder / "cluster.json.gz"])
    pools = tuple(pool.metadata.name for pool in cluster.node_pools)
    engine = Engine(
        replace(settings, pools=pools), load_catalogue(folder / "catalog.json.gz"), EngineRole(observe=True)
    )
    objects = [item for field in FIELD_OF.values() for item in getattr(cluster, field)]
    begin = time.process_time()
    for item in objects:
        engine.handle(ObjectObserved(object=item), now)
    fed = time.process_time()
    engine.handle(Synced(), now)
    decided = time.process_time()
    idle = []
    for step in range(1, 31):
        start = time.process_time()
        engine.handle(ClockAdvanced(), now + timedelta(milliseconds=step))
        idle.append(time.process_time() - start)
    bound = [pod for pod in cluster.pods if pod.spec.node_name]
    changes: list[Event] = []
    for step, pod in enumerate(bound[:10], start=1):
        meta = msgspec.structs.replace(pod.metadata, labels={**pod.metadata.labels, "touched": str(step)})
        changes.append(ObjectObserved(object=msgspec.structs.replace(pod, metadata=meta)))
    for pod in bound[20:200:20]:
        meta = pod.metadata
        changes.append(ObjectVanished(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid))
    took = []
    for step, change in enumerate(changes, start=1):
        engine.handle(change, now + timedelta(seconds=11 * step))
        start = time.process_time()
        engine.handle(ClockAdvanced(), now + timedelta(seconds=11 * step + 10))
        took.append(time.process_time() - start)
    changed, left = took[:10], took[10:]
    return {
        "cluster": case,
        "nodes": len(cluster.nodes),
        "pods": len(cluster.pods),
        "seconds": round(decided - begin, 3),
        "eventsPerSecond": round(len(objects) / (fed - begin)),
        "firstRoundSeconds": round(decided - fed, 4),
        "idleRoundMicroseconds": round(sorted(idle)[len(idle) // 2] * 1e6, 1),
        "roundAfterOneChangeMilliseconds": round(sorted(changed)[len(changed) // 2] * 1e3, 2),
        "roundAfterAPodLeftMilliseconds": round(sorted(left)[len(left) // 2] * 1e3, 2),
    }


if __name__ == "__main__":
    print(json.dumps(one(sys.argv[1])))
