"""Every tunable of the decisions, with its default; a profile is a set of values for them.

`DOVETAIL` is the default profile, `KARPENTER_1_15` repeats Karpenter v1.15 on the same objects (docs/deviations.md).
`api.settings` reads settings files. Durations are nanoseconds (`model.timing.duration`).
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Final

import msgspec

from dovetail.model.commitments import Commitment
from dovetail.model.karpenter import KarpenterSettings
from dovetail.model.money import Money
from dovetail.model.policies.daemon_like import DaemonLikePods
from dovetail.model.rules import DOVETAIL_RULES, KARPENTER_RULES, NEWEST, OLDEST, Rules, karpenter_rules

_SECOND: Final = 1_000_000_000
_MINUTE: Final = 60 * _SECOND


class Profile(StrEnum):
    """The name of a set of values; nothing is decided by it (`model.rules`)."""

    DOVETAIL = "dovetail"
    KARPENTER_1_15 = "karpenter-1.15"
    KARPENTER_1_14 = "karpenter-1.14"
    KARPENTER_1_13 = "karpenter-1.13"
    KARPENTER_1_12 = "karpenter-1.12"
    KARPENTER_1_11 = "karpenter-1.11"
    KARPENTER_1_10 = "karpenter-1.10"
    KARPENTER_1_9 = "karpenter-1.9"


class CandidateOrder(StrEnum):
    """The order in which cost candidates are tried (docs/rules.md#methods)."""

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
    """How a round looks for a cost command (docs/rules.md#methods and #value)."""

    PREFIX = "prefix"
    VALUE = "value"


class SteeringMode(StrEnum):
    """Whether Dovetail steers pods away from nodes so that they become empty (docs/rules.md#steering)."""

    OFF = "Off"
    PREFER = "Prefer"


class StabilizationEnds(StrEnum):
    """When the pause after a cost command ends (docs/rules.md#landed)."""

    WINDOW = "window"
    LANDED = "landed"


class WithNeighbours(StrEnum):
    """What Dovetail does about another controller that disrupts a managed pool: halt the pool, or only warn."""

    STAND_BACK = "StandBack"
    WARN = "Warn"


class StabilizationScope(StrEnum):
    """Where cost actions pause after an action: in pools it touched, or everywhere (docs/rules.md#stabilization)."""

    POOL = "pool"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stabilization:
    """How long no cost action starts after an action of each kind has finished (lifecycle-controller); ns."""

    empty: int = 5 * _MINUTE
    expired: int = 5 * _MINUTE
    drifted: int = 5 * _MINUTE
    cost: int = 5 * _MINUTE


class WhenUnreachable(StrEnum):
    """What the alert gate does while Prometheus can't be reached (docs/rules.md#health)."""

    HOLD = "Hold"
    PROCEED = "Proceed"


class AlertGate(msgspec.Struct, frozen=True, kw_only=True):
    """A Prometheus instant query; any sample in its result holds all pools (docs/rules.md#health)."""

    url: str
    query: str
    every: int = 30 * _SECOND
    when_unreachable: WhenUnreachable = WhenUnreachable.HOLD


class Recordings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the controller records what happens in the cluster (docs/recordings.md), and how long that is kept."""

    path: str
    keep: int = 14 * 24 * 60 * _MINUTE


class Surcharge(msgspec.Struct, frozen=True, kw_only=True):
    """What comes on top of the price of every node of a kind of NodeClass; EKS Auto Mode's fee is of this form."""

    node_class_kind: str
    share: Fraction


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """What is really paid for machines: commitments, discounts and surcharges. All policies of a run share one."""

    commitments: tuple[Commitment, ...] = ()
    discount: tuple[tuple[str, Fraction], ...] = ()
    surcharge: tuple[Surcharge, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.commitments or self.discount or self.surcharge)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All tunables. `rules` can't be set in a file: a profile chooses them. `profile` is only its name.

    `expiry_lead`: how long before Karpenter's forced expiry nodes count as expired; None: a day, or a tenth of a
    shorter life. `pool_defaults`: fields of `disruption` for pools that don't set them. `ties`: with 0, ties between
    domains are broken by name; with any other number at random, again for every pod, as Karpenter's own maps do. Only
    the simulated Karpenter uses that. The last four are for the live controller only: how it keeps its Lease, and how
    old its view of any kind may be before it stops deciding.
    """

    profile: Profile = Profile.DOVETAIL
    policy: str = ""
    rules: Rules = DOVETAIL_RULES
    candidate_order: CandidateOrder = CandidateOrder.DISRUPTION_COST
    consolidate_after_hides_destinations: bool = False
    spot_to_spot_consolidation: bool = True
    spot_minimum_types: int = 15
    batch_maximum: int = 100
    search: Search = Search.PREFIX
    replacements_max: int = 1
    stabilization: Stabilization = field(default_factory=Stabilization)
    stabilization_scope: StabilizationScope = StabilizationScope.POOL
    neighbours: WithNeighbours = WithNeighbours.STAND_BACK
    stabilization_ends: StabilizationEnds = StabilizationEnds.WINDOW
    evictions_in_order: bool = False
    evictions_side_by_side: bool = False
    jobs_wait: bool = False
    quiet_before_haste: int = 0
    waste_floor: Money = 0
    launch_price: int = 0
    preferences_open_nodes: bool = True
    asks_the_scheduler: bool = False
    steering: SteeringMode = SteeringMode.OFF
    steering_writes_per_minute: int = 60
    domain_patience: int = 10 * _MINUTE
    expiry_lead: int | None = None
    replacement_timeout: int = 9 * _MINUTE + 30 * _SECOND
    launch_timeout: int = _MINUTE
    drain_patience: int = 2 * _MINUTE
    validation_delay: int = 15 * _SECOND
    poll_interval: int = 10 * _SECOND
    preference_policy: PreferencePolicy = PreferencePolicy.RESPECT
    min_values_policy: MinValuesPolicy = MinValuesPolicy.STRICT
    nominated_nodes: tuple[str, ...] = ()
    marked_for_deletion_nodes: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    pool_defaults: tuple[tuple[str, str | float], ...] = ()
    karpenter: KarpenterSettings = field(default_factory=KarpenterSettings)
    commitments: tuple[Commitment, ...] = ()
    discount: tuple[tuple[str, Fraction], ...] = ()
    surcharge: tuple[Surcharge, ...] = ()
    daemon_like_pods: tuple[DaemonLikePods, ...] = ()
    paused: bool = False
    alert_gate: AlertGate | None = None
    recordings: Recordings | None = None
    ties: int = 0
    lease_duration: int = 30 * _SECOND
    renew_deadline: int = 20 * _SECOND
    retry_period: int = 2 * _SECOND
    view_age_maximum: int = 2 * _MINUTE

    @property
    def daemon_like(self) -> "tuple[DaemonLikePods, ...]":
        """Return which pods belong to their nodes; none under Karpenter's rules."""
        return self.daemon_like_pods if self.rules.daemon_like_pods else ()

    @property
    def tariff(self) -> Tariff:
        """Return what is really paid."""
        return Tariff(commitments=self.commitments, discount=self.discount, surcharge=self.surcharge)

    def paying(self, tariff: Tariff) -> "Settings":
        """Return the same settings with another tariff."""
        return replace(self, commitments=tariff.commitments, discount=tariff.discount, surcharge=tariff.surcharge)

    @property
    def called(self) -> str:
        """Return what people call these settings: the policy that they start from, or else the profile."""
        return self.policy or self.profile.value

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
RECOMMENDED_DISRUPTION: Final[dict[str, str | float]] = {"restartPrice": "10m/cpu"}
"""What the recommended policy asks of a pool: what a restart is worth, at any price level."""
RECOMMENDED_NAME: Final = "recommended"
RECOMMENDED: Final = Settings(
    policy=RECOMMENDED_NAME,
    search=Search.VALUE,
    replacements_max=4,
    stabilization=Stabilization(empty=30 * _SECOND),
    stabilization_ends=StabilizationEnds.LANDED,
    evictions_in_order=True,
    evictions_side_by_side=True,
    steering=SteeringMode.PREFER,
    jobs_wait=True,
    launch_price=10 * _MINUTE,
    preferences_open_nodes=False,
    asks_the_scheduler=True,
    pool_defaults=tuple(RECOMMENDED_DISRUPTION.items()),
)
"""What the docs recommend to a new user, found by experiments on all scenarios and recordings."""
_RATIO_SINCE: Final = 14
"""The first minor version that orders by savings ratio and closes nodes within consolidateAfter to moved pods."""


def karpenter_settings(minor: int) -> Settings:
    """Return the settings that repeat Karpenter v1.`minor` on the same objects."""
    old = minor < _RATIO_SINCE
    return replace(
        KARPENTER_1_15,
        profile=Profile(f"karpenter-1.{minor}"),
        rules=karpenter_rules(minor),
        candidate_order=CandidateOrder.DISRUPTION_COST if old else CandidateOrder.SAVINGS_RATIO,
        consolidate_after_hides_destinations=not old,
        karpenter=KarpenterSettings(minor=minor),
    )


PROFILES: Final[dict[Profile, Settings]] = {
    Profile.DOVETAIL: DOVETAIL,
    Profile.KARPENTER_1_15: KARPENTER_1_15,
    **{Profile(f"karpenter-1.{minor}"): karpenter_settings(minor) for minor in range(NEWEST - 1, OLDEST - 1, -1)},
}
