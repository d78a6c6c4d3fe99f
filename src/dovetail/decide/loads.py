"""What the pods of each pool request in all: the engine learns from it how long savings last (docs/rules.md#one-price).

Computed only for pools that price restarts. Decides nothing. Sits in decide, beside the round.
"""

from collections.abc import Mapping

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.scene import Scene
from dovetail.model.persistence import PRIOR, PoolLoad

_RESOURCES = ("cpu", "memory")


def pool_loads(scene: Scene) -> Mapping[str, PoolLoad]:
    """Return the load of every pool that prices restarts and has nodes; pending pods are not among it."""
    priced = {pool for pool, policy in scene.policies.items() if policy.restart_price is not None}
    members: dict[str, list[NodeFacts]] = {}
    for facts in scene.nodes if priced else ():
        if facts.pool_name in priced and scene.index_of(facts) >= 0:
            members.setdefault(facts.pool_name, []).append(facts)
    return {pool: _load(scene, pool, nodes) for pool, nodes in sorted(members.items())}


def _load(scene: Scene, pool: str, nodes: list[NodeFacts]) -> PoolLoad:
    states, index = scene.snapshot.states, scene.snapshot.frame.resources.index
    asked = scene.needs.demand_of(nodes, scene.snapshot)
    demand = [sum(asked[:, index[name]].tolist()) if name in index else 0 for name in _RESOURCES]
    sizes = [states[scene.index_of(facts)].allocatable for facts in nodes]
    mean = [sum(size.get(name, 0) for size in sizes) // len(sizes) for name in _RESOURCES]
    prior = PRIOR if pool in scene.question.persistence else scene.haste.restarts.shown(pool).learned
    return PoolLoad(total=(demand[0], demand[1]), node=(mean[0], mean[1]), prior=prior)
