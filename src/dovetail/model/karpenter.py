"""Karpenter's own switches as far as they matter to a neighbour: feature gates, DRA requests, default topology spread.

No object of a cluster says how Karpenter was started. They come from the settings, from Karpenter's Deployment where
Dovetail may read it, or from conditions on objects that only Karpenter with that gate writes (`api.karpenter` reads all
of these). Values only. Sits in the model.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dovetail.model.objects import TopologySpreadConstraint


class FeatureGate(StrEnum):
    """Karpenter's feature gates by their names in FEATURE_GATES."""

    RESERVED_CAPACITY = "ReservedCapacity"
    NODE_REPAIR = "NodeRepair"
    SPOT_TO_SPOT = "SpotToSpotConsolidation"
    NODE_OVERLAY = "NodeOverlay"
    STATIC_CAPACITY = "StaticCapacity"
    CAPACITY_BUFFER = "CapacityBuffer"
    TERMINATE_FIRST_DRIFT = "TerminateFirstDrift"
    TERMINATE_FIRST_REPAIR = "TerminateFirstRepair"
    POD_DELETION_COST = "PodDeletionCostManagement"


ON_BY_DEFAULT: Final = frozenset({FeatureGate.RESERVED_CAPACITY})


class StaticDrift(StrEnum):
    """What becomes of a drifted node of a static pool."""

    TERMINATE_FIRST = "TerminateFirst"
    LEAVE = "Leave"


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpenterSettings:
    """How Karpenter was started, as far as the settings say.

    `feature_gates`: the gates that are named, by name. `default_spread`: constraints for pods without any, from
    Karpenter's scheduler configuration; their selectors come from Services and owners. `ignore_dra_requests`: pods with
    resource claims are never placed. `static_drift`: whether drift of static pools is left to Karpenter.
    """

    feature_gates: tuple[tuple[FeatureGate, bool], ...] = ()
    default_spread: tuple[TopologySpreadConstraint, ...] = ()
    ignore_dra_requests: bool = True
    static_drift: StaticDrift = StaticDrift.TERMINATE_FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Which gates count as on. `sources`: where each gate that is not at its default was learnt from."""

    on: frozenset[FeatureGate] = ON_BY_DEFAULT
    off_by_name: frozenset[FeatureGate] = frozenset()
    sources: tuple[tuple[FeatureGate, str], ...] = ()

    def has(self, gate: FeatureGate) -> bool:
        """Return whether the gate counts as on."""
        return gate in self.on


DEFAULT_FEATURES: Final = Features()
