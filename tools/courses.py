"""Writes the courses that `tools/record_karpenter.py` plays beside the real Karpenter: objects, and what changes when.

Three kinds beside `off-peak`, which is the shared recording's: services that grow and shrink twice with PDBs and a spot
pool (`day-night`), bursts of short-lived large pods beside steady services (`bursts`), and a template that changes
while services scale (`roll`). All from fixed seeds. The times are seconds after the first pod.

Run from the project root: .venv/bin/python tools/courses.py NAME > FILE
"""

import json
import random
import sys
from collections.abc import Callable
from typing import Any

Tree = dict[str, Any]
ZONES = "topology.kubernetes.io/zone"
SIZES = ((100, 256), (250, 512), (400, 512), (500, 1024), (800, 1024), (1000, 2048))


def pool(name: str, *, after: str, budget: str, capacity: str = "on-demand", weight: int = 0) -> Tree:
    """Return a NodePool of small machines."""
    requirements = [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2", "4", "8"]},
    ]
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    spec: Tree = {
        "template": {"spec": {"requirements": requirements, "nodeClassRef": reference, "expireAfter": "720h"}},
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": after,
            "budgets": [{"nodes": budget}],
        },
    }
    if weight:
        spec["weight"] = weight
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def deployment(name: str, replicas: int, size: tuple[int, int], on: str = "", *, spread: bool = False) -> Tree:
    """Return a Deployment; `on` names its pool."""
    spec: Tree = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": f"{size[0]}m", "memory": f"{size[1]}Mi"}}}
        ],
    }
    if on:
        spec["nodeSelector"] = {"karpenter.sh/nodepool": on}
    if spread:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": ZONES,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": name}},
            }
        ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }


def budget_of(app: str, most: int) -> Tree:
    """Return a PDB for one app."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"maxUnavailable": most, "selector": {"matchLabels": {"app": app}}},
    }


def step(t: float, name: str, replicas: int) -> Tree:
    """Return one scaling."""
    return {"t": round(t, 1), "deployment": name, "replicas": replicas}


def day_night(dice: random.Random) -> Tree:
    """Services that grow and shrink twice, half of them on spot, a third with a PDB."""
    apps = [(f"app{number:02d}", dice.randint(2, 5), dice.choice(SIZES)) for number in range(16)]
    scale = []
    for name, least, _ in apps:
        most = least * 3
        for t in range(60, 1500, 60):
            wave = (t % 750) / 750
            share = 2 * wave if wave < 0.5 else 2 - 2 * wave
            if dice.random() < 0.45:
                scale.append(step(t + dice.uniform(0, 20), name, round(least + (most - least) * share)))
    return {
        "about": "16 services grow to three times their size and shrink again, twice in 25 minutes; half run on spot",
        "nodePool": pool("steady", after="30s", budget="20%"),
        "objects": [
            pool("spot", after="15s", budget="30%", capacity="spot"),
            *(budget_of(name, 1) for name, _, _ in apps[::3]),
        ],
        "deployments": [
            deployment(name, count, size, ("steady", "spot")[at % 2], spread=at % 4 == 0)
            for at, (name, count, size) in enumerate(apps)
        ],
        "scale": scale,
    }


def bursts(dice: random.Random) -> Tree:
    """Short-lived large pods that come at once and leave after two to five minutes, beside steady services."""
    steady = [(f"app{number:02d}", dice.randint(3, 7), dice.choice(SIZES)) for number in range(10)]
    batch = [(f"batch{number:02d}", dice.choice(((500, 1024), (1000, 1024), (1900, 3072)))) for number in range(8)]
    scale = []
    for t in range(100, 1380, 160):
        for name, _ in dice.sample(batch, 3):
            begins = t + dice.uniform(0, 60)
            scale += [step(begins, name, dice.randint(3, 9)), step(begins + dice.uniform(110, 290), name, 0)]
    for t in range(150, 1500, 110):
        name, count, _ = dice.choice(steady)
        scale.append(step(t, name, max(1, count + dice.randint(-2, 2))))
    return {
        "about": "bursts of three to nine large pods that leave after two to five minutes, beside ten steady services",
        "nodePool": pool("default", after="20s", budget="25%"),
        "deployments": [
            *(deployment(name, count, size) for name, count, size in steady),
            *(deployment(name, 0, size) for name, size in batch),
        ],
        "scale": scale,
    }


def roll(dice: random.Random) -> Tree:
    """A pool's template changes twice while services scale; one node at a time, half of the services have a PDB."""
    apps = [(f"app{number:02d}", dice.randint(3, 8), dice.choice(SIZES)) for number in range(14)]
    scale = []
    for t in range(90, 1500, 75):
        for name, count, _ in dice.sample(apps, 2):
            scale.append(step(t + dice.uniform(0, 10), name, max(1, count + dice.randint(-2, 3))))
    return {
        "about": "the pool's template changes after 5 and after 16 minutes while 14 services scale; budget of 2 nodes",
        "nodePool": pool("default", after="60s", budget="2"),
        "objects": [budget_of(name, 1) for name, _, _ in apps[::2]],
        "deployments": [
            deployment(name, count, size, spread=at % 3 == 0) for at, (name, count, size) in enumerate(apps)
        ],
        "scale": scale,
        "patches": [
            {"t": 300.0, "nodePool": "default", "patch": _labelled("2")},
            {"t": 960.0, "nodePool": "default", "patch": _labelled("3")},
        ],
    }


def _labelled(revision: str) -> Tree:
    return {"spec": {"template": {"metadata": {"labels": {"example.com/revision": revision}}}}}


COURSES: dict[str, Callable[[random.Random], Tree]] = {"day-night": day_night, "bursts": bursts, "roll": roll}


def main() -> int:
    """Write one course."""
    if len(sys.argv) != 2 or sys.argv[1] not in COURSES:
        print(f"usage: courses.py {'|'.join(COURSES)}", file=sys.stderr)
        return 2
    json.dump(COURSES[sys.argv[1]](random.Random(20261118)), sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
