"""Values in the result of a round: what methods saw, budgets, rolls, moves, what expires, what steering proposes.

Plain values; shells turn them into JSON, messages, events and metrics. Sits in decide; `round` fills it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Final

import msgspec

from dovetail.api.rolling import RollingDomain, Rollout
from dovetail.decide.refusal import Refusal
from dovetail.model.command import REASON_OF, Command, Method
from dovetail.model.money import Money
from dovetail.model.policies.policy import Reason

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
