"""The pages for operators are correct: tables match the code, links match the files."""

import re

import pytest
import yaml

from dovetail.api.clouds.tables import regions
from dovetail.live.kubernetes.crd_check import judge_crd
from dovetail.live.observability.metrics import Metrics
from tests.paths import ROOT
from tests.support.chart import CHART

DOCS = ROOT / "docs"
PAGES = ("getting-started", "install", "operations", "supported-versions", "security")
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def _text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text()


def test_the_table_of_metrics_is_the_code() -> None:
    """The page lists every metric with its labels and meaning, and no other; names and a sentence tell the type."""
    rows, histograms = [], []
    for collector in Metrics().__dict__.values():
        for family in collector.describe() if hasattr(collector, "describe") else ():
            name = family.name + ("_total" if family.type == "counter" else "")
            names = getattr(collector, "_labelnames", None)
            labels = ",".join(family._labelnames if names is None else names)
            rows.append(f"| `{name}{f'{{{labels}}}' if labels else ''}` | {family.documentation} |")
            if family.type == "histogram":
                histograms.append(name.partition("decision_")[2] or name)
    text = _text("operations")
    table = text[text.index("## Metrics") :].splitlines()
    assert [line for line in table if line.startswith("| `")] == rows
    assert histograms == ["evaluation_duration_seconds", "karpenter_consolidation_score"]


def test_the_table_of_alerts_is_the_rules() -> None:
    """The page lists every alert with its severity, and no other."""
    rules = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"][0]["rules"]
    rows = re.findall(r"^\| `(Dovetail\w+)` \| (\w+) \|", _text("operations"), re.MULTILINE)
    assert rows == [(rule["alert"], rule["labels"]["severity"]) for rule in rules]


def test_values_that_are_named_exist() -> None:
    """Each value in the table of install.md is a value of the chart with that default."""
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", _text("install"), re.MULTILINE)
    assert len(rows) > 5
    for cell, default in rows:
        for name in re.findall(r"`([\w.]+)`", cell):
            found = VALUES
            for part in name.split("."):
                found = found[part]
            if default.strip() in ("`true`", "`false`", "`{}`"):
                assert f"`{str(found).lower()}`" == default.strip(), name


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Every relative link names a file of the project, and an existing heading if it has one."""
    for target in re.findall(r"\]\(([^)]+)\)", _text(page)):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        path = (DOCS / file) if file else DOCS / f"{page}.md"
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, target


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_named_exist(page: str) -> None:
    """Every `dovetail COMMAND` on the pages exists and has the options that are used."""
    from dovetail.cli.main import COMMANDS, main

    known = {entry.name for entry in COMMANDS}
    for command, rest in re.findall(r"dovetail ([a-z]+)((?: [^\s`|]+)*)", _text(page)):
        if command not in known:
            assert command in ("deploy", "deployment", "oci"), f"dovetail {command}"
            continue
        for option in re.findall(r"(--[a-z-]+)", rest):
            assert option in _help(main, command), f"dovetail {command} {option}"


def _help(main: object, command: str) -> str:
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([command, "--help"])  # type: ignore[operator]
    return out.getvalue()


def test_the_table_of_versions_is_true() -> None:
    """Regions, the oldest Kubernetes version and the meaning of an unknown CRD version match the code and the chart."""
    text = _text("supported-versions")
    counts = [sum(entry.cloud == cloud for entry in regions()) for cloud in ("aws", "azure", "gcp")]
    assert "{} AWS, {} Azure and {} Google Cloud regions".format(*counts) in text
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == ">=1.29.0-0"
    assert "| 1.29 to" in text
    assert "| 1.36 | supported" in text
    for served in ("v1beta1", "v2"):
        state = judge_crd({"spec": {"versions": [{"name": served, "served": True}]}})
        assert not state.known
        assert "observing only" in state.note


def test_no_page_names_a_host() -> None:
    """Images have no registry and pages link to no host: the reader chooses the source."""
    for page in PAGES:
        words = _text(page).replace(".k8s.io/", "/").replace("http://localhost:", "")
        assert not re.search(r"https?://|\b[a-z0-9-]+\.(io|org|com)/[a-z]+/", words), page
    assert VALUES["image"]["repository"] == "dovetail"
