"""What decisions know about each node, read once a round: claim, pool, pods that would move, costs, price, times.

Decides nothing: gates, budgets and methods read it. Built from the snapshot's objects in one pass over the pods. Sits
in decide, at the bottom.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.api.drift import will_drift
from dovetail.api.pod_windows import PodWindow
from dovetail.api.pool_marks import Pause, read_pause
from dovetail.api.roll_request import RollRequest
from dovetail.decide.facts import cost
from dovetail.decide.facts.drainability import Protection
from dovetail.decide.in_flight import Resting
from dovetail.model import names
from dovetail.model.cached import cached
from dovetail.model.money import Money
from dovetail.model.names import CONDITION_INITIALIZED
from dovetail.model.objects import Node, NodeClaim, NodePool, Pod, condition, is_true
from dovetail.model.policies.controls import RepairRule
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.timing.duration import DAY, HOUR, NEVER, DurationError, later, parse_go_duration, parse_simple
from dovetail.scheduling.pods.requests import amounts, spec_requests
from dovetail.scheduling.pods.surge import Surge

_ONE_CPU: Final = 1000
"""Millicores."""


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


def retirement_age(pools: int | None, own: int | None, lead: int | None) -> int | None:
    """Return the age at which a node counts as expired; None: it never does.

    The earlier of two: its pool's expireAfter, and the lead before that of its NodeClaim, at which Karpenter ends it by
    force. The usual lead is a day, or a tenth of a shorter life; so is one that would leave no life at all.
    """
    if own is not None:
        usual = min(DAY, own // 10)
        own = max(0, own - (usual if lead is None or lead >= own else lead))
    return min((age for age in (pools, own) if age is not None), default=None)


@lru_cache(maxsize=1 << 10)
def is_length(text: str) -> bool:
    """Return whether a NodeClaim's duration can be read; `Never` can't."""
    return read_expiry(text) is not None


def odd_spans(claim: NodeClaim) -> list[tuple[str, str]]:
    """Return the durations of a NodeClaim that can't be read: the fields and their values."""
    life, grace = claim.spec.expire_after, claim.spec.termination_grace_period
    found = []
    if life is not None and life != NEVER and not is_length(life):
        found.append(("expireAfter", life))
    if grace is not None and not is_length(grace):
        found.append(("terminationGracePeriod", grace))
    return found


def last_pod_event(claim: NodeClaim | None, seen: datetime | None = None) -> datetime | None:
    """Return the last pod event of a node or, if none is known, when it was initialized (grace-period, Core Logic).

    `seen`: the last one that Dovetail saw itself; the later of both counts, as Karpenter can miss one.
    """
    if claim is None:
        return None
    written = claim.status.last_pod_event_time
    if written is not None and seen is not None:
        return max(written, seen)
    if written is not None or seen is not None:
        return written or seen
    initialized = condition(claim.status.conditions, names.CONDITION_INITIALIZED)
    if initialized is not None and initialized.status == "True":
        return initialized.last_transition_time
    return None


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A timer of a node: since when, how long (nanoseconds), until when."""

    since: datetime
    period: int
    until: datetime

    def running(self, now: datetime) -> bool:
        """Return whether it is still running: `now - since < period`; equal is over (docs/rules.md#timers)."""
        return now < self.until


class Sickness(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of a node that its pool repairs: since when, by which rule, and when repair may start."""

    rule: RepairRule
    since: datetime
    due: datetime


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One node (or NodeClaim without a node). Valid while its objects are the same: nothing depends on the time.

    `expire_after`: its life, by which its disruption cost falls; `retires_after`: the age from which on it counts as
    expired.
    """

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
    retires_after: int | None
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
    resting: Resting | None = None
    pod_windows: tuple[tuple[Pod, PodWindow], ...] = ()
    """Pods that would move and may only do so in a window of their own (docs/rules.md#pod-windows)."""
    roll: RollRequest | None = None
    """The request of a person to replace it; it counts as drifted since then."""
    list_price: Money | None = None
    """Its price if no commitment covered it, where `price` is what its going saves; None: `price`."""
    surges: tuple[tuple[Pod, Surge], ...] = ()
    """Deployments that move by their own rolling update, each with a pod that is here (docs/rules.md#surge)."""

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
    def old_enough_at(self) -> datetime | None:
        """Return when it reaches its pool's minNodeAge; None: there is none."""
        age = None if self.policy is None else self.policy.min_node_age
        return None if age is None or self.created is None else later(self.created, age)

    @cached
    def sickness(self) -> Sickness | None:
        """Return the first condition to repair (docs/rules.md#repair); None: it is healthy."""
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

    @property
    def hidden_until(self) -> datetime | None:
        """Return when its grace period ends."""
        return None if self.grace_period is None else self.grace_period.until

    @cached
    def falls_by(self) -> tuple[int, int]:
        """Return how ageing lowers its required savings: an amount of money per number of nanoseconds."""
        if self.policy is None or not self.expire_after:
            return 0, 1
        return self.policy.savings_threshold * self.pod_costs, cost.UNIT * self.expire_after

    @property
    def counted(self) -> bool:
        """Return whether budgets count it: managed, initialized, its instance not terminating (docs/rules.md#budgets).

        A node that Karpenter is rebooting counts although it is not initialized meanwhile.
        """
        return self.claim is not None and (self.initialized or self.rebooting) and not self.instance_terminating

    @property
    def used(self) -> bool:
        """Return whether it uses up budget: it is leaving, rebooting or not ready (docs/rules.md#budgets)."""
        return bool(self.marked) or self.rebooting or not self.ready

    @property
    def drifted(self) -> bool:
        """Return whether its condition Drifted is True, or a person asked to replace it."""
        return self.drifted_since is not None

    @property
    def found_drifted(self) -> bool:
        """Return whether Karpenter found that it has drifted."""
        return self.claim is not None and is_true(self.claim.status.conditions, names.CONDITION_DRIFTED)

    @cached
    def will_drift(self) -> bool:
        """Return whether Karpenter has not found yet that it has drifted, but will (`api.drift`)."""
        if self.claim is None or self.pool is None or self.found_drifted:
            return False
        return will_drift(self.pool, self.claim)

    @cached
    def created(self) -> datetime | None:
        """Return when its NodeClaim was created."""
        return self.claim.metadata.creation_timestamp if self.claim else None

    @cached
    def expires_at(self) -> datetime | None:
        """Return from when on it counts as expired (docs/rules.md#expiry); None: never."""
        if self.retires_after is None or self.created is None:
            return None
        return later(self.created, self.retires_after)

    @cached
    def forced_at(self) -> datetime | None:
        """Return when Karpenter ends it by force; None: never."""
        own = None if self.claim is None else read_expiry(self.claim.spec.expire_after)
        return None if own is None or self.created is None else later(self.created, own)

    def remaining(self, now: datetime) -> Fraction:
        """Return the remaining share of its lifetime."""
        return cost.lifetime_remaining(self.expire_after, self.created, now)

    def cost_ratio(self, now: datetime) -> tuple[int, int]:
        """Return the exact disruption cost (docs/rules.md#cost), as a ratio."""
        return cost.node_cost(self.pod_costs, self.expire_after, self.created, now)

    def disruption_cost(self, now: datetime) -> Fraction:
        """Return the exact disruption cost (docs/rules.md#cost)."""
        return Fraction(*self.cost_ratio(now))

    def required_savings(self, now: datetime) -> tuple[int, int]:
        """Return what removing it has to save: its pool's threshold x its disruption cost, as a ratio.

        savings-threshold, Design Options 1.
        """
        if self.policy is None or self.policy.static:
            return 0, 1
        amount, unit = self.cost_ratio(now)
        return self.policy.savings_threshold * amount, unit

    def asked_waste(self, now: datetime) -> tuple[int, int] | None:
        """Return the waste, as a ratio, that lets it go for less than its threshold; None: never (docs/rules.md#waste).

        Its pool's disruptionPrice x its disruption cost.
        """
        if self.policy is None or self.policy.disruption_price is None or self.policy.static:
            return None
        amount, unit = self.cost_ratio(now)
        return self.policy.disruption_price * amount, unit

    def restarts_worth(self, now: datetime) -> tuple[int, int]:
        """Return what the restarts of its pods are worth to its pool, as a ratio: restartPrice x disruption cost.

        A price that is a time counts for each pod as so much of its own share of this node's price, which
        commitments don't change, or of one CPU of this node (docs/rules.md#one-price).
        """
        price = None if self.policy is None else self.policy.restart_price
        if price is None:
            return 0, 1
        amount, unit = self.cost_ratio(now)
        if not price.time:
            return price.dollars * amount, unit
        share = self.cpu_share if price.per_cpu else self.mover_share
        paid = self.price if self.list_price is None else self.list_price
        return price.time * paid * amount * share.numerator, HOUR * unit * share.denominator

    @cached
    def cpu_share(self) -> Fraction:
        """Return which share of this node one CPU is: all of it, if it has less."""
        room = {} if self.node is None else amounts(self.node.status.allocatable)
        return Fraction(_ONE_CPU, max(_ONE_CPU, room.get("cpu", 0)))

    @cached
    def mover_share(self) -> Fraction:
        """Return the share of this node that a unit of its pods' cost takes, on average over that cost.

        A pod's share is the larger of its shares of CPU and memory.
        """
        room = {} if self.node is None else amounts(self.node.status.allocatable)
        whole = {name: room[name] for name in ("cpu", "memory") if room.get(name, 0) > 0}
        taken, costs = Fraction(0), 0
        for pod in self.reschedulable:
            asks, own = spec_requests(pod.spec), max(0, cost.eviction_cost(pod))
            taken += own * max((Fraction(asks.get(name, 0), size) for name, size in whole.items()), default=Fraction(0))
            costs += own
        return taken / costs if costs else Fraction(0)

    @cached
    def steered_since(self) -> datetime | None:
        """Return since when it has been there, if steering may look at it; None: it is leaving, starting or empty."""
        policy = self.policy
        used = self.claim is not None and self.initialized and not self.marked and not self.nominated
        if not used or self.empty or policy is None or policy.static or policy.consolidate_after is None:
            return None
        return self.created

    @cached
    def closing(self) -> bool:
        """Return whether new pods are steered away from it (docs/rules.md#steering)."""
        return self.has_taint(names.CLOSING_TAINT)

    def has_taint(self, key: str) -> bool:
        """Return whether its Node has a taint with a key."""
        return self.node is not None and any(taint.key == key for taint in self.node.spec.taints)

    @cached
    def has_jobs(self) -> bool:
        """Return whether a pod on it belongs to a Job and ends by itself."""
        return any(owner.kind == "Job" for pod in self.reschedulable for owner in pod.metadata.owner_references)

    @cached
    def replicas(self) -> Mapping[str, Sequence[Pod]]:
        """Return the pods that would move and belong to a ReplicaSet, by its uid."""
        found: dict[str, list[Pod]] = {}
        for pod in self.reschedulable:
            for owner in pod.metadata.owner_references:
                if owner.kind == "ReplicaSet":
                    found.setdefault(owner.uid, []).append(pod)
        return found

    @cached
    def ageing(self) -> cost.Ageing:
        """Return how its disruption cost falls."""
        return cost.ageing(self.pod_costs, self.expire_after, self.created)

    def disruption_cost_float(self, now: datetime) -> float:
        """Return the disruption cost, rounded."""
        amount, unit = self.cost_ratio(now)
        return amount / unit

    @cached
    def rescheduling_cost(self) -> Fraction:
        """Return 1 + the sum of positive pod costs, exact."""
        return cost.rescheduling_cost(self.positive_costs)

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


def rescheduling_costs(nodes: Sequence[NodeFacts]) -> npt.NDArray[np.float64]:
    """Return `rescheduling_cost_float` of many nodes."""
    costs: npt.NDArray[np.float64] = 1.0 + np.array([facts.positive_costs for facts in nodes]) / cost.UNIT
    return costs


_LAUNCH: Final = timedelta(seconds=40)
"""How long a replacement is assumed to take, until a launch of the pool shows it."""
DRAIN: Final = timedelta(seconds=10)
"""How long a node is assumed to take to be gone once its replacement is there."""
_LAUNCH_MIN, _LAUNCH_MAX = timedelta(seconds=5), timedelta(minutes=30)
"""Launch times outside these are ignored: a machine of a test, or one that waited for a person."""


def usual_launch(nodes: Iterable[NodeFacts], since: datetime | None = None) -> timedelta:
    """Return the median of the time from a NodeClaim to its initialized node; of those made since a time, if any is."""
    recent, earlier = list[timedelta](), list[timedelta]()
    for facts in nodes:
        ready = None if facts.claim is None else condition(facts.claim.status.conditions, CONDITION_INITIALIZED)
        if facts.created is None or ready is None or ready.status != "True" or ready.last_transition_time is None:
            continue
        took = ready.last_transition_time - facts.created
        if _LAUNCH_MIN <= took <= _LAUNCH_MAX:
            (recent if since is not None and facts.created >= since else earlier).append(took)
    known = sorted(recent or earlier)
    return known[len(known) // 2] if known else _LAUNCH
