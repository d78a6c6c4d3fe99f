"""How long a pool's nodes take to launch, by those that it has, and to go: what forecasts assume of the next one.

Decides nothing. Sits in decide, beside the facts of a node.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.model.names import CONDITION_INITIALIZED
from dovetail.model.objects import condition

_LAUNCH: Final = timedelta(seconds=40)
"""How long a replacement is assumed to take, until a launch of the pool shows it."""
DRAIN: Final = timedelta(seconds=10)
"""How long a node is assumed to take to be gone once its replacement is there."""
_LAUNCH_MIN, _LAUNCH_MAX = timedelta(seconds=5), timedelta(minutes=30)
"""Launch times outside these are ignored: a machine of a test, or one that waited for a person."""


def usual_launch(nodes: Iterable[NodeFacts], since: datetime | None = None) -> timedelta:
    """Return the median of the time from a NodeClaim to its initialized node; of those made since a time, if any is."""
    recent, earlier = list[timedelta](), list[timedelta]()
    for facts in nodes:
        ready = None if facts.claim is None else condition(facts.claim.status.conditions, CONDITION_INITIALIZED)
        if facts.created is None or ready is None or ready.status != "True" or ready.last_transition_time is None:
            continue
        took = ready.last_transition_time - facts.created
        if _LAUNCH_MIN <= took <= _LAUNCH_MAX:
            (recent if since is not None and facts.created >= since else earlier).append(took)
    known = sorted(recent or earlier)
    return known[len(known) // 2] if known else _LAUNCH
