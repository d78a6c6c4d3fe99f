"""The life of every node that was seen, for the lanes of the live view.

A node's life begins when it was created and ends when a look no longer finds it. What became of it is the reason of the
command that took it, of Dovetail or of Karpenter; `removed` if none says so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Node
from dovetail.ui.commands import CommandNow, pods_left

Json = dict[str, Any]
LIVES_MAX: Final = 2_000
KEPT: Final = "kept"
_FATES: Final = {
    "Cost": "cost",
    "Underutilized": "cost",
    "Empty": "empty",
    "Drifted": "drifted",
    "Expired": "expired",
    "Unhealthy": "unhealthy",
}


@dataclass(slots=True, kw_only=True)
class NodeLife:
    """One node, in seconds since 1970; `leaving` and `ended` are None until then; `moved`: when pods had to leave."""

    name: str
    pool: str = ""
    zone: str = ""
    type: str = ""
    capacity_type: str = ""
    price: float = 0.0
    started: float
    leaving: float | None = None
    ended: float | None = None
    fate: str = KEPT
    moved: list[float] = field(default_factory=list)


class Lives(Protocol):
    """Lives that were seen, or are known (`ui.recorded`)."""

    def take(
        self, now: datetime, cluster: Cluster, prices: Mapping[str, float], commands: Iterable[CommandNow]
    ) -> None:
        """Record a look."""

    def lives(self) -> list[NodeLife]:
        """Return all lives."""


class LivesSeen:
    """Updated with every look at the cluster."""

    def __init__(self) -> None:
        self._there: dict[str, NodeLife] = {}
        self._ended: list[NodeLife] = []
        self._reasons: dict[str, str] = {}
        self._pods: dict[str, int] = {}

    def take(
        self, now: datetime, cluster: Cluster, prices: Mapping[str, float], commands: Iterable[CommandNow]
    ) -> None:
        """Record a look: the nodes that are there, what they cost, and the commands that were under way since."""
        at = now.timestamp()
        for command in commands:
            self._reasons.update(dict.fromkeys(command.nodes, command.reason))
            for name in command.nodes:
                life = self._there.get(name)
                if life is not None and life.leaving is None and command.draining is not None:
                    life.leaving = command.draining.timestamp()
        here = {node.metadata.name: node for node in cluster.nodes}
        for name, node in here.items():
            life = self._there.setdefault(name, _begun(node, at))
            life.price = prices.get(name, life.price)
            gone = node.metadata.deletion_timestamp
            if gone is not None and life.leaving is None:
                life.leaving = gone.timestamp()
        self._note_moves(at, cluster)
        for name in [name for name in self._there if name not in here]:
            life = self._there.pop(name)
            life.ended, life.fate = at, _FATES.get(self._reasons.pop(name, ""), "removed")
            self._ended.append(life)
        del self._ended[: max(0, len(self._ended) + len(self._there) - LIVES_MAX)]

    def _note_moves(self, at: float, cluster: Cluster) -> None:
        leaving = {name: life for name, life in self._there.items() if life.leaving is not None}
        left = dict.fromkeys(leaving, 0) | pods_left(cluster, leaving)
        for name, life in leaving.items():
            if left[name] < self._pods.get(name, left[name]):
                life.moved.append(at)
        self._pods = left

    def lives(self) -> list[NodeLife]:
        """Return all lives, those that have ended first."""
        return [*self._ended, *self._there.values()]


def lives_document(lives: Iterable[NodeLife], since: float) -> Json:
    """Return lives in columns, in seconds after `since`; -1: not yet."""
    rows = list(lives)

    def second(at: float | None) -> float:
        return -1 if at is None else round(max(0.0, at - since), 1)

    return {
        "name": [life.name for life in rows],
        "pool": [life.pool for life in rows],
        "zone": [life.zone for life in rows],
        "type": [life.type for life in rows],
        "capacityType": [life.capacity_type for life in rows],
        "price": [round(life.price, 6) for life in rows],
        "started": [round(life.started - since, 1) for life in rows],
        "leaving": [second(life.leaving) for life in rows],
        "ended": [second(life.ended) for life in rows],
        "fate": [life.fate for life in rows],
        "moved": [[second(at) for at in life.moved] for life in rows],
    }


def _begun(node: Node, at: float) -> NodeLife:
    labels, created = node.metadata.labels, node.metadata.creation_timestamp
    return NodeLife(
        name=node.metadata.name,
        pool=labels.get(names.NODEPOOL, ""),
        zone=labels.get(names.ZONE, ""),
        type=labels.get(names.INSTANCE_TYPE, ""),
        capacity_type=labels.get(names.CAPACITY_TYPE, ""),
        started=at if created is None else created.timestamp(),
    )
