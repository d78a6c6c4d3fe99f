"""Reports: each one has words and figures for a log, and survives the journal."""

from datetime import UTC, datetime

import pytest

from dovetail.lifecycle.journal import decode_line, encode_line
from dovetail.lifecycle.messages import ClockAdvanced
from dovetail.lifecycle.reports import Report, command_of
from tests.support.every_report import every_report

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("report", every_report("web"), ids=lambda report: type(report).__name__)
def test_a_report_has_words_and_survives_the_journal(report: Report) -> None:
    """A sentence, figures that a log can hold, and the same value again from a journal's line."""
    assert report.topic
    assert report.message
    assert all(isinstance(value, str | int | float) for value in report.figures.values())
    entry = decode_line(encode_line(NOW, ClockAdvanced(), [report]), 2)
    assert entry.instructions == (report,)


def test_reports_of_a_command_name_it() -> None:
    """Its id leads from the decision to the end; other reports have none."""
    named = {type(report).__name__ for report in every_report("web") if command_of(report)}
    assert named == {"CommandAdvanced", "CommandFound", "CommandOutcome", "InstructionNotDone", "PoolBacksOff"}
