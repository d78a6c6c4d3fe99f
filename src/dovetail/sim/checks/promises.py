"""The base class of all checkers, and the value of a broken promise.

A checker gets every change, call and eviction and records what is wrong; it never changes anything. The promises
themselves are in `sim.checks.checkers` and its neighbours.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dovetail.lifecycle.messages import Instruction
from dovetail.lifecycle.reports import Report
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import Node, Pod
from dovetail.sim.world.actuate import record_on
from dovetail.sim.world.host import Host
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch

__all__ = ["COST", "Checker", "Violation", "is_tainted", "record_on"]

COST: Final = (Method.MULTI_NODE, Method.SINGLE_NODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken promise: which, when (seconds from the start of the world), and what was seen."""

    rule: str
    at: float
    what: str

    def figures(self) -> dict[str, Any]:
        """Return the violation as the contract's JSON shows it."""
        return {"rule": self.rule, "at": self.at, "what": self.what}


def is_tainted(node: Node | None) -> bool:
    """Return whether a command has tainted the node."""
    return node is not None and any(taint.key == names.DISRUPTION_TAINT for taint in node.spec.taints)


class Checker:
    """Base of all checkers: gets everything, and records what is wrong. `follows`: kinds whose changes it wants."""

    rule = ""
    follows: tuple[str, ...] = ()

    def __init__(self, watch: "Watch") -> None:
        self.watch = watch
        self.world = watch.world
        self.store = watch.world.store

    def changed(self, change: Change) -> None:
        """Handle an object of a kind that it follows: it is new, changed or gone."""

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Handle an instruction of an engine before it is executed."""

    def reported(self, host: Host, report: Report) -> None:
        """Handle a report of an engine."""

    def evicted(self, key: str, pod: Pod) -> None:
        """Handle a pod that is about to be evicted."""

    def outside(self) -> None:
        """Handle an event that no engine caused."""

    def ended(self) -> None:
        """Handle the end of the run, when nothing is in flight any more."""

    def broken(self, what: str) -> None:
        """Record a broken promise."""
        self.watch.note(self.rule, what)
