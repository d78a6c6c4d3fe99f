"""Build facts about nodes by hand, for tests of single rules."""

from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail.decide.facts.cost import UNIT
from dovetail.decide.facts.node_facts import NodeFacts, last_pod_event
from dovetail.model.objects import Node, NodeClaim, NodePool, Pod
from dovetail.model.policies.policy import DisruptionPolicy

NOW = datetime(2026, 5, 13, 15, 30, tzinfo=UTC)


def facts_of(**changes: Any) -> NodeFacts:
    """Return an ordinary node (initialized, ready, of pool `default`) with some facts changed."""
    claim = changes.get("claim", NodeClaim())
    pods: int = changes.pop("pods", 0)
    values: dict[str, Any] = {
        "name": "node",
        "node": Node(),
        "claim": claim,
        "labels": {},
        "annotations": {},
        "pool_name": "default",
        "pool": NodePool(),
        "policy": DisruptionPolicy(),
        "initialized": True,
        "ready": True,
        "instance_terminating": False,
        "marked": "",
        "marked_since": None,
        "nominated": False,
        "drifted_since": None,
        "last_event": last_pod_event(claim),
        "expire_after": None,
        "instance_type": "m",
        "zone": "a",
        "capacity_type": "on-demand",
        "type_known": True,
        "price": 10**17,
        "price_float": 0.1,
        "offering_price": 0.1,
        "reschedulable": (Pod(),) * pods,
        "pod_costs": pods * UNIT,
        "positive_costs": pods * UNIT,
        "all_costs": pods * UNIT,
        "tracked_costs": pods * UNIT,
        "protection": None,
    }
    values.update(changes)
    values.setdefault("retires_after", values["expire_after"])
    return NodeFacts(**values)


def minutes(number: float) -> timedelta:
    """Return this many minutes."""
    return timedelta(minutes=number)
