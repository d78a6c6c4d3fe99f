"""The controls of a pool other than budgets, parsed: allow windows, health limits, repair rules.

See docs/rules.md#controls. `api.controls` reads them from a NodePool; decisions only use them. Durations are
nanoseconds. A part with a `problem` could not be read and fails closed.
"""

from typing import TYPE_CHECKING

import msgspec

from dovetail.model.policies.reasons import Reason

if TYPE_CHECKING:
    from dovetail.model.timing.windows import Window


class AllowWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A window in which its reasons are allowed; no reasons: all. A broken window forbids its reasons."""

    index: int
    schedule: str = ""
    duration: str = ""
    reasons: tuple[Reason, ...] | None = None
    window: "Window | None" = None
    problem: str | None = None

    def names(self, reason: Reason) -> bool:
        """Return whether the window applies to the reason."""
        return self.reasons is None or reason in self.reasons


class PendingLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods may be unschedulable, and for how long, before the pool stops."""

    count: int
    lasting: int


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The limits whose violation stops voluntary disruption in a pool; an unset part is None."""

    not_ready_nodes: str | None = None
    pending_pods: PendingLimit | None = None
    moved_pods_ready_within: int | None = None
    problem: str | None = None

    def not_ready_limit(self, nodes: int) -> int | None:
        """Return how many of the nodes may be NotReady; percentages are rounded up. None: no limit."""
        if self.not_ready_nodes is None:
            return None
        amount = int(self.not_ready_nodes.removesuffix("%"))
        return -(-amount * nodes // 100) if self.not_ready_nodes.endswith("%") else amount


class RepairRule(msgspec.Struct, frozen=True, kw_only=True):
    """A node condition that makes a node a candidate for repair once it has lasted long enough."""

    index: int
    condition: str
    status: str
    lasting: int
    drain_for: int | None = None
