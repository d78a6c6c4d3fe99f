"""Metrics with Karpenter's names have its labels, its lower-case reasons and its meaning."""

import io
from typing import Any

import pytest
from prometheus_client import generate_latest

from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.reports import BudgetChanged, CommandAdvanced, DisruptedNode
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from dovetail.live.observability.telemetry import Telemetry
from dovetail.model.command import Action, Method
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import KARPENTER_1_15
from tests.karpenter_features.world import CONSOLIDATABLE
from tests.support.design_world import Town, kind

PREFIX = "karpenter_"
LABELS = {
    "voluntary_disruption_decisions": {"decision", "reason", "consolidation_type"},
    "voluntary_disruption_decisions_by_nodepool": {"nodepool", "decision", "reason", "consolidation_type"},
    "voluntary_disruption_terminate_first_decisions": {"nodepool", "reason", "terminate_first_reason"},
    "voluntary_disruption_eligible_nodes": {"reason"},
    "voluntary_disruption_decision_evaluation_duration_seconds": {"reason", "consolidation_type"},
    "voluntary_disruption_consolidation_timeouts": {"consolidation_type"},
    "voluntary_disruption_failed_validations": {"consolidation_type"},
    "voluntary_disruption_queue_failures": {"decision", "reason", "consolidation_type"},
    "nodepools_allowed_disruptions": {"nodepool", "reason"},
    "nodepools_nodes_consuming_budgets": {"nodepool", "reason"},
    "nodeclaims_created": {"reason", "nodepool", "min_values_relaxed"},
    "nodeclaims_disrupted": {"reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"},
    "pods_disruption_initiated": {"reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"},
    "consolidation_moves": {"decision", "nodepool", "policy"},
}
OF_COMMANDS = {
    "voluntary_disruption_decisions",
    "voluntary_disruption_decisions_by_nodepool",
    "voluntary_disruption_terminate_first_decisions",
    "voluntary_disruption_failed_validations",
    "voluntary_disruption_queue_failures",
}


def test_the_labels_are_karpenters() -> None:
    """Each metric that Karpenter also has carries exactly its labels; counters of commands also name the action."""
    collectors = list(Metrics().registry._collector_to_names)
    labels: dict[str, set[str]] = {getattr(c, "_name", ""): set(getattr(c, "_labelnames", ())) for c in collectors}
    assert {name: labels[PREFIX + name] - {"action"} for name in LABELS} == LABELS
    assert {name for name in LABELS if "action" in labels[PREFIX + name]} == OF_COMMANDS


def _take(*reports: Any) -> dict[str, float]:
    """Return every sample with Karpenter's names after these reports, as Prometheus reads them."""
    metrics = Metrics()
    telemetry = Telemetry(log=Log(stream=io.StringIO()), metrics=metrics)
    for report in reports:
        telemetry.take(report)
    lines = generate_latest(metrics.registry).decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line.startswith(PREFIX) and "_created{" not in line]
    return {name.removeprefix(PREFIX): float(value) for name, value in pairs if float(value)}


def _step(phase: Phase, **more: Any) -> CommandAdvanced:
    fields: dict[str, Any] = {
        "command_id": "c",
        "source": None,
        "signal": None,
        "action": Action.REPLACE_COST,
        "method": Method.MULTI_NODE,
        "nodes": ("a", "b", "c"),
        "pools": ("p", "q"),
    }
    return CommandAdvanced(phase=phase, **{**fields, **more})


def test_a_command_is_counted_once_and_once_for_each_pool() -> None:
    """A command is counted at its start, with Karpenter's words."""
    found = _take(_step(Phase.VALIDATING), _step(Phase.TAINTING))
    labels = 'action="replaceCost",consolidation_type="multi",decision="replace",reason="underutilized"'
    assert found == {
        f"voluntary_disruption_decisions_total{{{labels}}}": 1,
        'voluntary_disruption_decisions_by_nodepool_total'
        '{action="replaceCost",consolidation_type="multi",decision="replace",nodepool="p",reason="underutilized"}': 1,
        'voluntary_disruption_decisions_by_nodepool_total'
        '{action="replaceCost",consolidation_type="multi",decision="replace",nodepool="q",reason="underutilized"}': 1,
    }  # fmt: skip


def test_terminate_first_is_a_decision_of_its_own() -> None:
    """Terminate-first is counted as its own decision, with its reason."""
    step = _step(
        Phase.TAINTING,
        action=Action.DELETE_DRIFTED,
        method=Method.DRIFTED,
        pools=("p",),
        terminate_first="static-at-limit",
    )
    found = _take(step)
    assert found[
        "voluntary_disruption_decisions_total"
        '{action="deleteDrifted",consolidation_type="",decision="terminate-first",reason="drifted"}'
    ]
    assert found[
        "voluntary_disruption_terminate_first_decisions_total"
        '{action="deleteDrifted",nodepool="p",reason="drifted",terminate_first_reason="static-at-limit"}'
    ]


def test_failures_are_counted_as_karpenter_counts_them() -> None:
    """A failed validation counts candidates; a failed command counts the replacements that were not ready."""
    refused = _take(_step(Phase.VALIDATING), _step(Phase.REFUSED))
    labels = 'action="replaceCost",consolidation_type="multi"'
    assert refused == {f"voluntary_disruption_failed_validations_total{{{labels}}}": 3}
    undone = _take(_step(Phase.VALIDATING), _step(Phase.ROLLING_BACK, unready=2))
    labels = 'action="replaceCost",consolidation_type="multi",decision="replace",reason="underutilized"'
    assert undone == {f"voluntary_disruption_queue_failures_total{{{labels}}}": 2}


def test_allowed_disruptions_are_before_the_subtraction() -> None:
    """Allowed disruptions don't subtract commands in flight, which are a separate metric."""
    found = _take(BudgetChanged(pool="p", reason=Reason.DRIFTED, allowed=5, used=2, left=3))
    assert found == {
        'nodepools_allowed_disruptions{nodepool="p",reason="drifted"}': 5,
        'nodepools_nodes_consuming_budgets{nodepool="p",reason="drifted"}': 2,
    }


def test_claims_that_come_and_go() -> None:
    """Created and disrupted claims are counted, and the pods on them."""
    node = DisruptedNode(pool="p", capacity_type="spot", policy="when_empty", mode="eventual", pods=4)
    found = _take(_step(Phase.WAITING, launched_in=("p",)), _step(Phase.DELETING, disrupted=(node,)))
    labels = (
        'capacity_type="spot",consolidation_policy="when_empty",nodepool="p",'
        'reason="underutilized",termination_mode="eventual"'
    )
    assert found == {
        'nodeclaims_created_total{min_values_relaxed="false",nodepool="p",reason="underutilized"}': 1,
        f"nodeclaims_disrupted_total{{{labels}}}": 1,
        f"pods_disruption_initiated_total{{{labels}}}": 4,
    }


def test_time_outs_start_at_nothing() -> None:
    """The series exist from the start, so that a rate over them is 0 and not missing."""
    text = generate_latest(Metrics().registry).decode()
    for word in ("multi", "single"):
        assert f'karpenter_voluntary_disruption_consolidation_timeouts_total{{consolidation_type="{word}"}} 0.0' in text


@pytest.mark.parametrize(("cpu", "approved"), [("1", True), ("3900m", False)])
def test_moves_and_scores(cpu: str, approved: bool) -> None:
    """Every evaluated cost action counts for each of its pools; Balanced pools have a score."""
    town = Town(kind("m", "1"), settings=KARPENTER_1_15)
    town.pool(disruption={"consolidationPolicy": "Balanced"})
    for name in ("a", "b"):
        town.node(name, "m", conditions=[CONSOLIDATABLE])
        town.pod(f"on-{name}", name, cpu=cpu)
    moves = town.round(every_method=True).judged_moves
    assert {(move.node_pool, move.policy) for move in moves} == {("default", "Balanced")}
    assert any(move.approved for move in moves) is approved
    assert all(move.score is not None and move.score >= 0.5 for move in moves if move.approved)
