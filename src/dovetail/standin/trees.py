"""Conditions and times as the API server takes them.

A leaf of the stand-in; reads the clock, as a kubelet does.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.model.objects import Condition

Tree = dict[str, Any]


def condition_tree(entry: Condition) -> Tree:
    """Return a condition as the API server takes it."""
    tree: Tree = msgspec.to_builtins(entry)
    tree.setdefault("reason", entry.type)
    tree.setdefault("message", "")
    return tree


def true_condition(kind: str) -> Tree:
    """Return a condition that is true from now on."""
    return {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": stamp()}


def ready_condition() -> Tree:
    """Return a node's Ready condition, as its kubelet writes it now."""
    now = stamp()
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }


def stamp(at: datetime | None = None, *, micro: bool = False) -> str:
    """Return a moment as Kubernetes writes it; now by default."""
    moment = at or datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
