"""What a round decides: commands with their evidence. `lifecycle` executes them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.model.money import Money
from dovetail.model.objects import SelectorRequirement, Taint
from dovetail.model.policies.policy import Reason


class Action(StrEnum):
    """The lifecycle actions (lifecycle-controller, ConsolidationActions to LifecycleActions)."""

    DELETE_UNHEALTHY = "deleteUnhealthy"
    REPLACE_UNHEALTHY = "replaceUnhealthy"
    DELETE_EMPTY = "deleteEmpty"
    DELETE_EXPIRED = "deleteExpired"
    REPLACE_EXPIRED = "replaceExpired"
    DELETE_DRIFTED = "deleteDrifted"
    REPLACE_DRIFTED = "replaceDrifted"
    DELETE_COST = "deleteCost"
    REPLACE_COST = "replaceCost"


class Method(StrEnum):
    """The methods of a round, in their order."""

    UNHEALTHY = "unhealthy"
    EMPTY = "empty"
    EXPIRED = "expired"
    DRIFTED = "drifted"
    MULTI_NODE = "multiNode"
    SINGLE_NODE = "singleNode"


COST_METHODS: Final = (Method.MULTI_NODE, Method.SINGLE_NODE)

REASON_OF: dict[Method, Reason] = {
    Method.UNHEALTHY: Reason.UNHEALTHY,
    Method.EMPTY: Reason.EMPTY,
    Method.EXPIRED: Reason.EXPIRED,
    Method.DRIFTED: Reason.DRIFTED,
    Method.MULTI_NODE: Reason.UNDERUTILIZED,
    Method.SINGLE_NODE: Reason.UNDERUTILIZED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A NodeClaim to create: its pool, its possible instance types (cheapest first) and its requirements."""

    node_pool: str
    instance_types: tuple[str, ...]
    capacity_types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    requirements: tuple[SelectorRequirement, ...] = ()
    requests: dict[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    pods: tuple[str, ...] = ()


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Pods (`namespace/name`) that move to an existing node."""

    node: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One decision: the nodes to remove, the replacements to launch first, where the pods go, and what it saves.

    `surges`: Deployments (`namespace/name`) whose rolling update moves pods (docs/rules.md#surge).
    `launchable`: the instance types that its new nodes were limited to, if a limit gave a better command; empty: any.
    `pays_after`: after how many nanoseconds it has saved what its restarts and launches cost; 0: nobody prices them.
    `terminate_first`: why a node is removed before its replacement is ready, in Karpenter's word; empty: it is not.
    """

    action: Action
    method: Method
    nodes: tuple[str, ...]
    replacements: tuple[Replacement, ...] = ()
    placements: tuple[Placement, ...] = ()
    savings: Money = 0
    required_savings: Money = 0
    disruption_cost: float = 0.0
    pods: int = 0
    launchable: tuple[str, ...] = ()
    surges: tuple[str, ...] = ()
    terminate_first: str = ""
    pays_after: int = 0

    @property
    def reason(self) -> Reason:
        """Return the budget reason that this command counts against."""
        return REASON_OF[self.method]
