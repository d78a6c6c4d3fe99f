"""Records a run: figures for the contract's JSON and series for the plots.

Listens and counts; decides nothing and changes nothing. A node's life runs from its launch to its end; a pod counts as
disrupted each time it is evicted (or dies) because its node goes, and a replica's moves are counted across all pods
that replaced it. `Result` and `Series` are plain values; pages and tables are made from them elsewhere.
"""

from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, assert_never, cast

from dovetail.lifecycle import reports
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import decode_record
from dovetail.lifecycle.messages import Instruction, TaintNode
from dovetail.lifecycle.reports import CommandOutcome, ExpiryChanged
from dovetail.model.money import Money
from dovetail.model.objects import Pod
from dovetail.sim.checks.promises import Violation
from dovetail.sim.timeline import Recorder, Timeline
from dovetail.sim.world.clock import HOUR, MINUTE, SECOND
from dovetail.sim.world.cloud import Instance
from dovetail.sim.world.host import Host
from dovetail.sim.world.steps import BOUND, CAME, WENT
from dovetail.sim.world.store import Change
from dovetail.sim.world.world import World

SHORT_LIFE: Final = 15 * MINUTE
_DOLLAR: Final = 10**18


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionMark:
    """One command that was executed: when (seconds), what, on which nodes with how many pods, what it saves."""

    at: float
    action: str
    nodes: tuple[str, ...]
    replacements: int
    pods: int
    savings: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One machine: when it started and ended (seconds; None: it outlived the run), what it was."""

    node: str
    type: str
    zone: str
    capacity_type: str
    started: float
    ended: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSeries:
    """Samples at even steps, for plots; all lists are as long as `seconds`, which counts from the start of the run.

    `nodes`: machines that run; `cost_per_hour`: what they cost, dollars; `pods`: pods that are there; `pending`: the
    most that had no node at once, since the sample before; `pods_disrupted`: moved in the step; `nodes_disrupted`:
    taken by a command within the step; `gates`: per gate how many nodes it held at that time (the engine says so at
    most once a minute).
    """

    step_seconds: float
    seconds: list[float] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    cost_per_hour: list[float] = field(default_factory=list)
    pods: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    pods_disrupted: list[int] = field(default_factory=list)
    nodes_disrupted: list[int] = field(default_factory=list)
    gates: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interim:
    """A run that is still going on: how far it is, what it has cost and moved so far, and what it costs per hour."""

    seconds: float
    cost: Money
    rate: Money
    pods_disrupted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run under one policy: the contract's figures first, then what plots and pages ask for."""

    policy: str
    seed: int
    seconds: float
    nodes_started: int
    nodes_ended: int
    actions: dict[str, int]
    pods_disrupted: int
    pods_disrupted_more_than_once: int
    node_hours: float
    cost: Money
    median_node_life_seconds: float | None
    short_lived_nodes: int
    pending_pod_seconds: float
    violations: tuple[Violation, ...]
    pods_disrupted_most: int
    nodes_at_start: int
    nodes_at_end: int
    moves: dict[int, int]
    commands: tuple[ActionMark, ...]
    lives: tuple[Life, ...]
    series: LedgerSeries
    commands_failed: int = 0
    events: int = 0
    rounds: int = 0
    outcomes: tuple[CommandOutcome, ...] = ()
    timeline: Timeline = field(default_factory=Timeline)

    def to_dict(self) -> dict[str, Any]:
        """Return RESULT of `dovetail simulate` (contract.md)."""
        return {
            "policy": self.policy,
            "nodesStarted": self.nodes_started,
            "nodesEnded": self.nodes_ended,
            "actions": self.actions,
            "podsDisrupted": self.pods_disrupted,
            "podsDisruptedMoreThanOnce": self.pods_disrupted_more_than_once,
            "nodeHours": round(self.node_hours, 3),
            "cost": f"{self.cost / _DOLLAR:.4f}",
            "medianNodeLifeSeconds": self.median_node_life_seconds,
            "shortLivedNodes": self.short_lived_nodes,
            "pendingPodSeconds": round(self.pending_pod_seconds, 1),
            "violations": [violation.figures() for violation in self.violations],
            "podsDisruptedMost": self.pods_disrupted_most,
            "nodesAtStart": self.nodes_at_start,
            "nodesAtEnd": self.nodes_at_end,
            "commandsFailed": self.commands_failed,
        }


class RunLedger:
    """Counts while a world runs; `begin` starts the measured part, `result` returns it.

    `keeps_history`: record the life of each machine and pod too (`sim.timeline`), for pages.
    """

    def __init__(self, world: World, step: int, *, keeps_history: bool = True) -> None:
        self.world = world
        self.step = step
        self._began = -1
        self._bill_before: Money = 0
        self._node_time = 0
        self._counted_at = 0
        self._running = 0
        self._started = 0
        self._ended = 0
        self._lives: dict[str, Life] = {}
        self._over: list[Life] = []
        self._moves: dict[str, int] = {}
        self._pods_disrupted = 0
        self._waiting: dict[str, int] = {}
        self._most_waiting = 0
        self._waited = 0
        self._commands: dict[str, ActionMark] = {}
        self._details: dict[str, tuple[int, float]] = {}
        self._failed = 0
        self._outcomes: list[CommandOutcome] = []
        self._gates: dict[str, dict[str, int]] = {}
        self._series = LedgerSeries(step_seconds=step / SECOND)
        self._last_pods = 0
        self._last_nodes = 0
        self._nodes_disrupted = 0
        self._at_start = 0
        self._recorder = Recorder(world) if keeps_history else None
        for change in world.store.history():
            (self._on_pod_change if change.kind == "Pod" else self._on_claim_change)(change)
        world.store.listen_to_pods(self._on_pod_change, CAME | WENT | BOUND)
        world.store.listen(self._on_claim_change, "NodeClaim")
        world.on_evicted(self._moved)
        world.on_forced(self._moved)
        world.on_gone(self._gone)

    def follow(self, host: Host) -> None:
        """Count what this engine does."""
        if self._recorder is not None:
            self._recorder.follow(host)
        host.on_report.append(self._report)
        host.on_instruction.append(self._instruction)

    # ------------------------------------------------------------ counting

    def _on_pod_change(self, change: Change) -> None:
        pod = cast("Pod | None", change.new)
        if pod is None or pod.spec.node_name:
            since = self._waiting.pop(change.key, None)
            if since is not None and self._began >= 0:
                self._waited += self.world.now - max(since, self._began)
        elif change.old is None:
            self._waiting[change.key] = self.world.now
            self._most_waiting = max(self._most_waiting, len(self._waiting))

    def _on_claim_change(self, change: Change) -> None:
        if change.new is not None and change.key not in self._lives:
            instance = self.world.cloud.instances.get(change.key)
            if instance is not None:
                self._born(instance)

    def _born(self, instance: Instance) -> None:
        self._count_time()
        self._running += 1
        self._started += self._began >= 0
        self._lives[instance.claim] = Life(
            node=instance.claim,
            type=instance.kind.name,
            zone=instance.zone,
            capacity_type=instance.capacity_type,
            started=self._since(instance.started),
            ended=None,
        )

    def _gone(self, instance: Instance) -> None:
        life = self._lives.pop(instance.claim, None)
        if life is None:
            return
        self._count_time()
        self._running -= 1
        self._ended += self._began >= 0
        self._over.append(
            Life(
                node=life.node,
                type=life.type,
                zone=life.zone,
                capacity_type=life.capacity_type,
                started=life.started,
                ended=self._since(self.world.now),
            )
        )

    def _since(self, when: int) -> float:
        return round((when - max(self._began, 0)) / SECOND, 3)

    def _count_time(self) -> None:
        if self._began >= 0:
            self._node_time += self._running * (self.world.now - self._counted_at)
        self._counted_at = self.world.now

    def _moved(self, key: str, pod: Pod) -> None:
        if self._began < 0 or self.world.shapes.of(key, pod).daemon:
            return
        line = self.world.workloads.line_of.get(key, key)
        self._moves[line] = self._moves.get(line, 0) + 1
        self._pods_disrupted += 1

    def _report(self, report: reports.Report) -> None:
        match report:
            case reports.VerdictsChanged():
                self._gates[report.pool] = dict(report.counts)
            case reports.CommandAdvanced():
                self._details[report.command_id] = (len(report.replacements), report.savings or 0.0)
                self._failed += report.phase is Phase.FAILED
            case reports.CommandFound():
                self._details[report.command_id] = (0, 0.0)
            case CommandOutcome():
                self._outcomes.append(report)
            case (
                reports.InstructionNotDone()
                | reports.PoolBacksOff()
                | reports.NodesBackOff()
                | reports.DrainHangs()
                | reports.CostActionUndone()
                | reports.CommandProposed()
                | reports.CommandDropped()
                | reports.RoundEnded()
                | reports.BudgetChanged()
                | ExpiryChanged()
                | reports.MovesBlocked()
                | reports.Warned()
                | reports.RecordIgnored()
                | reports.LeadershipChanged()
                | reports.RightChanged()
                | reports.NeighbourNoticed()
                | reports.ViewIsOld()
            ):
                pass
            case _:
                assert_never(report)

    def _instruction(self, host: Host, asked: Instruction) -> None:
        if not isinstance(asked, TaintNode) or self._began < 0:
            return
        self._nodes_disrupted += 1
        if asked.command_id in self._commands:
            return
        record = decode_record(asked.record)
        if record is None:
            return
        nodes = tuple(entry.node for entry in record.nodes)
        pods = sum(
            not self.world.shapes.of(key, pod).daemon
            for node in nodes
            for key, pod in self.world.store.pods_on.get(node, {}).items()
            if pod.metadata.deletion_timestamp is None
        )
        replacements, savings = self._details.get(asked.command_id, (len(record.replacements), 0.0))
        self._commands[asked.command_id] = ActionMark(
            at=self._since(self.world.now),
            action=record.action.value,
            nodes=nodes,
            replacements=replacements,
            pods=pods,
            savings=round(savings, 6),
        )

    # ------------------------------------------------------------ the books

    def begin(self) -> None:
        """Measure from now on."""
        if self._recorder is not None:
            self._recorder.begin()
        self._count_time()
        self._began = self._counted_at = self.world.now
        self._bill_before = self.world.cloud.bill()
        self._at_start = self._running
        shift = self._began / SECOND
        self._lives = {
            name: Life(
                node=life.node,
                type=life.type,
                zone=life.zone,
                capacity_type=life.capacity_type,
                started=round(life.started - shift, 3),
                ended=None,
            )
            for name, life in self._lives.items()
        }
        self._over.clear()
        self._sample()

    def _sample(self) -> None:
        series = self._series
        series.seconds.append(self._since(self.world.now))
        series.nodes.append(self._running)
        series.cost_per_hour.append(round(self.world.cloud.rate / _DOLLAR, 6))
        series.pods.append(len(self.world.store.pods))
        series.pending.append(self._most_waiting if self._began < self.world.now else len(self._waiting))
        self._most_waiting = len(self._waiting)
        series.pods_disrupted.append(self._pods_disrupted - self._last_pods)
        series.nodes_disrupted.append(self._nodes_disrupted - self._last_nodes)
        self._last_pods, self._last_nodes = self._pods_disrupted, self._nodes_disrupted
        held: dict[str, int] = {}
        for gates in self._gates.values():
            for gate, count in gates.items():
                held[gate] = held.get(gate, 0) + count
        for gate in sorted({*series.gates, *held}):
            column = series.gates.setdefault(gate, [0] * (len(series.seconds) - 1))
            column.append(held.get(gate, 0))
        self.world.clock.after(self.step, self._sample)

    def so_far(self) -> Interim:
        """Return the figures so far."""
        cloud = self.world.cloud
        return Interim(
            seconds=self._since(self.world.now),
            cost=cloud.bill() - self._bill_before,
            rate=cloud.rate,
            pods_disrupted=self._pods_disrupted,
        )

    def result(self, policy: str, violations: tuple[Violation, ...]) -> Result:
        """Return all that was counted."""
        self._count_time()
        now = self.world.now
        waited = self._waited + sum(now - max(since, self._began) for since in self._waiting.values())
        lives = [life.ended - life.started for life in self._over if life.ended is not None]
        actions: dict[str, int] = {}
        for command in self._commands.values():
            actions[command.action] = actions.get(command.action, 0) + 1
        moves: dict[int, int] = {}
        for count in self._moves.values():
            moves[count] = moves.get(count, 0) + 1
        return Result(
            policy=policy,
            seed=self.world.config.seed,
            seconds=self._since(now),
            nodes_started=self._started,
            nodes_ended=self._ended,
            actions=dict(sorted(actions.items())),
            pods_disrupted=self._pods_disrupted,
            pods_disrupted_more_than_once=sum(count > 1 for count in self._moves.values()),
            node_hours=self._node_time / HOUR,
            cost=self.world.cloud.bill() - self._bill_before,
            median_node_life_seconds=round(median(lives), 1) if lives else None,
            short_lived_nodes=sum(life * SECOND < SHORT_LIFE for life in lives),
            pending_pod_seconds=waited / SECOND,
            violations=violations,
            pods_disrupted_most=max(self._moves.values(), default=0),
            nodes_at_start=self._at_start,
            nodes_at_end=self._running,
            moves=dict(sorted(moves.items())),
            commands=tuple(self._commands.values()),
            lives=tuple(sorted((*self._over, *self._lives.values()), key=lambda life: (life.started, life.node))),
            series=self._series,
            commands_failed=self._failed,
            events=self.world.clock.happened,
            rounds=sum(host.engine.rounds for host in self.world.hosts),
            outcomes=tuple(self._outcomes),
            timeline=Timeline() if self._recorder is None else self._recorder.timeline(),
        )
