"""Alert rules and dashboard pass Prometheus' own tool and use only metrics that exist."""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dovetail.live.observability.metrics import Metrics
from tests.paths import ROOT
from tests.support.chart import CHART, script, tool

ALERTS = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
CASES = yaml.safe_load((ROOT / "deploy" / "alerts-test.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
OURS = re.compile(r"\b(?:dovetail|karpenter)_[a-z_]+\b")


def _queries() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield f"alert {rule['alert']}", rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]


@pytest.mark.parametrize(("where", "query"), list(_queries()))
def test_queries_name_only_metrics_that_exist(where: str, query: str) -> None:
    """Each query uses at least one of Dovetail's metrics, and none that the controller doesn't have."""
    asked = set(OURS.findall(query))
    assert asked, where
    assert asked <= {*Metrics().names()}, where


def test_queries_use_only_labels_that_exist() -> None:
    """Labels that queries group and match by are labels of their metrics."""
    labels = {"le", "instance"}
    for collector in Metrics().__dict__.values():
        labels |= {*getattr(collector, "_labelnames", ())}
    for family in Metrics().rounds.describe():
        labels |= {*family._labelnames}
    for where, query in _queries():
        used = {name for group in re.findall(r"(?:by|on) ?\(([^)]*)\)", query) for name in re.split(r",\s*", group)}
        used |= set(re.findall(r"(\w+)(?:=~|!=|=)\"", query))
        assert used <= labels, where


def test_every_alert_says_what_to_do() -> None:
    """An alert has a severity, one sentence about the problem and one about the remedy."""
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_every_alert_is_tried_both_ways() -> None:
    """The test file has a case in which each alert fires and one in which it doesn't."""
    cases: list[dict[str, Any]] = [entry for case in CASES["tests"] for entry in case["alert_rule_test"]]
    for rule in RULES:
        outcomes = {bool(entry["exp_alerts"]) for entry in cases if entry["alertname"] == rule["alert"]}
        assert outcomes == {True, False}, rule["alert"]


def test_promtool_accepts_the_rules() -> None:
    """`promtool check rules` finds nothing wrong."""
    command = [tool("promtool"), "check", "rules", CHART / "files" / "alerts.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


def test_alerts_fire_when_they_should() -> None:
    """`promtool test rules` agrees with deploy/alerts-test.yaml."""
    command = [tool("promtool"), "test", "rules", ROOT / "deploy" / "alerts-test.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_queries_of_the_dashboard_can_be_parsed() -> None:
    """Prometheus' own parser reads every query of the dashboard."""
    rules = [{"record": f"panel:{number}", "expr": query} for number, (_, query) in enumerate(_queries())]
    command = [tool("promtool"), "check", "rules"]
    text = json.dumps({"groups": [{"name": "dashboard", "rules": rules}]})
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_current() -> None:
    """The JSON is what tools/build_dashboard.py writes, and its panels don't overlap."""
    builder = script("build_dashboard")
    assert builder.dashboard() == DASHBOARD, "run: python tools/build_dashboard.py"
    cells = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert (x, y) not in cells, panel["title"]
                cells.add((x, y))
