"""The commands in flight when a round starts, and what they reserve.

A value that is part of a round's question; a captured cluster has none. It decides nothing. Sits in decide,
below the question; `lifecycle.engine` fills it.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.model.command import Method
from dovetail.scheduling.under_way import NOTHING_UNDER_WAY, UnderWay


class LeavingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a command in flight removes, whether it is already tainted or not."""

    node: str
    method: Method
    since: datetime
    command_id: str = ""


class Resting(msgspec.Struct, frozen=True, kw_only=True):
    """A node that backs off after a command was rolled back before its irreversible step: until when, and why."""

    until: datetime
    why: str


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that commands in flight reserve.

    `leaving`: their candidates, marked for deletion (docs/rules.md#gates, gate 2). `nominated`: names of nodes, or of
    NodeClaims without a node, that pods will move to: replacements and destinations (gate 4). `regrown`: pools whose
    last cost action was undone (its pods needed a new node again), and until when they try none. `under_way`: where the
    pods of `leaving` will go, and what will be launched for them. `back_off`: pools whose replacements failed, and
    until when no command launches another there. `resting`: nodes that back off, by name.
    """

    leaving: tuple[LeavingNode, ...] = ()
    nominated: tuple[str, ...] = ()
    under_way: UnderWay = NOTHING_UNDER_WAY
    back_off: Mapping[str, datetime] = msgspec.field(default_factory=dict)
    regrown: Mapping[str, datetime] = msgspec.field(default_factory=dict)
    resting: Mapping[str, Resting] = msgspec.field(default_factory=dict)

    @property
    def leaving_names(self) -> tuple[str, ...]:
        """Return the names of all nodes that are leaving, in order."""
        return tuple(sorted({entry.node for entry in self.leaving}))


NOTHING_IN_FLIGHT = InFlight()
