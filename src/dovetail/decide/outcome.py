"""The result of a round: commands, what each method saw, verdicts, budgets, warnings, and when to ask again.

Plain values; shells turn them into JSON, messages, events and metrics. Sits in decide; `round` fills it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import msgspec

from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.steering_plan import SteeringPlan
from dovetail.model.cached import cached
from dovetail.model.command import REASON_OF, Command, Method
from dovetail.model.money import Money
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import Profile
from dovetail.model.verdicts import BriefVerdict, NodeVerdict

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """What a pool allows for a reason now, how much of it is used, and what is left."""

    node_pool: str
    reason: Reason
    allowed: int
    used: int
    left: int


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


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """Everything a round found. `commands` is what to do now; the rest says why, and why not.

    `next_change` is the earliest time at which the answer could change without an event: a timer ends, a budget's
    window opens or closes, a node expires. None: never by time alone.

    Immutable. `verdicts` and `methods` are computed on first access, because a controller that only acts does not need
    5,000 sentences; their values don't depend on when or in which order they are read. `methods` always lists all: one
    that was not asked, because another acts, has its candidates and no command.
    """

    now: datetime
    profile: Profile
    commands: tuple[Command, ...]
    budgets: tuple[BudgetRow, ...]
    warnings: tuple[str, ...]
    blocked: tuple[BlockedMove, ...]
    next_change: datetime | None
    compute_steering: Callable[[], SteeringPlan] = field(default=SteeringPlan, repr=False)
    list_judged_moves: Callable[[], tuple[JudgedMove, ...]] = field(default=tuple, repr=False)
    assumed: tuple[str, ...] = ()
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    buffers: tuple[BufferRow, ...] = ()
    compute_could_save: Callable[[], Mapping[str, Money | None]] = field(default=dict, repr=False)
    compute_value_at_most: Callable[[], Money | None] = field(default=lambda: None, repr=False)
    catalogue_source: str
    catalogue_date: str
    list_prices: Callable[[], Mapping[str, Money]] = field(repr=False)
    list_verdicts: Callable[[], AllVerdicts] = field(repr=False)
    list_methods: Callable[[], tuple[MethodResult, ...]] = field(repr=False)

    @cached
    def steering(self) -> SteeringPlan:
        """Return the nodes to close and the pods to mark (section 23); nothing if steering is off."""
        return self.compute_steering()

    @cached
    def could_save(self) -> Mapping[str, Money | None]:
        """Return what removing each node would save per hour, if its pool prices disruption (section 22)."""
        return self.compute_could_save()

    @cached
    def value_at_most(self) -> Money | None:
        """Return what no set of the nodes that may go now could be worth more than, per hour; None: none may go."""
        return self.compute_value_at_most()

    @cached
    def judged_moves(self) -> tuple[JudgedMove, ...]:
        """Return every cost action that was judged, by pool, as Karpenter's metrics count moves."""
        return self.list_judged_moves()

    @cached
    def prices(self) -> Mapping[str, Money]:
        """Return what each node with a known price costs per hour."""
        return self.list_prices()

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

    def why(self, node: str) -> str:
        """Return the reason of a node's verdict."""
        return self._in_brief.of(node).why

    @cached
    def _in_brief(self) -> AllVerdicts:
        return self.list_verdicts()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `dovetail plan` (contract.md)."""
        from dovetail.decide.document import plan_document

        return plan_document(self)
