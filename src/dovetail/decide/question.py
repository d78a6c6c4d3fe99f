"""The question that a round answers: everything that a decision may use, as one frozen value.

Shells build it (from watches, from files, from a simulated world); `Decider` and `plan_round` answer it. It decides
nothing. Sits in decide, below the context.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from dovetail.decide.in_flight import NOTHING_IN_FLIGHT, InFlight
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.settings import Settings
from dovetail.model.waste import Wasted
from dovetail.scheduling.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything that a decision depends on.

    `in_flight`: what commands in progress reserve; a captured cluster has none. `managed_pools`: the pools that may be
    disrupted; None: all. `cost_held_until`: no cost action starts before this time, in any pool (stabilization,
    lifecycle-controller); `cost_held_by`: what they wait for, in a few words. `pod_events`: the last pod event of each
    node, if it was watched; for a captured cluster, only its objects say. `alert`: why the alert gate holds all pools
    (spec section 17); empty: it does not. `may_surge`: whether Deployments may be patched (spec section 20).
    `unsettled`: pools that wait for moved pods, and which. `waste`: what nodes have wasted so far, by name (section
    22). `restless`: pools in which nodes were opened again soon after others were removed, and until when they count
    as such.
    """

    cluster: Cluster
    catalogue: Catalogue
    settings: Settings
    now: datetime
    in_flight: InFlight = NOTHING_IN_FLIGHT
    managed_pools: tuple[str, ...] | None = None
    cost_held_until: datetime | None = None
    cost_held_by: str = ""
    alert: str = ""
    may_surge: bool = True
    unsettled: Mapping[str, str] = field(default_factory=dict)
    pod_events: Mapping[str, datetime] = field(default_factory=dict)
    waste: Mapping[str, Wasted] = field(default_factory=dict)
    restless: Mapping[str, datetime] = field(default_factory=dict)

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
        return Snapshot.build(self.cluster, self.catalogue, settings, self.now, previous=previous)


def _merged(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*some, *others}))
