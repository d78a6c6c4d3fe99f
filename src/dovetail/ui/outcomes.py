"""What commands promised and the outcome an hour later, read from the cluster (`lifecycle.memory.outcomes`).

The view sees commands start and end and nodes appear, so it computes outcomes itself and needs no data from the
controller. A command promises the price of the removed nodes less that of their replacements; under commitments, the
difference of the bills (`ui.command_bills`). In memory: outcomes are known only if the view was open for the whole
hour.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from dovetail.lifecycle.memory.outcomes import SAVING, Mover, Outcomes
from dovetail.lifecycle.memory.owners import owners_of
from dovetail.lifecycle.reports import CommandOutcome
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.command import Action
from dovetail.scheduling.pods.pod import is_active, is_reschedulable
from dovetail.ui.command_bills import Worth
from dovetail.ui.commands import CommandNow

Json = dict[str, Any]
KEPT_MAX: Final = 500
SHOWN_MAX: Final = 10


class OutcomesSeen:
    """Updated with every look at the cluster; `found` are the commands whose hour is over, the newest last."""

    def __init__(self) -> None:
        self.found: deque[CommandOutcome] = deque(maxlen=KEPT_MAX)
        self._book = Outcomes()
        self._under_way: dict[str, tuple[CommandNow, float]] = {}
        self._came: dict[str, float] = {}
        self._worth: dict[str, Worth] = {}
        self._nodes: dict[str, None] | None = None
        self._before: tuple[Mapping[str, float], Cluster | None] = ({}, None)

    def take(
        self,
        now: datetime,
        commands: Iterable[CommandNow],
        prices: Mapping[str, float],
        cluster: Cluster,
        passed: Iterable[CommandNow] = (),
        worth: Mapping[str, Worth] = MappingProxyType({}),
    ) -> None:
        """Record a look: the commands in progress, and the price of each node.

        `passed`: commands that began, and ended, since the look before, which still saw their nodes and pods.
        `worth`: what commands take off the bill, by id, where that is not a sum of prices.
        """
        self._worth.update(worth)
        commands = tuple(commands)
        if passed:
            known, before = self._before
            self._take(now, (*commands, *passed), {**known, **prices}, before or cluster)
        self._take(now, commands, prices, cluster)
        self._before = (prices, cluster)

    def _take(
        self, now: datetime, commands: Iterable[CommandNow], prices: Mapping[str, float], cluster: Cluster
    ) -> None:
        elapsed = int(now.timestamp() * 10**9)
        pools = {node.metadata.name: node.metadata.labels.get(names.NODEPOOL, "") for node in cluster.nodes}
        here = {entry.id: entry for entry in commands if entry.action in SAVING}
        for entry in here.values():
            for node in entry.coming:
                self._came[node] = max(self._came.get(node, 0.0), prices.get(node, 0.0))
            known = self._under_way.get(entry.id)
            bill = self._worth.get(entry.id)
            went = known[1] if known else bill.went if bill else sum(prices.get(node, 0.0) for node in entry.nodes)
            self._under_way[entry.id] = (entry, went)
            if known is None:
                own = tuple(sorted({pools[node] for node in entry.nodes if node in pools}))
                self._book.begin(entry.id, Action(entry.action), own, went, _movers(cluster, entry.nodes), now)
        for ident in [ident for ident in self._under_way if ident not in here]:
            entry, went = self._under_way.pop(ident)
            undone = any(node in prices for node in entry.nodes)
            came, bill = sum(self._came.pop(node, 0.0) for node in entry.coming), self._worth.pop(ident, None)
            came = bill.came if bill else came
            self._book.end(ident, elapsed, well=not undone, promised=went - came)
        ours = {node for entry, _ in self._under_way.values() for node in entry.coming}
        for node in sorted(prices.keys() - (self._nodes or {}).keys()) if self._nodes is not None else ():
            if node not in ours:
                self._book.opened(node, pools.get(node, ""), prices[node], elapsed)
        self._nodes = dict.fromkeys(prices)
        self.found.extend(self._book.due(elapsed))

    def document(self) -> Json:
        """Return the sums and the last commands, newest first."""
        found = list(self.found)
        return {
            "commands": len(found),
            "held": sum(entry.held for entry in found),
            "promised": round(sum(entry.promised for entry in found), 4),
            "saved": round(sum(entry.saved for entry in found), 4),
            "reopened": sum(entry.reopened for entry in found),
            "pods": sum(entry.pods for entry in found),
            "movedAgain": sum(entry.moved_again for entry in found),
            "last": [
                {
                    "id": entry.command_id,
                    "action": entry.action.value,
                    "pools": list(entry.pools),
                    "promised": round(entry.promised, 4),
                    "saved": round(entry.saved, 4),
                    "reopened": entry.reopened,
                    "pods": entry.pods,
                    "movedAgain": entry.moved_again,
                }
                for entry in reversed(found[-SHOWN_MAX:])
            ],
        }


def _movers(cluster: Cluster, nodes: Iterable[str]) -> list[Mover]:
    wanted = frozenset(nodes)
    return [
        Mover(owner=owner, created=pod.metadata.creation_timestamp)
        for pod in cluster.pods
        if pod.spec.node_name in wanted and is_active(pod) and is_reschedulable(pod)
        for owner in owners_of(pod)[:1] or [""]
    ]
