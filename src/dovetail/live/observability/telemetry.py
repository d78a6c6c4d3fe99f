"""Turns the engine's reports into log lines, metrics and notifications; nothing here is ever answered."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, assert_never

from dovetail.lifecycle import reports
from dovetail.lifecycle.commands.machine import TERMINAL, Phase
from dovetail.lifecycle.messages import Failure
from dovetail.lifecycle.reports import CommandOutcome, ExpiryChanged
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from dovetail.live.observability.repeats import Repeats
from dovetail.model.command import REASON_OF, Action, Method

PHASES_SHOWN: Final = tuple(phase for phase in Phase if phase not in TERMINAL)
# A refused validation is normal: the cluster has changed, or has to settle, and the next round asks again.
_ALARMING: Final = (Phase.ROLLING_BACK, Phase.FAILED)
CONSOLIDATION_TYPE: Final = {Method.EMPTY: "empty", Method.MULTI_NODE: "multi", Method.SINGLE_NODE: "single"}


def _decision(report: reports.CommandAdvanced) -> str:
    if report.terminate_first:
        return "terminate-first"
    return "replace" if report.action.value.startswith("replace") else "delete"


def _verb(report: reports.InstructionNotDone) -> str:
    """Return what an instruction does, without the names in its id: `hold`, or `evict` of a command."""
    first, _, rest = report.id.partition("/")
    return rest.partition("/")[0] if report.command_id else first


@dataclass(slots=True, kw_only=True)
class Telemetry:
    """Where reports go. `notify` hears of every report, after log and metrics."""

    log: Log
    metrics: Metrics
    notify: Callable[[reports.Report], None] = lambda report: None
    _verdicts: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    _phases: dict[str, Phase] = field(default_factory=dict)
    _repeats: Repeats = field(default_factory=Repeats)

    def take(self, report: reports.Report) -> None:
        """Log and count one report, then pass it on."""
        figures = {"topic": report.topic, "command": reports.command_of(report), **report.figures}
        fields = {key: value for key, value in figures.items() if value != ""}
        match report:
            case reports.CommandAdvanced():
                write = self.log.warning if report.phase in _ALARMING else self.log.info
                write(report.message, **fields)
                self._count_command(report)
            case reports.VerdictsChanged():
                self._count_verdicts(report)
            case reports.BudgetChanged():
                self._count_budget(report)
                self.log.debug(report.message, **fields)
            case reports.MovesBlocked():
                self.metrics.threshold_blocked.labels(report.pool).inc(report.moves)
                self.log.info(report.message, **fields)
            case reports.RoundEnded() | reports.InstructionNotDone(failure=Failure.NOT_FOUND.value):
                self.log.debug(report.message, **fields)  # what is gone already needs no attention
            case reports.InstructionNotDone():
                self._warn_rarely(f"{report.failure} {_verb(report)}", report.message, fields)
            case reports.RightChanged():
                (self.log.info if report.given else self.log.warning)(report.message, **fields)
            case reports.NeighbourNoticed():
                self.metrics.neighbours.labels(report.pool, report.neighbour).inc()
                self._warn_rarely(f"{report.topic} {report.pool} {report.neighbour}", report.message, fields)
            case (
                reports.Warned()
                | reports.PoolBacksOff()
                | reports.NodesBackOff()
                | reports.DrainHangs()
                | reports.CommandDropped()
                | reports.RecordIgnored()
                | reports.ViewIsOld()
            ):
                self.log.warning(report.message, **fields)
            case ExpiryChanged():
                self._count_expiry(report)
                (self.log.warning if report.late else self.log.info)(report.message, **fields)
            case CommandOutcome():
                self._count_outcome(report)
                self.log.info(report.message, **fields)
            case (
                reports.CommandFound()
                | reports.CommandProposed()
                | reports.CostActionUndone()
                | reports.LeadershipChanged()
            ):
                self.log.info(report.message, **fields)
            case _:
                assert_never(report)
        self.notify(report)

    def _warn_rarely(self, key: str, message: str, fields: reports.Figures) -> None:
        """Log the first line of a key, then one a minute with the number left out; the others at debug level."""
        left_out = self._repeats.let_through(key)
        write = self.log.debug if left_out is None else self.log.warning
        write(message, **fields, **({"left_out": left_out} if left_out else {}))

    def _count_command(self, report: reports.CommandAdvanced) -> None:
        """Count a step of a command as Karpenter's own metrics do: reasons in lower case, at the start."""
        self._count_phase(report.command_id, report.phase)
        metrics, reason, action = self.metrics, REASON_OF[report.method].value.lower(), report.action.value
        labels = (_decision(report), reason, CONSOLIDATION_TYPE.get(report.method, ""), action)
        if report.phase is Phase.TAINTING:
            metrics.decisions.labels(*labels).inc()
            for pool in report.pools:
                metrics.decisions_by_pool.labels(pool, *labels).inc()
                if report.terminate_first:
                    metrics.terminate_first.labels(pool, reason, report.terminate_first, action).inc()
        elif report.phase is Phase.REFUSED:
            metrics.failed_validations.labels(labels[2], action).inc(len(report.nodes))
        elif report.phase is Phase.ROLLING_BACK:
            metrics.queue_failures.labels(*labels).inc(report.unready)
            metrics.rolled_back.labels(REASON_OF[report.method].value, action).inc()
        elif report.phase is Phase.DONE and report.action in (Action.DELETE_COST, Action.REPLACE_COST):
            pool = report.pools[0] if report.pools else ""
            metrics.savings.labels(pool, action).inc(max(0.0, report.savings or 0.0))
        for pool in report.launched_in:
            metrics.claims_created.labels(reason, pool, "false").inc()
        for node in report.disrupted:
            of_node = (reason, node.pool, node.capacity_type, node.policy, node.mode)
            metrics.claims_disrupted.labels(*of_node).inc()
            metrics.pods_disrupted.labels(*of_node).inc(node.pods)

    def _count_expiry(self, report: ExpiryChanged) -> None:
        self.metrics.expiring.labels(report.pool, "24h").set(report.within_day)
        self.metrics.expiring.labels(report.pool, "168h").set(report.within_week)
        self.metrics.expiring_late.labels(report.pool).set(report.late)

    def _count_outcome(self, report: CommandOutcome) -> None:
        metrics, of_pool = self.metrics, (report.pools[0] if report.pools else "", report.action.value)
        metrics.outcomes.labels(of_pool[0], "true" if report.held else "false", of_pool[1]).inc()
        metrics.outcome_promised.labels(*of_pool).inc(max(0.0, report.promised))
        metrics.outcome_saved.labels(*of_pool).inc(max(0.0, report.saved))
        metrics.outcome_reopened.labels(*of_pool).inc(report.reopened)
        metrics.outcome_pods.labels(*of_pool).inc(report.pods)
        metrics.outcome_moved_again.labels(*of_pool).inc(report.moved_again)

    def _count_phase(self, command: str, phase: Phase) -> None:
        self._phases[command] = phase
        if phase in TERMINAL:
            del self._phases[command]
        for shown in PHASES_SHOWN:
            self.metrics.commands.labels(shown.value).set(sum(1 for now in self._phases.values() if now is shown))

    def _count_budget(self, report: reports.BudgetChanged) -> None:
        labels = (report.pool, report.reason.value)
        self.metrics.budget_limit.labels(*labels).set(report.allowed)
        self.metrics.budget_used.labels(*labels).set(report.used)
        self.metrics.budget_left.labels(*labels).set(report.left)
        lower = (report.pool, report.reason.value.lower())
        self.metrics.allowed.labels(*lower).set(report.allowed)
        self.metrics.consuming.labels(*lower).set(report.used)

    def _count_verdicts(self, report: reports.VerdictsChanged) -> None:
        self._verdicts[report.pool] = report.counts
        self.metrics.show_verdicts(
            {(pool, gate): count for pool, counts in self._verdicts.items() for gate, count in counts}
        )
