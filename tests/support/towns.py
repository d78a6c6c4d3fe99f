"""Random small clusters for properties: a few pools and nodes in every state that decisions look at."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from dovetail.model import names
from tests.support.design_world import Town, kind

KINDS = (
    kind("s", "0.05", cpu=2, memory=8, spot="0.02"),
    kind("m", "0.10", cpu=4, memory=16, spot="0.04"),
    kind("l", "0.20", cpu=8, memory=32, spot="0.08"),
)
REASONS = ("Empty", "Expired", "Drifted", "Underutilized")

budgets = st.fixed_dictionaries(
    {"nodes": st.sampled_from(["0", "1", "2", "3", "10%", "50%", "100%"])},
    optional={
        "reasons": st.lists(st.sampled_from(REASONS), min_size=1, max_size=3, unique=True),
        "topologyKey": st.just(names.ZONE),
    },
)
sequential = st.fixed_dictionaries(
    {
        "nodes": st.sampled_from(["1", "2", "50%"]),
        "topologyKey": st.just(names.ZONE),
        "sequential": st.booleans(),
        "reasons": st.just(["Drifted"]),
    }
)
disruptions = st.fixed_dictionaries(
    {
        "consolidationPolicy": st.sampled_from(["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]),
        "consolidateAfter": st.sampled_from(["0s", "10m", "Never"]),
        "consolidationSavingsThreshold": st.sampled_from([0, 0.001, 0.01, 0.1]),
        "budgets": st.lists(st.one_of(budgets, sequential), max_size=3),
    },
    optional={
        "consolidationGracePeriod": st.sampled_from(["5m", "30m", "Never"]),
        "expireAfter": st.sampled_from(["5h", "20h", "Never"]),
    },
)
pods = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["100m", "500m", "1500m"])},
    optional={
        "cost": st.sampled_from(["-2000000000", "500000000"]),
        "protected": st.sampled_from(["true", "30m", "3h", "nonsense"]),
        "guarded": st.booleans(),
    },
)
nodes = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["s", "m", "l"]),
        "pool": st.sampled_from(["alpha", "beta"]),
        "zone": st.sampled_from(["a", "b", "c"]),
        "capacity": st.sampled_from([names.ON_DEMAND, names.SPOT]),
        "age": st.sampled_from([1, 6, 15, 30]),
        "idle": st.sampled_from([1, 7, 15, 60]),
        "drifted": st.sampled_from([None, None, 1, 2, 3]),
        "ready": st.sampled_from([True, True, True, False]),
        "pods": st.lists(pods, max_size=4),
    }
)
shapes = st.fixed_dictionaries(
    {
        "alpha": disruptions,
        "beta": disruptions,
        "nodes": st.lists(nodes, min_size=1, max_size=7),
        "waiting": st.integers(0, 2),
        "allowed": st.integers(0, 1),
    }
)


def build(shape: dict[str, Any]) -> Town:
    """Build the town of a shape."""
    town = Town(*KINDS)
    for pool in ("alpha", "beta"):
        town.pool(pool, capacity=(names.ON_DEMAND, names.SPOT), disruption=shape[pool])
    for number, entry in enumerate(shape["nodes"]):
        name = f"n{number}"
        drifted = None if entry["drifted"] is None else timedelta(hours=entry["drifted"])
        town.node(
            name,
            entry["kind"],
            pool=entry["pool"],
            zone=entry["zone"],
            capacity=entry["capacity"],
            age=timedelta(hours=entry["age"]),
            idle=timedelta(minutes=entry["idle"]),
            drifted=drifted,
            ready=entry["ready"],
            life="40h",
        )
        for place, pod in enumerate(entry["pods"]):
            _put(town, f"{name}-{place}", name, pod)
    for number in range(shape["waiting"]):
        town.pod(f"waiting-{number}", cpu="1000m")
    town.pdb("guard", {"guarded": "yes"}, allowed=shape["allowed"])
    return town


def _put(town: Town, name: str, node: str, pod: dict[str, Any]) -> None:
    annotations = {}
    if "cost" in pod:
        annotations[names.POD_DELETION_COST] = pod["cost"]
    if "protected" in pod:
        annotations[names.DO_NOT_DISRUPT] = pod["protected"]
    labels = {"guarded": "yes"} if pod.get("guarded") else {}
    town.pod(name, node, cpu=pod["cpu"], annotations=annotations, labels=labels)


towns = shapes.map(build)
