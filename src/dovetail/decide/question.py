"""The question that a round answers: everything that a decision may use, as one frozen value.

Shells build it (from watches, from files, from a simulated world); `Decider` and `plan_round` answer it. It decides
nothing. Sits in decide, below the scene.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from dovetail.decide.in_flight import NOTHING_IN_FLIGHT, InFlight
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.coming_size import GrownSize
from dovetail.model.persistence import Persistence
from dovetail.model.settings import Settings
from dovetail.model.waste import Wasted
from dovetail.scheduling.snapshot import Snapshot


class CostHold(msgspec.Struct, frozen=True, kw_only=True):
    """Until when no cost action starts in a pool or takes a node, and after what, in a few words."""

    until: datetime
    after: str = "an action"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything that a decision depends on.

    `in_flight`: what commands in progress reserve; a captured cluster has none. `managed_pools`: the pools that may be
    disrupted; None: all. `settling`: the pools in which no cost action starts yet, and `settling_nodes`: the nodes that
    none takes yet, after actions that touched them (stabilization, lifecycle-controller). `pod_events`: the last pod
    event of each node, if it was watched; for a captured cluster, only its objects say. `alert`: why the alert gate
    holds all pools
    (docs/rules.md#health); empty: it does not. `may_surge`: whether Deployments may be patched (docs/rules.md#surge).
    `unsettled`: pools that wait for moved pods, and which. `waste`: what nodes have wasted so far, by name
    (docs/rules.md#waste). `restless`: pools in which nodes were opened again soon after others were removed, and until
    when they count as such. `persistence`: how long savings last, by pool (docs/rules.md#one-price). `earning`:
    NodeClaims that a cost command launched, and until when they have not earned what that cost. `grown`: the sizes with
    which pods of some owners, by uid, came back lately.
    """

    cluster: Cluster
    catalogue: Catalogue
    settings: Settings
    now: datetime
    in_flight: InFlight = NOTHING_IN_FLIGHT
    managed_pools: tuple[str, ...] | None = None
    settling: Mapping[str, CostHold] = field(default_factory=dict)
    settling_nodes: Mapping[str, CostHold] = field(default_factory=dict)
    alert: str = ""
    may_surge: bool = True
    unsettled: Mapping[str, str] = field(default_factory=dict)
    pod_events: Mapping[str, datetime] = field(default_factory=dict)
    waste: Mapping[str, Wasted] = field(default_factory=dict)
    restless: Mapping[str, datetime] = field(default_factory=dict)
    grown: Mapping[str, GrownSize] = field(default_factory=dict)
    persistence: Mapping[str, Persistence] = field(default_factory=dict)
    earning: Mapping[str, datetime] = field(default_factory=dict)

    def asks_the_same(self, other: "Question | None", until: datetime | None) -> bool:
        """Return whether the answer to another, earlier question still holds; `until`: when time alone changes that.

        How long removals have held so far (`Persistence.learned`) also follows from the time.
        """
        if other is None or self.cluster is not other.cluster or self.catalogue is not other.catalogue:
            return False
        if until is not None and self.now >= until:
            return False
        return replace(self, now=other.now, persistence=_but_for_time(self)) == replace(
            other, persistence=_but_for_time(other)
        )

    def snapshot(self, previous: Snapshot | None = None) -> Snapshot:
        """Build the columnar form that simulations run on; results for unchanged objects are reused from `previous`.

        The pods of nodes that are leaving need a place too, so nodes in flight count as marked and as nominated there.
        """
        settings, flight = self.settings, self.in_flight
        if flight.leaving or flight.nominated:
            settings = replace(
                settings,
                marked_for_deletion_nodes=_merged(settings.marked_for_deletion_nodes, flight.leaving_names),
                nominated_nodes=_merged(settings.nominated_nodes, flight.nominated),
            )
        return Snapshot(self.cluster, self.catalogue, settings, self.now, previous=previous, grown=self.grown)


def _but_for_time(question: Question) -> dict[str, Persistence]:
    return {pool: msgspec.structs.replace(entry, learned=0) for pool, entry in question.persistence.items()}


def _merged(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*some, *others}))
