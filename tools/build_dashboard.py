"""Writes the Grafana dashboard of the chart: python tools/build_dashboard.py."""

import json
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "deploy" / "chart" / "dovetail" / "files" / "dashboard.json"
PANELS: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    ("stat", "Leaders", "none", [("sum(dovetail_leader)", "leading")]),
    ("stat", "Held nodes", "none", [("max(dovetail_held_nodes)", "held")]),
    ("stat", "Commands under way", "none", [("sum(dovetail_commands_in_flight)", "commands")]),
    ("stat", "Saved per hour, added up", "currencyUSD", [("sum(dovetail_realised_savings_dollars_per_hour_total)", "saved")]),
    ("timeseries", "What holds nodes back", "none", [("sum by (gate) (dovetail_node_verdicts)", "{{gate}}")]),
    ("timeseries", "Budget left", "none", [("min by (nodepool, reason) (dovetail_budget_left_nodes < 1000000)", "{{nodepool}} {{reason}}")]),
    ("timeseries", "Decisions", "none", [("sum by (decision, reason) (increase(karpenter_voluntary_disruption_decisions_total[1h]))", "{{decision}} {{reason}}")]),
    ("timeseries", "Undone, and refused on fresh state", "none", [
        ("sum by (reason) (increase(dovetail_commands_rolled_back_total[1h]))", "undone {{reason}}"),
        ("sum by (consolidation_type) (increase(karpenter_voluntary_disruption_failed_validations_total[1h]))", "refused {{consolidation_type}}"),
    ]),
    ("timeseries", "Commands by phase, oldest", "s", [("max by (phase) (dovetail_command_phase_age_seconds) > 0", "{{phase}}")]),
    ("timeseries", "Oldest backlog, by reason and what holds it", "s", [("max by (nodepool, reason, blocker) (karpenter_voluntary_disruption_oldest_backlog_age_seconds)", "{{nodepool}} {{reason}} {{blocker}}")]),
    ("timeseries", "Held back, by gate and pool", "currencyUSD", [("max by (nodepool, gate) (dovetail_held_back_dollars_per_hour) > 0", "{{nodepool}} {{gate}}")]),
    ("timeseries", "Held back at most, by gate", "currencyUSD", [("sum by (blocker) (karpenter_voluntary_disruption_consolidation_source_cost_upper_bound_usd_per_hour)", "{{blocker}}")]),
    ("timeseries", "Rolls: nodes still to go", "none", [('sum by (nodepool, state) (dovetail_rollout_nodes{state!="replaced"})', "{{nodepool}} {{state}}")]),
    ("timeseries", "Rolls: time left", "s", [("max by (nodepool) (dovetail_rollout_expected_end_timestamp_seconds) - time()", "{{nodepool}}")]),
    ("timeseries", "Oldest command, by action and phase", "s", [("max by (action, phase) (dovetail_command_age_seconds)", "{{action}} {{phase}}")]),
    ("timeseries", "Promised and kept, an hour later", "currencyUSD", [
        ("sum(increase(dovetail_outcome_promised_dollars_total[6h]))", "promised"),
        ("sum(increase(dovetail_outcome_saved_dollars_total[6h]))", "saved"),
    ]),
    ("timeseries", "Nodes reopened and pods moved again within an hour", "none", [
        ("sum(increase(dovetail_outcome_reopened_nodes_total[6h]))", "nodes reopened"),
        ("sum(increase(dovetail_outcome_pods_moved_again_total[6h]))", "pods moved again"),
    ]),
    ("timeseries", "Regret: undone within the hour, over two hours", "none", [
        ("max by (nodepool) (dovetail_regret_undone_moves)", "restarts undone {{nodepool}}"),
        ("max by (nodepool) (dovetail_regret_undone_removals)", "nodes opened again {{nodepool}}"),
        ("max by (nodepool) (dovetail_regret_short_lived_nodes)", "nodes under 15 minutes {{nodepool}}"),
    ]),
    ("timeseries", "Moves that did not save enough", "none", [("sum by (nodepool) (increase(karpenter_consolidation_threshold_blocked_total[1h]))", "{{nodepool}}")]),
    ("timeseries", "Time of a round", "s", [
        ("histogram_quantile(0.5, sum by (le) (rate(karpenter_voluntary_disruption_decision_evaluation_duration_seconds_bucket[10m])))", "median"),
        ("histogram_quantile(0.99, sum by (le) (rate(karpenter_voluntary_disruption_decision_evaluation_duration_seconds_bucket[10m])))", "99 %"),
    ]),
    ("timeseries", "Age of the last round", "s", [("max(dovetail_evaluation_age_seconds)", "age")]),
    ("timeseries", "Writes to the API server", "none", [("sum by (kind, outcome) (rate(dovetail_api_writes_total[5m]))", "{{kind}} {{outcome}}")]),
    ("timeseries", "What is paid per hour", "currencyUSD", [("max by (part) (dovetail_bill_dollars_per_hour)", "{{part}}")]),
    ("timeseries", "Commitments in use", "percentunit", [("max by (commitment) (dovetail_commitment_used / dovetail_commitment_available)", "{{commitment}}")]),
    ("timeseries", "Age of the prices", "s", [("max(dovetail_catalogue_age_seconds)", "age")]),
    ("timeseries", "Changes seen", "none", [("sum by (kind) (rate(dovetail_watch_events_total[5m]))", "{{kind}}")]),
]  # fmt: skip


def dashboard() -> dict[str, object]:
    """Return the dashboard as Grafana reads it."""
    panels, x, y = [], 0, 0
    for number, (kind, title, unit, queries) in enumerate(PANELS, start=1):
        wide, high = (6, 4) if kind == "stat" else (12, 8)
        if x + wide > 24:
            x, y = 0, y + (4 if kind == "stat" else 8)
        panels.append(
            {
                "id": number,
                "type": kind,
                "title": title,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "gridPos": {"x": x, "y": y, "w": wide, "h": high},
                "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + place), "expr": query, "legendFormat": legend}
                    for place, (query, legend) in enumerate(queries)
                ],
            }
        )
        x += wide
        if kind == "stat" and x >= 24:
            x, y = 0, y + 4
    return {
        "uid": "dovetail",
        "title": "Dovetail",
        "tags": ["karpenter", "dovetail"],
        "schemaVersion": 39,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }


if __name__ == "__main__":
    OUT.write_text(json.dumps(dashboard(), indent=1) + "\n")
