"""Logs, reports and metrics: one JSON object per line, with the command's id, nothing forged, nothing secret."""

import json
from io import StringIO

import pytest

from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.reports import (
    BudgetChanged,
    CommandAdvanced,
    CommandOutcome,
    ExpiryChanged,
    InstructionNotDone,
    LeadershipChanged,
    MovesBlocked,
    PoolBacksOff,
    VerdictsChanged,
    Warned,
)
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from dovetail.live.observability.telemetry import Telemetry
from dovetail.model.command import Action, Method
from dovetail.model.policies.policy import Reason


def _lines(stream: StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_name_can_not_forge_a_line() -> None:
    """Line breaks and control characters in messages and fields are escaped."""
    stream = StringIO()
    Log("info", stream).info('node "x"\n{"level":"error"}', node="a\u2028b\x1b[31m")
    (line,) = _lines(stream)
    assert line["level"] == "info"
    assert "\n" not in str(line["message"])
    assert "\x1b" not in str(line["node"])
    assert "\u2028" not in stream.getvalue()


def test_levels_and_bound_fields() -> None:
    """Lines below the level are dropped; bound fields are on every line."""
    stream = StringIO()
    log = Log("warning", stream).bind(part="watch")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d", part="other")
    assert [(line["message"], line["part"]) for line in _lines(stream)] == [("c", "watch"), ("d", "other")]


def _command(phase: str, action: str = "deleteCost", method: str = "singleNode", **more: float) -> CommandAdvanced:
    return CommandAdvanced(
        command_id="c1",
        phase=Phase(phase),
        source=None,
        signal=None,
        action=Action(action),
        method=Method(method),
        nodes=("n1",),
        pools=("web",),
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def told() -> tuple[Telemetry, StringIO]:
    """Return a telemetry and its output."""
    stream = StringIO()
    return Telemetry(log=Log("debug", stream), metrics=Metrics()), stream


def _value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.metrics.registry.get_sample_value(name, labels)


def test_a_command_from_decision_to_end(told: tuple[Telemetry, StringIO]) -> None:
    """Every step is a line with the command's id; decisions, commands in flight and savings are counted."""
    telemetry, stream = told
    for phase in ("validating", "tainting", "deleting"):
        telemetry.take(_command(phase))
    labels = {"decision": "delete", "reason": "underutilized", "consolidation_type": "single", "action": "deleteCost"}
    assert _value(telemetry, "karpenter_voluntary_disruption_decisions_total", **labels) == 1
    assert _value(telemetry, "dovetail_commands_in_flight", phase="deleting") == 1
    telemetry.take(_command("done", savings=0.25))
    assert _value(telemetry, "dovetail_commands_in_flight", phase="deleting") == 0
    saved = "dovetail_realised_savings_dollars_per_hour_total"
    assert _value(telemetry, saved, nodepool="web", action="deleteCost") == 0.25
    assert {line["command"] for line in _lines(stream)} == {"c1"}


def test_what_came_of_commands(told: tuple[Telemetry, StringIO]) -> None:
    """Promised and actual savings, reopened nodes and repeated moves add up by pool; commands count by success."""
    telemetry, stream = told
    for saved, again in ((0.5, 0), (0.25, 0), (0.5, 1)):
        telemetry.take(
            CommandOutcome(
                command_id="c1",
                action=Action.DELETE_COST,
                pools=("web",),
                promised=0.5,
                saved=saved,
                reopened=int(saved < 0.5),
                pods=3,
                moved_again=again,
            )
        )
    found = {
        what: _value(telemetry, f"dovetail_outcome_{what}_total", nodepool="web", action="deleteCost")
        for what in ("promised_dollars", "saved_dollars", "reopened_nodes", "pods_moved", "pods_moved_again")
    }
    expected = {"promised_dollars": 1.5, "saved_dollars": 1.25, "reopened_nodes": 1, "pods_moved": 9}
    assert found == {**expected, "pods_moved_again": 1}
    of = {"nodepool": "web", "action": "deleteCost"}
    assert _value(telemetry, "dovetail_outcome_commands_total", **of, held="true") == 1
    assert _value(telemetry, "dovetail_outcome_commands_total", **of, held="false") == 2
    lines = _lines(stream)
    assert {(line["topic"], line["level"], line["command"]) for line in lines} == {("outcome", "info", "c1")}
    assert lines[1]["message"] == (
        "deleteCost promised $0.5/h and saved $0.25 in its first hour; 1 node reopened, 0 of 3 pods moved again"
    )


def test_every_counter_of_commands_names_the_action() -> None:
    """Counters of what commands did carry the action, as the lifecycle controller's design names it."""
    metrics = Metrics()
    counters = (
        metrics.decisions, metrics.decisions_by_pool, metrics.terminate_first, metrics.queue_failures,
        metrics.failed_validations,
        metrics.savings, metrics.rolled_back, metrics.outcomes, metrics.outcome_promised, metrics.outcome_saved,
        metrics.outcome_reopened, metrics.outcome_pods, metrics.outcome_moved_again,
    )  # fmt: skip
    assert all("action" in counter._labelnames for counter in counters)


def test_roll_backs_are_warnings_and_refusals_are_not(told: tuple[Telemetry, StringIO]) -> None:
    """Both are counted, also with Karpenter's names; a command that waits for the cluster to settle is not an error."""
    telemetry, stream = told
    telemetry.take(_command("rolling-back", "replaceDrifted", "drifted"))
    telemetry.take(_command("refused", "deleteEmpty", "empty"))
    assert _value(telemetry, "dovetail_commands_rolled_back_total", reason="Drifted", action="replaceDrifted") == 1
    failed = "karpenter_voluntary_disruption_failed_validations_total"
    assert _value(telemetry, failed, consolidation_type="empty", action="deleteEmpty") == 1
    assert [line["level"] for line in _lines(stream)] == ["warning", "info"]


@pytest.mark.parametrize(
    ("failure", "level"), [("not-found", "debug"), ("refused", "warning"), ("forbidden", "warning")]
)
def test_what_is_gone_already_is_no_warning(told: tuple[Telemetry, StringIO], failure: str, level: str) -> None:
    """A hundred deletions of NodeClaims that are gone by then are no hundred warnings; other failures are."""
    telemetry, stream = told
    telemetry.take(InstructionNotDone(command_id="c1", id="c1/delete/n", failure=failure, detail="NodeClaim n is gone"))
    assert [line["level"] for line in _lines(stream)] == [level]


def test_nodes_that_karpenter_ends_by_force_are_counted(told: tuple[Telemetry, StringIO]) -> None:
    """How many end within a day and a week, and how many of them the budgets can't take before."""
    telemetry, _ = told
    telemetry.take(ExpiryChanged(pool="web", within_day=2, within_week=7, late=3))
    found = [_value(telemetry, "dovetail_expiring_nodes", nodepool="web", within=span) for span in ("24h", "168h")]
    assert found == [2, 7]
    assert _value(telemetry, "dovetail_expiring_nodes_late", nodepool="web") == 3


def test_budgets_verdicts_and_blocked_moves(told: tuple[Telemetry, StringIO]) -> None:
    """Gauges follow the reports; a gate that blocks no node disappears."""
    telemetry, _ = told
    telemetry.take(BudgetChanged(pool="web", reason=Reason.EMPTY, allowed=5, used=2, left=3))
    names = {"nodepool": "web", "reason": "Empty"}
    assert _value(telemetry, "dovetail_budget_limit_nodes", **names) == 5
    assert _value(telemetry, "dovetail_budget_used_nodes", **names) == 2
    lower = {"nodepool": "web", "reason": "empty"}
    assert _value(telemetry, "karpenter_nodepools_allowed_disruptions", **lower) == 5
    assert _value(telemetry, "karpenter_nodepools_nodes_consuming_budgets", **lower) == 2
    for gate in ("pdb", "budget"):
        telemetry.take(VerdictsChanged(pool="web", counts=((gate, 4), ("eligible", 1))))
    assert _value(telemetry, "dovetail_node_verdicts", nodepool="web", gate="budget") == 4
    assert _value(telemetry, "dovetail_node_verdicts", nodepool="web", gate="pdb") is None
    telemetry.take(MovesBlocked(pool="web", moves=3, nodes=("n",), why="m"))
    assert _value(telemetry, "karpenter_consolidation_threshold_blocked_total", nodepool="web") == 3


def test_every_report_reaches_the_notifier() -> None:
    """The notifier gets every report."""
    heard: list[str] = []
    telemetry = Telemetry(
        log=Log("error", StringIO()), metrics=Metrics(), notify=lambda report: heard.append(report.topic)
    )
    telemetry.take(LeadershipChanged(leads=True))
    telemetry.take(Warned(message="m"))
    telemetry.take(PoolBacksOff(command_id="", pool="p", what="w", failures=1, seconds=1, why="y"))
    assert heard == ["leadership", "warning", "back-off"]
