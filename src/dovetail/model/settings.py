"""Every tunable of the decisions, with its default; a profile is a set of values for them.

`DOVETAIL` is the default profile, `KARPENTER_1_15` repeats Karpenter v1.15 on the same objects (docs/deviations.md).
`api.settings` reads settings files. Durations are nanoseconds (`model.timing.duration`).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from dovetail.model.karpenter import KarpenterSettings
from dovetail.model.money import Money
from dovetail.model.rules import DOVETAIL_RULES, KARPENTER_RULES, Rules

_SECOND: Final = 1_000_000_000
_MINUTE: Final = 60 * _SECOND


class Profile(StrEnum):
    """The name of a set of values; nothing is decided by it (`model.rules`)."""

    DOVETAIL = "dovetail"
    KARPENTER_1_15 = "karpenter-1.15"


class CandidateOrder(StrEnum):
    """The order in which cost candidates are tried (spec section 5)."""

    DISRUPTION_COST = "disruption-cost"
    SAVINGS_RATIO = "savings-ratio"


class PreferencePolicy(StrEnum):
    """Whether preferences of pods are respected until they must be dropped, or ignored from the start."""

    RESPECT = "Respect"
    IGNORE = "Ignore"


class MinValuesPolicy(StrEnum):
    """Whether minValues is a strict requirement."""

    STRICT = "Strict"
    BEST_EFFORT = "BestEffort"


class Search(StrEnum):
    """How a round looks for a cost command (spec sections 5 and 21)."""

    PREFIX = "prefix"
    VALUE = "value"


class SteeringMode(StrEnum):
    """Whether Dovetail steers pods away from nodes so that they become empty (spec section 23)."""

    OFF = "Off"
    PREFER = "Prefer"


class StabilizationEnds(StrEnum):
    """When the pause after a cost command ends (spec section 25)."""

    WINDOW = "window"
    LANDED = "landed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stabilization:
    """How long no cost action starts after an action of each kind has finished (lifecycle-controller); ns."""

    empty: int = 5 * _MINUTE
    expired: int = 5 * _MINUTE
    drifted: int = 5 * _MINUTE
    cost: int = 5 * _MINUTE


class WhenUnreachable(StrEnum):
    """What the alert gate does while Prometheus can't be reached (spec section 17)."""

    HOLD = "Hold"
    PROCEED = "Proceed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertGate:
    """A Prometheus instant query; any sample in its result holds all pools (spec section 17)."""

    url: str
    query: str
    every: int = 30 * _SECOND
    when_unreachable: WhenUnreachable = WhenUnreachable.HOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All tunables. `rules` can't be set in a file: a profile chooses them. `profile` is only its name.

    `pool_defaults`: fields of `disruption` for pools that don't set them. `ties`: with 0, ties between domains are
    broken by name; with any other number at random, again for every pod, as Karpenter's own maps do. Only the simulated
    Karpenter uses that. The last four are for the live controller only: how it keeps its Lease, and how old its view of
    any kind may be before it stops deciding.
    """

    profile: Profile = Profile.DOVETAIL
    rules: Rules = DOVETAIL_RULES
    candidate_order: CandidateOrder = CandidateOrder.DISRUPTION_COST
    consolidate_after_hides_destinations: bool = False
    spot_to_spot_consolidation: bool = True
    spot_minimum_types: int = 15
    batch_maximum: int = 100
    search: Search = Search.PREFIX
    replacements_max: int = 1
    stabilization: Stabilization = field(default_factory=Stabilization)
    stabilization_ends: StabilizationEnds = StabilizationEnds.WINDOW
    evictions_in_order: bool = False
    jobs_wait: bool = False
    quiet_before_haste: int = 0
    waste_floor: Money = 0
    steering: SteeringMode = SteeringMode.OFF
    steering_writes_per_minute: int = 60
    replacement_timeout: int = 9 * _MINUTE + 30 * _SECOND
    launch_timeout: int = _MINUTE
    validation_delay: int = 15 * _SECOND
    poll_interval: int = 10 * _SECOND
    preference_policy: PreferencePolicy = PreferencePolicy.RESPECT
    min_values_policy: MinValuesPolicy = MinValuesPolicy.STRICT
    nominated_nodes: tuple[str, ...] = ()
    marked_for_deletion_nodes: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    pool_defaults: tuple[tuple[str, str | float], ...] = ()
    karpenter: KarpenterSettings = field(default_factory=KarpenterSettings)
    paused: bool = False
    alert_gate: AlertGate | None = None
    ties: int = 0
    lease_duration: int = 30 * _SECOND
    renew_deadline: int = 20 * _SECOND
    retry_period: int = 2 * _SECOND
    view_age_maximum: int = 2 * _MINUTE

    @property
    def searches_by_value(self) -> bool:
        """Return whether a round looks for the cost command of greatest value; never under Karpenter's rules."""
        return self.search is Search.VALUE and not self.rules.bisects_only


DOVETAIL: Final = Settings()
KARPENTER_1_15: Final = Settings(
    profile=Profile.KARPENTER_1_15,
    rules=KARPENTER_RULES,
    candidate_order=CandidateOrder.SAVINGS_RATIO,
    consolidate_after_hides_destinations=True,
    spot_to_spot_consolidation=False,
    batch_maximum=101,
    stabilization=Stabilization(empty=0, expired=0, drifted=0, cost=0),
)
RECOMMENDED_DISRUPTION: Final[dict[str, str | float]] = {
    "consolidationSavingsThreshold": 0.021,
    "disruptionPrice": 0.005,
}
"""What the recommended policy asks of a pool: the bar for haste, and what a restart is worth."""
RECOMMENDED: Final = Settings(
    search=Search.VALUE,
    replacements_max=4,
    stabilization=Stabilization(empty=30 * _SECOND),
    stabilization_ends=StabilizationEnds.LANDED,
    evictions_in_order=True,
    steering=SteeringMode.PREFER,
    jobs_wait=True,
    quiet_before_haste=30 * _MINUTE,
    waste_floor=10**16,
    pool_defaults=tuple(RECOMMENDED_DISRUPTION.items()),
)
"""What the docs recommend to a new user, found by experiments on all scenarios and recordings."""
RECOMMENDED_NAME: Final = "recommended"
PROFILES: Final[dict[Profile, Settings]] = {Profile.DOVETAIL: DOVETAIL, Profile.KARPENTER_1_15: KARPENTER_1_15}
