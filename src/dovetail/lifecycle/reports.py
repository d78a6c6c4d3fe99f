"""What the engine reports: a closed set of facts for logs, metrics, notifications and the simulator's ledger.

Each type holds its facts; `topic`, `message` and `figures` format them for a log line. Code that handles some of them
specially matches on the types and ends in `assert_never`, so that a new one can't be overlooked. To add one: its class
here and its name in `Report`. Never answered. Sits at the bottom of lifecycle, beside `messages`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from enum import Enum
from typing import ClassVar, Final

from dovetail.decide.methods.outlook import expiring_days
from dovetail.decide.outcome import ExpiringNode
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.model.command import Action, Method
from dovetail.model.policies.policy import Reason

Figures = dict[str, str | int | float]
_NAMED_MAX: Final = 4
_DAY: Final = timedelta(days=1)


def some_of(names: Sequence[str]) -> str:
    """Return names as text, only the first few of many; the figures of a report hold them all."""
    if len(names) <= _NAMED_MAX:
        return ", ".join(names)
    return f"{len(names)} nodes ({', '.join(names[: _NAMED_MAX - 1])} and {len(names) - _NAMED_MAX + 1} more)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptedNode:
    """A node whose deletion starts, as Karpenter's metrics count it.

    `policy`: the pool's consolidation policy in snake case, empty unless it goes for consolidation. `mode`: `graceful`,
    or `eventual` if its NodeClaim has a terminationGracePeriod.
    """

    pool: str
    capacity_type: str
    policy: str
    mode: str
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAdvanced:
    """A command has entered a phase; `source` and `signal` are None at its start.

    `savings` is in dollars per hour, None where a predecessor decided the command; `seconds` counts from its start.
    `disrupted`: the nodes whose deletion begins with this step. `launched_in`: the pools of the replacements that were
    created with this step. `unready`: how many replacements were not initialized when it was rolled back.
    """

    topic: ClassVar[str] = "command"
    command_id: str
    phase: Phase
    source: Phase | None
    signal: Signal | None
    action: Action
    method: Method
    nodes: tuple[str, ...]
    replacements: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    seconds: float = 0.0
    savings: float | None = None
    why: str = ""
    terminate_first: str = ""
    disrupted: tuple[DisruptedNode, ...] = ()
    launched_in: tuple[str, ...] = ()
    unready: int = 0

    @property
    def message(self) -> str:
        """Return the step in words: how many nodes it removes and launches, and why."""
        count = len(self.replacements)
        launches = f" ({count} replacement{'s' if count > 1 else ''})" if count else ""
        why = f": {self.why}" if self.why else ""
        what = f"of {some_of(self.nodes)}" if self.nodes else f"({self.command_id}, whose nodes another command has)"
        return f"{self.action.value} {what} is {self.phase.value}{launches}{why}"

    @property
    def figures(self) -> Figures:
        """Return everything, lists joined by commas."""
        figures: Figures = {
            "phase": self.phase.value,
            "from": "" if self.source is None else self.source.value,
            "signal": "" if self.signal is None else self.signal.value,
            "action": self.action.value,
            "method": self.method.value,
            "removes": len(self.nodes),
            "launches": len(self.replacements),
            "nodes": ",".join(self.nodes),
            "replacements": ",".join(self.replacements),
            "pools": ",".join(self.pools),
            "seconds": self.seconds,
        }
        return figures if self.savings is None else {**figures, "savings": self.savings}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFound:
    """A command of a predecessor was found on the cluster and is resumed."""

    topic: ClassVar[str] = "command"
    command_id: str
    action: Action

    @property
    def message(self) -> str:
        """Return it in words."""
        return "found on the cluster"

    @property
    def figures(self) -> Figures:
        """Return the action."""
        return {"action": self.action.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionNotDone:
    """The shell could not execute an instruction; `failure` is a value of `messages.Failure`."""

    topic: ClassVar[str] = "instruction-failed"
    command_id: str
    id: str
    failure: str
    detail: str

    @property
    def message(self) -> str:
        """Return the shell's own words, if it has any."""
        return self.detail or self.failure

    @property
    def figures(self) -> Figures:
        """Return which instruction, and how it failed."""
        return {"id": self.id, "failure": self.failure}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBacksOff:
    """A pool waits because a command in it failed; `what` says what it doesn't do meanwhile."""

    topic: ClassVar[str] = "back-off"
    command_id: str
    pool: str
    what: str
    failures: int
    seconds: int
    why: str

    @property
    def message(self) -> str:
        """Return it in words."""
        return f"pool {self.pool} {self.what} for {self.seconds} s: {self.why}"

    @property
    def figures(self) -> Figures:
        """Return the pool, and how long it waits."""
        return {"pool": self.pool, "failures": self.failures, "seconds": self.seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesBackOff:
    """Nodes are left alone for a while because their command was rolled back right before its irreversible step.

    `seconds`: the longest of their waits.
    """

    topic: ClassVar[str] = "back-off"
    command_id: str
    nodes: tuple[str, ...]
    seconds: int
    why: str

    @property
    def message(self) -> str:
        """Return it in words."""
        verb = "is" if len(self.nodes) == 1 else "are"
        return f"{some_of(self.nodes)} {verb} left alone for {self.seconds} s: {self.why}"

    @property
    def figures(self) -> Figures:
        """Return the nodes, and how long they wait."""
        return {"nodes": ",".join(self.nodes), "seconds": self.seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainHangs:
    """A node has been draining for long; `pod` and `pdb` hold it, where that can be told (`pdb` empty: no PDB)."""

    topic: ClassVar[str] = "drain"
    command_id: str
    node: str
    pool: str
    seconds: int
    pod: str
    pdb: str
    why: str

    @property
    def message(self) -> str:
        """Return it in words."""
        return f"{self.node} has been draining for {self.seconds // 60} min: {self.why}"

    @property
    def figures(self) -> Figures:
        """Return the node, its pool, for how long, and what holds it."""
        names: Figures = {"node": self.node, "pool": self.pool, "pod": self.pod, "pdb": self.pdb}
        return {**names, "seconds": self.seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostActionUndone:
    """Nodes came back after a cost action, which is thus undone; its pool pauses."""

    topic: ClassVar[str] = "regrowth"
    pool: str
    failures: int
    seconds: int

    @property
    def message(self) -> str:
        """Return it in words."""
        return f"a cost action in pool {self.pool} did not hold: nodes came back"

    @property
    def figures(self) -> Figures:
        """Return the pool, and how long it pauses."""
        return {"pool": self.pool, "failures": self.failures, "seconds": self.seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandProposed:
    """The command that Dovetail would start if it did not only observe; `savings` in dollars per hour."""

    topic: ClassVar[str] = "proposal"
    action: Action
    nodes: tuple[str, ...]
    replacements: int = 0
    savings: float = 0.0
    pods: int = 0

    @property
    def message(self) -> str:
        """Return it in words."""
        pods = f"{self.pods} pod{'' if self.pods == 1 else 's'}"
        first = f", after {self.replacements} new" if self.replacements else ""
        return (
            f"{self.action.value} of {some_of(self.nodes)} would be begun{first}: it saves ${self.savings:.4g}/h and "
            f"restarts {pods}"
        )

    @property
    def figures(self) -> Figures:
        """Return the action, all its nodes, what it saves and what it disrupts."""
        return {
            "action": self.action.value,
            "nodes": ",".join(self.nodes),
            "replacements": self.replacements,
            "savings": self.savings,
            "pods": self.pods,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDropped:
    """A command that was decided but can't start: one of its nodes is taken, or has no NodeClaim."""

    topic: ClassVar[str] = "proposal-dropped"
    action: Action
    nodes: tuple[str, ...]

    @property
    def message(self) -> str:
        """Return it in words."""
        return f"{self.action.value} of {some_of(self.nodes)} can't be begun"

    @property
    def figures(self) -> Figures:
        """Return the action and all its nodes."""
        return {"action": self.action.value, "nodes": ",".join(self.nodes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnded:
    """A round has ended: how many commands it started, and how many rounds ran or were skipped."""

    topic: ClassVar[str] = "round"
    commands: int
    rounds: int
    skipped: int

    @property
    def message(self) -> str:
        """Return it in words."""
        return f"{self.commands} commands begun"

    @property
    def figures(self) -> Figures:
        """Return the counts."""
        return {"commands": self.commands, "rounds": self.rounds, "skipped": self.skipped}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictsChanged:
    """How many nodes of a pool have each verdict, if that changed."""

    topic: ClassVar[str] = "verdicts"
    pool: str
    counts: tuple[tuple[str, int], ...]

    @property
    def message(self) -> str:
        """Return it in words."""
        return f"verdicts of {self.pool} changed"

    @property
    def figures(self) -> Figures:
        """Return the pool, and one figure per verdict."""
        return {"pool": self.pool, **dict(self.counts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChanged:
    """What a pool allows for a reason, if that changed."""

    topic: ClassVar[str] = "budget"
    pool: str
    reason: Reason
    allowed: int
    used: int
    left: int

    @property
    def message(self) -> str:
        """Return it in words."""
        return f"{self.pool} allows {self.allowed} {self.reason.value}, {self.used} used"

    @property
    def figures(self) -> Figures:
        """Return the pool, the reason and the numbers."""
        numbers: Figures = {"allowed": self.allowed, "used": self.used, "left": self.left}
        return {"pool": self.pool, "reason": self.reason.value, **numbers}


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesBlocked:
    """Moves that the savings threshold of a pool blocked, and that were not blocked before.

    `nodes` and `why` are those of the first of them.
    """

    topic: ClassVar[str] = "threshold-blocked"
    pool: str
    moves: int
    nodes: tuple[str, ...]
    why: str

    @property
    def message(self) -> str:
        """Return the sentence of the first move."""
        return self.why

    @property
    def figures(self) -> Figures:
        """Return the pool, the number of moves and the nodes of the first."""
        return {"pool": self.pool, "moves": self.moves, "nodes": ",".join(self.nodes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A warning of a round, or of a pool's policy; reported once."""

    topic: ClassVar[str] = "warning"
    message: str

    @property
    def figures(self) -> Figures:
        """Return nothing: the message says it all."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordIgnored:
    """An object carries a command record that Dovetail doesn't trust (`commands.seal`)."""

    topic: ClassVar[str] = "record-ignored"
    kind: str
    name: str
    why: str

    @property
    def message(self) -> str:
        """Return it in words."""
        return f"the record of a command on {self.kind} {self.name} is ignored: {self.why}"

    @property
    def figures(self) -> Figures:
        """Return the object and the reason."""
        return {"kind": self.kind, "name": self.name, "why": self.why}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipChanged:
    """Whether this process leads has changed."""

    topic: ClassVar[str] = "leadership"
    leads: bool

    @property
    def message(self) -> str:
        """Return it in words."""
        return "gained" if self.leads else "lost"

    @property
    def figures(self) -> Figures:
        """Return nothing: the message says it all."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourNoticed:
    """Another controller disrupts a managed pool; `what` says by what it was noticed."""

    topic: ClassVar[str] = "neighbour"
    pool: str
    neighbour: str
    node: str
    what: str

    @property
    def message(self) -> str:
        """Return it in words."""
        return f"another controller disrupts NodePool {self.pool}: {self.neighbour} {self.what}"

    @property
    def figures(self) -> Figures:
        """Return the pool, the controller and the node."""
        return {"pool": self.pool, "neighbour": self.neighbour, "node": self.node}


class Right(Enum):
    """Rights that the chart gives only if asked to: its value `rights.NAME`, and what needs it."""

    STEERING = "steering"
    EVICTIONS = "evictions"
    SURGE = "surge"

    @property
    def use(self) -> str:
        """Return what is not done without it."""
        return _USES[self]


_USES: Final = {
    Right.STEERING: "mark pods for scale-downs (the setting steering)",
    Right.EVICTIONS: "evict pods in order (the setting evictionsInOrder)",
    Right.SURGE: "roll Deployments that ask for it (dovetail.dev/surge)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RightChanged:
    """An optional right turned out to be missing, or to be there again."""

    topic: ClassVar[str] = "right"
    right: Right
    given: bool

    @property
    def message(self) -> str:
        """Return it in words, with the chart's value that gives the right."""
        if self.given:
            return f"allowed to {self.right.use} now"
        return (
            f"not allowed to {self.right.use}: set rights.{self.right.value}=true in the chart's values; "
            "until then Dovetail does without, and tries once a minute"
        )

    @property
    def figures(self) -> Figures:
        """Return the chart's value."""
        return {"right": f"rights.{self.right.value}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewIsOld:
    """There was no news of these kinds for too long: nothing is decided until there is."""

    topic: ClassVar[str] = "view"
    kinds: tuple[str, ...]

    @property
    def message(self) -> str:
        """Return it in words."""
        return f"there is no news of {', '.join(self.kinds)}: nothing is decided until there is"

    @property
    def figures(self) -> Figures:
        """Return the kinds."""
        return {"kinds": ",".join(self.kinds)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryChanged:
    """How many nodes of a pool Karpenter ends by force within a day and a week; `late`: that budgets can't take before.

    `why`: the days on which they can't, in words.
    """

    topic: ClassVar[str] = "expiry"
    pool: str
    within_day: int
    within_week: int
    late: int
    why: str = ""

    @property
    def message(self) -> str:
        """Return it in words."""
        if self.why:
            return self.why
        return f"{self.within_week} nodes of NodePool {self.pool} expire within a week, {self.within_day} within a day"

    @property
    def figures(self) -> Figures:
        """Return the numbers."""
        return {"pool": self.pool, "withinDay": self.within_day, "withinWeek": self.within_week, "late": self.late}


def expiry_reports(nodes: Iterable[ExpiringNode]) -> dict[str, ExpiryChanged]:
    """Build the report of every pool that has such nodes, by name."""
    pools: dict[str, list[ExpiringNode]] = {}
    for entry in nodes:
        pools.setdefault(entry.node_pool, []).append(entry)
    return {
        pool: ExpiryChanged(
            pool=pool,
            within_day=sum(entry.left <= _DAY for entry in entries),
            within_week=len(entries),
            late=sum(not entry.in_time for entry in entries),
            why="; ".join(text for day in expiring_days(entries, UTC) if (text := day.late(UTC))),
        )
        for pool, entries in pools.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """The outcome of a command within an hour of its end (`memory.outcomes`).

    `promised`: dollars per hour, and so the dollars of that hour; `saved`: dollars. `reopened`: nodes that a
    provisioner opened in its pools since. `pods`: how many it moved; `moved_again`: how many of those another command
    moved since.
    """

    topic: ClassVar[str] = "outcome"
    command_id: str
    action: Action
    pools: tuple[str, ...]
    promised: float
    saved: float
    reopened: int
    pods: int
    moved_again: int

    @property
    def held(self) -> bool:
        """Return whether it kept at least nine tenths of its promise, and moved no pod that was soon moved again."""
        return self.saved >= 0.9 * self.promised and not self.moved_again

    @property
    def message(self) -> str:
        """Return it in words."""
        return (
            f"{self.action.value} promised ${self.promised:.4g}/h and saved ${self.saved:.4g} in its first hour; "
            f"{self.reopened} node{'' if self.reopened == 1 else 's'} reopened, {self.moved_again} of {self.pods} "
            f"pod{'' if self.pods == 1 else 's'} moved again"
        )

    @property
    def figures(self) -> Figures:
        """Return everything, lists joined by commas."""
        return {
            "action": self.action.value,
            "pools": ",".join(self.pools),
            "promised": self.promised,
            "saved": self.saved,
            "reopened": self.reopened,
            "pods": self.pods,
            "movedAgain": self.moved_again,
        }


Report = (
    CommandAdvanced
    | CommandFound
    | InstructionNotDone
    | PoolBacksOff
    | NodesBackOff
    | DrainHangs
    | CostActionUndone
    | CommandOutcome
    | CommandProposed
    | CommandDropped
    | RoundEnded
    | VerdictsChanged
    | BudgetChanged
    | ExpiryChanged
    | MovesBlocked
    | Warned
    | RecordIgnored
    | LeadershipChanged
    | RightChanged
    | NeighbourNoticed
    | ViewIsOld
)


def command_of(report: Report) -> str:
    """Return the id of the command that a report is about, or ""."""
    match report:
        case (
            CommandAdvanced()
            | CommandFound()
            | InstructionNotDone()
            | PoolBacksOff()
            | NodesBackOff()
            | DrainHangs()
            | CommandOutcome()
        ):
            return report.command_id
        case _:
            return ""
