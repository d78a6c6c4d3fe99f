"""Hostile names, labels and annotations are harmless in logs, metrics, terminals, pages and webhooks."""

import io
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dovetail.cli.main import main
from dovetail.live.kubernetes.client import ApiError
from dovetail.live.kubernetes.resources import BY_KIND
from dovetail.live.kubernetes.watch import denial
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from dovetail.live.observability.notify import FORMS, body
from dovetail.live.observability.telemetry import Telemetry
from tests.support.every_report import every_report
from tests.support.hostile import HOSTILE, as_file, unsafe_in

every_text = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)


@every_text
def test_a_log_line_stays_one_line(text: str) -> None:
    """Each log line is one JSON object without invisible characters, with exactly the given fields."""
    stream = io.StringIO()
    log = Log("debug", stream, pool=text)
    log.error(text, node=text, number=3)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert unsafe_in(line) == []
    assert json.loads(line).keys() == {"time", "level", "message", "pool", "node", "number"}


@every_text
def test_reports_become_lines_and_samples(text: str) -> None:
    """After every report each log line can be read, and each metric has the true count."""
    stream, metrics = io.StringIO(), Metrics()
    telemetry = Telemetry(log=Log("debug", stream), metrics=metrics)
    for report in every_report(text):
        telemetry.take(report)
    for line in stream.getvalue().splitlines():
        assert json.loads(line)["level"] in ("debug", "info", "warning")
    assert unsafe_in(stream.getvalue()) == []
    assert '"message":"forged"' not in stream.getvalue()
    shown = generate_latest(metrics.registry).decode()
    names = {sample.name for family in text_string_to_metric_families(shown) for sample in family.samples}
    assert names <= {*metrics.names()} | {name.replace("_total", "_created") for name in metrics.names()}
    pools = {
        sample.labels["nodepool"]
        for family in text_string_to_metric_families(shown)
        for sample in family.samples
        if "nodepool" in sample.labels
    }
    assert pools == {text}


@every_text
def test_webhooks_carry_text_and_nothing_else(text: str) -> None:
    """Both forms are one JSON object without invisible characters, and Slack sees no markup, mention or link."""
    for report in every_report(text):
        for form in FORMS:
            raw = body(form, report)
            assert isinstance(json.loads(raw), dict)
            assert unsafe_in(raw.decode()) == []
            assert unsafe_strings(json.loads(raw)) == []
        shown = json.loads(body("slack", report))["text"]
        assert "<" not in shown
        assert ">" not in shown
        assert len(shown) < 8000


def unsafe_strings(tree: object) -> list[str]:
    """Return every unsafe character of every string in a tree."""
    if isinstance(tree, dict):
        return [char for key, value in tree.items() for char in (*unsafe_in(key, ""), *unsafe_strings(value))]
    return unsafe_in(tree, "") if isinstance(tree, str) else []


@every_text
def test_what_a_server_says_is_made_safe(text: str) -> None:
    """A server's error message is escaped in a log line like any other text."""
    stream = io.StringIO()
    log = Log("info", stream)
    log.warning(denial(BY_KIND["Node"], ApiError(403, text, text)), why=str(ApiError(500, text, text)))
    assert stream.getvalue().count("\n") == 1
    assert unsafe_in(stream.getvalue()) == []


# ---------------------------------------------------------------- commands on a captured cluster


class Elements(HTMLParser):
    """Counts the elements that a browser would create from a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes += attrs


@pytest.fixture
def captured(tmp_path: Path, text: str) -> Path:
    """Write the hostile cluster to a file."""
    path = tmp_path / "cluster.json"
    path.write_bytes(as_file(text))
    return path


@every_text
@pytest.mark.parametrize("command", ["plan", "budgets", "place"])
def test_terminals_are_left_alone(captured: Path, text: str, command: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The commands print nothing on either stream that moves a cursor, hides text or changes its direction."""
    arguments = [command, "-f", str(captured), "--catalog", "aws:us-east-1", "--now", "2026-03-14T15:30:00Z"]
    status = main(arguments if command != "place" else [*arguments, "-o", "json"])
    shown = capfd.readouterr()
    assert status == 0, shown.err
    if command == "place":
        json.loads(shown.out)
    else:
        assert unsafe_in(shown.out) == []
    assert [line for line in (shown.out + shown.err).splitlines() if line.startswith(('{"level', "forged"))] == []
    assert unsafe_in(shown.err) == []
    assert "Traceback" not in shown.err


@every_text
def test_explain_and_validate_are_left_alone(captured: Path, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """You can explain a node and validate a pool with a hostile name; the output is plain text."""
    inputs = ["-f", str(captured), "--catalog", "aws:us-east-1", "--now", "2026-03-14T15:30:00Z"]
    assert main(["explain", *inputs, "--", text]) in (0, 2)
    assert main(["validate", str(captured)]) == 1
    shown = capfd.readouterr()
    assert unsafe_in(shown.out + shown.err) == []
    assert [line for line in (shown.out + shown.err).splitlines() if line.startswith(('{"level', "forged"))] == []
    assert "Traceback" not in shown.err


@every_text
def test_json_holds_the_very_text(captured: Path, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """In JSON the node's name is unchanged."""
    inputs = ["-f", str(captured), "--catalog", "aws:us-east-1", "--now", "2026-03-14T15:30:00Z"]
    assert main(["plan", *inputs, "-o", "json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert text in [entry["name"] for entry in document["nodes"]]


@every_text
def test_a_page_has_only_its_own_elements(
    captured: Path, tmp_path: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The page has the same elements as for a harmless name: no other script or handler, nothing fetched."""
    inputs = ["--catalog", "aws:us-east-1", "--now", "2026-03-14T15:30:00Z", "-o", "html"]
    harmless = tmp_path / "harmless.json"
    harmless.write_bytes(as_file("harmless"))
    pages = []
    for file in (captured, harmless):
        assert main(["plan", "-f", str(file), *inputs]) == 0
        pages.append(capfd.readouterr().out)
    elements, plain = Elements(), Elements()
    elements.feed(pages[0])
    plain.feed(pages[1])
    assert unsafe_in(pages[0]) == []
    assert set(elements.found) <= set(plain.found)
    assert elements.found.count("script") == plain.found.count("script") == 2
    assert not {"iframe", "img", "object", "embed", "form", "base"} & set(elements.found)
    assert [name for name, _ in elements.attributes if name.startswith("on")] == []
    addresses = [value or "" for name, value in elements.attributes if name in ("href", "src", "action")]
    assert [value for value in addresses if not value.startswith("#") and value != "data:,"] == []
