"""Nodes whose pods are certain to find room on other nodes: there are more nodes with room than pods to place.

A pod goes to the first node that takes it, and initialized nodes come first. Every other pod of a simulation takes room
on at most one node, and a rule about host names looks at one node alone. So if more initialized nodes take a pod than
there are other pods, it finds one, wherever the others go. If it has to spread, say over zones, one zone is always open
to it, so each of them must have that many. Exact: a simulation would never disagree. Sits in decide, beside bounds,
which prove that pods do not fit.
"""

from collections.abc import Collection

import numpy as np

from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.pods.variants import Variant
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.topology.groups import SPREAD


class Plenty:
    """The answers for one snapshot; `closed` nodes refuse moved pods."""

    def __init__(self, snapshot: Snapshot, closed: Collection[int]) -> None:
        self._snapshot, self._closed = snapshot, closed
        self._others = len(snapshot.queued) + len(snapshot.leaving_entries)
        self._ready: dict[int, int] = {}
        # Virtual pods of buffers may need a new node that counts; by Karpenter's rules so may those of others.
        self._known = not snapshot.virtual and not snapshot.settings.rules.others_pods_count

    def for_pods_of(self, node: int) -> bool:
        """Return whether it is certain that all pods of a node find room on other nodes, which are initialized."""
        if not self._known:
            return False
        movers = self._snapshot.movers(node)
        least = self._others + len(movers.queue) + 1  # more than the other pods, even without the node itself
        return all(self._ready_for(entries[0].cls) >= least for entries in movers.alike)

    def _ready_for(self, cls: PodClass) -> int:
        """Return how many initialized nodes take a pod now, wherever it has to spread to; 0 if that is not certain."""
        found = self._ready.get(cls.id)
        if found is None:
            found = self._ready[cls.id] = self._count(self._snapshot.frame.first(cls))
        return found

    def _count(self, variant: Variant) -> int:
        if variant.lost or variant.ports or variant.attached or variant.host_affinity or len(variant.zone_rules) > 1:
            return 0
        ready = variant.mask.copy()
        ready[self._snapshot.initialized :] = False
        ready[list(self._closed)] = False
        if not variant.zone_rules:
            return int(np.count_nonzero(ready))
        (rule,) = variant.zone_rules
        group, domains = rule.group, rule.group.domains
        if group.kind != SPREAD or group.min_domains is not None or domains is None or group.max_skew < rule.own:
            return 0
        each = np.bincount(domains.column[ready] + 1, minlength=len(domains.names) + 1)[1:].tolist()
        allowed = [rule.allowed is None or rule.allowed.has(name) for name in domains.names]
        return min((count for count, may in zip(each, allowed, strict=True) if may), default=0)
