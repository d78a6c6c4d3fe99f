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
PAGES = ("getting-started", "install", "upgrade", "operations", "supported-versions", "security")
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def _text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text()


def test_the_table_of_metrics_is_the_code() -> None:
    """The page lists every metric with its type, labels and meaning, and no other."""
    rows = []
    for collector in Metrics().__dict__.values():
        if hasattr(collector, "_labelnames"):
            family = next(iter(collector.describe()))
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = ", ".join(f"`{label}`" for label in collector._labelnames) or "-"
            rows.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    text = _text("operations")
    table = text[text.index("## Metrics") :].splitlines()
    assert [line for line in table if line.startswith("| `")] == rows


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
            assert command in ("deploy", "deployment"), f"dovetail {command}"
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
        assert not re.search(r"https?://|\b[a-z0-9-]+\.(io|org|com)/[a-z]+/", _text(page).replace(".k8s.io/", "/")), (
            page
        )
    assert VALUES["image"]["repository"] == "dovetail"
