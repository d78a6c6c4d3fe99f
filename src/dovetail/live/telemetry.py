"""Turns the engine's reports into log lines, metrics and notifications; nothing here is ever answered.

The topics and figures of reports are listed in `lifecycle.announce`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dovetail.lifecycle.messages import Report
from dovetail.live.logs import Log
from dovetail.live.metrics import Metrics
from dovetail.model.command import REASON_OF, Action, Method

_PHASES_SHOWN: Final = ("validating", "tainting", "launching", "waiting", "deleting", "rolling-back")
_CONSOLIDATION_TYPE: Final = {Method.EMPTY: "empty", Method.MULTI_NODE: "multi", Method.SINGLE_NODE: "single"}
Figures = dict[str, str | int | float]


@dataclass(slots=True, kw_only=True)
class Telemetry:
    """Where reports go. `notify` hears of every report, after log and metrics."""

    log: Log
    metrics: Metrics
    notify: Callable[[Report], None] = lambda report: None
    _verdicts: dict[str, Figures] = field(default_factory=dict)
    _phases: dict[str, str] = field(default_factory=dict)

    def take(self, report: Report) -> None:
        """One report."""
        figures: Figures = dict(report.figures)
        match report.topic:
            case "command":
                self._command(report, figures)
            case "budget":
                self._budget(figures)
                self.log.debug(report.message, topic=report.topic, **figures)
            case "verdicts":
                self._count_verdicts(figures)
            case "threshold-blocked":
                self.metrics.threshold_blocked.labels(str(figures["pool"])).inc(int(figures["moves"]))
                self.log.info(report.message, topic=report.topic, **figures)
            case "round":
                self.log.debug(report.message, topic=report.topic, **figures)
            case "warning" | "instruction-failed" | "back-off" | "proposal-dropped":
                self.log.warning(report.message, topic=report.topic, command=report.command_id, **figures)
            case _:
                self.log.info(report.message, topic=report.topic, command=report.command_id, **figures)
        self.notify(report)

    def _command(self, report: Report, figures: Figures) -> None:
        phase = str(figures.get("phase", ""))
        fields = {key: value for key, value in figures.items() if value != ""}
        # A refused validation is ordinary: the cluster has changed, or has to settle, and the next round asks again.
        write = self.log.warning if phase in ("rolling-back", "failed") else self.log.info
        write(report.message, topic="command", command=report.command_id, **fields)
        if phase:
            self._phase(report.command_id, phase)
        if "method" not in figures:
            return
        method, action = Method(str(figures["method"])), Action(str(figures["action"]))
        decision = "replace" if action.value.startswith("replace") else "delete"
        labels = (decision, REASON_OF[method].value, _CONSOLIDATION_TYPE.get(method, ""))
        if phase == "tainting":
            self.metrics.decisions.labels(*labels).inc()
        elif phase == "refused":
            self.metrics.failed_validations.labels(labels[2]).inc()
        elif phase == "rolling-back":
            self.metrics.queue_failures.labels(*labels).inc()
            self.metrics.rolled_back.labels(labels[1]).inc()
        elif phase == "done" and action in (Action.DELETE_COST, Action.REPLACE_COST):
            pool = str(figures.get("pools", "")).split(",")[0]
            self.metrics.savings.labels(pool).inc(max(0.0, float(figures.get("savings", 0.0))))

    def _phase(self, command: str, phase: str) -> None:
        self._phases[command] = phase
        if phase in ("done", "failed", "refused"):
            del self._phases[command]
        for shown in _PHASES_SHOWN:
            self.metrics.commands.labels(shown).set(sum(1 for now in self._phases.values() if now == shown))

    def _budget(self, figures: Figures) -> None:
        labels = (str(figures["pool"]), str(figures["reason"]))
        self.metrics.budget_limit.labels(*labels).set(float(figures["allowed"]))
        self.metrics.budget_used.labels(*labels).set(float(figures["used"]))
        self.metrics.budget_left.labels(*labels).set(float(figures["left"]))
        self.metrics.allowed.labels(*labels).set(float(figures["left"]))

    def _count_verdicts(self, figures: Figures) -> None:
        pool = str(figures.pop("pool"))
        self._verdicts[pool] = figures
        self.metrics.show_verdicts(
            {(name, gate): int(count) for name, gates in self._verdicts.items() for gate, count in gates.items()}
        )
