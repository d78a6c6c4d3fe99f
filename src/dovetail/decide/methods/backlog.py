"""Which nodes wait to go for a reason that is not cost, and since when: for metrics of age.

A node counts for the first method that wants it: unhealthy, expired, drifted. Decides nothing. Sits in decide, beside
the methods, below the round.
"""

from collections.abc import Iterator
from datetime import datetime

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.outcome import WaitingNode
from dovetail.decide.scene import Scene
from dovetail.model.policies.policy import Reason


def waiting_nodes(scene: Scene) -> tuple[WaitingNode, ...]:
    """Return the nodes that wait, in the order of their names."""
    managed = scene.gate_context.managed_pools
    found = []
    for facts in scene.nodes:
        if facts.marked or facts.pool is None or (managed is not None and facts.pool_name not in managed):
            continue
        wanted = next(_wanted(facts, scene.now), None)
        if wanted is not None:
            found.append(WaitingNode(node=facts.name, node_pool=facts.pool_name, reason=wanted[0], since=wanted[1]))
    return tuple(sorted(found, key=lambda entry: entry.node))


def _wanted(facts: NodeFacts, now: datetime) -> Iterator[tuple[Reason, datetime]]:
    if facts.sickness is not None and facts.sickness.due <= now:
        yield Reason.UNHEALTHY, facts.sickness.due
    if facts.expires_at is not None and facts.expires_at <= now:
        yield Reason.EXPIRED, facts.expires_at
    if facts.drifted_since is not None and facts.drifted_since <= now:
        yield Reason.DRIFTED, facts.drifted_since
