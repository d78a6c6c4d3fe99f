"""The promises about pod events: the two timers of a node, as a source and as a destination.

Pod events are counted here from the pods, not from what Karpenter wrote into NodeClaims, which may miss an event. An
engine can only know what Karpenter wrote, or what happened since it started; and it has `lag` to notice. Uses objects
and calls, never the engine's state. Sits in sim, beside the other checkers.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast

from dovetail.api.policy import effective_policy
from dovetail.lifecycle.commands.records import Record, decode_record
from dovetail.lifecycle.messages import Instruction, TaintNode
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import Node, NodeClaim, Pod, condition
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import DOVETAIL
from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.pods.pod import event_nodes
from dovetail.scheduling.simulate import simulate
from dovetail.scheduling.snapshot import Snapshot
from dovetail.sim.checks.promises import COST, Checker, is_tainted
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.host import Host
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch

_LONG_AGO: Final = -(1 << 62)
SET_CLOCK: Final = 71 * SECOND
"""How much sooner a wait may end where an engine's wall clock was set forward: as much as one turn of it can take."""


class PodEventBook:
    """When pods arrived on or left nodes, and what Karpenter wrote about it."""

    def __init__(self, watch: "Watch") -> None:
        self.watch, self.world, self.store = watch, watch.world, watch.world.store
        self._seen: dict[str, list[int]] = {}
        self._written: dict[str, list[tuple[int, int]]] = {}
        self._watches = False

    def begin(self) -> None:
        """Start counting changes as events; what came before was there already."""
        self._watches = True

    def changed(self, change: Change) -> None:
        """Follow pods and NodeClaims."""
        if change.kind == "Pod":
            if change.old is not None or self._watches:
                for node in event_nodes(cast("Pod | None", change.old), cast("Pod | None", change.new)):
                    self._note(self._seen, node, self.world.now)
        elif change.kind == "NodeClaim" and change.new is not None:
            claim = cast("NodeClaim", change.new)
            at, node = self._last_written(claim), claim.status.node_name
            known = self._written.get(node, [])
            if node and at is not None and (not known or known[-1][1] != at):
                told = self.world.now if self._watches else _LONG_AGO
                self._written.setdefault(node, []).append((told, at))
        elif change.kind == "Node" and change.new is None:
            self._seen.pop(change.key, None)
            self._written.pop(change.key, None)

    def _note(self, times: dict[str, list[int]], node: str, at: int) -> None:
        entries = times.setdefault(node, [])
        entries.append(at)
        edge = self.world.now - self.watch.lag
        while len(entries) > 1 and entries[1] <= edge:
            del entries[0]

    def _last_written(self, claim: NodeClaim) -> int | None:
        when = claim.status.last_pod_event_time
        if when is None:
            entry = condition(claim.status.conditions, names.CONDITION_INITIALIZED)
            when = entry.last_transition_time if entry is not None and entry.status == "True" else None
        return None if when is None else self.world.clock.since_start(when)

    def passed(self, node: str, host: Host) -> int | None:
        """Return the minimum age of the last pod event that the engine must know; None: it knows none.

        An event that it has seen itself it times by its own clock, whatever Karpenter's clock says about it.
        """
        now, edge = self.world.now, self.world.now - self.watch.lag
        written = [at for told, at in self._written.get(node, ()) if told <= edge]
        skew = self.world.clock.since_start(host.now()) - now
        seen = [at for at in self._seen.get(node, ()) if host.up_since < at <= edge]
        found = [now + skew - written[-1]] if written and not (seen and seen[-1] >= written[-1]) else []
        if seen:
            found.append(now - seen[-1] + gained(host, seen[-1]))
        return min(found, default=None)


def gained(host: Host, since: int) -> int:
    """Return how much a wait of the engine may have gained since a time, because its wall clock was set forward.

    That the clock is right now does not matter: one that was slow and is set right is set forward as well. Setting it
    back only makes the wait longer.
    """
    forward = (by // timedelta(microseconds=1) * 1000 for at, by in host.clock_sets if at >= since)
    return sum(min(by, SET_CLOCK) for by in forward if by > 0)


def _started(pod: Pod) -> bool:
    """Return whether closed nodes refuse it: a pod that has not started may land anywhere."""
    return pod.status.phase != "Pending"


class _TimerChecker(Checker):
    """Base: hears of the first taint of each node that a command takes."""

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self.book = watch.pod_events
        self._judged: set[str] = set()

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Check each taint once: a repeated one was decided when it was first requested."""
        if not isinstance(instruction, TaintNode) or self.watch.is_karpenters(instruction.command_id):
            return
        if instruction.id in self._judged:
            return
        self._judged.add(instruction.id)
        record = decode_record(instruction.record)
        node = self.store.nodes.get(instruction.node)
        if record is not None and node is not None and not is_tainted(node):
            self.judge(host, record, node)

    def judge(self, host: Host, record: Record, node: Node) -> None:
        """Look at a node that a command is about to close."""

    def period(self, node: Node, of: Callable[[DisruptionPolicy], int | None]) -> int:
        """Return a timer of the node's pool: the shortest that was true within the lag; 0: none."""
        pools = self.watch.pools_lately(node.metadata.labels.get(names.NODEPOOL, ""))
        return min((of(effective_policy(pool, DOVETAIL)) or 0 for pool in pools), default=0)

    def is_within(self, host: Host, node: Node, period: int) -> int | None:
        """Return how long ago the last pod event was, where the timer still runs for certain."""
        passed = self.book.passed(node.metadata.name, host) if period else None
        return passed if passed is not None and passed + self.watch.lag < period else None


class GraceChecker(_TimerChecker):
    """No cost action takes a node within its consolidationGracePeriod (docs/rules.md#timers; grace-period)."""

    rule = "grace-period"

    def judge(self, host: Host, record: Record, node: Node) -> None:
        """Judge each node that a cost action closes."""
        if record.method in COST:
            passed = self.is_within(host, node, self.period(node, lambda policy: policy.grace_period))
            if passed is not None:
                name, seconds = node.metadata.name, passed // SECOND
                self.broken(f"{name} is taken {seconds} s after a pod event; its grace period is longer")


class ConsolidateAfterChecker(_TimerChecker):
    """No cost action and no deletion of empty nodes takes a node in its consolidateAfter (docs/rules.md#timers)."""

    rule = "consolidate-after"

    def judge(self, host: Host, record: Record, node: Node) -> None:
        """Judge each node that consolidation closes."""
        if record.method in (*COST, Method.EMPTY):
            passed = self.is_within(host, node, self.period(node, lambda policy: policy.consolidate_after))
            if passed is not None:
                name, seconds = node.metadata.name, passed // SECOND
                self.broken(f"{name} is taken {seconds} s after a pod event; its consolidateAfter is longer")


class DestinationChecker(_TimerChecker):
    """No cost action needs room on a node within its consolidationGracePeriod (docs/rules.md#timers; grace-period).

    Judged by the command's own placements. If it has none, its pods are placed here independently with those nodes
    closed: they must fit on the others and on as many new nodes as it launches.
    """

    rule = "destination-grace"

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._commands: set[str] = set()
        self._last: Snapshot | None = None

    def judge(self, host: Host, record: Record, node: Node) -> None:
        """Judge a cost action when it closes its first node."""
        if record.method not in COST or record.id in self._commands:
            return
        self._commands.add(record.id)
        run = next((run for run in host.engine.runs if run.id == record.id), None)
        if run is not None and run.command is not None:
            own = {key for name in run.nodes for key, pod in self.store.pods_on.get(name, {}).items() if _started(pod)}
            used = [place.node for place in run.command.placements if not own.isdisjoint(place.pods)]
            there = self._hidden(host, used)
            if there:
                self.broken(f"{record.id} moves pods to {', '.join(there)}, within their grace period")
            return
        hidden = self._hidden(host, sorted(self.store.nodes))
        if not hidden:
            return
        self._last = snapshot = Snapshot(
            self.watch.cluster(),
            self.world.cloud.seen_catalogue(),
            DOVETAIL,
            self.world.clock.instant(),
            previous=self._last,
        )
        taken = [entry.node for entry in record.nodes]
        chosen = [place for name in taken if (place := snapshot.index.get(name)) is not None]
        closed = [place for name in hidden if (place := snapshot.index.get(name)) is not None]
        result = simulate(
            snapshot, chosen, SimulationOptions(closed=closed, include_pending=False, include_leaving=False)
        )
        if result.unplaced or len(result.new_nodes) > len(record.replacements):
            self.broken(
                f"{record.id} takes {', '.join(taken)} and launches {len(record.replacements)}; without room on "
                f"{', '.join(hidden)}, within their grace period, its pods need {len(result.new_nodes)}"
            )

    def _hidden(self, host: Host, nodes: Iterable[str]) -> list[str]:
        """Return those of the nodes that are within their grace period for certain."""
        periods: dict[str, int] = {}
        found = []
        for name in nodes:
            node = self.store.nodes.get(name)
            if node is None:
                continue
            pool = node.metadata.labels.get(names.NODEPOOL, "")
            if pool not in periods:
                periods[pool] = self.period(node, lambda policy: policy.grace_period)
            if self.is_within(host, node, periods[pool]) is not None:
                found.append(name)
        return found
