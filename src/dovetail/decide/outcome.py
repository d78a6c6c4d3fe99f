"""The result of a round: commands, what each method saw, verdicts, budgets, warnings, and when to ask again.

Plain values; shells turn them into JSON, messages, events and metrics. Sits in decide; `round` fills it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from dovetail.api.rolling import RollingDomain, Rollout
from dovetail.decide.refusal import Refusal
from dovetail.model.cached import cached
from dovetail.model.command import REASON_OF, Command, Method
from dovetail.model.commitments import Bill
from dovetail.model.money import Money, nearest
from dovetail.model.persistence import PoolLoad
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import Profile
from dovetail.model.verdicts import BriefVerdict, NodeVerdict

if TYPE_CHECKING:
    from dovetail.decide.gates.candidates import Chain


UNLIMITED = 2_147_483_647
"""What is left where no budget is active, as Karpenter prints it."""


class CandidateFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate of a method, with the figures it is ordered by."""

    node: str
    node_pool: str
    price: Money
    price_float: float
    disruption_cost: float


class CandidateAlone(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen to a candidate alone, ignoring budgets."""

    node: str
    command: Command | None
    why: str


class MethodResult(msgspec.Struct, frozen=True, kw_only=True):
    """One method on the untouched snapshot: its candidates in order, what each pool has left, what it would do."""

    method: Method
    candidates: tuple[CandidateFigures, ...] = ()
    budget: Mapping[str, int] = msgspec.field(default_factory=dict)
    commands: tuple[Command, ...] = ()
    alone: tuple[CandidateAlone, ...] | None = None

    @property
    def reason(self) -> Reason:
        """Return the budget reason of the method."""
        return REASON_OF[self.method]


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool allows for a reason now, how much of it is used, and what is left.

    By its flat budgets. `allowed_with_domains`, `left_with_domains`: the same within its topology budgets, which cap
    drift domain by domain.
    """

    node_pool: str
    reason: Reason
    allowed: int
    used: int
    left: int
    allowed_with_domains: int
    left_with_domains: int


class BlockedMove(msgspec.Struct, frozen=True, kw_only=True):
    """A cost action that the savings threshold refused: for the log and a counter."""

    nodes: tuple[str, ...]
    node_pools: tuple[str, ...]
    refusal: Refusal

    @property
    def why(self) -> str:
        """Return the sentence."""
        return self.refusal.why


class BufferRow(msgspec.Struct, frozen=True, kw_only=True):
    """A CapacityBuffer: how many virtual pods it represents, and the nodes that have room for some of them now."""

    name: str
    replicas: int
    nodes: tuple[tuple[str, int], ...]

    @property
    def carried(self) -> int:
        """Return how many of them fit on nodes now."""
        return sum(count for _, count in self.nodes)


class JudgedMove(msgspec.Struct, frozen=True, kw_only=True):
    """A cost action that was judged, for one pool of it: `score` only where the pool's policy is Balanced."""

    node_pool: str
    policy: str
    approved: bool
    score: float | None = None


class RollChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a NodePool should say about its roll from now on (`methods.turns`).

    `seen`: the values of its annotations that this was found from. `left_behind`: the drifted nodes of a domain that
    just lost its turn, because their own gates held them for too long; `finished`: a domain that is done.
    `request_over`: every node that a request on it asked for is gone, and so is the request.
    """

    node_pool: str
    seen: tuple[str | None, ...]
    domain: RollingDomain | None
    rollout: Rollout
    left_behind: tuple[str, ...] = ()
    finished: str = ""
    request_over: bool = False


class ExpiringNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that Karpenter will end by force; `left`: in how long; `in_time`: the budgets can take it before that."""

    node: str
    node_pool: str
    expires_at: datetime
    forced_at: datetime
    left: timedelta
    in_time: bool


class WaitingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that waits to go for another reason than its cost, and since when."""

    node: str
    node_pool: str
    reason: Reason
    since: datetime


class ExpiringDay(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a pool that Karpenter ends by force within one day, and how many of them can go before."""

    node_pool: str
    first: datetime
    nodes: int
    in_time: int

    def late(self, zone: tzinfo) -> str:
        """Return a warning, if the budgets can't take all of them; else an empty text."""
        if self.in_time >= self.nodes:
            return ""
        return (
            f"{self.nodes} node{'' if self.nodes == 1 else 's'} of NodePool {self.node_pool} "
            f"expire{'s' if self.nodes == 1 else ''} on {self.first.astimezone(zone):%A %Y-%m-%d}, the budgets allow "
            f"{self.in_time}: Karpenter will end the rest by force"
        )


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """The pod of a ReplicaSet that a scale-down should take next."""

    owner: str
    namespace: str
    name: str
    uid: str


class SteeringPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes to close and the pods to mark; `worth`: dollars per hour and pod of the closing nodes."""

    closing: tuple[str, ...] = ()
    victims: tuple[Victim, ...] = ()
    worth: tuple[tuple[str, float], ...] = ()


NOTHING: Final = SteeringPlan()


class AllVerdicts(Protocol):
    """The verdicts of a round (`decide.verdict.Verdicts`)."""

    def all(self) -> tuple[NodeVerdict, ...]:
        """Return every node's verdict, by name."""
        ...

    def of(self, node: str) -> NodeVerdict:
        """Return a node's verdict."""
        ...

    def brief(self) -> tuple[BriefVerdict, ...]:
        """Return every node's verdict without its reasons, by name."""
        ...

    def chains(self, node: str) -> tuple[Mapping[Method, "Chain"], "Chain"]:
        """Return a node's gates by method, and those of the method that its verdict goes by."""
        ...


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """Everything a round found. `commands` is what to do now; the rest says why, and why not.

    `next_change` is the earliest time at which the answer could change without an event: a timer ends, a budget's
    window opens or closes, a node expires. None: never by time alone. `rolling`: what NodePools should say about their
    rolls from now on.

    Immutable. `verdicts` and `methods` are computed on first access, because a controller that only acts does not need
    5,000 sentences; their values don't depend on when or in which order they are read. `methods` always lists all: one
    that was not asked, because another acts, has its candidates and no command.
    """

    now: datetime
    profile: Profile
    policy: str = ""
    commands: tuple[Command, ...]
    budgets: tuple[BudgetRow, ...]
    warnings: tuple[str, ...]
    blocked: tuple[BlockedMove, ...]
    next_change: datetime | None
    rolling: tuple[RollChange, ...] = ()
    compute_steering: Callable[[], SteeringPlan] = field(default=SteeringPlan, repr=False)
    list_rollouts: Callable[[], tuple[Any, ...]] = field(default=tuple, repr=False)
    list_judged_moves: Callable[[], tuple[JudgedMove, ...]] = field(default=tuple, repr=False)
    assumed: tuple[str, ...] = ()
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    buffers: tuple[BufferRow, ...] = ()
    compute_could_save: Callable[[], Mapping[str, Money | None]] = field(default=dict, repr=False)
    compute_loads: Callable[[], Mapping[str, PoolLoad]] = field(default=dict, repr=False)
    compute_expiring: Callable[[], tuple[ExpiringNode, ...]] = field(default=tuple, repr=False)
    list_waiting: Callable[[], tuple[WaitingNode, ...]] = field(default=tuple, repr=False)
    compute_value_at_most: Callable[[], Money | None] = field(default=lambda: None, repr=False)
    catalogue_source: str
    catalogue_date: str
    list_prices: Callable[[], Mapping[str, Money]] = field(repr=False)
    compute_bill: Callable[[], Bill | None] = field(default=lambda: None, repr=False)
    compute_staying_cost: Callable[[], Money | None] = field(default=lambda: None, repr=False)
    list_verdicts: Callable[[], AllVerdicts] = field(repr=False)
    list_methods: Callable[[], tuple[MethodResult, ...]] = field(repr=False)

    @property
    def called(self) -> str:
        """Return what people call the rules of this round: the policy, or else the profile."""
        return self.policy or self.profile.value

    @cached
    def steering(self) -> SteeringPlan:
        """Return the nodes to close and the pods to mark (docs/rules.md#steering); nothing if steering is off."""
        return self.compute_steering()

    @cached
    def expiring(self) -> tuple[ExpiringNode, ...]:
        """Return the nodes that Karpenter ends by force within a week, and whether budgets can take each before."""
        return self.compute_expiring()

    @cached
    def waiting(self) -> tuple[WaitingNode, ...]:
        """Return the unhealthy, expired and drifted nodes that are not leaving yet, and since when each waits."""
        return self.list_waiting()

    @cached
    def could_save(self) -> Mapping[str, Money | None]:
        """Return what removing each node would save per hour, if its pool prices disruption (docs/rules.md#waste)."""
        return self.compute_could_save()

    @cached
    def loads(self) -> Mapping[str, PoolLoad]:
        """Return the load of every pool that prices restarts (docs/rules.md#one-price)."""
        return self.compute_loads()

    @cached
    def value_at_most(self) -> Money | None:
        """Return an upper bound on the hourly value of any set of the nodes that may go now; None: none may go."""
        return self.compute_value_at_most()

    @cached
    def judged_moves(self) -> tuple[JudgedMove, ...]:
        """Return every cost action that was judged, by pool, as Karpenter's metrics count moves."""
        return self.list_judged_moves()

    @cached
    def rollouts(self) -> tuple[Any, ...]:
        """Return the state of every roll, by pool (`rollouts.status.RollStatus`)."""
        return self.list_rollouts()

    @cached
    def prices(self) -> Mapping[str, Money]:
        """Return what each node with a known price costs per hour: what its going by itself would save."""
        return self.list_prices()

    @cached
    def bill(self) -> Bill | None:
        """Return what is committed and what is not covered; None if the nodes simply cost the sum of their prices."""
        return self.compute_bill()

    @property
    def cost_per_hour(self) -> Money:
        """Return what all nodes with a known price cost per hour."""
        return sum(self.prices.values()) if self.bill is None else nearest(self.bill.total)

    @property
    def staying_cost(self) -> Money:
        """Return the same without nodes that are leaving, where those change what the others cost.

        What commands save is a difference of these: a commitment that a leaving node uses is free again soon.
        """
        found = self.compute_staying_cost()
        return self.cost_per_hour if found is None else found

    @cached
    def methods(self) -> tuple[MethodResult, ...]:
        """Return every method, in the order they are asked."""
        return self.list_methods()

    @cached
    def verdicts(self) -> tuple[NodeVerdict, ...]:
        """Return every node's verdict, by name."""
        return self.list_verdicts().all()

    @cached
    def brief_verdicts(self) -> tuple[BriefVerdict, ...]:
        """Return every node's verdict without its reasons, by name."""
        return self._in_brief.brief()

    def verdict(self, node: str) -> NodeVerdict:
        """Return one node's verdict, the same as in `verdicts`; the others are computed only if it depends on them."""
        return self._in_brief.of(node)

    def chains(self, node: str) -> tuple[Mapping[Method, "Chain"], "Chain"]:
        """Return a node's gates by method, and those of the method that its verdict goes by."""
        return self._in_brief.chains(node)

    def why(self, node: str) -> str:
        """Return the reason of a node's verdict."""
        return self.verdict(node).why

    @property
    def saves(self) -> Money:
        """Return what its commands save per hour, together."""
        return sum(command.savings for command in self.commands)

    @property
    def taken(self) -> tuple[str, ...]:
        """Return the nodes that its commands remove."""
        return tuple(node for command in self.commands for node in command.nodes)

    @cached
    def _in_brief(self) -> AllVerdicts:
        return self.list_verdicts()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `dovetail plan` (contract.md)."""
        from dovetail.decide.document import plan_document

        return plan_document(self)
