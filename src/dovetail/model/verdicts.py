"""Every reason for and against disruption, as closed enums and values: the gates, their results and their numbers.

Shells turn these into messages, events, metrics and pages; the identifiers are stable (docs/rules.md#gates).
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

Figure = str | int | float | bool | None


class Gate(StrEnum):
    """The gates of docs/rules.md#gates, in order; a method's own conditions and the price gates have separate names."""

    MANAGED = "managed"
    PAUSED = "paused"
    REBOOTING = "rebooting"
    MARKED_FOR_DELETION = "marked-for-deletion"
    INITIALIZED = "initialized"
    NOMINATED = "nominated"
    NODE_DO_NOT_DISRUPT = "node-do-not-disrupt"
    POD_DO_NOT_DISRUPT = "pod-do-not-disrupt"
    PDB = "pdb"
    POD_WINDOW = "pod-window"
    SURGE = "surge"
    POOL_POLICY = "pool-policy"
    CONSOLIDATE_AFTER = "consolidate-after"
    MIN_NODE_AGE = "min-node-age"
    GRACE_PERIOD = "grace-period"
    CAPACITY_BUFFER = "capacity-buffer"
    NOT_EMPTY = "not-empty"
    NOT_UNHEALTHY = "not-unhealthy"
    DO_NOT_REPAIR = "do-not-repair"
    NOT_EXPIRED = "not-expired"
    NOT_DRIFTED = "not-drifted"
    INSTANCE_TYPE_KNOWN = "instance-type-known"
    DYNAMIC_RESOURCES = "dynamic-resources"
    STABILIZATION = "stabilization"
    HEALTH = "health"
    WINDOW = "window"
    BUDGET = "budget"
    TOPOLOGY_BUDGET = "topology-budget"
    SIMULATION = "simulation"
    NEW_NODES = "new-nodes"
    UNINITIALIZED_DESTINATION = "uninitialized-destination"
    BACK_OFF = "back-off"
    PRICE = "price"
    SAVINGS_THRESHOLD = "savings-threshold"
    WASTE = "waste"
    RESTART_PRICE = "restart-price"
    SAME_TYPE = "same-type"
    SPOT_TO_SPOT = "spot-to-spot"
    SPOT_FLEXIBILITY = "spot-flexibility"
    MIN_VALUES = "min-values"
    BALANCED = "balanced"


ELIGIBLE = "eligible"


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one gate for one node: `why` is a plain sentence, `figures` are the numbers behind it.

    `due`: when money alone opens it by passing time, if that is known; timers and windows are times of the gate table.
    """

    gate: Gate
    passed: bool
    why: str
    figures: Mapping[str, Figure] = msgspec.field(default_factory=dict)
    due: datetime | None = None


class BriefVerdict(NamedTuple):
    """A verdict without its reasons."""

    node: str
    node_pool: str
    verdict: str


class NodeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a round for one node: `verdict` is `eligible` or the identifier of the gate that refused it."""

    node: str
    node_pool: str
    verdict: str
    why: str
    gates: tuple[GateResult, ...] = ()
