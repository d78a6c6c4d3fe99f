"""The options of Karpenter that matter to Dovetail: feature gates, DRA requests, default topology spread.

No object in a cluster says how Karpenter was started. Its options come from the settings, from Karpenter's Deployment
if Dovetail may read it (`api.karpenter` reads both), or from conditions that Karpenter writes only with that gate on.
Values only. Sits in the model.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.model.cluster import Cluster
from dovetail.model.objects import Condition, TopologySpreadConstraint, condition


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


CAME_WITH: Final = {
    FeatureGate.CAPACITY_BUFFER: 14,
    FeatureGate.TERMINATE_FIRST_DRIFT: 15,
    FeatureGate.TERMINATE_FIRST_REPAIR: 15,
    FeatureGate.POD_DELETION_COST: 15,
}
"""The minor version of Karpenter v1 that brought a gate; the others are as old as the oldest profile."""
_SPREAD_CAME_WITH: Final = 15
ON_BY_DEFAULT: Final = frozenset({FeatureGate.RESERVED_CAPACITY})
BUFFER_CONDITION: Final = "ReadyForProvisioning"
OVERLAY_CONDITION: Final = "ValidationSucceeded"


class StaticDrift(StrEnum):
    """Who handles a drifted node of a static pool."""

    TERMINATE_FIRST = "TerminateFirst"
    LEAVE = "Leave"


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpenterSettings:
    """How Karpenter was started, as far as it is known; None: not known.

    `feature_gates`: the gates that are named. `default_spread`: constraints for pods without any, from Karpenter's
    scheduler configuration. `ignore_dra_requests`: pods with resource claims are never placed. `source`: where this was
    read, for reports. `static_drift`: whether Karpenter handles drift of static pools. `minor`: its minor version of
    v1; an older one ignores gates and options that came later.
    """

    feature_gates: tuple[tuple[FeatureGate, bool], ...] = ()
    default_spread: tuple[TopologySpreadConstraint, ...] | None = None
    ignore_dra_requests: bool | None = None
    static_drift: StaticDrift = StaticDrift.TERMINATE_FIRST
    source: str = "the settings"
    minor: int | None = None

    def knows(self, gate: FeatureGate) -> bool:
        """Return whether this version of Karpenter has a gate; an unknown version has all."""
        return self.minor is None or self.minor >= CAME_WITH.get(gate, 0)

    @property
    def ignores_dra(self) -> bool:
        """Return whether Karpenter ignores resource claims, which is its default."""
        return self.ignore_dra_requests is not False

    @property
    def spread(self) -> tuple[TopologySpreadConstraint, ...]:
        """Return the default topology spread constraints; older versions of Karpenter have none."""
        known = self.minor is None or self.minor >= _SPREAD_CAME_WITH
        return (self.default_spread or ()) if known else ()

    def over(self, found: "KarpenterSettings") -> "KarpenterSettings":
        """Return these settings, with values that are not set here taken from `found`."""
        return replace(
            self,
            feature_gates=tuple(sorted({**dict(found.feature_gates), **dict(self.feature_gates)}.items())),
            default_spread=found.default_spread if self.default_spread is None else self.default_spread,
            ignore_dra_requests=(
                found.ignore_dra_requests if self.ignore_dra_requests is None else self.ignore_dra_requests
            ),
            minor=found.minor if self.minor is None else self.minor,
            source=f"{self.source} and {found.source}",
        )


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """Which gates count as on, and the source of each gate that is named or differs from its default."""

    on: frozenset[FeatureGate] = ON_BY_DEFAULT
    learnt: tuple[tuple[FeatureGate, str], ...] = ()

    def has(self, gate: FeatureGate) -> bool:
        """Return whether the gate counts as on."""
        return gate in self.on

    def is_named_off(self, gate: FeatureGate) -> bool:
        """Return whether the gate is switched off explicitly, not only by default."""
        return gate not in self.on and any(name is gate for name, _ in self.learnt)


def features_of(settings: KarpenterSettings, cluster: Cluster) -> Features:
    """Return the gates that count as on: as named, else as objects written by Karpenter show, else by default."""
    named = dict(settings.feature_gates)
    shown = {
        FeatureGate.CAPACITY_BUFFER: _carried(
            BUFFER_CONDITION, (b.status.conditions for b in cluster.capacity_buffers)
        ),
        FeatureGate.NODE_OVERLAY: _carried(OVERLAY_CONDITION, (o.status.conditions for o in cluster.node_overlays)),
    }
    on, learnt = [], []
    for gate in FeatureGate:
        if not settings.knows(gate):
            continue
        if gate in named:
            learnt.append((gate, f"{settings.source} say so"))
            on += [gate] if named[gate] else []
        elif shown.get(gate):
            learnt.append((gate, "objects carry a condition that only Karpenter with this gate writes"))
            on.append(gate)
        elif gate in ON_BY_DEFAULT:
            on.append(gate)
    return Features(on=frozenset(on), learnt=tuple(learnt))


def _carried(kind: str, statuses: Iterable[tuple[Condition, ...]]) -> bool:
    return any(condition(conditions, kind) is not None for conditions in statuses)


def assumptions(settings: KarpenterSettings, features: Features) -> tuple[str, ...]:
    """Return sentences about what is assumed of Karpenter, for logs and plans."""
    reasons = dict(features.learnt)
    said = []
    for gate in FeatureGate:
        state = "on" if gate in features.on else "off"
        why = reasons.get(gate, "its default: neither the settings nor an object says otherwise")
        if gate in reasons or gate in features.on:
            said.append(f"{gate.value} is {state} ({why})")
    others = [gate.value for gate in FeatureGate if gate not in features.on and gate not in reasons]
    if others:
        said.append(f"{', '.join(others)} are off (their default: neither the settings nor an object says otherwise)")
    how = "its default" if settings.ignore_dra_requests is None else f"{settings.source} say so"
    said.append(f"resource claims are {'ignored' if settings.ignores_dra else 'allocated'} ({how})")
    count = len(settings.spread)
    if count:
        said.append(f"{count} default topology spread constraint{'s' if count > 1 else ''} ({settings.source} say so)")
    return tuple(said)
