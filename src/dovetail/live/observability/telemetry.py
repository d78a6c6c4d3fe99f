"""Turns the engine's reports into log lines, metrics and notifications; nothing here is ever answered."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, assert_never

from dovetail.lifecycle import reports
from dovetail.lifecycle.commands.machine import TERMINAL, Phase
from dovetail.lifecycle.messages import Failure
from dovetail.lifecycle.outcome import CommandOutcome
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from dovetail.model.command import REASON_OF, Action, Method

_PHASES_SHOWN: Final = (
    Phase.VALIDATING,
    Phase.TAINTING,
    Phase.LAUNCHING,
    Phase.WAITING,
    Phase.DELETING,
    Phase.ROLLING_BACK,
)
# A refused validation is normal: the cluster has changed, or has to settle, and the next round asks again.
_ALARMING: Final = (Phase.ROLLING_BACK, Phase.FAILED)
CONSOLIDATION_TYPE: Final = {Method.EMPTY: "empty", Method.MULTI_NODE: "multi", Method.SINGLE_NODE: "single"}


def _decision(report: reports.CommandAdvanced) -> str:
    if report.terminate_first:
        return "terminate-first"
    return "replace" if report.action.value.startswith("replace") else "delete"


@dataclass(slots=True, kw_only=True)
class Telemetry:
    """Where reports go. `notify` hears of every report, after log and metrics."""

    log: Log
    metrics: Metrics
    notify: Callable[[reports.Report], None] = lambda report: None
    _verdicts: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    _phases: dict[str, Phase] = field(default_factory=dict)

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
            case (
                reports.Warned()
                | reports.InstructionNotDone()
                | reports.PoolBacksOff()
                | reports.CommandDropped()
                | reports.RecordIgnored()
                | reports.ViewIsOld()
            ):
                self.log.warning(report.message, **fields)
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

    def _count_command(self, report: reports.CommandAdvanced) -> None:
        """Count a step of a command as Karpenter's own metrics do: reasons in lower case, at the start."""
        self._count_phase(report.command_id, report.phase)
        metrics, reason = self.metrics, REASON_OF[report.method].value.lower()
        labels = (_decision(report), reason, CONSOLIDATION_TYPE.get(report.method, ""))
        if report.phase is Phase.TAINTING:
            metrics.decisions.labels(*labels).inc()
            for pool in report.pools:
                metrics.decisions_by_pool.labels(pool, *labels).inc()
                if report.terminate_first:
                    metrics.terminate_first.labels(pool, reason, report.terminate_first).inc()
        elif report.phase is Phase.REFUSED:
            metrics.failed_validations.labels(labels[2]).inc(len(report.nodes))
        elif report.phase is Phase.ROLLING_BACK:
            metrics.queue_failures.labels(*labels).inc(report.unready)
            metrics.rolled_back.labels(REASON_OF[report.method].value).inc()
        elif report.phase is Phase.DONE and report.action in (Action.DELETE_COST, Action.REPLACE_COST):
            pool = report.pools[0] if report.pools else ""
            metrics.savings.labels(pool).inc(max(0.0, report.savings or 0.0))
        for pool in report.launched_in:
            metrics.claims_created.labels(reason, pool, "false").inc()
        for node in report.disrupted:
            of_node = (reason, node.pool, node.capacity_type, node.policy, node.mode)
            metrics.claims_disrupted.labels(*of_node).inc()
            metrics.pods_disrupted.labels(*of_node).inc(node.pods)

    def _count_outcome(self, report: CommandOutcome) -> None:
        pool, metrics = report.pools[0] if report.pools else "", self.metrics
        metrics.outcomes.labels(pool, "true" if report.held else "false").inc()
        metrics.outcome_promised.labels(pool).inc(max(0.0, report.promised))
        metrics.outcome_saved.labels(pool).inc(max(0.0, report.saved))
        metrics.outcome_reopened.labels(pool).inc(report.reopened)
        metrics.outcome_pods.labels(pool).inc(report.pods)
        metrics.outcome_moved_again.labels(pool).inc(report.moved_again)

    def _count_phase(self, command: str, phase: Phase) -> None:
        self._phases[command] = phase
        if phase in TERMINAL:
            del self._phases[command]
        for shown in _PHASES_SHOWN:
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
