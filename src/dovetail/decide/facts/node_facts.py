"""What decisions know about each node, read once a round: claim, pool, pods that would move, costs, price, times.

Decides nothing: gates, budgets and methods read it. Built from the snapshot's objects in one pass over the pods. Sits
in decide, at the bottom.
"""

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from functools import lru_cache

import msgspec

from dovetail.api.pod_windows import PodWindow
from dovetail.api.pool_marks import Pause, read_pause
from dovetail.decide.facts import cost
from dovetail.decide.facts.drainability import Protection
from dovetail.model import names
from dovetail.model.cached import cached
from dovetail.model.money import Money
from dovetail.model.objects import Node, NodeClaim, NodePool, Pod, condition
from dovetail.model.policies.controls import RepairRule
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.timing.duration import DurationError, later, parse_go_duration, parse_simple
from dovetail.scheduling.pods.surge import Surge


@lru_cache(maxsize=1024)
def read_expiry(text: str | None) -> int | None:
    """Read a NodeClaim's own expireAfter; None: never. An unreadable value never expires."""
    if text is None:
        return None
    try:
        return parse_simple(text, "smhd")
    except DurationError:
        try:
            return parse_go_duration(text)
        except DurationError:
            return None


@lru_cache(maxsize=1 << 10)
def is_length(text: str) -> bool:
    """Return whether a NodeClaim's duration can be read; `Never` can't."""
    return read_expiry(text) is not None


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A timer of a node: since when, how long (nanoseconds), until when."""

    since: datetime
    period: int
    until: datetime

    def running(self, now: datetime) -> bool:
        """Return whether it is still running: `now - since < period`; it ends when they are equal (spec section 2)."""
        return now < self.until


class Sickness(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of a node that its pool repairs: since when, by which rule, and when repair may start."""

    rule: RepairRule
    since: datetime
    due: datetime


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One node (or NodeClaim without a node). Valid while its objects are the same: nothing depends on the time."""

    name: str
    node: Node | None
    claim: NodeClaim | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    pool_name: str
    pool: NodePool | None
    policy: DisruptionPolicy | None
    initialized: bool
    ready: bool
    instance_terminating: bool
    marked: str
    marked_since: datetime | None
    nominated: bool
    drifted_since: datetime | None
    last_event: datetime | None
    expire_after: int | None
    instance_type: str
    zone: str
    capacity_type: str
    type_known: bool
    price: Money
    price_float: float
    offering_price: float | None
    reschedulable: tuple[Pod, ...]
    pod_costs: int
    positive_costs: int
    all_costs: int
    tracked_costs: int
    protection: Protection | None
    pods: tuple[Pod, ...] = ()
    """All pods on it."""
    unreadable: tuple[str, ...] = ()
    claiming: Pod | None = None
    """A pod that would move and has resource claims."""
    rebooting: bool = False
    pod_windows: tuple[tuple[Pod, PodWindow], ...] = ()
    """Pods that would move and may only do so in a window of their own (spec section 18)."""
    surges: tuple[tuple[Pod, Surge], ...] = ()
    """Deployments that move by their own rolling update, each with a pod that is here (spec section 20)."""

    def timer(self, period: int | None) -> Timer | None:
        """Return a timer started by its last pod event; None if there is no timer or no known event."""
        if not period or self.last_event is None:
            return None
        until = later(self.last_event, period)
        return Timer(since=self.last_event, period=period, until=until)

    @cached
    def consolidate_after(self) -> Timer | None:
        """Return the timer before which it is not consolidated; static pools have none."""
        policy = self.policy
        return None if policy is None or policy.static else self.timer(policy.consolidate_after)

    @cached
    def grace_period(self) -> Timer | None:
        """Return the timer that hides it from cost actions; static pools ignore it (grace-period, Code Definition)."""
        policy = self.policy
        return None if policy is None or policy.static else self.timer(policy.grace_period)

    @cached
    def turns(self) -> tuple[datetime, ...]:
        """Return when time alone changes what may be done with it: timers and do-not-disrupt, but not its expiry."""
        if self.policy is None:
            return ()
        times = [timer.until for timer in (self.consolidate_after, self.grace_period) if timer is not None]
        if self.protection is not None and self.protection.until is not None:
            times.append(self.protection.until)
        if self.old_enough_at is not None:
            times.append(self.old_enough_at)
        if self.pause is not None and self.pause.until is not None:
            times.append(self.pause.until)
        if self.sickness is not None:
            times.append(self.sickness.due)
        return tuple(times)

    def window_edges(self, now: datetime) -> tuple[datetime, ...]:
        """Return when the windows of its pods next open or close."""
        edges = (entry.window.next_change(now) for _, entry in self.pod_windows if entry.window is not None)
        return tuple(at for at in edges if at is not None)

    @cached
    def old_enough_at(self) -> datetime | None:
        """Return when it reaches its pool's minNodeAge; None: there is none."""
        age = None if self.policy is None else self.policy.min_node_age
        return None if age is None or self.created is None else later(self.created, age)

    @cached
    def sickness(self) -> Sickness | None:
        """Return the first condition to repair (spec section 19); None: it is healthy."""
        rules = () if self.policy is None else self.policy.repair
        if not rules or self.node is None:
            return None
        found = []
        for rule in rules:
            entry = condition(self.node.status.conditions, rule.condition)
            if entry is not None and entry.status == rule.status and entry.last_transition_time is not None:
                since = entry.last_transition_time
                found.append(Sickness(rule=rule, since=since, due=later(since, rule.lasting)))
        return min(found, key=lambda sickness: (sickness.due, sickness.rule.index), default=None)

    @cached
    def pause(self) -> Pause | None:
        """Return its pool's pause, even if it has ended."""
        return None if self.pool is None else read_pause(self.pool)

    @cached
    def times(self) -> tuple[datetime, ...]:
        """Return `turns` and its expiry."""
        return self.turns if self.expires_at is None or self.policy is None else (*self.turns, self.expires_at)

    @cached
    def hidden_until(self) -> datetime | None:
        """Return when its grace period ends."""
        return None if self.grace_period is None else self.grace_period.until

    @cached
    def falls_by(self) -> tuple[int, int]:
        """Return how ageing lowers its required savings: an amount of money per number of nanoseconds."""
        if self.policy is None or not self.expire_after:
            return 0, 1
        return self.policy.savings_threshold * self.pod_costs, cost.UNIT * self.expire_after

    @cached
    def counted(self) -> bool:
        """Return whether budgets count it: managed, initialized, its instance not terminating (spec section 7).

        A node that Karpenter is rebooting counts although it is not initialized meanwhile.
        """
        return self.claim is not None and (self.initialized or self.rebooting) and not self.instance_terminating

    @cached
    def used(self) -> bool:
        """Return whether it uses up budget: it is leaving, rebooting or not ready (spec section 7)."""
        return bool(self.marked) or self.rebooting or not self.ready

    @property
    def drifted(self) -> bool:
        """Return whether its condition Drifted is True."""
        return self.drifted_since is not None

    @cached
    def created(self) -> datetime | None:
        """Return when its NodeClaim was created."""
        return self.claim.metadata.creation_timestamp if self.claim else None

    @cached
    def expires_at(self) -> datetime | None:
        """Return when it expires; None: never."""
        if self.expire_after is None or self.created is None:
            return None
        return later(self.created, self.expire_after)

    def remaining(self, now: datetime) -> Fraction:
        """Return the remaining share of its lifetime."""
        return cost.lifetime_remaining(self.expire_after, self.created, now)

    def disruption_cost(self, now: datetime) -> Fraction:
        """Return the exact disruption cost (spec section 3)."""
        return Fraction(*cost.node_cost(self.pod_costs, self.expire_after, self.created, now))

    def required_savings(self, now: datetime) -> tuple[int, int]:
        """Return what removing it has to save: its pool's threshold x its disruption cost, as a ratio.

        savings-threshold, Design Options 1.
        """
        if self.policy is None or self.policy.static:
            return 0, 1
        amount, unit = cost.node_cost(self.pod_costs, self.expire_after, self.created, now)
        return self.policy.savings_threshold * amount, unit

    def asked_waste(self, now: datetime) -> Fraction | None:
        """Return the waste after which it may go for less than its threshold; None: never (section 22).

        Its pool's disruptionPrice x its disruption cost.
        """
        if self.policy is None or self.policy.disruption_price is None or self.policy.static:
            return None
        amount, unit = cost.node_cost(self.pod_costs, self.expire_after, self.created, now)
        return Fraction(self.policy.disruption_price * amount, unit)

    @property
    def closing(self) -> bool:
        """Return whether new pods are steered away from it (spec section 23)."""
        return self.node is not None and any(taint.key == names.CLOSING_TAINT for taint in self.node.spec.taints)

    @cached
    def has_jobs(self) -> bool:
        """Return whether a pod on it belongs to a Job and ends by itself."""
        return any(owner.kind == "Job" for pod in self.reschedulable for owner in pod.metadata.owner_references)

    @cached
    def ageing(self) -> cost.Ageing:
        """Return how its disruption cost falls."""
        return cost.ageing(self.pod_costs, self.expire_after, self.created)

    def disruption_cost_float(self, now: datetime) -> float:
        """Return the disruption cost, rounded."""
        amount, unit = cost.node_cost(self.pod_costs, self.expire_after, self.created, now)
        return amount / unit

    @cached
    def rescheduling_cost(self) -> Fraction:
        """Return 1 + the sum of positive pod costs, exact."""
        return cost.rescheduling_cost(self.positive_costs)

    @property
    def full_cost(self) -> Fraction:
        """Return the sum of its pods' costs, ignoring its age."""
        return Fraction(self.pod_costs, cost.UNIT)

    @property
    def tracked_cost(self) -> Fraction:
        """Return the cost that Karpenter's state has for a non-candidate: mirror and leaving pods count too."""
        return cost.rescheduling_cost(self.tracked_costs)

    def karpenter_disruption_cost(self, now: datetime) -> float:
        """Return Karpenter's own figure: all pods, including DaemonSets', x lifetime remaining, in its floats."""
        own = self.claim.spec.expire_after if self.claim else None
        life = cost.lifetime_remaining_float(read_expiry(own), self.created, now)
        return self.all_costs / cost.UNIT * life

    @property
    def rescheduling_cost_float(self) -> float:
        """Return the rescheduling cost as a float: still exact, as the unit is a power of two."""
        return 1.0 + self.positive_costs / cost.UNIT

    @property
    def savings_ratio(self) -> float:
        """Return the price per unit of rescheduling cost, by which Karpenter v1.15 orders."""
        return self.price_float / self.rescheduling_cost_float

    @property
    def empty(self) -> bool:
        """Return whether no pod would have to move."""
        return not self.reschedulable

    @property
    def empty_for_karpenter(self) -> bool:
        """Return whether no pod has a positive cost: what Karpenter v1.15 calls empty."""
        return self.positive_costs == 0
