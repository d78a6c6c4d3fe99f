"""A pool's disruption policy, parsed: typed, defaulted, each value with its origin, broken budgets kept and marked.

`api.policy.effective_policy` makes these from a NodePool; decisions only read them. Durations are nanoseconds, `None`
means Never. See docs/rules.md#policy; grace-period Proposed Spec, savings-threshold Recommendation, topology-budgets
API Design, disruption-controls Proposed Spec.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from dovetail.model.money import Money
from dovetail.model.policies.controls import AllowWindow, Health, RepairRule
from dovetail.model.policies.reasons import Reason

if TYPE_CHECKING:
    from dovetail.model.timing.windows import Window

__all__ = ["Budget", "ConsolidationPolicy", "DisruptionPolicy", "Reason", "RestartPrice"]


class ConsolidationPolicy(StrEnum):
    """Which nodes consolidation may take."""

    WHEN_EMPTY = "WhenEmpty"
    WHEN_EMPTY_OR_UNDERUTILIZED = "WhenEmptyOrUnderutilized"
    BALANCED = "Balanced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One budget of a pool. If `problem` is set, it can't be used and allows 0 for `reasons`.

    `per`: a rate budget (docs/rules.md#rates); at most `nodes` nodes may start leaving within any such period.
    """

    index: int
    nodes: str
    amount: int = 0
    is_percent: bool = False
    reasons: tuple[Reason, ...] | None = None
    window: "Window | None" = None
    schedule: str | None = None
    duration: str | None = None
    topology_key: str = ""
    sequential: bool = False
    per: int | None = None
    problem: str | None = None


class RestartPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What the restart of one unit of disruption cost is worth (docs/rules.md#one-price): dollars, or a time.

    `time` (nanoseconds) is that much of the pod's own share of its node's price; with `per_cpu`, of one CPU of its
    node, so that every restart counts alike.
    """

    dollars: Money = 0
    time: int = 0
    per_cpu: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionPolicy:
    """The effective policy of a pool. `origins` says per field: default, spec, annotation, template or claim.

    `closed`: what switches consolidation off until it is mended, and `unreadable` the fields that can't be read; both
    are empty if all can.
    """

    consolidation_policy: ConsolidationPolicy = ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED
    consolidate_after: int | None = 15_000_000_000
    expire_after: int | None = None
    expire_after_set: bool = False
    grace_period: int | None = None
    savings_threshold: Money = 10**16
    disruption_price: Money | None = None
    restart_price: RestartPrice | None = None
    budgets: tuple[Budget, ...] = ()
    windows: tuple[AllowWindow, ...] = ()
    min_node_age: int | None = None
    health: Health | None = None
    repair: tuple[RepairRule, ...] = ()
    static: bool = False
    origins: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    closed: str = ""
    unreadable: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
